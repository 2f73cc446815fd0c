"""A gateway process in front of a scripted model server, shared by many tests; every API of the gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway import Gateway, running
from tests.stage import FRONTS, WIRES, Front, Stage, configuration


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with Stage() as upstream:
        yield upstream


@pytest.fixture(scope="session")
def gateway(stage: Stage) -> Iterator[Gateway]:
    """A gateway without keys and with default settings. Its models are `fast`, served by the stage, and `demo`."""
    with running(configuration(stage, before='[models.demo]\nprovider = "demo"\n')) as started:
        yield started


@pytest.fixture(params=WIRES)
def front(request: pytest.FixtureRequest) -> Front:
    return FRONTS[request.param]
