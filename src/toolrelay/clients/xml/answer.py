"""A turn's events as an XML client is to see them: calls as `<use_tool>` blocks in the text, and no other calls.

    what the turn says            what the client gets
    ---------------------------   ------------------------------------------------------------------------------
    a call                        a block, whole, alone in its own delta, in the order of the calls
    a block that the model        the same bytes, alone in its own delta
    printed in its text
    other text                    tools_first: after the last block; until the answer's end nobody can know that no block
                                  will come, so it is held till then. as_is: at once, where it stands
    finish `calls`                finish `stop`
    a call or a block that the    nothing, and a notice: the client would run the stump
    token limit has cut
    a call that the client        a plain sentence instead of it, and a notice: the client would run something else
    cannot be told

The client decodes no entities and knows no escapes, so content goes out as it is. It ends a block at the first `</use_tool>` and
a value at the first closing tag of its name, wherever they stand: a string that holds one cannot be told. In arrays and objects,
which are JSON, the slash is escaped. A parameter called `name` cannot be told either, as the tool's own name stands there. null
is left out: the client would take it for the word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolrelay.core.assembly import CallEntry
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    MessageStarted,
    Noticed,
    RefusalDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.messages import Call
from toolrelay.dialects._writing import Argument, listed

OPEN = "<use_tool>"
CLOSE = "</use_tool>"
HELD_LIMIT = 16 * 1024 * 1024


Order = Literal["tools_first", "as_is"]

_TAG = re.compile(r"[A-Za-z_][\w.-]*")
_TOOL = re.compile(r"[^\s<>]+")
_NESTED = re.compile(r"\s*<([\w-]+)>")


class Untellable(Struct, frozen=True):
    """Why a call cannot be written for this client."""

    why: str


def block_of(call: Call) -> str | Untellable:
    """A call as the client reads it."""
    if _TOOL.fullmatch(call.name) is None:
        return Untellable("its name cannot stand in a tag")
    arguments = [Argument("input", "", call.arguments)] if call.kind == "custom" else listed(call)
    lines = [OPEN, f"<name>{call.name}</name>"]
    for argument in arguments:
        if argument.json == "null":
            continue
        if _TAG.fullmatch(argument.name) is None or argument.name == "name":
            return Untellable(f"a parameter called {argument.name!r} cannot be told")
        value = _value(argument)
        if isinstance(value, Untellable):
            return value
        lines.append(f"<{argument.name}>{value}</{argument.name}>")
    return "\n".join((*lines, CLOSE))


def _value(argument: Argument) -> str | Untellable:
    value = argument.plain
    ends = [mark for mark in (CLOSE, f"</{argument.name}>") if mark in value]
    if not ends:
        return value
    if argument.text is None:  # JSON, where every slash may be escaped
        return value.replace("</", "<\\/")
    return Untellable(f"the value of {argument.name!r} contains {ends[0]}, where this client would end it")


def is_retyped(call: Call) -> bool:
    """Whether the client takes one of the call's strings for a list or an object, which nothing can be done about."""
    return any(argument.text is not None and _looks_typed(argument.text) for argument in listed(call))


def _looks_typed(text: str) -> bool:
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("[]", "{}"):
        try:
            msgspec.json.decode(inner.encode(errors="replace"))
        except (msgspec.MsgspecError, RecursionError):
            return False
        return True
    return _is_tags_alone(inner)


def _is_tags_alone(text: str) -> bool:
    at = 0
    while (opened := _NESTED.match(text, at)) is not None:
        close = f"</{opened.group(1)}>"
        end = text.find(close, opened.end())
        if end < 0:
            return False
        at = end + len(close)
    return at > 0 and at == len(text)


def tool_of(block: str) -> str:
    """The name of the tool that a block calls; empty if the client would not run it."""
    _, opened, rest = block.partition("<name>")
    name, closed, _ = rest.partition("</name>")
    return name.strip() if opened and closed else ""


