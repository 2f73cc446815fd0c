"""JSON decoding, and the errors for invalid bodies and values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tests.strategies import json_objects
from toolrelay.errors import ClientError
from toolrelay.wires.json import MAX_DEPTH, convert, decode, decode_body, encode, is_object, repair_surrogates


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


def test_wrong_type_is_described_in_json_terms() -> None:
    error = refusal({"number": "hot"})
    assert error.status == 400
    assert (error.param, error.code) == ("number", "invalid_type")
    assert error.message == "Invalid value for 'number': expected number or null, got string."


def test_union_of_types_is_described_without_repetition() -> None:
    assert refusal({"either": True}).message == "Invalid value for 'either': expected number, string, array or null, got boolean."


def test_error_names_the_path_of_a_nested_value() -> None:
    assert refusal({"many": [{"name": "a"}, {"name": 1}]}).param == "many[1].name"
    assert refusal({"many": [{"name": "a"}, {"name": 1}]}, "outer[3]").param == "outer[3].many[1].name"


def test_missing_member_is_named_as_the_parameter() -> None:
    error = refusal({"inner": {}})
    assert (error.param, error.code) == ("inner.name", "missing_required_parameter")
    assert error.message == "Missing required parameter: 'inner.name'."


def test_missing_top_level_member_is_named_without_a_path() -> None:
    with pytest.raises(ClientError) as caught:
        convert({}, _Inner, "")
    assert caught.value.param == "name"


def test_value_that_is_not_an_object_is_refused() -> None:
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
def test_body_that_is_not_json_is_a_client_error(body: bytes) -> None:  # bug 18
    with pytest.raises(ClientError) as caught:
        decode_body(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")
    assert "not valid JSON" in caught.value.message


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"5", b"null"])
def test_body_that_is_not_an_object_is_a_client_error(body: bytes) -> None:
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
def test_body_nested_too_deeply_is_a_client_error(body: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        decode_body(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


def test_maximum_depth_can_be_decoded_repaired_and_encoded() -> None:
    body = b'{"\\ud800":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH
    assert encode(decode_body(body)).startswith('{"\ufffd":{'.encode())
    with pytest.raises(ClientError, match="nested too deeply"):
        decode_body(b'{"a":' + body + b"}")


def test_many_flat_brackets_are_not_too_deep() -> None:
    body = b'{"a":[' + b",".join([b"[]", b"{}"] * 5000) + b"]}"
    assert len(decode_body(body)["a"]) == 10_000  # type: ignore[arg-type]  # a list


@given(json_objects())
def test_valid_json_is_decoded(value: dict[str, Any]) -> None:
    assert decode_body(json.dumps(value).encode()) == value
    assert decode_body(json.dumps(value, ensure_ascii=False).encode()) == value
    assert json.loads(encode(value)) == value


def test_lone_surrogate_in_a_body_becomes_the_replacement_character() -> None:  # bug 24
    assert decode_body(b'{"a": ["x\\ud83d", "\\ud83d\\ude00", "\\ude00y"], "\\udfff": 1}') == {
        "a": ["x\ufffd", "😀", "\ufffdy"],
        "\ufffd": 1,
    }


def test_surrogates_are_repaired_in_every_string() -> None:
    value = {"\ud800": ["\ud83d\ude00", {"k": "\udc00"}], "n": 1, "z": None}
    assert repair_surrogates(value) == {"\ufffd": ["😀", {"k": "\ufffd"}], "n": 1, "z": None}


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_decode_raises_only_value_errors(body: bytes) -> None:
    try:
        decode(body)
    except ValueError:
        with pytest.raises(ClientError):
            decode_body(body)


@pytest.mark.parametrize("text", ["", "[]", '"x"', "5", "null", "nonsense", '{"a": }'])
def test_is_object_rejects_everything_but_objects(text: str) -> None:
    assert not is_object(text)
    assert is_object('{"a": {}}')
