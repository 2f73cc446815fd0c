from __future__ import annotations

import asyncio
import socket
import time
from email.utils import formatdate

import pytest

from tests.backends.http.plain_wire import (
    DONE,
    KEY,
    REQUEST,
    SECRET_WORD,
    STREAMED,
    WIRE,
    Pauses,
    ask,
    backend_for,
    collect,
    failure,
    settings_for,
)
from tests.upstream import CLOSE, RESET, Gate, Script, Step, Upstream, chunk, reply, stream, stream_head
from toolrelay import log
from toolrelay.backends.http import HttpBackend
from toolrelay.backends.http import backend as http_backend
from toolrelay.core.events import Noticed, StreamEvent, TextDelta
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request


@pytest.mark.parametrize(
    "script",
    [
        [stream_head(), chunk(b"a\n"), CLOSE],
        [stream_head(), b"f\r\na\n", CLOSE],
        [b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 50\r\n\r\na\n", CLOSE],
    ],
    ids=["between chunks", "in a chunk", "length"],
)
def test_cut_stream_fails_without_retry(script: Script) -> None:
    with Upstream(script, stream(b"a\n[DONE]\n")) as upstream:
        (first, last), pauses = ask(upstream)
        assert first == TextDelta("a")
        error = failure([last])
        assert (error.status, error.code) == (502, "upstream_cut")
        assert (
            error.message == f"The model's server at 127.0.0.1:{upstream.port} closed the connection in the middle of its answer."
        )
        assert len(upstream.requests) == 1
        assert not pauses


def test_cut_whole_answer_fails() -> None:
    with Upstream([reply(b"hello")[:-1], CLOSE]) as upstream:
        assert failure(ask(upstream, REQUEST)[0]).code == "upstream_cut"
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("ending", [CLOSE, RESET])
def test_cut_after_the_request_is_not_retried(ending: Step) -> None:
    """The server may have read the request, and be working on it."""
    with Upstream(ending) as upstream:
        events, pauses = ask(upstream)
        error = failure(events)
        assert (error.status, error.code) == (502, "upstream_cut")
        assert error.message == f"The model's server at 127.0.0.1:{upstream.port} closed the connection without an answer."
        assert not pauses
        assert error.should_retry is None
        assert len(upstream.requests) == 1


def test_dead_idle_connection_is_replaced_without_backoff() -> None:
    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, pauses):
            assert await collect(backend) == [DONE]
            assert await collect(backend) == [DONE]
            assert not pauses

    done = stream(b"[DONE]\n")
    with Upstream(done, CLOSE, done) as upstream:
        asyncio.run(main(upstream))
        assert [request.connection for request in upstream.requests] == [0, 0, 1]


def test_unreachable_upstream_error_has_address_and_reason() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pauses = Pauses()
    backend = HttpBackend(settings_for(f"http://127.0.0.1:{port}/v1"), WIRE, Profile(), pause=pauses)
    error = failure(asyncio.run(collect(backend))[-1:])
    assert (error.status, error.code) == (502, "upstream_unreachable")
    assert error.message == f"The model's server at 127.0.0.1:{port} cannot be reached: Connection refused."
    assert pauses == [0.2, 0.6]


@pytest.mark.parametrize("request_", [REQUEST, STREAMED], ids=["plain", "streamed"])
@pytest.mark.parametrize("before", [[], [stream_head()], [stream_head(), chunk(b"a")]])
def test_read_timeout_is_a_504_without_retry(before: list[bytes], request_: Request) -> None:
    with Upstream([*before, Gate()]) as upstream:
        events, pauses = ask(upstream, request_, read_timeout=0.05)
        error = failure(events)
        assert (error.status, error.code) == (504, "upstream_timeout")
        assert error.message == f"The model's server at 127.0.0.1:{upstream.port} sent nothing for 0.05 seconds."
        assert not pauses
        upstream.connections[0].closed.result(30)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("status", [429, 503, 529])
def test_retryable_status_is_retried_twice(status: int) -> None:
    with Upstream(reply(b"busy", status), reply(b"busy", status), stream(b"[DONE]\n")) as upstream:
        assert ask(upstream) == ([DONE], [0.2, 0.6])
    with Upstream(reply(b"busy", status)) as upstream:
        events, pauses = ask(upstream)
        error = failure(events)
        assert (error.status, error.code, error.message) == (status, "refused", "refused with 4 bytes: busy")
        assert pauses == [0.2, 0.6]
        assert error.should_retry is False
        assert len(upstream.requests) == 3


def test_each_retry_is_a_notice_with_its_reason() -> None:
    async def main(upstream: Upstream) -> list[StreamEvent]:
        async with backend_for(upstream) as (backend, _):
            return await collect(backend)

    with Upstream(reply(b"busy", 503), reply(b"busy", 429), stream(b"[DONE]\n")) as upstream:
        retries = [Noticed(event="upstream_retried", rule=rule) for rule in ("status_503", "status_429")]
        assert asyncio.run(main(upstream)) == [*retries, DONE]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 500, 502, 504])
def test_other_error_status_is_not_retried(status: int) -> None:
    with Upstream(reply(b"no", status)) as upstream:
        events, pauses = ask(upstream)
        assert failure(events).status == status
        assert not pauses
        assert len(upstream.requests) == 1


