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
    failure,
    settings_for,
    told,
)
from tests.backends.http.pools import WatchedPool
from tests.upstream import LAST_CHUNK, Gate, Script, Upstream, chunk, reply, seen, stream, stream_head
from toolrelay import __version__, log
from toolrelay.backends import http
from toolrelay.backends.http import BACKEND, HttpBackend, HttpSettings
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.events import AnswerFinished, StreamEvent, TextDelta
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment

# What is asked


def test_the_request_is_the_wires_with_the_providers_name_for_the_model() -> None:
    with Upstream(reply(b"hi")) as upstream:
        assert ask(upstream, REQUEST) == ([TextDelta("hi"), DONE], [])
        (received,) = upstream.requests
        assert (received.method, received.path) == ("POST", "/v1/plain%20words")
        assert json.loads(received.body) == {"model": "theirs", "stream": False, "said": SECRET_WORD}
        assert received.headers == {
            "host": f"127.0.0.1:{upstream.port}",
            "user-agent": f"toolrelay/{__version__}",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "authorization": f"Bearer {KEY}",
            "accept": "application/json",
            "content-length": str(len(received.body)),
        }


def test_the_upstream_is_asked_to_stream_if_the_client_asked() -> None:
    with Upstream(stream(b"hi\n[DONE]\n")) as upstream:
        ask(upstream, STREAMED)
        assert upstream.requests[0].headers["accept"] == "text/event-stream"
        assert json.loads(upstream.requests[0].body)["stream"] is True


@pytest.mark.parametrize(("path", "asked"), [("", "/plain%20words"), ("/", "/plain%20words"), ("/a/b/", "/a/b/plain%20words")])
def test_the_wires_path_follows_the_base_url_with_one_slash(path: str, asked: str) -> None:
    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream, path=path) as (backend, _):
            await told(backend, REQUEST)

    with Upstream(reply(b"hi")) as upstream:
        asyncio.run(main(upstream))
        assert upstream.requests[0].path == asked


def test_without_a_model_of_its_own_the_tables_name_is_the_models() -> None:
    async def main(upstream: Upstream) -> None:
        backend = HttpBackend(replace(settings_for(upstream.url), model="", api_key=""), WIRE, Profile())
        await told(backend, REQUEST)
        await backend.close()

    with Upstream(reply(b"hi")) as upstream:
        asyncio.run(main(upstream))
        assert json.loads(upstream.requests[0].body)["model"] == "mine"
        assert "authorization" not in upstream.requests[0].headers


def test_a_request_that_the_wire_cannot_say_is_the_clients_error_and_never_leaves() -> None:
    with Upstream(reply(b"hi")) as upstream:
        error = failure(ask(upstream, replace(REQUEST, user="nobody"))[0])
        assert (error.status, error.param) == (400, "user")
        assert not upstream.requests


def test_a_dropped_field_is_logged_once_and_without_content() -> None:
    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            for extra in ({"seed": SECRET_WORD}, {"seed": SECRET_WORD, "top_k": 5}, {"top_k": 5}):
                await told(backend, replace(REQUEST, extra=extra))

    with Upstream(reply(b"hi")) as upstream, log.captured() as logs:
        asyncio.run(main(upstream))
    assert logs == [
        {"event": "field_dropped", "level": "warning", "model": "mine", "field": field, "wire": "plain"}
        for field in ("seed", "top_k")
    ]


# What is answered


def test_what_arrives_together_is_handed_on_together() -> None:
    gates = [Gate(), Gate()]

    async def main(upstream: Upstream) -> list[list[StreamEvent]]:
        async with backend_for(upstream) as (backend, _):
            waiting = list(gates)

            def heard() -> None:
                if waiting:
                    waiting.pop(0).open()

            return await batches(backend, STREAMED, heard)

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
def test_the_content_type_decides_how_an_answer_is_read(answer: bytes, expected: list[StreamEvent], request_: Request) -> None:
    with Upstream(answer) as upstream:
        assert ask(upstream, request_)[0] == expected


def test_without_a_telling_content_type_an_answer_is_read_as_it_was_asked_for() -> None:
    with Upstream(reply(b"a\n[DONE]\n", content_type="text/plain")) as upstream:
        assert ask(upstream, STREAMED)[0] == [TextDelta("a"), DONE]
        assert ask(upstream, REQUEST)[0] == [TextDelta("a\n[DONE]\n"), DONE]


def test_a_stream_that_ends_without_its_end_fails_as_the_wire_says() -> None:
    with Upstream(stream(b"a\n")) as upstream:
        first, last = ask(upstream)[0]
        assert first == TextDelta("a")
        assert failure([last]).code == "unfinished"


