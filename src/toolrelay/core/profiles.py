"""What a model's server can do and insists on: data, not code."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Profile(Struct, frozen=True, kw_only=True):
    """The defaults describe a server that follows OpenAI's API without frills.

    developer_role     it knows the role "developer"; else such messages go as "system"
    max_tokens_field   how it spells the limit on Chat; None: as the client did
    stream_usage       it may be asked for usage at the end of a Chat stream
    call_ids           "nine": it accepts only ids of nine letters and digits (Mistral)
    """

    developer_role: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    stream_usage: bool = True
    call_ids: Literal["any", "nine"] = "any"
