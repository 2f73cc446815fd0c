"""A call that is still arriving: its arguments so far, whether it is visible yet, and what is wrong with it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from toolrelay.core.events import CallStarted
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.prompt_plan import CORRECTIONS, PromptPlan, as_function
from toolrelay.toolcalls.repair import is_object, repaired


class CallError(NamedTuple):
    """The rule that a call breaks, with details where there are any."""

    rule: str
    details: str = ""

    def correction(self, name: str) -> str:
        """What the model is told. `name` is the model's name for the tool."""
        return CORRECTIONS.get(self.rule, CORRECTIONS["malformed"]).format(name=name, why=self.details)


def must_be_checked(tool: Tool | None) -> bool:
    """Whether a call of the tool may become visible only after it was checked."""
    return tool is None or tool.strict is True or tool.kind == "custom"


class PendingCall:
    """`index` is the call's place in the answer; None: it is held back until it is whole.

    `repair_suffix` is what a repair appended, if there was one.
    """

    __slots__ = ("index", "pieces", "printed", "repair_suffix", "size", "start", "tool")

    def __init__(self, start: CallStarted, tool: Tool | None, index: int | None, *, printed: bool) -> None:
        self.start = start
        self.tool = tool
        self.index = index
        self.printed = printed
        self.size = 0
        self.pieces: list[str] = []
        self.repair_suffix: str | None = None

    @classmethod
    def malformed(cls, text: str) -> PendingCall:
        """A printed call that could not be parsed."""
        call = cls(CallStarted(0, ""), None, None, printed=True)
        call.pieces = [text]
        return call

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def as_text(self, plan: PromptPlan) -> str:
        if not self.start.name:
            return self.arguments
        name = plan.names.to_model(self.start.name)
        return plan.base_dialect.render_calls([Call(id="", name=name, arguments=self.arguments)])

    def check(self, options: ToolCallOptions) -> CallError | None:
        """Repair the whole call where the repair is unambiguous, then return what is wrong with it."""
        trusted = not self.printed and options.on_bad_call == "pass"
        if trusted and not options.whole_calls:
            return None
        if self.tool is None:
            return CallError("unknown_tool")
        if not self.printed and self.start.kind == "custom":
            return None
        if not self._repair():
            return CallError("invalid_json")
        if self.index is None and must_be_checked(self.tool) and options.validate is not None and not trusted:
            breach = options.validate(as_function(self.tool), self.arguments)
            if breach is not None:
                return CallError("schema", breach)
        return None

    def _repair(self) -> bool:
        """Return whether the arguments are a JSON object now. A visible call can only be repaired by appending to it."""
        arguments = self.arguments
        if is_object(arguments):
            return True
        fixed = repaired(arguments)
        if fixed is None or not (self.index is None or fixed.startswith(arguments)):
            return False
        self.repair_suffix = fixed[len(arguments) :]
        self.pieces = [fixed]
        return True


class _Input(msgspec.Struct):
    input: str


_decode = msgspec.json.Decoder(_Input).decode


def free_text(arguments: str) -> str:
    """Return a custom tool's input from the function call that stands for it."""
    try:
        return _decode(arguments).input
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments
