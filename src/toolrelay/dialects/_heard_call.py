"""A call while it is being heard: what has come of it, and whether it has left."""

from __future__ import annotations

import msgspec

from toolrelay.core.events import CallStarted
from toolrelay.core.request import Tool


class HeardCall:
    """A call that is being heard. `index` is its place in the answer; None: it is held back until it is whole."""

    __slots__ = ("index", "pieces", "printed", "size", "start", "tool")

    def __init__(self, start: CallStarted, tool: Tool | None, index: int | None, *, printed: bool) -> None:
        self.start = start
        self.tool = tool
        self.index = index
        self.printed = printed
        self.size = 0
        self.pieces: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class _Input(msgspec.Struct):
    input: str


_decode = msgspec.json.Decoder(_Input).decode


def free_text(arguments: str) -> str:
    """What a custom tool is given. The arguments are an object, with one member if all is well."""
    try:
        return _decode(arguments).input
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments
