"""Redaction of the gateway's own key: providers quote what they were sent, and no client and no log may show it."""

from __future__ import annotations

from os.path import commonprefix
from urllib.parse import quote

from toolrelay.core.events import AnswerFailed, StreamEvent

REDACTED = "[the gateway's key]"
_SHOWN = 8  # characters of a truncated key that may be shown: as many as `sk-proj-` has, which all keys begin with


def redact(text: str, key: str) -> str:
    """Replace the key, also where it is percent-encoded, or was truncated before it came here."""
    if not key:
        return text
    head, rest = key[:_SHOWN], key[_SHOWN:]
    first, *others = text.replace(quote(key, safe=""), REDACTED).split(head)
    return first + "".join(REDACTED + other[len(commonprefix((other, rest))) :] for other in others)  # noqa: RUF071 -- characters are what is to be compared


def redact_failure(events: list[StreamEvent], key: str) -> list[StreamEvent]:
    """Redact the error at the end of these events, if there is one, in place."""
    last = events[-1] if events else None
    if isinstance(last, AnswerFailed) and key:
        error = last.error
        error.message = redact(error.message, key)
        error.type = redact(error.type, key)
        error.code = error.code and redact(error.code, key)
        error.param = error.param and redact(error.param, key)
        error.args = (error.message,)
    return events
