"""Google's errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wires.gemini.oracle import WIRE
from toolrelay.errors import BackendError

Json = dict[str, Any]


def decoded(code: int, /, **members: Any) -> BackendError:
    return WIRE.decode_error(code, json.dumps({"error": {"code": code, **members}}).encode())


@pytest.mark.parametrize(
    ("status", "said", "code", "kind"),
    [
        (400, "INVALID_ARGUMENT", "invalid_argument", "invalid_request_error"),
        (403, "PERMISSION_DENIED", "permission_denied", "invalid_request_error"),
        (404, "NOT_FOUND", "not_found", "invalid_request_error"),
        (429, "RESOURCE_EXHAUSTED", "rate_limit_exceeded", "rate_limit_error"),
        (500, "INTERNAL", "internal", "server_error"),
        (503, "UNAVAILABLE", "overloaded", "server_error"),
        (504, "DEADLINE_EXCEEDED", "deadline_exceeded", "server_error"),
    ],
)
def test_status_becomes_the_code(status: int, said: str, code: str, kind: str) -> None:
    error = decoded(status, message="No.", status=said)
    assert (error.status, error.message, error.code, error.type) == (status, "No.", code, kind)


def test_error_in_a_list_is_read() -> None:
    error = WIRE.decode_error(400, b'[{"error": {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT"}}]')
    assert (error.message, error.code) == ("No.", "invalid_argument")


def test_invalid_key_is_the_gateways_and_not_quoted() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
    error = decoded(400, message="API key not valid: AIza…", status="INVALID_ARGUMENT", details=[info])
    assert (error.status, error.code) == (502, "upstream_auth")
    assert "AIza" not in error.message


@pytest.mark.parametrize(
    ("delay", "expected"), [("34s", 34.0), ("0.25s", 0.25), ("34", None), (5, None), ("-1s", None), ("9" * 400 + "s", None)]
)
def test_time_to_wait_is_read_from_the_details(delay: object, expected: float | None) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    error = decoded(429, message="Quota exceeded.", status="RESOURCE_EXHAUSTED", details=["odd", info])
    assert error.retry_after == expected


def test_too_long_a_prompt_has_openais_code() -> None:
    message = "The input token count (1048580) exceeds the maximum number of tokens allowed (1048575)."
    assert decoded(400, message=message, status="INVALID_ARGUMENT").code == "context_length_exceeded"


@pytest.mark.parametrize(
    "members", [{"status": 5}, {"status": "odd\r\n"}, {"details": {}}, {"details": [1, None]}, {"message": {}}]
)
def test_odd_members_do_no_harm(members: Json) -> None:
    error = decoded(500, **members)
    assert error.status == 500
    assert error.message
