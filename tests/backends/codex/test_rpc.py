"""The JSON-RPC core: what goes out cannot harm the process, and what comes in is read whatever its chunks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.backends.codex.rpc import (
    Fault,
    LineReader,
    Malformed,
    Message,
    Notification,
    Result,
    ServerRequest,
    decode_line,
    encode_fault,
    encode_notification,
    encode_request,
    encode_result,
)

MEBIBYTE = 1024 * 1024

# With surrogates, which Python's strings may hold and UTF-8 may not.
any_text = st.text(st.characters(codec=None))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(any_text, values, max_size=4)
plain_objects = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=20), max_size=3)
ids = st.integers(min_value=0, max_value=9) | st.text(max_size=4)
lines = st.one_of(
    st.builds(encode_request, ids, st.text(max_size=8), plain_objects),
    st.builds(encode_result, ids, plain_objects),
    st.builds(encode_fault, ids, st.integers(-32768, 0), st.text(max_size=8)),
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"") + b"\n"),
)


def read(data: bytes) -> list[Message]:
    return LineReader().feed(data)


@given(st.integers(), st.text(), objects)
def test_a_line_that_goes_out_is_ascii_and_says_what_was_given(identity: int, method: str, params: dict[str, Any]) -> None:
    line = encode_request(identity, method, params)
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
def test_no_lone_surrogate_is_ever_sent(given_text: str, sent: bytes) -> None:
    assert sent in encode_result(0, {"text": given_text})


def test_a_number_of_more_than_64_bits_is_sent_as_it_is() -> None:
    assert json.loads(encode_result(1, {"n": 2**70}))["result"] == {"n": 2**70}


def test_a_notification_has_no_params() -> None:
    assert encode_notification("initialized") == b'{"method":"initialized"}\n'


@given(st.lists(lines, max_size=8).map(b"".join), st.data())
def test_chunks_do_not_matter(data: bytes, draw: st.DataObject) -> None:  # bug 24
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    reader = LineReader()
    found = [
        message for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) for message in reader.feed(data[start:end])
    ]
    assert found == read(data)


@given(st.binary(max_size=200))
def test_reading_never_raises(data: bytes) -> None:
    read(data + b"\n")


def test_the_servers_request_zero_is_a_request() -> None:
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
        (b'{"id":0,"result":{"a":1}}', Result(0, {"a": 1})),
        (b'{"id":1,"result":null}', Result(1, {})),
        (b'{"error":{"code":-32001,"message":"busy","data":[]},"id":3}', Fault(3, -32001, "busy")),
    ],
)
def test_each_kind_of_line_is_told_apart(line: bytes, message: Message) -> None:
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
def test_a_malformed_line_is_reported_and_the_next_one_read(line: bytes) -> None:
    bad, good = read(line + b'\n{"method":"after"}\n')
    assert isinstance(bad, Malformed)
    assert bad.size == len(line)
    assert good == Notification("after", {})


def test_a_report_does_not_quote_the_line() -> None:
    reports = [decode_line(b'{"method":"x","params":"secret"}'), decode_line(b'secret {"method":1}')]
    assert "secret" not in repr(reports)


def test_blank_lines_are_no_messages() -> None:
    assert read(b'\n\r\n  \n{"method":"x"}\r\n') == [Notification("x", {})]


def test_a_line_of_megabytes_in_small_pieces_takes_no_longer_than_its_length() -> None:  # bug 25
    # A reader that looks at the whole line again with each piece would copy a terabyte here, and run into pytest's limit.
    text = "x" * (16 * MEBIBYTE)
    line = encode_result(1, {"text": text})
    reader = LineReader()
    found: list[Message] = []
    for start in range(0, len(line), 128):
        found += reader.feed(line[start : start + 128])
    assert found == [Result(1, {"text": text})]


def test_a_line_over_the_limit_is_reported_and_passed_over() -> None:
    reader = LineReader(most=10)
    assert reader.feed(b"x" * 8) == []
    assert reader.feed(b"x" * 8) == []
    assert reader._pieces == []
    assert reader.feed(b'x\n{}\n{"method":"x"}\n') == [
        Malformed("a line of more than 10 bytes", 17),
        Malformed("neither a method nor an id", 2),
        Malformed("a line of more than 10 bytes", 14),
    ]
