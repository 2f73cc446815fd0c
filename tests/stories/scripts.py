"""The values of a story: what the model answers, what the client asks and returns, and what a provider was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

Json: TypeAlias = dict[str, Any]


class MadeCall(Struct, frozen=True):
    """A call of the model. That of a custom tool has one argument, `input`; `is_custom` says that its wire has such calls."""

    name: str
    arguments: Json = {}
    is_custom: bool = False


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """One answer of the model: text, then calls."""

    text: str = ""
    calls: tuple[MadeCall, ...] = ()


class StoryRound(Struct, frozen=True, kw_only=True):
    """A request of the client and its answer. `choice` is auto, none, required, or the name of a tool.

    `results` are those that the client returns for its calls, in order; `failed` says that they are errors.
    """

    answer: ModelAnswer
    choice: str = "auto"
    results: tuple[str, ...] = ()
    failed: bool = False


class Story(Struct, frozen=True, kw_only=True):
    name: str
    rounds: tuple[StoryRound, ...]


class Style(Struct, frozen=True, kw_only=True):
    """The habits of a provider within its wire.

    call_id       a template of the ids of its calls, with a number in it
    whole_calls   a call arrives in one frame
    reasons       each answer begins with reasoning
    no_arguments  the arguments of a call without any
    comments      the stream has comments
    """

    call_id: str = ""
    whole_calls: bool = False
    reasons: bool = False
    no_arguments: str = "{}"
    comments: bool = False


class Said(Struct, frozen=True):
    role: str
    text: str


class Called(Struct, frozen=True):
    id: str
    name: str
    arguments: Any


class Returned(Struct, frozen=True):
    """The result of a call. `failed` is None on a wire that cannot say it."""

    id: str
    text: str
    failed: bool | None = None


Entry: TypeAlias = Said | Called | Returned


class ProviderRequest(Struct, frozen=True, kw_only=True):
    """A request as the provider understands it.

    `choice` is auto, none, required or the name of a tool, and empty without tools. `schema` is that of the whole answer.
    `custom` are the names of tools that take free text, `descriptions` are those of the others.
    """

    entries: list[Entry]
    system: str = ""
    tools: dict[str, Json] = {}
    descriptions: dict[str, str] = {}
    custom: list[str] = []
    choice: str = ""
    stream: bool = False
    schema: Json | None = None


class WireServer(Struct, frozen=True, kw_only=True):
    """A wire as its provider speaks it, written after the provider's documentation and not with the gateway's own encoders.

    sources      where the frames are documented
    read         decodes the body of a request; the second argument is its path
    frames       encodes an answer as the pieces of a stream
    whole        encodes an answer as one body
    frame_type   the type of the official SDK for a frame, if there is one
    answer_type  and for a whole answer
    """

    sources: tuple[str, ...]
    read: Callable[[Json, str], ProviderRequest]
    frames: Callable[[ModelAnswer, Style], list[bytes]]
    whole: Callable[[ModelAnswer, Style], bytes]
    frame_type: Any = None
    answer_type: Any = None
    content_type: str = "text/event-stream"


PIECE = 1024  # characters of a delta
REASONING = "I should look it up."


def pieces(text: str) -> list[str]:
    """Split text as a model does: short text into words, long text into larger pieces."""
    size = max(7, min(PIECE, len(text) // 4))
    return [text[start : start + size] for start in range(0, len(text), size)]
