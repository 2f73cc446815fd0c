from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.backends.http.plain_wire import (
    DONE,
    KEY,
    REQUEST,
    SECRET_WORD,
    STREAMED,
    WIRE,
    ask,
    backend_for,
    batches,
    collect,
    failure,
    settings_for,
)
from tests.backends.http.pools import WatchedPool
from tests.upstream import LAST_CHUNK, Gate, Script, Upstream, chunk, reply, result_of, stream, stream_head
from toolrelay import __version__, log
from toolrelay.backends.http import BACKEND, HttpBackend, HttpSettings
from toolrelay.backends.http import backend as http_backend
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.events import AnswerFinished, StreamEvent, TextDelta
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment
from toolrelay.wires.outgoing import CUSTOM_TOOLS

# Requests


def test_request_has_wire_body_and_upstream_model_name() -> None:
    with Upstream(reply(b"hi")) as upstream:
        assert ask(upstream, REQUEST) == ([TextDelta("hi"), DONE], [])
        (received,) = upstream.requests
        assert (received.method, received.path) == ("POST", "/v1/plain%20words")
        assert json.loads(received.body) == {"model": "theirs", "stream": False, "content": SECRET_WORD}
        assert received.headers == {
            "host": f"127.0.0.1:{upstream.port}",
            "user-agent": f"toolrelay/{__version__}",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "authorization": f"Bearer {KEY}",
            "accept": "application/json",
            "content-length": str(len(received.body)),
        }


def test_streamed_request_asks_upstream_for_a_stream() -> None:
    with Upstream(stream(b"hi\n[DONE]\n")) as upstream:
        ask(upstream, STREAMED)
        assert upstream.requests[0].headers["accept"] == "text/event-stream"
        assert json.loads(upstream.requests[0].body)["stream"] is True


@pytest.mark.parametrize(("path", "asked"), [("", "/plain%20words"), ("/", "/plain%20words"), ("/a/b/", "/a/b/plain%20words")])
def test_wire_path_is_joined_to_base_url_with_one_slash(path: str, asked: str) -> None:
    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream, path=path) as (backend, _):
            await collect(backend, REQUEST)

    with Upstream(reply(b"hi")) as upstream:
        asyncio.run(main(upstream))
        assert upstream.requests[0].path == asked


def test_missing_model_setting_uses_table_name() -> None:
    async def main(upstream: Upstream) -> None:
        backend = HttpBackend(replace(settings_for(upstream.url), model="", api_key=""), WIRE, Profile())
        await collect(backend, REQUEST)
        await backend.close()

    with Upstream(reply(b"hi")) as upstream:
        asyncio.run(main(upstream))
        assert json.loads(upstream.requests[0].body)["model"] == "mine"
        assert "authorization" not in upstream.requests[0].headers


def test_unencodable_request_is_client_error_and_not_sent() -> None:
    with Upstream(reply(b"hi")) as upstream:
        error = failure(ask(upstream, replace(REQUEST, user="nobody"))[0])
        assert (error.status, error.param) == (400, "user")
        assert not upstream.requests


def test_dropped_field_is_logged_once_without_content() -> None:
    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            for extra in ({"seed": SECRET_WORD}, {"seed": SECRET_WORD, "top_k": 5}, {"top_k": 5}):
                await collect(backend, replace(REQUEST, extra=extra))

    with Upstream(reply(b"hi")) as upstream, log.captured() as logs:
        asyncio.run(main(upstream))
    assert logs == [
        {"event": "field_dropped", "level": "warning", "model": "mine", "field": field, "wire": "plain"}
        for field in ("seed", "top_k")
    ]


# Answers


def test_events_that_arrive_together_are_one_batch() -> None:
    gates = [Gate(), Gate()]

    async def main(upstream: Upstream) -> list[list[StreamEvent]]:
        async with backend_for(upstream) as (backend, _):
            waiting = list(gates)

            def on_batch() -> None:
                if waiting:
                    waiting.pop(0).open()

            return await batches(backend, STREAMED, on_batch)

    script: Script = [
        stream_head() + chunk(b"a\n") + chunk(b"b\n"),
        gates[0],
        chunk(b"c\nd"),
        gates[1],
        chunk(b"\n[DONE]\n") + LAST_CHUNK,
    ]
    with Upstream(script) as upstream:
        assert asyncio.run(main(upstream)) == [
            [TextDelta("a"), TextDelta("b")],
            [TextDelta("c")],
            [TextDelta("d"), DONE],
        ]


