"""Errors in OpenAI's shape, ours and a provider's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.errors import BackendError, ClientError, ToolrelayError
from toolrelay.wires.errors import decode_error, encode_error


def test_an_error_is_written_with_all_its_members() -> None:
    error = ClientError("No.", param="input", code="c")
    assert json.loads(encode_error(error)) == {
        "error": {"message": "No.", "type": "invalid_request_error", "param": "input", "code": "c"},
    }


def test_an_error_that_says_little_has_its_members_still() -> None:
    assert json.loads(encode_error(ToolrelayError("No.\ud83d"))) == {
        "error": {"message": "No.\ufffd", "type": "server_error", "param": None, "code": None},
    }


def test_a_providers_error_is_passed_on_with_its_meaning() -> None:
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
def test_a_status_is_passed_on_if_it_is_one_of_an_error(status: int, passed_on: int) -> None:
    assert decode_error(status, b'{"error":{"message":"m"}}').status == passed_on


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (404, "invalid_request_error"), (429, "rate_limit_error"), (500, "server_error")],
)
def test_a_type_that_the_provider_did_not_give_follows_the_status(status: int, kind: str) -> None:
    assert decode_error(status, b'{"error":{"message":"m"}}').type == kind


def test_the_gateways_key_being_refused_is_not_the_clients_fault() -> None:
    error = decode_error(401, b'{"error":{"message":"m","type":"invalid_request_error","code":"invalid_api_key"}}')
    assert (error.status, error.code, error.type) == (502, "upstream_auth", "server_error")
    assert "gateway's own key" in error.message


def test_what_is_said_beside_a_401_stays_here_since_it_may_quote_the_key() -> None:
    assert "sk-12" not in decode_error(401, b'{"error":{"message":"Incorrect API key provided: sk-12***"}}').message


def test_a_403_may_be_about_anything_and_goes_on_as_it_came() -> None:
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
def test_an_error_is_understood_in_every_shape(body: bytes, message: str) -> None:
    assert decode_error(400, body).message == message


def test_a_long_page_is_cut_short() -> None:
    assert len(decode_error(502, b"<html>" + b"x" * 10_000).message) <= 501


def test_a_numeric_code_becomes_text() -> None:
    assert decode_error(400, b'{"error":{"message":"m","code":1302}}').code == "1302"
    assert decode_error(400, b'{"error":{"message":"m","code":null}}').code == "upstream_error"


@given(st.integers(100, 999), st.binary(max_size=30) | st.just(b"[" * 100_000))
def test_whatever_a_provider_sends_its_error_can_be_told(status: int, body: bytes) -> None:
    assert json.loads(encode_error(decode_error(status, body)))["error"]["message"]
