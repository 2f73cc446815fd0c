"""The items of a conversation, in order.

Items are those of Responses. A Chat message with calls is an assistant's Message followed by its Calls; a Chat message of role
"tool" is a Result. `extra` holds members that only the client's wire defines: they are encoded again if the backend uses the
same wire, otherwise dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.core.json import Json, JsonObject

Role: TypeAlias = Literal["system", "developer", "user", "assistant"]
WITHHELD = "[withheld]"  # in the place of a private result
CallKind: TypeAlias = Literal["function", "custom"]


class _Value(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Tagged, so that the ledger can decode items and parts."""

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
    """A part that only its own wire can represent."""

    wire: str
    raw: JsonObject


Part: TypeAlias = Text | Refusal | Image | Audio | File | OpaquePart
Content: TypeAlias = str | tuple[Part, ...]


class Message(_Value, frozen=True):
    """`is_separate`: see MessageStarted."""

    role: Role
    content: Content
    name: str | None = None
    id: str | None = None
    phase: str | None = None
    is_separate: bool = False


class Call(_Value, frozen=True):
    """A tool call. `arguments` is the model's text: JSON for a function, free text for a custom tool."""

    id: str
    name: str
    arguments: str
    kind: CallKind = "function"
    item_id: str | None = None
    namespace: str | None = None


class Result(_Value, frozen=True):
    """The result of the call with this id. `private`: only a local model may see it."""

    call_id: str
    output: Content
    kind: CallKind = "function"
    name: str | None = None
    item_id: str | None = None
    private: bool = False


class Reasoning(_Value, frozen=True):
    """Reasoning of the model: text, summaries, or content that the provider encrypted."""

    text: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
    encrypted: str | None = None
    id: str | None = None


class OpaqueItem(_Value, frozen=True):
    """An item that only its own wire can represent, such as a provider's web search."""

    wire: str
    raw: JsonObject


Item: TypeAlias = Message | Call | Result | Reasoning | OpaqueItem


class GatewayCall(Struct, frozen=True, kw_only=True):
    """A call that the gateway ran, as the client is shown it. `output` is None until it is finished.

    `approval` is the id of the question that a person was asked about it.
    """

    id: str
    name: str
    toolset: str
    arguments: str
    output: str | None = None
    failed: bool = False
    approval: str | None = None


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A question to the client whether the gateway may run a call."""

    id: str
    name: str
    toolset: str
    arguments: str


OutputItem: TypeAlias = Item | GatewayCall | ApprovalRequest


def insert_results(items: Sequence[Item], results: Sequence[Result]) -> tuple[Item, ...]:
    """Put results after the group of calls that they belong to, or first if the calls are not among the items."""
    calls = {item.id for item in items if isinstance(item, Call)}
    waiting = {result.call_id: result for result in results if result.call_id in calls}
    out: list[Item] = [result for result in results if result.call_id not in calls]
    group: list[Item] = []
    for item in items:
        if not isinstance(item, Call):
            out += group
            group = []
        out.append(item)
        if isinstance(item, Call) and item.id in waiting:
            group.append(waiting.pop(item.id))
    return (*out, *group)


def withhold_private(items: Sequence[Item]) -> tuple[Item, ...]:
    """Replace private results, for a model that is not local."""
    if not any(isinstance(item, Result) and item.private for item in items):
        return tuple(items)
    return tuple([replace(item, output=WITHHELD) if isinstance(item, Result) and item.private else item for item in items])


def plain_text(content: Content) -> str:
    """Return the text of the content without its other parts."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, Text | Refusal))
