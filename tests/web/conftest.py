"""A gateway process in front of a scripted model server, shared by many tests; every API of the gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, WIRES, ClientApi, ModelServer, configuration


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


@pytest.fixture(scope="session")
def gateway(model_server: ModelServer) -> Iterator[Gateway]:
    """A gateway without keys and with default settings. Its models are `fast`, served by the model server, and `demo`."""
    with running(configuration(model_server, before='[models.demo]\nprovider = "demo"\n')) as started:
        yield started


@pytest.fixture(params=WIRES)
def api(request: pytest.FixtureRequest) -> ClientApi:
    return CLIENT_APIS[request.param]
