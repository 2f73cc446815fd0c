"""JSON at the edge: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tests.strategies import json_objects
from toolrelay.errors import ClientError
from toolrelay.wires.json import MAX_DEPTH, convert, decode, decode_body, encode, repair_surrogates


class _Inner(Struct):
    name: str
    kind: str = ""


class _Outer(Struct):
    inner: _Inner | None = None
    many: list[_Inner] | None = None
    number: float | None = None
    either: int | float | str | list[str] | None = None
    flag: bool | None = None


def refusal(value: object, param: str = "") -> ClientError:
    with pytest.raises(ClientError) as caught:
        convert(value, _Outer, param)
    return caught.value


def test_a_wrong_type_is_named_in_words_of_json() -> None:
    error = refusal({"number": "hot"})
    assert error.status == 400
    assert (error.param, error.code) == ("number", "invalid_type")
    assert error.message == "Invalid value for 'number': expected number or null, got string."


def test_a_choice_of_types_is_named_without_repetition() -> None:
    assert refusal({"either": True}).message == "Invalid value for 'either': expected number, string, array or null, got boolean."


def test_a_place_within_lists_and_objects_is_named() -> None:
    assert refusal({"many": [{"name": "a"}, {"name": 1}]}).param == "many[1].name"
    assert refusal({"many": [{"name": "a"}, {"name": 1}]}, "outer[3]").param == "outer[3].many[1].name"


def test_a_missing_member_is_itself_the_parameter() -> None:
    error = refusal({"inner": {}})
    assert (error.param, error.code) == ("inner.name", "missing_required_parameter")
    assert error.message == "Missing required parameter: 'inner.name'."


def test_a_missing_member_at_the_top_has_a_plain_name() -> None:
    with pytest.raises(ClientError) as caught:
        convert({}, _Inner, "")
    assert caught.value.param == "name"


def test_a_value_that_is_no_object_at_all_is_named() -> None:
    assert refusal(["x"], "messages[0]").param == "messages[0]"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"a":}',
        b'{"a":1}{"b":2}',
        b'{"a": NaN}',
        b'{"a": NaN, "b": "\\ud800"}',
        b'{"a": "\xff"}',
        b'{"a": "\xff \\u0041"}',
        b'{"a": "\xed\xa0\xbd"}',
        b'{"a": 1e999}',
        b'{"a": 1e999, "b": "\\ud800"}',
        b'{"\\u',
        b'{"a": ' + b"1" * 5000 + b"}",
        b'{"a": "\\ud800", "b": ' + b"1" * 5000 + b"}",
    ],
)
def test_a_body_that_is_not_json_is_the_clients_mistake(body: bytes) -> None:  # bug 18
    with pytest.raises(ClientError) as caught:
        decode_body(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")
    assert "not valid JSON" in caught.value.message


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"5", b"null"])
def test_a_body_that_is_no_object_is_the_clients_mistake(body: bytes) -> None:
    with pytest.raises(ClientError, match="must be a JSON object"):
        decode_body(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"\\ud800":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"\\ud800":' + b"[" * 700 + b"]" * 700 + b"}",
        b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)
def test_a_body_nested_too_deeply_is_the_clients_mistake(body: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        decode_body(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


def test_the_depth_that_is_allowed_can_be_read_mended_and_written() -> None:
    body = b'{"\\ud800":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH
    assert encode(decode_body(body)).startswith('{"\ufffd":{'.encode())
    with pytest.raises(ClientError, match="nested too deeply"):
        decode_body(b'{"a":' + body + b"}")


def test_many_brackets_side_by_side_are_not_deep() -> None:
    body = b'{"a":[' + b",".join([b"[]", b"{}"] * 5000) + b"]}"
    assert len(decode_body(body)["a"]) == 10_000  # type: ignore[arg-type]  # a list


@given(json_objects())
def test_what_json_can_say_is_read(value: dict[str, Any]) -> None:
    assert decode_body(json.dumps(value).encode()) == value
    assert decode_body(json.dumps(value, ensure_ascii=False).encode()) == value
    assert json.loads(encode(value)) == value


def test_a_lone_surrogate_in_a_body_becomes_the_replacement_character() -> None:  # bug 24
    assert decode_body(b'{"a": ["x\\ud83d", "\\ud83d\\ude00", "\\ude00y"], "\\udfff": 1}') == {
        "a": ["x\ufffd", "😀", "\ufffdy"],
        "\ufffd": 1,
    }


def test_every_string_of_a_value_is_mended() -> None:
    torn = {"\ud800": ["\ud83d\ude00", {"k": "\udc00"}], "n": 1, "z": None}
    assert repair_surrogates(torn) == {"\ufffd": ["😀", {"k": "\ufffd"}], "n": 1, "z": None}


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_reading_raises_nothing_but_value_errors(body: bytes) -> None:
    try:
        decode(body)
    except ValueError:
        with pytest.raises(ClientError):
            decode_body(body)
