"""The JSON-RPC core: lines that cannot harm the process, and decoding independent of chunks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.backends.codex.rpc import (
    LineReader,
    MalformedLine,
    Notification,
    RpcError,
    RpcMessage,
    RpcReply,
    ServerRequest,
    decode_line,
    encode_line,
)

MEBIBYTE = 1024 * 1024

# With surrogates, which are valid in Python's strings but not in UTF-8.
any_text = st.text(st.characters(codec=None))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(any_text, values, max_size=4)
plain_objects = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=20), max_size=3)
ids = st.integers(min_value=0, max_value=9) | st.text(max_size=4)
errors = st.fixed_dictionaries({"code": st.integers(-32768, 0), "message": st.text(max_size=8)})
messages: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"id": ids, "method": st.text(max_size=8), "params": plain_objects}),
    st.fixed_dictionaries({"id": ids, "result": plain_objects}),
    st.fixed_dictionaries({"id": ids, "error": errors}),
)
lines = messages.map(encode_line) | st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"") + b"\n")


def read(data: bytes) -> list[RpcMessage]:
    return LineReader().feed(data)


@given(st.integers(), st.text(), objects)
def test_encoded_line_is_ascii_and_lossless(identity: int, method: str, params: dict[str, Any]) -> None:
    line = encode_line({"id": identity, "method": method, "params": params})
    assert line.isascii()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found = json.loads(line)
    assert found.keys() == {"id", "method", "params"}
    assert json.dumps(found["params"]) == json.dumps(_without_surrogates(params))


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_without_surrogates(each) for each in value]
        case dict():
            return {_without_surrogates(key): _without_surrogates(each) for key, each in value.items()}
        case _:
            return value


@pytest.mark.parametrize(
    ("given_text", "sent"),
    [
        ("a\ud800b", b'"a\\ufffdb"'),
        ("\udc00", b'"\\ufffd"'),
        ("\ud83d\ude00", b'"\\ud83d\\ude00"'),
        ("\U0001f600", b'"\\ud83d\\ude00"'),
        ("é\u2028", b'"\\u00e9\\u2028"'),
        ("\\ud800", b'"\\\\ud800"'),
    ],
)
def test_lone_surrogates_are_replaced(given_text: str, sent: bytes) -> None:
    assert sent in encode_line({"id": 0, "result": {"text": given_text}})


def test_number_of_more_than_64_bits_is_kept() -> None:
    assert json.loads(encode_line({"id": 1, "result": {"n": 2**70}}))["result"] == {"n": 2**70}


def test_notification_without_params_has_only_a_method() -> None:
    assert encode_line({"method": "initialized"}) == b'{"method":"initialized"}\n'


@given(st.lists(lines, max_size=8).map(b"".join), st.data())
def test_chunk_boundaries_do_not_matter(data: bytes, draw: st.DataObject) -> None:  # bug 24
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    reader = LineReader()
    found = [
        message for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) for message in reader.feed(data[start:end])
    ]
    assert found == read(data)


@given(st.binary(max_size=200))
def test_reading_never_raises(data: bytes) -> None:
    read(data + b"\n")


def test_server_request_with_id_zero_is_a_request() -> None:
    assert read(b'{"id":0,"method":"item/tool/call","params":{"tool":"add"}}\n') == [
        ServerRequest(0, "item/tool/call", {"tool": "add"})
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"method":"x","params":{"a":1},"emittedAtMs":5}', Notification("x", {"a": 1})),
        (b'{"method":"x"}', Notification("x", {})),
        (b'{"method":"x","params":null}', Notification("x", {})),
        (b'{"id":"s","method":"x","params":{}}', ServerRequest("s", "x", {})),
        (b'{"id":0,"result":{"a":1}}', RpcReply(0, {"a": 1})),
        (b'{"id":1,"result":null}', RpcReply(1, {})),
        (b'{"error":{"code":-32001,"message":"busy","data":[]},"id":3}', RpcReply(3, error=RpcError(-32001, "busy"))),
    ],
)
def test_each_kind_of_line_is_decoded(line: bytes, message: RpcMessage) -> None:
    assert decode_line(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1]",
        b"17",
        b"{}",
        b'{"id":1}',
        b'{"id":null,"result":{}}',
        b'{"result":{}}',
        b'{"id":1,"error":{}}',
        b'{"id":1,"error":"no"}',
        b'{"id":1.5,"method":"x"}',
        b'{"method":7}',
        b'{"method":"x","params":[1]}',
        b'{"method":"x","params":{"t":"\\ud800"}}',
        b'{"method":"\xff\xfe"}',
        b'{"method":"x","params":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b'{"method":"x"',
    ],
)
def test_malformed_line_is_reported_and_the_next_one_read(line: bytes) -> None:
    bad, good = read(line + b'\n{"method":"after"}\n')
    assert isinstance(bad, MalformedLine)
    assert bad.size == len(line)
    assert good == Notification("after", {})


def test_malformed_line_report_does_not_quote_the_line() -> None:
    reports = [decode_line(b'{"method":"x","params":"secret"}'), decode_line(b'secret {"method":1}')]
    assert "secret" not in repr(reports)


def test_blank_lines_are_skipped() -> None:
    assert read(b'\n\r\n  \n{"method":"x"}\r\n') == [Notification("x", {})]


def test_long_line_in_small_chunks_takes_linear_time() -> None:  # bug 25
    # A reader that copies the whole line with each chunk would copy a terabyte here and time out.
    text = "x" * (16 * MEBIBYTE)
    line = encode_line({"id": 1, "result": {"text": text}})
    reader = LineReader()
    found: list[RpcMessage] = []
    for start in range(0, len(line), 128):
        found += reader.feed(line[start : start + 128])
    assert found == [RpcReply(1, {"text": text})]


def test_line_over_the_limit_is_reported_and_skipped() -> None:
    reader = LineReader(max_bytes=10)
    assert reader.feed(b"x" * 8) == []
    assert reader.feed(b"x" * 8) == []
    assert reader._chunks == []
    assert reader.feed(b'x\n{}\n{"method":"x"}\n') == [
        MalformedLine("a line of more than 10 bytes", 17),
        MalformedLine("neither a method nor an id", 2),
        MalformedLine("a line of more than 10 bytes", 14),
    ]