def test_short_retry_after_replaces_backoff() -> None:
    with Upstream(reply(b"busy", 429, headers="Retry-After: 1\r\n"), stream(b"[DONE]\n")) as upstream:
        assert ask(upstream) == ([DONE], [1.0])


def test_past_retry_after_retries_at_once() -> None:
    busy = reply(b"busy", 503, headers=f"retry-after: {formatdate(0, usegmt=True)}\r\n")
    with Upstream(busy, stream(b"[DONE]\n")) as upstream:
        assert ask(upstream) == ([DONE], [0.0])


def test_long_retry_after_is_passed_to_client() -> None:
    with Upstream(reply(b"busy", 429, headers="retry-after: 3600\r\n")) as upstream:
        events, pauses = ask(upstream)
        assert (failure(events).status, failure(events).retry_after) == (429, 3600.0)
        assert failure(events).should_retry is None, "the client may wait so long"
        assert not pauses
        assert len(upstream.requests) == 1


def test_retry_after_date_is_converted_to_seconds() -> None:
    date = formatdate(time.time() + 3600, usegmt=True)
    with Upstream(reply(b"busy", 503, headers=f"retry-after: {date}\r\n")) as upstream:
        after = failure(ask(upstream)[0]).retry_after
        assert after is not None
        assert 3000 < after <= 3600


@pytest.mark.parametrize("value", ["soon", "inf", "nan", ""])
def test_invalid_retry_after_is_ignored(value: str) -> None:
    with Upstream(reply(b"busy", 429, headers=f"retry-after: {value}\r\n"), stream(b"[DONE]\n")) as upstream:
        assert ask(upstream) == ([DONE], [0.2])


def test_error_body_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_backend, "MAX_ERROR", 1000)
    with Upstream([stream_head().replace(b"200", b"400"), chunk(b"x" * 5000), Gate()]) as upstream:
        assert failure(ask(upstream)[0]).message.startswith("refused with 1000 bytes")


def test_cut_error_body_keeps_status() -> None:
    with Upstream([reply(b"no such model", 404)[:-5], CLOSE]) as upstream:
        error = failure(ask(upstream)[0])
        hint = "models.mine.base_url and model may be wrong; `toolrelay check` looks"
        place = f"404 from 127.0.0.1:{upstream.port}/v1"
        assert (error.status, error.message) == (404, f"refused with 8 bytes: no such  ({place}: {hint})")


@pytest.mark.parametrize("status", [301, 302, 304, 307, 308])
def test_redirect_error_names_base_url(status: int) -> None:
    with Upstream(reply(b"", status, headers="location: http://127.0.0.1:1/v2\r\n")) as upstream, log.captured() as logs:
        error = failure(ask(upstream)[0])
        assert error.status == 502
        assert f"a redirect ({status}), which is not followed: models.mine.base_url" in error.message
        assert len(upstream.requests) == 1
    assert [(line["event"], line["location"]) for line in logs] == [("redirect_refused", "http://127.0.0.1:1/v2")]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "did not answer in HTTP/1.1"),
        (
            reply(b"<html>", content_type="text/html; charset=utf-8"),
            "a web page: models.mine.base_url may be wrong",
        ),
        (reply(b"\x1f\x8b", headers="content-encoding: gzip\r\n"), "answered in the encoding 'gzip'"),
    ],
    ids=["another protocol", "web page", "encoding"],
)
@pytest.mark.parametrize("request_", [REQUEST, STREAMED], ids=["plain", "streamed"])
def test_unusable_response_error_names_the_reason(answer: bytes, reason: str, request_: Request) -> None:
    with Upstream([answer, Gate()]) as upstream:
        error = failure(ask(upstream, request_)[0])
        assert error.status == 502
        assert reason in error.message


def test_oversized_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_backend, "MAX_ANSWER", 1000)
    with Upstream([b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n" + b"x" * 2000, Gate()]) as upstream:
        assert "more than 1000 bytes" in failure(ask(upstream, REQUEST)[0]).message


@pytest.mark.parametrize(
    "script",
    [
        [CLOSE],
        [b"garbage"],
        [stream_head(), CLOSE],
        [reply(b"no", 401)],
        [reply(b"no", 307, headers="location: /\r\n")],
        [reply(b"no", content_type="text/html")],
        [Gate()],
    ],
)
def test_errors_contain_neither_key_nor_content(script: Script) -> None:
    with Upstream(script) as upstream, log.captured() as logs:
        error = failure(ask(upstream, read_timeout=0.05)[0])
    written = f"{error.message} {error!r} {error.__cause__!r} {logs}"
    assert KEY not in written
    assert SECRET_WORD not in written


def test_truncated_key_in_error_is_redacted() -> None:
    with Upstream(reply(b"no such " + KEY.encode(), 400)) as upstream:
        message = failure(ask(upstream)[0]).message
    assert KEY[:8] not in message
    assert "no such " in message


def test_key_in_redirect_location_is_redacted_in_log() -> None:
    head = f"location: http://127.0.0.1:1/v2?key={KEY}&a=b\r\n"
    with Upstream(reply(b"", 307, headers=head)) as upstream, log.captured() as logs:
        failure(ask(upstream)[0])
    [line] = logs
    assert line["location"] == "http://127.0.0.1:1/v2?key=[the gateway's key]&a=b"
