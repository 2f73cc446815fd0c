"""A model that can only print, heard as one that can call: its text in, calls out, and what to ask it again.

    what the model does                     what the client gets
    -------------------------------------   -----------------------------------------------------------------
    prints a call                           the call; its arguments as they form, or whole where they must be checked first
    goes on after its calls                 nothing of it: the answer is cut there (`cutoff`)
    prints a bad call                       by `on_bad_call`; retry: nothing, and the model is asked once more with the error
    prints no call although it must         nothing: its text is held back, it is asked once more, and then it is an error
    is cut off in a call by its limit       no call; finish `length`

A bad call is one of an unknown tool, with arguments that are no JSON object and cannot be repaired without guessing, or in breach
of a strict schema. What has left cannot be taken back: then the call goes out as it came, and the log says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finish,
    Noticed,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.messages import Call, Message
from toolrelay.core.names import Names
from toolrelay.core.request import OutputFormat, Request, Tool
from toolrelay.dialects._constraint import CONSTRAINED, call_schema
from toolrelay.dialects._prompt import offered, text_only
from toolrelay.dialects._repair import is_object, repaired
from toolrelay.dialects._scanner import CallBroken, Quoting, Scanner
from toolrelay.dialects._seal import tag_for
from toolrelay.dialects.base import Dialect
from toolrelay.errors import ModelError

TRIES = 2
_CHARACTERS_PER_TOKEN = 4


class Manner(Struct, frozen=True, kw_only=True):
    """How a model is spoken with. `check` says what a tool's schema has against arguments, if anything."""

    dialect: Dialect
    quoting: Quoting = Quoting()
    cutoff: Literal["off", "first", "burst"] = "burst"
    on_bad_call: Literal["pass", "retry", "text", "fail"] = "retry"
    constrains: bool = False
    secret: bytes = b""
    check: Callable[[Tool, str], str | None] | None = None


