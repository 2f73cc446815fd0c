"""Errors in OpenAI's shape: encoded for clients, decoded from providers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.errors import BackendError, ClientError, ToolrelayError
from toolrelay.wires.errors import decode_error, encode_error


def test_error_is_encoded_with_all_members() -> None:
    error = ClientError("No.", param="input", code="c")
    assert json.loads(encode_error(error)) == {
        "error": {"message": "No.", "type": "invalid_request_error", "param": "input", "code": "c"},
    }


def test_error_without_code_and_param_has_null_members() -> None:
    assert json.loads(encode_error(ToolrelayError("No.\ud83d"))) == {
        "error": {"message": "No.\ufffd", "type": "server_error", "param": None, "code": None},
    }


def test_provider_error_keeps_its_members() -> None:
    body = b'{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}'
    error = decode_error(400, body)
    assert isinstance(error, BackendError)
    assert (error.message, error.type, error.param, error.code, error.status) == (
        "too long",
        "invalid_request_error",
        "messages",
        "context_length_exceeded",
        400,
    )


@pytest.mark.parametrize(
    ("status", "passed_on"),
    [(400, 400), (402, 402), (404, 404), (422, 422), (429, 429), (500, 500), (503, 503), (529, 529), (302, 502), (200, 502)],
)
def test_status_outside_400_to_599_becomes_502(status: int, passed_on: int) -> None:
    assert decode_error(status, b'{"error":{"message":"m"}}').status == passed_on


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (404, "invalid_request_error"), (429, "rate_limit_error"), (500, "server_error")],
)
def test_missing_type_is_derived_from_the_status(status: int, kind: str) -> None:
    assert decode_error(status, b'{"error":{"message":"m"}}').type == kind


def test_provider_401_becomes_an_upstream_auth_error() -> None:
    error = decode_error(401, b'{"error":{"message":"m","type":"invalid_request_error","code":"invalid_api_key"}}')
    assert (error.status, error.code, error.type) == (502, "upstream_auth", "server_error")
    assert "gateway's own key" in error.message


def test_message_of_a_provider_401_is_not_passed_on() -> None:
    assert "sk-12" not in decode_error(401, b'{"error":{"message":"Incorrect API key provided: sk-12***"}}').message


def test_provider_403_is_passed_on() -> None:
    error = decode_error(403, b'{"error":{"message":"not in your country","code":"unsupported_country"}}')
    assert (error.status, error.code, error.message) == (403, "unsupported_country", "not in your country")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":"m"}', "m"),
        (b'{"message":"m","object":"error","code":400}', "m"),
        (b'{"detail":"m"}', "m"),
        (b'{"detail":[{"loc":["body"]}]}', '[{"loc":["body"]}]'),
        (b'[{"error":{"message":"m"}}]', "m"),
        (b"  out\n of   luck ", "out of luck"),
        (b"", "The provider answered with status 400."),
        (b"{}", "The provider answered with status 400."),
        (b'{"error":{"message":""}}', "The provider answered with status 400."),
        (b"[]", "[]"),
        (b"\xff", "\ufffd"),
    ],
)
def test_error_of_every_shape_is_decoded(body: bytes, message: str) -> None:
    assert decode_error(400, body).message == message


def test_long_error_page_is_truncated() -> None:
    assert len(decode_error(502, b"<html>" + b"x" * 10_000).message) <= 501


def test_numeric_code_becomes_a_string() -> None:
    assert decode_error(400, b'{"error":{"message":"m","code":1302}}').code == "1302"
    assert decode_error(400, b'{"error":{"message":"m","code":null}}').code == "upstream_error"


@given(st.integers(100, 999), st.binary(max_size=30) | st.just(b"[" * 100_000))
def test_any_provider_error_can_be_encoded_again(status: int, body: bytes) -> None:
    assert json.loads(encode_error(decode_error(status, body)))["error"]["message"]
