"""Google's errors: {"error": {"code", "message", "status", "details"}}, alone or in a list, decoded from providers."""

from __future__ import annotations

import re

from toolrelay.errors import BackendError
from toolrelay.wires import errors
from toolrelay.wires.json import encode_repaired

_KEY_REASONS = ("API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED", "ACCESS_TOKEN_EXPIRED")
_CODES = {"RESOURCE_EXHAUSTED": "rate_limit_exceeded", "UNAVAILABLE": "overloaded"}
_TOO_LONG = re.compile(r"input token count.{0,40} exceeds the maximum")
_DELAY = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")
_STATUS = re.compile(r"[A-Z_]{1,60}")


def decode_error(status: int, body: bytes) -> BackendError:
    """Decode a provider's error. An invalid key has the status 400; the time to wait is in the details."""
    members = errors.error_members(body)
    details = members.get("details")
    infos = [info for info in details if isinstance(info, dict)] if isinstance(details, list) else []
    said = members.get("status")
    if any(info.get("reason") in _KEY_REASONS for info in infos) or said == "UNAUTHENTICATED":
        return errors.decode_error(401, body)
    error = errors.decode_error(status, body)
    if isinstance(said, str) and _STATUS.fullmatch(said):
        error.code = _CODES.get(said, said.lower())
    if _TOO_LONG.search(error.message):
        error.code = "context_length_exceeded"
    error.retry_after = next((delay for info in infos if (delay := _delay(info.get("retryDelay"))) is not None), None)
    return error


def decode_stream_error(value: object) -> BackendError:
    """Decode the member `error` of a frame, whose code is a status."""
    error = value if isinstance(value, dict) else {"message": value if isinstance(value, str) else None}
    code = error.get("code")
    status = code if type(code) is int and 400 <= code <= 599 else 502
    message = error.get("message") or "The provider reported a failure without saying which."
    return decode_error(status, encode_repaired({"error": {**error, "message": message}}))


def _delay(value: object) -> float | None:
    found = _DELAY.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else float(found[1])