class Cutter:
    """Finds blocks in text as it streams, as the client does: any chunking gives the same. Each piece says whether it is one."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of an opener
        self._block: list[str] | None = None
        self._size = 0
        self._overlap = ""

    @property
    def is_idle(self) -> bool:
        return self._block is None and not self._held

    def feed(self, text: str) -> list[tuple[bool, str]]:
        out: list[tuple[bool, str]] = []
        while text:
            text = self._seek(text, out) if self._block is None else self._read(self._block, text, out)
        return out

    def _seek(self, text: str, out: list[tuple[bool, str]]) -> str:
        text, self._held = self._held + text, ""
        at = text.find(OPEN)
        if at < 0:
            at = _opener_may_begin(text)
            self._held, text = text[at:], text[:at]
            rest = ""
        else:
            text, rest = text[:at], text[at + len(OPEN) :]
            self._block, self._size, self._overlap = [OPEN], 0, ""
        if text:
            out.append((False, text))
        return rest

    def _read(self, block: list[str], text: str, out: list[tuple[bool, str]]) -> str:
        joined = self._overlap + text
        at = joined.find(CLOSE)
        if at < 0:
            block.append(text)
            self._size += len(text)
            self._overlap = joined[1 - len(CLOSE) :]
            if self._size > HELD_LIMIT:
                out.append((False, "".join(block)))
                self._block = None
            return ""
        end = at + len(CLOSE) - len(self._overlap)
        whole = "".join(block) + text[:end]
        out.append((bool(tool_of(whole)), whole))
        self._block = None
        return text[end:]

    def flush(self) -> tuple[bool, str]:
        """What was left open. A block without an end is still one for the client, if it says what to call."""
        held, self._held = self._held, ""
        block, self._block = self._block, None
        if block is None:
            return False, held
        whole = "".join(block)
        return bool(tool_of(whole)), whole


def _opener_may_begin(text: str) -> int:
    """Where at its end the text may begin an opener."""
    at = text.rfind("<", max(0, len(text) - len(OPEN) + 1))
    return at if at >= 0 and OPEN.startswith(text[at:]) else len(text)


class _Choice:
    """One choice's part of an answer."""

    def __init__(self, number: int, *, holds: bool) -> None:
        self.number = number
        self.blocks: list[str] = []
        self.calls: dict[int, CallEntry] = {}  # those not given out yet, in the order in which they began
        self._holds = holds
        self._held: list[StreamEvent] = []
        self._segment: list[StreamEvent] = []  # what was said since the last block
        self._size = 0
        self._speaks = False
        self._cutter = Cutter()

    # What the model says

    def say(self, event: StreamEvent, out: list[StreamEvent]) -> None:
        if not self._holds:
            self._speaks = self._speaks or _says_something(event)
            out.append(event)
            return
        self._segment.append(event)
        if isinstance(event, TextDelta):
            self._size += len(event.text)
        if self._size > HELD_LIMIT:  # an answer this long is not for holding
            self._release(out)
            self._holds = False

    def say_text(self, event: TextDelta, out: list[StreamEvent]) -> None:
        if self._cutter.is_idle and "<" not in event.text:  # nearly every delta
            self.say(event, out)
            return
        for is_block, text in self._cutter.feed(event.text):
            if is_block:
                self.give(text, out)
            else:
                self.say(TextDelta(text, self.number), out)

    def give(self, block: str, out: list[StreamEvent]) -> None:
        self._end_segment()
        self.blocks.append(block)
        out.append(TextDelta(block, self.number))

    def give_calls(self, out: list[StreamEvent]) -> None:
        """Those that are whole, up to the first that is not."""
        while self.calls:
            index = next(iter(self.calls))
            if not self.calls[index].finished:
                return
            self._give_call(self.calls.pop(index).item(), out)

    def _give_call(self, call: Call, out: list[StreamEvent]) -> None:
        block = block_of(call)
        if isinstance(block, str):
            if is_retyped(call):
                out.append(_notice("retyped_value", call.name))
            self.give(block, out)
            return
        out.append(_notice("untellable", call.name))
        said = f"\n[the call of {call.name} was not passed on by the gateway: {block.why}]\n"
        self.say(TextDelta(said.replace("<", "("), self.number), out)  # it names what must not be read as a block

    # The end

    def end(self, finish: Finish, out: list[StreamEvent]) -> None:
        truncated = finish in ("length", "content_filter")
        out += (_notice("cut", entry.started.name) for entry in self.calls.values() if not entry.finished)
        self.calls = {index: entry for index, entry in self.calls.items() if entry.finished}
        self.give_calls(out)
        is_block, rest = self._cutter.flush()
        if is_block and truncated:
            out.append(_notice("cut", tool_of(rest)))
        elif is_block:
            self.give(rest + CLOSE if self._holds else rest, out)  # what follows it must not become a part of it
        elif rest:
            self.say(TextDelta(rest, self.number), out)
        self._release(out)
        split = len(self.blocks) > 1 or self._speaks
        rule = "split_emitted" if split else "emitted"
        out += (replace(_notice(rule, tool_of(block)), split_emitted=split) for block in self.blocks)

    def fail(self, out: list[StreamEvent]) -> None:
        """What is held goes ahead of the error only where the client has something already: else the error can be a plain one."""
        if self.blocks:
            self._release(out)

    def _end_segment(self) -> None:
        """Blanks between blocks are theirs, not the narrative's. What stood on both sides of one must not become another."""
        if any(_says_something(event) for event in self._segment):
            self._held += self._segment
            said = "".join(event.text for event in self._segment[-len(OPEN) :] if isinstance(event, TextDelta))
            if _opener_may_begin(said) < len(said):
                self._held.append(TextDelta("\n", self.number))
        self._segment = []

    def _release(self, out: list[StreamEvent]) -> None:
        if self.blocks:
            self._end_segment()
        said = self._held + self._segment
        self._held, self._segment, self._size = [], [], 0
        self._speaks = self._speaks or any(map(_says_something, said))
        out += said


