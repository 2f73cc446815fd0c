"""Servers that answer nonsense, over every pair of wires: a clear error, a closed connection, and the next request unharmed."""

from __future__ import annotations

import gzip
import ssl
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from tests.certificates import write_certificate
from tests.gateway import Gateway, running
from tests.golden.transcripts import EXCHANGES
from tests.golden.transcripts import recorded as recorded_streams
from tests.model_server import CLIENT_APIS, ModelServer
from tests.upstream import CLOSE, RESET, Gate, Upstream, chunk, reply, stream, stream_head
from toolrelay.wires.base import discover_provider_wires

WIRES = {wire.config_name: wire for wire in discover_provider_wires().values()}
BACKS = sorted(WIRES)
FRONTS = dict(zip(sorted(CLIENT_APIS), cycle([True, False]), strict=False))  # whether the client asks for a stream
BIG = 10 * 1024 * 1024


def recorded(back: str) -> bytes:
    path = EXCHANGES / "text-with-usage" / f"upstream.{back}.sse"
    return path.read_bytes() if path.exists() else recorded_streams(WIRES[back])[-1]


def half_a_frame(back: str) -> Any:
    first, _, _ = recorded(back).partition(b"\n\n" if WIRES[back].stream_type == "text/event-stream" else b"\n")
    return (stream_head() + chunk(first[: len(first) // 2]), CLOSE)


# What the server sends, and a word of the error's message.
BAD: dict[str, tuple[Any, str]] = {
    "web page": (reply(b"<html><body>Sign in</body></html>", content_type="text/html"), "web page"),
    "wrong content type": (reply(b"\x89PNG\r\n\x1a\n", content_type="image/png"), "provider"),
    "text": (reply(b"OK", content_type="text/plain"), "provider"),
    "empty": (reply(b""), "provider"),
    "a list": (reply(b"[1, 2, 3]"), "provider"),
    "compressed": (reply(gzip.compress(b"{}"), headers="content-encoding: gzip\r\n"), "encoding"),
    "error inside 200": (reply(b'{"error":{"message":"The provider is overloaded","code":502}}'), "overloaded"),
    "frame of 10 MB": (stream(b"data: " + b"x" * BIG + b"\n\n"), "provider"),
    "frame without end": ((stream_head() + chunk(b"data: " + b"x" * BIG), CLOSE), "provider|server"),
    "redirect": (reply(b"", 307, headers="location: http://127.0.0.1:1/\r\n"), "redirect"),
    "reset": (RESET, "closed the connection"),
    "another protocol": ((b"SSH-2.0-OpenSSH_9.2\r\n", CLOSE), "HTTP/1.1"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    """A server whose certificate nobody has signed but itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path_factory.mktemp("tls") / "upstream.pem"))
    with Upstream(context=context) as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: ModelServer, untrusted: Upstream) -> Iterator[Gateway]:
    """Run a gateway with three models per wire: a patient and an impatient one, and one at the untrusted server."""
    tables = ""
    for back in BACKS:
        common = f'provider = "compatible"\nwire = "{back}"\n'
        tables += f'[models.{back}]\n{common}base_url = "{server.url}/v1"\n'
        tables += f'[models.impatient-{back}]\n{common}base_url = "{server.url}/v1"\ntimeout_seconds = 0.2\n'
        tables += f'[models.untrusted-{back}]\n{common}base_url = "{untrusted.url}/v1"\n'
    with running(tables) as started:
        yield started


def ask(gateway: Gateway, front: str, model: str, *, streamed: bool) -> Any:
    api = CLIENT_APIS[front]
    return gateway.post(api.path, api.request_body(model=model, stream=streamed))


def check_next_request(gateway: Gateway, server: ModelServer, front: str, back: str) -> None:
    server.enqueue(stream(recorded(back)))
    answer = ask(gateway, front, back, streamed=False)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("case", BAD)
def test_bad_answer_is_a_clear_error_and_harms_no_other_request(
    gateway: Gateway, server: ModelServer, case: str, back: str, front: str
) -> None:
    script, word = BAD[case]
    server.enqueue(script)
    answer = ask(gateway, front, back, streamed=FRONTS[front])
    assert answer.status_code == 502, answer.text
    assert any(each in answer.text for each in word.split("|")), answer.text
    assert len(answer.content) < 2000
    check_next_request(gateway, server, front, back)


@pytest.mark.parametrize("front", sorted(CLIENT_APIS))
@pytest.mark.parametrize("back", BACKS)
def test_half_a_frame_is_a_cut(gateway: Gateway, server: ModelServer, back: str, front: str) -> None:
    first = server.enqueue(half_a_frame(back))
    answer = ask(gateway, front, back, streamed=True)
    assert answer.status_code == 502, answer.text
    assert "closed the" in answer.text
    server.closed(first).result(30)
    check_next_request(gateway, server, front, back)


@pytest.mark.parametrize("front", sorted(CLIENT_APIS))
@pytest.mark.parametrize("back", BACKS)
def test_server_that_says_nothing_is_a_timeout_and_its_connection_is_closed(
    gateway: Gateway, server: ModelServer, back: str, front: str
) -> None:
    first = server.enqueue((Gate(),))
    answer = ask(gateway, front, f"impatient-{back}", streamed=True)
    assert answer.status_code == 504, answer.text
    assert "sent nothing for 0.2 seconds" in answer.text
    server.closed(first).result(30)
    check_next_request(gateway, server, front, back)


@pytest.mark.parametrize("front", sorted(CLIENT_APIS))
@pytest.mark.parametrize("back", BACKS)
def test_server_with_an_untrusted_certificate_is_named(gateway: Gateway, server: ModelServer, back: str, front: str) -> None:
    answer = ask(gateway, front, f"untrusted-{back}", streamed=True)
    assert answer.status_code == 502, answer.text
    assert "its certificate is not valid" in answer.text
    check_next_request(gateway, server, front, back)
