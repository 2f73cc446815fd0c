"""A call while it is being heard: what has come of it, whether it has left, and what is wrong with it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from toolrelay.core.events import CallStarted
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._asking import EXPLAINED, Asking, as_function
from toolrelay.dialects._manner import Manner
from toolrelay.dialects._repair import is_object, repaired


class Fault(NamedTuple):
    """The rule that a call breaks, and how, if there is more to say."""

    rule: str
    why: str = ""

    def explained(self, name: str) -> str:
        """To the model, by whose name for it the tool is called."""
        return EXPLAINED.get(self.rule, EXPLAINED["malformed"]).format(name=name, why=self.why)


def must_be_checked(tool: Tool | None) -> bool:
    """A call of that tool may leave only when it is known to be good."""
    return tool is None or tool.strict is True or tool.kind == "custom"


class HeardCall:
    """A call that is being heard. `index` is its place in the answer; None: it is held back until it is whole.

    `mended` is what a repair has put at its end, where there was one.
    """

    __slots__ = ("index", "mended", "pieces", "printed", "size", "start", "tool")

    def __init__(self, start: CallStarted, tool: Tool | None, index: int | None, *, printed: bool) -> None:
        self.start = start
        self.tool = tool
        self.index = index
        self.printed = printed
        self.size = 0
        self.pieces: list[str] = []
        self.mended: str | None = None

    @classmethod
    def broken(cls, text: str) -> HeardCall:
        """One of which nothing is known but what was printed."""
        call = cls(CallStarted(0, ""), None, None, printed=True)
        call.pieces = [text]
        return call

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def as_printed(self, asking: Asking) -> str:
        if not self.start.name:
            return self.arguments
        name = asking.names.to_model(self.start.name)
        return asking.spoken.render_calls([Call(id="", name=name, arguments=self.arguments)])

    def fault(self, manner: Manner) -> Fault | None:
        """What is wrong with it, now that it is whole, after any repair that is beyond doubt."""
        if not self.printed and manner.on_bad_call == "pass":
            return None
        if self.tool is None:
            return Fault("unknown_tool")
        if not self.printed and self.start.kind == "custom":
            return None
        if not self._mend():
            return Fault("invalid_json")
        if self.index is None and must_be_checked(self.tool) and manner.check is not None:
            breach = manner.check(as_function(self.tool), self.arguments)
            if breach is not None:
                return Fault("schema", breach)
        return None

    def _mend(self) -> bool:
        """Whether its arguments are an object now. Of one that has left only the end can be mended."""
        said = self.arguments
        if is_object(said):
            return True
        mended = repaired(said)
        if mended is None or not (self.index is None or mended.startswith(said)):
            return False
        self.mended = mended[len(said) :]
        self.pieces = [mended]
        return True


class _Input(msgspec.Struct):
    input: str


_decode = msgspec.json.Decoder(_Input).decode


def free_text(arguments: str) -> str:
    """What a custom tool is given. The arguments are an object, with one member if all is well."""
    try:
        return _decode(arguments).input
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments
