"""The output schemas that a model's provider has refused, so that it is not asked again with every request."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec

from toolrelay.backends.codex.request import TurnPlan
from toolrelay.backends.codex.strict_schema import REFUSED_SCHEMA
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.errors import BackendError, ToolrelayError

MAX_SCHEMAS = 256
_STATUSES = (400, 422)
_ABOUT_SCHEMAS = re.compile(r"schema|response_format|text\.format|additionalProperties", re.IGNORECASE)


class RefusedSchemas:
    """The newest refused schemas of one model, by their hash, with the provider's message."""

    def __init__(self) -> None:
        self._messages: dict[bytes, str] = {}

    def add(self, plan: TurnPlan, events: Sequence[StreamEvent]) -> None:
        """Remember the schema if the answer failed because of it."""
        last = events[-1] if events else None
        if "outputSchema" not in plan.turn or not isinstance(last, AnswerFailed) or not _is_about_schemas(last.error):
            return
        if len(self._messages) >= MAX_SCHEMAS:
            del self._messages[next(iter(self._messages))]
        self._messages[_hash(plan)] = last.error.message

    def check(self, plan: TurnPlan) -> None:
        """Raise the error that the provider would send."""
        if self._messages and "outputSchema" in plan.turn:
            message = self._messages.get(_hash(plan))
            if message is not None:
                raise BackendError(message, status=400, type="invalid_request_error", code=REFUSED_SCHEMA)


def _is_about_schemas(error: ToolrelayError) -> bool:
    named = f"{error.code} {error.param} {error.message}"
    return error.status in _STATUSES and _ABOUT_SCHEMAS.search(named) is not None


def _hash(plan: TurnPlan) -> bytes:
    return hashlib.sha256(msgspec.json.encode(plan.turn["outputSchema"])).digest()