def test_an_answer_ends_with_its_end_even_if_the_upstream_stays() -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> list[StreamEvent]:
        async with backend_for(upstream) as (backend, _):
            events = await told(backend)
            gate.open()
            assert await told(backend) == events
            return events

    # The first connection ends its body too late for the second request, and is not waited for.
    with Upstream([stream_head(), chunk(b"a\n[DONE]\n"), Gate()], [gate, stream(b"a\n[DONE]\n")]) as upstream:
        assert asyncio.run(main(upstream)) == [TextDelta("a"), DONE]
        assert [request.link for request in upstream.requests] == [0, 1]


def test_a_connection_is_used_again_after_a_stream_and_after_an_error() -> None:
    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            for _ in range(4):
                await told(backend)

    scripts: list[Script] = [[stream(b"[DONE]\n")], [reply(b"no", 400)], [reply(b"no", 301)], [reply(b"hi")]]
    with Upstream(*scripts) as upstream:
        asyncio.run(main(upstream))
        assert [request.link for request in upstream.requests] == [0, 0, 0, 0]


def test_a_connection_whose_stream_ends_just_after_the_answer_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LINGER_SECONDS", 1000)
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            backend._pool = pool = WatchedPool(backend._pool.origin, silence=30)
            assert await told(backend) == [DONE]
            assert not pool._idle
            pool.kept = asyncio.get_running_loop().create_future()
            gate.open()
            await pool.kept
            pool.kept = None
            assert await told(backend) == [DONE]

    with Upstream([stream_head(), chunk(b"[DONE]\n"), gate, LAST_CHUNK], stream(b"[DONE]\n")) as upstream:
        asyncio.run(main(upstream))
        assert [request.link for request in upstream.requests] == [0, 0]


def test_the_connection_of_a_whole_answer_is_free_before_the_answer_is_handed_on() -> None:
    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            idle: list[int] = []
            await batches(backend, REQUEST, heard=lambda: idle.append(len(backend._pool._idle)))
            assert idle == [1]

    with Upstream(reply(b"hi")) as upstream:
        asyncio.run(main(upstream))


def test_tls_is_spoken_to_https(certificate: Path, server_context: ssl.SSLContext) -> None:
    async def main(upstream: Upstream) -> list[StreamEvent]:
        async with backend_for(upstream, context=ssl.create_default_context(cafile=certificate)) as (backend, _):
            return await told(backend)

    with Upstream(stream(b"a\n[DONE]\n"), context=server_context) as upstream:
        assert asyncio.run(main(upstream)) == [TextDelta("a"), DONE]


# Letting go


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
def test_cancelling_lets_the_upstream_go(before: list[bytes], request_: Request) -> None:  # bug 44
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with backend_for(upstream) as (backend, _):
            task = asyncio.create_task(told(backend, request_))
            await seen(gate.reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await seen(upstream.links[0].left)
            assert not backend._pool._all

    with Upstream([*before, gate]) as upstream:
        asyncio.run(main(upstream))


def test_cancelling_between_two_tries_makes_no_further_one() -> None:
    async def main(upstream: Upstream) -> None:
        paused = asyncio.Event()

        async def pause(seconds: float) -> None:
            paused.set()
            await asyncio.Event().wait()

        backend = HttpBackend(settings_for(upstream.url), WIRE, Profile(), pause=pause)
        task = asyncio.create_task(told(backend))
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
        if preset.backend == "http" and preset.available:
            backend = opened(preset.base_url or "http://localhost:1/v1", provider, preset.wire)
            assert backend._profile == preset.profile


@pytest.mark.parametrize(
    ("url", "said"),
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
def test_a_base_url_that_cannot_be_used_is_named(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        opened(url)
    assert error.value.message.startswith(said)
    assert "secret" not in error.value.message


def test_a_key_that_would_break_the_head_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match=r"models\.m\.api_key") as error:
        opened(api_key="sk-secret\r\nx: y")
    assert "secret" not in str(error.value)


def test_a_wire_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"models\.m\.wire: the wire 'gemini' is not available"):
        opened(wire="gemini")


@pytest.mark.parametrize(
    ("url", "host", "authority"),
    [
        ("https://EXAMPLE.com/v1", "example.com", "example.com"),
        ("http://[::1]:8000/v1", "::1", "[::1]:8000"),
        ("http://bücher.example/v1", "xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_hosts_of_every_kind_are_understood(url: str, host: str, authority: str) -> None:
    backend = opened(url)
    assert (backend._pool.origin.host, backend._pool.origin.authority) == (host, authority)
    assert f"\r\nhost: {authority}\r\n".encode() in backend._heads[True]


def test_a_real_wire_streams_through_it() -> None:
    async def main(upstream: Upstream) -> list[StreamEvent]:
        backend = opened(f"{upstream.url}/v1", api_key=KEY)
        try:
            return await told(backend, replace(STREAMED, wire="openai_chat"))
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
