"""What a model's server can do and insists on, and how families of models print: data, not code."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Profile(Struct, frozen=True, kw_only=True):
    """The defaults describe a server that follows OpenAI's API without frills.

    developer_role     it knows the role "developer"; else such messages go as "system"
    max_tokens_field   how it spells the limit on Chat; None: as the client did
    stream_usage       it may be asked for usage at the end of a Chat stream
    call_ids           "nine": it accepts only ids of nine letters and digits (Mistral)
    constrains         it holds a model's output to a JSON schema given as response_format
    tools              it takes tools, and its models call them; else they can only print
    enforces_tool_choice       it sees to tool_choice; else a choice that must be met is met by printing
    tool_names         "plain": it takes only names of letters, digits, _ and -, up to 64
    whole_calls        its native calls arrive whole, and its models run on after them
    stop_sequences     it knows stop sequences
    """

    developer_role: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    stream_usage: bool = True
    call_ids: Literal["any", "nine"] = "any"
    constrains: bool = False
    tools: bool = True
    enforces_tool_choice: bool = True
    tool_names: Literal["any", "plain"] = "any"
    whole_calls: bool = False
    stop_sequences: bool = True
