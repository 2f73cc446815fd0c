"""Calls that are still arriving: their arguments so far, whether they are visible yet, and what is wrong with them."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from toolrelay.core.events import CallStarted
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.core.validation import is_json_object
from toolrelay.toolcalls.custom_tools import as_function, decode_input
from toolrelay.toolcalls.limits import UNKNOWN_TOOL
from toolrelay.toolcalls.model_request import ModelRequest
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.repair import repair_object
from toolrelay.toolcalls.writer import AnswerWriter

MAX_HELD = 1024 * 1024  # characters of one call
_MAX_DOUBTFUL = 256  # characters of arguments before the first value
_FIRST_VALUE = re.compile(r"[:\[]\s*[\"\w\-]")

CallKey: TypeAlias = tuple[bool, int]  # printed or native, and the index there

_CORRECTIONS = {
    UNKNOWN_TOOL: "There is no tool named {name!r}. Use one of the tools that you were given, or answer in plain text.",
    "invalid_json": "The arguments of your call of {name!r} were not a valid JSON object. Write the call again, correctly.",
    "schema": "The arguments of your call of {name!r} do not fit the tool's schema: {details}. Write the call again, correctly.",
    "no_call": "You must call a tool in this answer. Write the call now, and nothing else.",
    "malformed": "Your call could not be read. Write it again in exactly the form that you were given.",
}


class CallError(NamedTuple):
    """The rule that a call breaks, with details if there are any."""

    rule: str
    details: str = ""

    def correction(self, name: str) -> str:
        """Return the message for the model. `name` is the model's name for the tool."""
        return _CORRECTIONS.get(self.rule, _CORRECTIONS["malformed"]).format(name=name, details=self.details)


def _must_be_checked(tool: Tool | None) -> bool:
    """Return whether a call of the tool may become visible only after it was checked."""
    return tool is None or tool.strict is True or tool.kind == "custom"


class PendingCall:
    """`index` is the call's index in the answer; None: it is held until it is whole or, if it `streams`, until its first value.

    `printed_text` is the text of a bad call as the model printed it.

    `repair_suffix` is the text that a repair appended, if any. `by_gateway`: the gateway runs the call.
    """

    __slots__ = ("by_gateway", "index", "pieces", "printed", "printed_text", "repair_suffix", "size", "start", "streams", "tool")

    def __init__(self, start: CallStarted, tool: Tool | None, index: int | None = None, *, printed: bool) -> None:
        self.start = start
        self.tool = tool
        self.index = index
        self.printed = printed
        self.by_gateway = False
        self.streams = False
        self.size = 0
        self.pieces: list[str] = []
        self.repair_suffix: str | None = None
        self.printed_text = ""

    @classmethod
    def malformed(cls, text: str) -> PendingCall:
        """Return a printed call that could not be parsed."""
        call = cls(CallStarted(0, ""), None, printed=True)
        call.pieces = [text]
        call.printed_text = text
        return call

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def as_text(self, plan: ModelRequest) -> str:
        if self.printed_text or not self.start.name:
            return self.printed_text or self.arguments
        name = plan.names.to_model(self.start.name)
        return plan.render_call(Call(id="", name=name, arguments=self.arguments), printed=self.printed)

    def write_to(self, writer: AnswerWriter) -> None:
        """Write what was held of the call, and its end."""
        if self.index is None and self.streams and self.repair_suffix is None:
            self.write_held(writer)
        elif self.index is None:
            start, arguments = self.start, self.arguments
            if self.printed and self.tool is not None and self.tool.kind == "custom":
                start, arguments = replace(start, kind="custom"), decode_input(arguments)
            self.index = writer.start_call(start)
            writer.add_arguments(self.index, arguments)
        if self.index is not None:
            writer.finish_call(self.index)

    def write_held(self, writer: AnswerWriter) -> None:
        """Begin to stream a call."""
        self.index = writer.start_call(self.start)
        for piece in self.pieces:
            writer.add_arguments(self.index, piece)

    def check(self, options: ToolCallOptions) -> CallError | None:
        """Repair the whole call if the repair is unambiguous, then return what is wrong with it."""
        trusted = not self.printed and options.on_bad_call == "pass"
        if trusted and not options.whole_calls:
            return None
        if self.by_gateway:
            self._repair()
            return None
        if self.tool is None:
            return CallError(UNKNOWN_TOOL)
        if not self.printed and self.start.kind == "custom":
            return None
        if not self._repair():
            return CallError("invalid_json")
        if self.index is None and _must_be_checked(self.tool) and options.validate is not None and not trusted:
            details = options.validate(as_function(self.tool), self.arguments)
            return None if details is None else CallError("schema", details)
        return None

    def _repair(self) -> bool:
        """Return whether the arguments are a JSON object now. A visible call can only be repaired by appending to it."""
        arguments = self.arguments
        if is_json_object(arguments):
            return True
        fixed = repair_object(arguments)
        if fixed is None or not (self.index is None or fixed.startswith(arguments)):
            return False
        self.repair_suffix = fixed[len(arguments) :]
        self.pieces = [fixed]
        return True


class PendingCalls:
    """The unfinished calls of one try. Calls that need no check are written as they arrive; the others are held.

    A printed call becomes visible with its first value: what is malformed before that can still be asked again or shown as text.
    """

    def __init__(self, options: ToolCallOptions, tools: dict[str, Tool], writer: AnswerWriter, *, streams: bool) -> None:
        self._options = options
        self._tools = tools
        self._writer = writer
        self._streams = streams
        self._calls: dict[CallKey, PendingCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def start(self, key: CallKey, start: CallStarted) -> None:
        printed, _ = key
        tool = self._tools.get(start.name)
        call = self._calls[key] = PendingCall(start, tool, printed=printed)
        is_gateway_call = self._options.is_gateway_call
        call.by_gateway = is_gateway_call is not None and is_gateway_call(start.name)
        if not self._is_held(tool, printed=printed, by_gateway=call.by_gateway):
            call.streams = True
            if not printed:
                call.write_held(self._writer)

    def _is_held(self, tool: Tool | None, *, printed: bool, by_gateway: bool) -> bool:
        if not printed and (self._options.whole_calls or self._options.on_bad_call == "pass"):
            return self._options.whole_calls
        return by_gateway or _must_be_checked(tool) or not self._streams

    def add_arguments(self, key: CallKey, text: str) -> PendingCall | None:
        """Return the call, no longer pending, if it is too long to be held and may not become visible unchecked."""
        call = self._calls.get(key)
        if call is None:
            return None
        call.pieces.append(text)
        if call.index is not None:
            self._writer.add_arguments(call.index, text)
            return None
        call.size += len(text)
        if call.streams:
            if call.size > _MAX_DOUBTFUL or _FIRST_VALUE.search(call.arguments):
                call.write_held(self._writer)
            return None
        if call.size <= MAX_HELD:
            return None
        if _must_be_checked(call.tool):
            return self._calls.pop(key)
        call.index = self._writer.start_call(call.start)
        self._writer.add_arguments(call.index, call.arguments)
        return None

    def name_of(self, key: CallKey) -> str:
        call = self._calls.get(key)
        return "" if call is None else call.start.name

    def pop(self, key: CallKey) -> PendingCall | None:
        return self._calls.pop(key, None)