@pytest.mark.parametrize("request_", [REQUEST, STREAMED], ids=["plain", "streamed"])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(b'{"a":1}', content_type="application/json; charset=utf-8"), [TextDelta('{"a":1}'), DONE]),
        (reply(b'{"a":1}', content_type="application/problem+json"), [TextDelta('{"a":1}'), DONE]),
        (reply(b"a\n[DONE]\n", content_type="Text/Event-Stream"), [TextDelta("a"), DONE]),
    ],
    ids=["json", "like json", "events"],
)
def test_content_type_selects_the_decoder(answer: bytes, expected: list[StreamEvent], request_: Request) -> None:
    with Upstream(answer) as upstream:
        assert ask(upstream, request_)[0] == expected


def test_other_content_type_is_decoded_as_requested() -> None:
    with Upstream(reply(b"a\n[DONE]\n", content_type="text/plain")) as upstream:
        assert ask(upstream, STREAMED)[0] == [TextDelta("a"), DONE]
        assert ask(upstream, REQUEST)[0] == [TextDelta("a\n[DONE]\n"), DONE]


def test_unfinished_stream_fails_with_wires_error() -> None:
    with Upstream(stream(b"a\n")) as upstream:
        first, last = ask(upstream)[0]
        assert first == TextDelta("a")
        assert failure([last]).code == "unfinished"


def test_answer_ends_while_upstream_keeps_connection_open() -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> list[StreamEvent]:
        async with backend_for(upstream) as (backend, _):
            events = await collect(backend)
            gate.open()
            assert await collect(backend) == events
            return events

    # The first connection ends its body too late for the second request, and is not waited for.
    with Upstream([stream_head(), chunk(b"a\n[DONE]\n"), Gate()], [gate, stream(b"a\n[DONE]\n")]) as upstream:
        assert asyncio.run(main(upstream)) == [TextDelta("a"), DONE]
        assert [request.connection for request in upstream.requests] == [0, 1]


def test_connection_is_reused_after_stream_and_error() -> None:
    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            for _ in range(4):
                await collect(backend)

    scripts: list[Script] = [[stream(b"[DONE]\n")], [reply(b"no", 400)], [reply(b"no", 301)], [reply(b"hi")]]
    with Upstream(*scripts) as upstream:
        asyncio.run(main(upstream))
        assert [request.connection for request in upstream.requests] == [0, 0, 0, 0]


def test_drained_connection_is_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_backend, "DRAIN_SECONDS", 1000)
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            backend._pool = pool = WatchedPool(backend._pool.origin, read_timeout=30)
            assert await collect(backend) == [DONE]
            assert not pool._idle
            pool.kept = asyncio.get_running_loop().create_future()
            gate.open()
            await pool.kept
            pool.kept = None
            assert await collect(backend) == [DONE]

    with Upstream([stream_head(), chunk(b"[DONE]\n"), gate, LAST_CHUNK], stream(b"[DONE]\n")) as upstream:
        asyncio.run(main(upstream))
        assert [request.connection for request in upstream.requests] == [0, 0]


def test_whole_answer_releases_connection_before_delivery() -> None:
    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            idle: list[int] = []
            await batches(backend, REQUEST, on_batch=lambda: idle.append(len(backend._pool._idle)))
            assert idle == [1]

    with Upstream(reply(b"hi")) as upstream:
        asyncio.run(main(upstream))


def test_https_url_uses_tls(certificate: Path, server_context: ssl.SSLContext) -> None:
    async def main(upstream: Upstream) -> list[StreamEvent]:
        async with backend_for(upstream, context=ssl.create_default_context(cafile=certificate)) as (backend, _):
            return await collect(backend)

    with Upstream(stream(b"a\n[DONE]\n"), context=server_context) as upstream:
        assert asyncio.run(main(upstream)) == [TextDelta("a"), DONE]


# Cancellation


