"""The Chat wire's value."""

from __future__ import annotations

import json

from toolrelay.errors import BackendError, invalid
from toolrelay.wires.base import discover
from toolrelay.wires.chat import WIRE


def test_wire_is_discovered_by_name() -> None:
    assert discover()["openai_chat"] is WIRE
    assert WIRE.path == "/chat/completions"


def test_key_becomes_a_bearer_token() -> None:
    assert WIRE.credentials("sk-1") == [("authorization", "Bearer sk-1")]
    assert WIRE.credentials("") == []


def test_error_has_openai_shape() -> None:
    assert json.loads(WIRE.encode_error(invalid("No.", "tools", code="x"))) == {
        "error": {"message": "No.", "type": "invalid_request_error", "param": "tools", "code": "x"}
    }


def test_provider_error_keeps_status_and_code() -> None:
    body = {"error": {"message": "slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    error = WIRE.decode_error(429, json.dumps(body).encode())
    assert isinstance(error, BackendError)
    assert (error.status, error.message, error.code) == (429, "slow down", "rate_limit_exceeded")