def _says_something(event: StreamEvent) -> bool:
    return not isinstance(event, MessageStarted) and (not isinstance(event, TextDelta) or bool(event.text.strip()))


def _notice(rule: str, tool: str) -> Noticed:
    return Noticed(event="tool_block", rule=rule, tool=tool or None, dialect="use_tool")


class XmlAnswer:
    """One answer's way to the client. `blocks` are those that have gone out, of the first choice.

    `holds`: blocks may come. Where none can, text flows whatever the order is.
    """

    def __init__(self, *, order: Order = "tools_first", holds: bool = True) -> None:
        self._holds = holds and order == "tools_first"
        self._choices: dict[int, _Choice] = {}

    @property
    def blocks(self) -> Sequence[str]:
        return self._choice(0).blocks

    def put(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        for event in events:
            self._take(event, out)
        return out

    def _choice(self, number: int) -> _Choice:
        found = self._choices.get(number)
        if found is None:
            found = self._choices[number] = _Choice(number, holds=self._holds)
        return found

    def _take(self, event: StreamEvent, out: list[StreamEvent]) -> None:
        match event:
            case TextDelta():
                self._choice(event.choice).say_text(event, out)
            case RefusalDelta() | AnnotationAdded():
                self._choice(event.choice).say(event, out)
            case MessageStarted():
                self._choice(0).say(event, out)
            case CallStarted():
                self._choice(event.choice).calls[event.index] = CallEntry(event)
            case ArgumentsDelta():
                entry = self._choice(event.choice).calls.get(event.index)
                if entry is not None:
                    entry.pieces.append(event.text)
            case CallFinished():
                choice = self._choice(event.choice)
                entry = choice.calls.get(event.index)
                if entry is not None:
                    entry.finished = True
                choice.give_calls(out)
            case ChoiceFinished():
                self._choice(event.choice).end(event.finish, out)
                out.append(replace(event, finish=_said(event.finish)))
            case AnswerFinished():
                self._choice(0).end(event.finish, out)
                out.append(replace(event, finish=_said(event.finish)))
            case AnswerFailed():
                for choice in self._choices.values():
                    choice.fail(out)
                out.append(event)
            case _:
                out.append(event)


def _said(finish: Finish) -> Finish:
    return "stop" if finish == "calls" else finish