class _Open:
    """The call that is being heard. `held` are its events, if they must wait until it is whole; None: they have left."""

    def __init__(self, tool: Tool | None, name: str, *, holds: bool) -> None:
        self.tool = tool
        self.name = name
        self.pieces: list[str] = []
        self.held = holds

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class Conversation:
    """`request` is what to ask the model now. After each `hear`:

    over     the answer has ended
    was_cut  it has, but for its cost: what more the model says is no longer heard
    again    the model is to be asked anew
    """

    def __init__(self, request: Request, manner: Manner) -> None:
        self.over = False
        self.was_cut = False
        self.again = False
        self._asked = request
        self._manner = manner
        self._tools = {tool.name: tool for tool in offered(request)}
        self._names = Names(tool.name for tool in request.functions())
        choice = request.tool_choice
        self._must = bool(self._tools) and choice is not None and choice.mode in ("required", "named")
        self._single = request.parallel_tool_calls is False
        self._spoken = manner.dialect if manner.dialect.seal is None else manner.dialect.seal(tag_for(request, manner.secret))
        self._dialect = CONSTRAINED if self._must and manner.constrains else self._spoken
        self._usage: Usage | None = None
        self._tries = 0
        self._made = 0
        self._heard_size = 0
        self._out: list[StreamEvent] = []
        self.request = self._first_request()
        self._listen()

    def _first_request(self) -> Request:
        spoken = text_only(self._asked, self._spoken, self._names)
        if self._dialect is not CONSTRAINED:
            return spoken
        schema = call_schema([replace(tool, name=self._names.to_model(tool.name)) for tool in self._tools.values()])
        return replace(spoken, output=OutputFormat(type="json_schema", name="call", schema=schema, strict=True))

    def _listen(self) -> None:
        self._tries += 1
        known = {self._names.to_model(name): tool for name, tool in self._tools.items()}
        self._scanner = Scanner(self._dialect, known, self._manner.quoting) if self._tools else None
        self._call: _Open | None = None
        self._printed: list[str] = []
        self._withheld: list[str] = []

    # What the model says

    def hear(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        self._out = out
        for event in events:
            if self._is_through():
                break
            match event:
                case TextDelta(text=text) if self._scanner is not None:
                    self._printed.append(text)
                    self._take_all(self._scanner.feed(text))
                case AnswerFinished():
                    self._finish(event)
                case _:
                    out.append(event)
                    self.over = isinstance(event, AnswerFailed)
        return out

    def _is_through(self) -> bool:
        return self.over or self.again or self.was_cut

    def _take_all(self, found: Sequence[StreamEvent | CallBroken]) -> None:
        for event in found:
            if self._is_through():
                return
            self._take(event)

    def _take(self, found: StreamEvent | CallBroken) -> None:
        match found:
            case TextDelta(text=text):
                self._take_text(text)
            case CallStarted():
                self._take_start(self._names.to_client(found.name))
            case ArgumentsDelta(text=text) if self._call is not None:
                self._call.pieces.append(text)
                if not self._call.held:
                    self._out.append(ArgumentsDelta(self._made, text))
            case CallFinished() if self._call is not None:
                self._take_finish(self._call)
            case CallBroken():
                self._take_broken(found)
            case ArgumentsDelta() | CallFinished():
                pass
            case _:
                self._out.append(found)

    def _take_text(self, text: str) -> None:
        if self._made and self._manner.cutoff != "off":
            if not text.isspace():
                self._cut("text_after_calls")
        elif self._must and not self._made:
            self._withheld.append(text)
        else:
            self._out.append(TextDelta(text))

    def _take_start(self, name: str) -> None:
        tool = self._tools.get(name)
        if self._single and self._made:
            self._cut("parallel_tool_calls_false")
            return
        strict = tool is not None and tool.strict is True
        self._call = _Open(tool, name, holds=tool is None or strict or not self._asked.stream)
        if not self._call.held:
            self._out.append(CallStarted(self._made, name))

    def _take_finish(self, call: _Open) -> None:
        fault = self._fault(call)
        if fault is not None:
            self._bad(call, fault)
            return
        self._close(call)

    def _fault(self, call: _Open) -> str | None:
        """What is wrong with the call, after any repair that is beyond doubt."""
        if call.tool is None:
            return "unknown_tool"
        said = call.arguments
        if not is_object(said):
            mended = repaired(said)
            if mended is None or not (call.held or mended.startswith(said)):
                return "invalid_json"
            if not call.held:
                self._out.append(ArgumentsDelta(self._made, mended[len(said) :]))
            call.pieces = [mended]
            self._notice("repaired_json", call.name)
        if call.held and call.tool.strict and self._manner.check is not None and self._manner.check(call.tool, call.arguments):
            return "schema"
        return None

    def _close(self, call: _Open) -> None:
        """The call is the client's now."""
        if call.held:
            self._out.append(CallStarted(self._made, call.name))
            self._out.append(ArgumentsDelta(self._made, call.arguments))
        self._out.append(CallFinished(self._made))
        self._call = None
        self._made += 1
        if self._manner.cutoff == "first" or (self._single and self._manner.cutoff != "off"):
            self._cut("first_call")

    def _take_broken(self, broken: CallBroken) -> None:
        call = self._call or _Open(None, "", holds=True)
        if broken.index is None:
            call.pieces = [broken.text]
        self._bad(call, broken.rule)

    # Bad calls

    def _bad(self, call: _Open, rule: str) -> None:
        self._notice(rule, call.name)
        self._call = None
        if not call.held:
            self._bad_after_leaving(call)
            return
        policy = self._manner.on_bad_call
        if policy == "retry" and not self._made and self._tries < TRIES:
            self._ask_again(_EXPLAINED.get(rule, _EXPLAINED["malformed"]).format(name=call.name))
        elif policy == "fail":
            self._fail(f"The model made a call that cannot be used ({rule}).")
        elif policy == "pass" and call.name:
            self._close(call)
        else:
            self._out.append(TextDelta(self._as_printed(call)))

    def _bad_after_leaving(self, call: _Open) -> None:
        if self._manner.on_bad_call == "fail":
            self._fail("The model made a call that cannot be used, and a part of it had already been sent.")
        elif call.arguments:
            self._out.append(CallFinished(self._made))
            self._made += 1

    def _as_printed(self, call: _Open) -> str:
        if not call.name:
            return call.arguments
        return self._spoken.render_calls([Call(id="", name=self._names.to_model(call.name), arguments=call.arguments)])

    def _ask_again(self, error: str) -> None:
        """The model sees what it printed and what was wrong with it."""
        self.again = True
        printed = Message(role="assistant", content="".join(self._printed))
        told = Message(role="user", content=error)
        self.request = replace(self.request, items=(*self.request.items, printed, told))

    def next_try(self) -> None:
        """The model is being asked again."""
        self.again = False
        self._listen()

    # The end

    def _finish(self, event: AnswerFinished) -> None:
        self._count(event.usage)
        truncated = event.finish in ("length", "content_filter")
        if self._scanner is not None:
            found = self._scanner.flush()
            if truncated:  # a call that the limit cut is not a bad one
                found = [event for event in found if not isinstance(event, CallBroken)]
            self._take_all(found)
            if self._is_through():
                return
        if self._must and not self._made and not truncated:
            if self._tries < TRIES:
                self._notice("no_call", "")
                self._ask_again(_EXPLAINED["no_call"])
            else:
                self._fail("The model was to call a tool, and did not, although it was asked twice.", code="tool_choice_unmet")
            return
        finish: Finish = event.finish if truncated else "calls" if self._made else "stop"
        self._end(replace(event, finish=finish, usage=self._usage))

    def _cut(self, rule: str) -> None:
        self.was_cut = True
        self._out.append(Noticed(event="tool_cutoff", rule=rule, dialect=self._dialect.name))

    def settle(self, usage: Usage | None) -> list[StreamEvent]:
        """The end of an answer that was cut: its cost is what the backend still said, or an estimate that is marked as one."""
        self.over = True
        if usage is None:
            printed = sum(map(len, self._printed))
            asked = self._size()
            usage = Usage(input=asked // _CHARACTERS_PER_TOKEN, output=printed // _CHARACTERS_PER_TOKEN, estimated=True)
        self._count(usage)
        return [AnswerFinished(finish="calls", usage=self._usage)]

    def _size(self) -> int:
        return sum(len(item.content) for item in self.request.items if isinstance(item, Message))

    def _count(self, usage: Usage | None) -> None:
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage + usage

    def _end(self, event: AnswerFinished) -> None:
        self.over = True
        self._out.append(event)

    def _fail(self, message: str, code: str = "bad_call") -> None:
        self.over = True
        self._out.append(AnswerFailed(ModelError(message, code=code)))

    def _notice(self, rule: str, tool: str) -> None:
        self._out.append(Noticed(event="tool_block", rule=rule, tool=tool or None, dialect=self._dialect.name))


_EXPLAINED = {
    "unknown_tool": "There is no tool named {name!r}. Use one of the tools that you were given, or answer in plain text.",
    "invalid_json": "The arguments of your call of {name!r} were not a valid JSON object. Write the call again, correctly.",
    "schema": "The arguments of your call of {name!r} do not fit the tool's schema. Write the call again, correctly.",
    "no_call": "You must call a tool in this answer. Write the call now, and nothing else.",
    "malformed": "Your call could not be read. Write it again in exactly the form that you were given.",
}
