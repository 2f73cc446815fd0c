"""Both event loops, a certificate, and the real Codex on a scripted upstream."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from tests.backends.codex.harness import CodexHarness
from tests.backends.http.pools import Run
from tests.certificates import write_certificate

T = TypeVar("T")


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def runner(main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(main)

    return runner


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 that it signed itself, in one file."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "upstream.pem")


@pytest.fixture(scope="session")
def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture(scope="module")
def codex(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodexHarness]:
    codex = CodexHarness(tmp_path_factory.mktemp("codex"))
    yield codex
    codex.close()
