"""Redaction of the gateway's API key in upstream errors, which may quote it."""

from __future__ import annotations

from os.path import commonprefix
from urllib.parse import quote

from toolrelay.core.events import AnswerFailed, StreamEvent

REDACTED = "[the gateway's key]"
_MAX_SHOWN = 8  # characters of a truncated key that may be shown: the length of the common prefix `sk-proj-`


def redact(text: str, key: str) -> str:
    """Replace the key, also if it is percent-encoded or truncated."""
    if not key:
        return text
    head, rest = key[:_MAX_SHOWN], key[_MAX_SHOWN:]
    first, *others = text.replace(quote(key, safe=""), REDACTED).split(head)
    return first + "".join(REDACTED + other[len(commonprefix((other, rest))) :] for other in others)  # noqa: RUF071 -- characters are compared, not paths


def redact_failure(events: list[StreamEvent], key: str) -> list[StreamEvent]:
    """Redact, in place, the error of a final AnswerFailed."""
    last = events[-1] if events else None
    if isinstance(last, AnswerFailed) and key:
        error = last.error
        error.message = redact(error.message, key)
        error.type = redact(error.type, key)
        error.code = error.code and redact(error.code, key)
        error.param = error.param and redact(error.param, key)
        error.args = (error.message,)
    return events
