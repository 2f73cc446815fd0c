"""What the scanner needs to know of a dialect: how calls begin and end, and the grammar in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from toolrelay.core.request import Tool
from toolrelay.parsing.stream_reader import Parse, Reader

MarkerPosition: TypeAlias = Literal["anywhere", "line", "start"]


class StartMarker(Struct, frozen=True):
    """Text that may begin calls, and where it counts: anywhere, at the start of a line, or only at the start of the answer.

    No start marker of a dialect is a prefix of another one.
    """

    text: str
    position: MarkerPosition = "anywhere"


class CallSink(Protocol):
    """Receives what a grammar finds. A call's arguments are JSON, whatever the dialect writes."""

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools that were offered, by the name the model knows them by."""
        ...

    def start(self, name: str) -> None: ...

    def arguments(self, text: str) -> None:
        """More of the arguments of the call that was started last."""
        ...

    def finish(self) -> None:
        """The call is complete. Without any arguments, they are empty."""
        ...

    def text(self, text: str) -> None:
        """What was read is text, and no call."""
        ...

    def reasoning(self, text: str) -> None: ...


Grammar: TypeAlias = Callable[[Reader, CallSink, str], Parse[None]]
"""Parses what follows a start marker, which is the third argument."""


class CallSyntax(Protocol):
    """The part of a dialect that the scanner uses."""

    @property
    def start_markers(self) -> tuple[StartMarker, ...]: ...

    @property
    def end_markers(self) -> tuple[str, ...]:
        """What ends a malformed call: all up to it belongs to that call."""
        ...

    @property
    def grammar(self) -> Grammar: ...
