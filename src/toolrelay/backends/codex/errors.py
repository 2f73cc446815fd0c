"""What Codex says when a turn fails, as an error that a client can use, or as the end of an answer that was cut."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal

from toolrelay.core.json import Json, JsonObject
from toolrelay.errors import BackendError
from toolrelay.wires.errors import decode_error

_INCOMPLETE = re.compile(r"Incomplete response returned, reason: (\w+)")
_STATUS = re.compile(r"^unexpected status \d+[^:]*: ")
_BESIDES = re.compile(r", (url|request id|cf-ray): [^\s,]+")
_CUT = "stream disconnected before completion"
_UNREACHED = re.compile(r"error sending request|connection (failed|refused|error)|dns error", re.IGNORECASE)

_IN = re.compile(r"try again in ((?:\d+(?:\.\d+)?\s*[a-z]+[\s,]*(?:and\s+)?)+)", re.IGNORECASE)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_AT = re.compile(r"try again at (?:([A-Z][a-z]{2}) (\d+)[a-z]*,? (\d{4}) )?(\d+):(\d\d) ?([AP]M)")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}

_TOO_LONG = "The conversation is longer than the model's context window."
SIGN_IN = "Codex is not signed in, or its sign-in has run out: sign in again with `codex login`."

# Words of codexErrorInfo that say it all. The message is Codex's own where none is given here.
_WORDS: dict[str, tuple[int, str, str, str]] = {
    "contextWindowExceeded": (400, "invalid_request_error", "context_length_exceeded", _TOO_LONG),
    "usageLimitExceeded": (429, "rate_limit_error", "insufficient_quota", ""),
    "sessionBudgetExceeded": (429, "rate_limit_error", "insufficient_quota", ""),
    "rateLimitExceeded": (429, "rate_limit_error", "rate_limit_exceeded", ""),
    "flexUnavailable": (429, "rate_limit_error", "resource_unavailable", ""),
    "serverOverloaded": (503, "server_error", "server_overloaded", ""),
    "internalServerError": (500, "server_error", "upstream_error", ""),
    "cyberPolicy": (400, "invalid_request_error", "content_policy_violation", ""),
    "misalignmentPolicyViolation": (400, "invalid_request_error", "content_policy_violation", ""),
    "unauthorized": (502, "server_error", "upstream_auth", SIGN_IN),
}


def cut_short(error: JsonObject) -> Literal["length", "content_filter"] | None:
    """How an answer ended that failed, for Codex, only by being cut."""
    found = _INCOMPLETE.search(_message(error))
    if found is None:
        return None
    return "content_filter" if found[1] == "content_filter" else "length" if found[1] == "max_output_tokens" else None


def explained(error: JsonObject, *, now: datetime, is_account: bool) -> BackendError:
    """`now` is the local time, in which Codex says when a limit will be lifted. `is_account`: no key of the gateway's is used.

    Of a 429 that is not in the stream Codex keeps its body and its headers to itself, and so when to try again.
    """
    found = _explained(error, is_account=is_account)
    if found.status in (429, 503):
        found.retry_after = retry_after(_message(error), now)
    return found


def _explained(error: JsonObject, *, is_account: bool) -> BackendError:
    message, kind = _message(error), error.get("codexErrorInfo")
    if isinstance(kind, str) and kind in _WORDS:
        code_of_http, type_, code, said = _WORDS[kind]
        return BackendError(said or message, status=code_of_http, type=type_, code=code)
    status = _http_status(kind)
    if status in (401, 403) and is_account:
        return BackendError(SIGN_IN, code="upstream_auth")
    if status is not None:
        said = _BESIDES.sub("", _STATUS.sub("", message))
        found = decode_error(status, said.encode(errors="replace"))
        if status == 429:
            found.code = "rate_limit_exceeded"
        return found
    if message.lstrip().startswith("{"):  # a 400, of which Codex gives the body
        return decode_error(400, message.encode(errors="replace"))
    if message.startswith(_CUT):
        return BackendError(f"The model's server cut its answer off: {message[len(_CUT) :].strip(': ')}", code="upstream_cut")
    if isinstance(kind, dict) or _UNREACHED.search(message):
        return BackendError(f"The model's server cannot be reached: {_BESIDES.sub('', message)}", code="upstream_unreachable")
    return BackendError(message)


def retry_after(message: str, now: datetime) -> float | None:
    """The seconds until a limit is lifted, from how Codex and OpenAI say it: in a while, or at a time."""
    found = _IN.search(message)
    if found is not None:
        spans = [(float(number), _unit(word)) for number, word in _SPAN.findall(found[1])]
        return sum(number * unit for number, unit in spans)
    at = _AT.search(message)
    if at is None:
        return None
    month, day, year, hour, minute, half = at.groups()
    then = now.replace(hour=int(hour) % 12 + (12 if half == "PM" else 0), minute=int(minute), second=0, microsecond=0)
    try:
        if month is not None:
            then = then.replace(year=int(year), month=_MONTHS.index(month) + 1, day=int(day))
        elif then < now:
            then += timedelta(days=1)
    except ValueError:
        return None
    return max((then - now).total_seconds(), 0.0)


def _unit(word: str) -> float:
    return _SECONDS["ms"] if word.lower() in ("ms", "milliseconds") else _SECONDS.get(word[0].lower(), 1)


def _message(error: JsonObject) -> str:
    message = error.get("message")
    return message if isinstance(message, str) and message else "Codex reported a failure without saying which."


def _http_status(kind: Json) -> int | None:
    if not isinstance(kind, dict):
        return None
    for held in kind.values():
        status = held.get("httpStatusCode") if isinstance(held, dict) else None
        if isinstance(status, int) and 400 <= status <= 599:
            return status
    return None
