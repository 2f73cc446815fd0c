"""Real gateways: one with the demo model, and one that relays to it over each wire and to models that print their calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import printing
from tests.gateway import Gateway, behind, running


@pytest.fixture(scope="session")
def demo() -> Iterator[Gateway]:
    with running() as gateway:
        yield gateway


@pytest.fixture(scope="session")
def relay(demo: Gateway) -> Iterator[Gateway]:
    """Models `chat` and `responses` are the demo model over those wires; the others print calls in a dialect."""
    with running(program=printing.PROGRAM) as printers, running(behind(demo.url) + printing.before(printers)) as gateway:
        yield gateway


@pytest.fixture(params=["chat", "responses", *printing.DIALECTS])
def model(request: pytest.FixtureRequest) -> str:
    """A model of the relay: with native calls over either wire, or with printed calls in one of the dialects."""
    name: str = request.param
    return name
