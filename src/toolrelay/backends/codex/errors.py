"""Errors of the app-server and of Codex turns, mapped to the gateway's errors."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal

from toolrelay.backends.codex.rpc import text_of
from toolrelay.core.json import Json, JsonObject
from toolrelay.errors import BackendError, ClientError, ToolrelayError
from toolrelay.wires.errors import decode_error

OVERLOADED = -32001
_INVALID_REQUEST = (-32600, -32602)

_INCOMPLETE = re.compile(r"Incomplete response returned, reason: (\w+)")
_TRUNCATIONS: dict[str, Literal["length", "content_filter"]] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_STATUS_PREFIX = re.compile(r"^unexpected status \d+[^:]*: ")
_REQUEST_DETAILS = re.compile(r", (url|request id|cf-ray): [^\s,]+")
_DISCONNECTED = "stream disconnected before completion"
_UNREACHABLE = re.compile(r"error sending request|connection (failed|refused|error)|dns error", re.IGNORECASE)

_RETRY_IN = re.compile(r"try again in ((?:\d+(?:\.\d+)?\s*[a-z]+[\s,]*(?:and\s+)?)+)", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_RETRY_AT = re.compile(r"try again at (?:([A-Z][a-z]{2}) (\d+)[a-z]*,? (\d{4}) )?(\d+):(\d\d) ?([AP]M)")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_TOO_LONG = "The conversation is longer than the model's context window."
NOT_SIGNED_IN = "Codex is not signed in, or its sign-in has run out: sign in again with `toolrelay codex login`."

# codexErrorInfo: status, type, code and message; an empty message means Codex's own.
_KNOWN_ERRORS: dict[str, tuple[int, str, str, str]] = {
    "contextWindowExceeded": (400, "invalid_request_error", "context_length_exceeded", _TOO_LONG),
    "usageLimitExceeded": (429, "rate_limit_error", "insufficient_quota", ""),
    "sessionBudgetExceeded": (429, "rate_limit_error", "insufficient_quota", ""),
    "rateLimitExceeded": (429, "rate_limit_error", "rate_limit_exceeded", ""),
    "flexUnavailable": (429, "rate_limit_error", "resource_unavailable", ""),
    "serverOverloaded": (503, "server_error", "server_overloaded", ""),
    "internalServerError": (500, "server_error", "upstream_error", ""),
    "cyberPolicy": (400, "invalid_request_error", "content_policy_violation", ""),
    "misalignmentPolicyViolation": (400, "invalid_request_error", "content_policy_violation", ""),
    "unauthorized": (502, "server_error", "upstream_auth", NOT_SIGNED_IN),
}


class CodexError(Exception):
    """A failure of the app-server. `code` is its JSON-RPC error code, if it refused; `is_gone`: its process has ended."""

    def __init__(self, message: str, *, code: int | None = None, is_gone: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.is_gone = is_gone


def to_gateway_error(error: CodexError) -> ToolrelayError:
    if error.code in _INVALID_REQUEST:
        return ClientError(f"Codex refused the request: {error.message}", code="unsupported_by_upstream")
    if error.code is not None:
        return BackendError(f"Codex refused the request: {error.message}", status=503 if error.code == OVERLOADED else 502)
    status, code = (502, "upstream_cut") if error.is_gone else (504, "upstream_timeout")
    return BackendError(f"{error.message}.", status=status, code=code)


def truncation_finish(error: JsonObject) -> Literal["length", "content_filter"] | None:
    """Return the finish of an answer that was only truncated, which Codex reports as a failure."""
    found = _INCOMPLETE.search(_message(error))
    return _TRUNCATIONS.get(found[1]) if found is not None else None


def decode_turn_error(error: JsonObject, *, now: datetime, is_account: bool) -> BackendError:
    """Decode the error of a failed turn.

    `now` is local time, which Codex uses for the end of a limit. `is_account`: the upstream key is the user's sign-in. For an
    HTTP 429 outside of the stream, Codex reports neither body nor headers, so there is no retry_after.
    """
    decoded = _decode_turn_error(error, is_account=is_account)
    if decoded.status in (429, 503):
        decoded.retry_after = _parse_retry_after(_message(error), now)
    return decoded


def _decode_turn_error(error: JsonObject, *, is_account: bool) -> BackendError:
    message, kind = _message(error), error.get("codexErrorInfo")
    if isinstance(kind, str) and kind in _KNOWN_ERRORS:
        known_status, type_, code, known_message = _KNOWN_ERRORS[kind]
        return BackendError(known_message or message, status=known_status, type=type_, code=code)
    status = _http_status(kind)
    if status in (401, 403) and is_account:
        return BackendError(NOT_SIGNED_IN, code="upstream_auth")
    if status is not None:
        body = _REQUEST_DETAILS.sub("", _STATUS_PREFIX.sub("", message))
        decoded = decode_error(status, body.encode(errors="replace"))
        if status == 429:
            decoded.code = "rate_limit_exceeded"
        return decoded
    if message.lstrip().startswith("{"):  # the body of an HTTP 400
        return decode_error(400, message.encode(errors="replace"))
    if message.startswith(_DISCONNECTED):
        reason = message.removeprefix(_DISCONNECTED).strip(": ")
        return BackendError(f"The model's server cut its answer off: {reason}", code="upstream_cut")
    if isinstance(kind, dict) or _UNREACHABLE.search(message):
        reason = _REQUEST_DETAILS.sub("", message)
        return BackendError(f"The model's server cannot be reached: {reason}", code="upstream_unreachable")
    return BackendError(message)


def _parse_retry_after(message: str, now: datetime) -> float | None:
    """Return the seconds until a limit ends, from a duration or a time in the message."""
    duration = _RETRY_IN.search(message)
    if duration is not None:
        return sum(float(number) * _unit_seconds(unit.lower()) for number, unit in _DURATION.findall(duration[1]))
    at = _RETRY_AT.search(message)
    if at is None:
        return None
    month, day, year, hour, minute, half = at.groups()
    try:
        then = now.replace(hour=int(hour) % 12 + (12 if half == "PM" else 0), minute=int(minute), second=0, microsecond=0)
        if month is not None:
            then = then.replace(year=int(year), month=_MONTHS.index(month) + 1, day=int(day))
        elif then < now:
            then += timedelta(days=1)
    except ValueError:
        return None
    return max((then - now).total_seconds(), 0.0)


def _unit_seconds(unit: str) -> float:
    return 0.001 if unit in ("ms", "milliseconds") else _UNIT_SECONDS.get(unit[0], 1)


def _message(error: JsonObject) -> str:
    return text_of(error, "message") or "Codex reported a failure without saying which."


def _http_status(kind: Json) -> int | None:
    for details in kind.values() if isinstance(kind, dict) else ():
        status = details.get("httpStatusCode") if isinstance(details, dict) else None
        if isinstance(status, int) and 400 <= status <= 599:
            return status
    return None