@pytest.mark.parametrize(
    ("before", "request_"),
    [
        ([], STREAMED),
        ([], REQUEST),
        ([stream_head(), chunk(b"a\n")], STREAMED),
        ([reply(b"hello")[:-1]], REQUEST),
        ([reply(b"hello", 429)[:-1]], REQUEST),
    ],
    ids=["before the head, streamed", "before the head, plain", "between chunks", "in a whole answer", "in an error"],
)
def test_cancelled_answer_closes_upstream_connection(before: list[bytes], request_: Request) -> None:  # bug 44
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            task = asyncio.create_task(collect(backend, request_))
            await result_of(gate.reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await result_of(upstream.connections[0].closed)
            assert not backend._pool._all

    with Upstream([*before, gate]) as upstream:
        asyncio.run(main(upstream))


def test_cancellation_during_backoff_stops_retries() -> None:
    async def main(upstream: Upstream) -> None:
        paused = asyncio.Event()

        async def pause(seconds: float) -> None:
            paused.set()
            await asyncio.Event().wait()

        backend = HttpBackend(settings_for(upstream.url), WIRE, Profile(), pause=pause)
        task = asyncio.create_task(collect(backend))
        await paused.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await backend.close()

    with Upstream(reply(b"busy", 503)) as upstream:
        asyncio.run(main(upstream))
        assert len(upstream.requests) == 1


# From the configuration


def opened(
    base_url: str = "http://localhost/v1", provider: str = "compatible", wire: str = "chat", api_key: str = ""
) -> HttpBackend:
    settings = HttpSettings(name="m", provider=provider, base_url=base_url, wire=wire, api_key=api_key)
    backend = BACKEND.open(settings, Environment(data_dir=Path("nowhere")))
    assert isinstance(backend, HttpBackend)
    return backend


def test_backend_has_the_profile_of_its_provider() -> None:
    for provider, preset in PROVIDERS.items():
        if preset.backend == "http":
            backend = opened(preset.base_url or "http://localhost:1/v1", provider, preset.wire)
            unsupported = {
                "stop": "takes_stop_sequences",
                "tool_choice": "enforces_tool_choice",
                CUSTOM_TOOLS: "takes_custom_tools",
            }
            lost = {field: False for row, field in unsupported.items() if row in backend.wire.unsupported}
            assert backend._profile == replace(preset.profile, **lost)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "models.m.base_url must look like http"),
        ("localhost:8000/v1", "models.m.base_url must look like http"),
        ("ftp://localhost/v1", "models.m.base_url must look like http"),
        ("http:///v1", "models.m.base_url must look like http"),
        ("http://a b/v1", "models.m.base_url must look like http"),
        ("http://localhost:port/v1", "models.m.base_url is not a valid URL"),
        ("http://[::1/v1", "models.m.base_url is not a valid URL"),
        ("http://a..b/v1", "models.m.base_url is not a valid URL"),
        ("http://me:secret@localhost/v1", "models.m.base_url must hold neither credentials"),
        ("http://localhost/v1?key=secret", "models.m.base_url must hold neither credentials"),
    ],
)
def test_unusable_base_url_is_rejected(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        opened(url)
    assert error.value.message.startswith(reason)
    assert "secret" not in error.value.message


def test_key_with_line_break_is_rejected_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"models\.m\.api_key") as error:
        opened(api_key="sk-secret\r\nx: y")
    assert "secret" not in str(error.value)


def test_unavailable_wire_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"models\.m\.wire: the wire 'odd' is not available"):
        opened(wire="odd")


@pytest.mark.parametrize(
    ("url", "host", "authority"),
    [
        ("https://EXAMPLE.com/v1", "example.com", "example.com"),
        ("http://[::1]:8000/v1", "::1", "[::1]:8000"),
        ("http://bücher.example/v1", "xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_ipv6_and_idna_hosts_are_accepted(url: str, host: str, authority: str) -> None:
    backend = opened(url)
    assert (backend._pool.origin.host, backend._pool.origin.authority) == (host, authority)
    assert f"\r\nhost: {authority}\r\n".encode() in backend._heads[True]


def test_chat_wire_streams_through_backend() -> None:
    async def main(upstream: Upstream) -> list[StreamEvent]:
        backend = opened(f"{upstream.url}/v1", api_key=KEY)
        try:
            return await collect(backend, replace(STREAMED, wire="openai_chat"))
        finally:
            await backend.close()

    frames = [
        b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hi"}}]}\n\n',
        b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
        b"data: [DONE]\n\n",
    ]
    with Upstream(stream(*frames)) as upstream:
        events = asyncio.run(main(upstream))
        assert TextDelta("hi") in events
        assert isinstance(events[-1], AnswerFinished)
        assert upstream.requests[0].path == "/v1/chat/completions"
        assert upstream.requests[0].headers["authorization"] == f"Bearer {KEY}"
