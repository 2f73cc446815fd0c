"""Servers that claim to speak Anthropic's API and do not: clear errors in time, on every door, and the next request unharmed."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, WIRES, ClientApi, ModelServer, failure
from tests.upstream import CLOSE, Gate, Script, chunk, reply, stream, stream_head

START = (
    b'event: message_start\ndata: {"type":"message_start",'
    b'"message":{"model":"m","usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
)
TEXT = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}\n\n'
END = (
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}\n\n'
    b'data: {"type":"message_stop"}\n\n'
)
GOOD = stream(START, TEXT, END)
HUGE = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}\n\n' % (b"x" * 10_000_000)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    config = f'[models.fast]\nprovider = "anthropic"\nbase_url = "{server.url}/v1"\napi_key = "sk-x"\ntimeout_seconds = 1\n'
    with running(config) as started:
        yield started


@pytest.fixture(params=WIRES)
def api(request: pytest.FixtureRequest) -> ClientApi:
    return CLIENT_APIS[request.param]


BEFORE: dict[str, tuple[Script, int, str]] = {
    "a web page": ((reply(b"<html>Sign in</html>", content_type="text/html"),), 502, "upstream_error"),
    "a redirect": ((reply(b"", 302, headers="location: http://127.0.0.1:1/\r\n"),), 502, "upstream_error"),
    "a compressed body": ((reply(gzip.compress(b"{}"), headers="content-encoding: gzip\r\n"),), 502, "upstream_error"),
    "an answer of another API": ((reply(b'{"object":"chat.completion","choices":[]}'),), 502, "upstream_invalid"),
    "an error with status 200": (
        (reply(b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),),
        529,
        "overloaded",
    ),
    "a body that is no JSON": ((reply(b"\xff\xfe", content_type="text/plain"),), 502, "upstream_cut"),
}


@pytest.mark.parametrize("case", BEFORE)
def test_bad_response_is_an_error_and_the_next_request_works(
    gateway: Gateway, server: ModelServer, api: ClientApi, case: str
) -> None:
    script, status, code = BEFORE[case]
    server.enqueue(script, GOOD)
    answer = gateway.post(api.path, api.request_body(stream=True))
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert b"Hello" in gateway.post(api.path, api.request_body(stream=True)).content


WITHIN: dict[str, tuple[Any, str]] = {
    "half a frame": ((stream_head() + chunk(START + TEXT + b'data: {"type":"content_blo'), CLOSE), "upstream_cut"),
    "no end": ((stream(START, TEXT),), "upstream_cut"),
    "a frame that is no event": ((stream(START, TEXT, b'data: {"choices":[]}\n\n'),), "upstream_invalid"),
    "a frame that is no JSON": ((stream(START, TEXT, b"data: <html>\n\n"),), "upstream_invalid"),
    "a call without name": (
        (stream(START, TEXT, b'data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use"}}\n\n'),),
        "upstream_invalid",
    ),
    "a negative index": (
        (stream(START, TEXT, b'data: {"type":"content_block_start","index":-1,"content_block":{"type":"text"}}\n\n'),),
        "upstream_invalid",
    ),
    "silence": ((stream_head() + chunk(START + TEXT), Gate()), "upstream_timeout"),
}


@pytest.mark.parametrize("case", WITHIN)
def test_broken_stream_ends_with_an_error_and_the_next_request_works(
    gateway: Gateway, server: ModelServer, api: ClientApi, case: str
) -> None:
    script, code = WITHIN[case]
    server.enqueue(script, GOOD)
    answer = gateway.post(api.path, api.request_body(stream=True))
    assert answer.status_code == 200
    assert b"Hello" in answer.content
    assert failure(answer.content)["code"] == code
    assert b"Hello" in gateway.post(api.path, api.request_body(stream=True)).content


def test_frame_of_ten_megabytes_is_relayed(gateway: Gateway, server: ModelServer, api: ClientApi) -> None:
    server.enqueue(stream(START, HUGE, END))
    assert gateway.post(api.path, api.request_body(stream=True)).content.count(b"x" * 10_000_000) >= 1
