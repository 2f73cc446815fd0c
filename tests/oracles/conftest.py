"""Real gateways: one with the demo model, and one that relays to it over each wire and to models that print their calls."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests import printing
from tests.gateway import Gateway, behind, running

# Clients that leave closing their connections to the garbage collector are as real as others.
_UNCLOSED = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(_UNCLOSED)


@pytest.fixture(autouse=True, scope="module")
def collect_clients() -> Iterator[None]:
    """Let no client of this module be collected in a test of another one."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def demo() -> Iterator[Gateway]:
    with running() as gateway:
        yield gateway


@pytest.fixture(scope="session")
def relay(demo: Gateway) -> Iterator[Gateway]:
    """Models `chat`, `responses` and `anthropic` are the demo model over those wires; the others print calls in a dialect."""
    with running(program=printing.PROGRAM) as printers, running(behind(demo.url) + printing.before(printers)) as gateway:
        yield gateway


@pytest.fixture(params=["chat", "responses", "anthropic", *printing.DIALECTS])
def model(request: pytest.FixtureRequest) -> str:
    """A model of the relay: with native calls over one of the wires, or with printed calls in one of the dialects."""
    name: str = request.param
    return name
