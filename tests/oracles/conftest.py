"""Two real gateways: one with the demo model, and one that relays to it over each wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway import Gateway, behind, running


@pytest.fixture(scope="session")
def demo() -> Iterator[Gateway]:
    with running() as gateway:
        yield gateway


@pytest.fixture(scope="session")
def relay(demo: Gateway) -> Iterator[Gateway]:
    """Its models `chat` and `responses` are the demo model, reached over those wires."""
    with running(behind(demo.url)) as gateway:
        yield gateway


@pytest.fixture(params=["chat", "responses"])
def model(request: pytest.FixtureRequest) -> str:
    """The wire between the relay and its upstream."""
    name: str = request.param
    return name
