"""What a conversation is made of: items, in the order in which they were said.

An item is what Responses calls one. A Chat message with calls is an assistant's Message followed by its Calls; a Chat message
of role "tool" is a Result. `extra` holds members that only the client's own wire knows: they are written again where the
backend speaks the same wire, and nowhere else.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from toolrelay.core.json import Json, JsonObject

Role: TypeAlias = Literal["system", "developer", "user", "assistant"]
CallKind: TypeAlias = Literal["function", "custom"]


class _Value(Struct, frozen=True, kw_only=True, tag=True):
    """Tagged, so that the ledger can tell items and parts apart when it reads them back."""

    extra: JsonObject | None = None


class Text(_Value, frozen=True):
    text: str
    annotations: tuple[Json, ...] = ()
    logprobs: tuple[Json, ...] = ()


class Refusal(_Value, frozen=True):
    text: str


class Image(_Value, frozen=True):
    url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class Audio(_Value, frozen=True):
    data: str
    format: str


class File(_Value, frozen=True):
    file_id: str | None = None
    data: str | None = None
    url: str | None = None
    filename: str | None = None


class OpaquePart(_Value, frozen=True):
    """A part that only its own wire understands."""

    wire: str
    raw: JsonObject


Part: TypeAlias = Text | Refusal | Image | Audio | File | OpaquePart
Content: TypeAlias = str | tuple[Part, ...]


class Message(_Value, frozen=True):
    role: Role
    content: Content
    name: str | None = None
    id: str | None = None
    phase: str | None = None


class Call(_Value, frozen=True):
    """One tool call. `arguments` is the model's own text: JSON for a function, free for a custom tool."""

    id: str
    name: str
    arguments: str
    kind: CallKind = "function"
    item_id: str | None = None
    namespace: str | None = None


class Result(_Value, frozen=True):
    """The answer to the call with that id."""

    call_id: str
    output: Content
    kind: CallKind = "function"
    name: str | None = None
    item_id: str | None = None


class Reasoning(_Value, frozen=True):
    """Thoughts of the model: as text, as summaries, or sealed by the provider."""

    text: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
    encrypted: str | None = None
    id: str | None = None


class OpaqueItem(_Value, frozen=True):
    """An item that only its own wire understands, such as a provider's own web search."""

    wire: str
    raw: JsonObject


Item: TypeAlias = Message | Call | Result | Reasoning | OpaqueItem


def plain_text(content: Content) -> str:
    """The text of it, other parts left out."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, Text | Refusal))
