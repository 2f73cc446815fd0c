"""Encoding of an answer for an XML client: calls become `<use_tool>` blocks in the text.

    stream event                  what the client gets
    ---------------------------   ------------------------------------------------------------------------------
    a call                        a whole block in a delta of its own, in the order of the calls
    a block printed in text       the same bytes in a delta of their own
    other text                    order tools_first: after the last block. A block may come until the answer ends, so text is
                                  held until then. Order as_is: at once, in place
    finish `calls`                finish `stop`
    a call or block that is cut   nothing, and the notice `cut`: the client would run half of it
    off by the token limit
    a call that cannot be         a sentence in its place, and the notice `untellable`: the client would run something else
    encoded

The client decodes no entities and no escapes, so values are written verbatim. It ends a block at the first `</use_tool>` and a
value at the first closing tag of its name: a string that contains one cannot be encoded. In arrays and objects, which are JSON,
the slash is escaped. A parameter called `name` cannot be encoded either: the tool's own name has that tag. null is left out:
the client would read it as a string.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
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
from toolrelay.dialects.rendering import Argument, split_arguments

OPEN = "<use_tool>"
CLOSE = "</use_tool>"
MAX_HELD = 16 * 1024 * 1024  # characters

BlockOrder: TypeAlias = Literal["tools_first", "as_is"]

_PARAMETER_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_TOOL_NAME = re.compile(r"[^\s<>]+")
_NESTED_TAG = re.compile(r"\s*<([\w-]+)>")


class UnencodableCallError(ValueError):
    """The client would misread the call. The message says why."""


def encode_block(call: Call) -> str:
    if _TOOL_NAME.fullmatch(call.name) is None:
        raise UnencodableCallError("its name cannot stand in a tag")
    arguments = [Argument("input", "", call.arguments)] if call.kind == "custom" else split_arguments(call)
    parameters = [f"<{each.name}>{_encode_value(each)}</{each.name}>" for each in arguments if each.json != "null"]
    return "\n".join((OPEN, f"<name>{call.name}</name>", *parameters, CLOSE))


def _encode_value(argument: Argument) -> str:
    name, value = argument.name, argument.plain
    if _PARAMETER_NAME.fullmatch(name) is None or name == "name":
        raise UnencodableCallError(f"a parameter called {name!r} cannot be told")
    end = next((tag for tag in (CLOSE, f"</{name}>") if tag in value), None)
    if end is None:
        return value
    if argument.text is None:  # JSON, where every slash may be escaped
        return value.replace("</", "<\\/")
    raise UnencodableCallError(f"the value of {name!r} contains {end}, where this client would end it")


def is_retyped(call: Call) -> bool:
    """Return whether the client would parse one of the call's strings as a list or an object. It cannot be prevented."""
    return any(argument.text is not None and _is_parsed(argument.text.strip()) for argument in split_arguments(call))


def _is_parsed(text: str) -> bool:
    """Return whether the text is JSON in brackets, or nothing but tags."""
    if text[:1] + text[-1:] in ("[]", "{}"):
        try:
            msgspec.json.decode(text.encode(errors="replace"))
        except (msgspec.MsgspecError, RecursionError):
            return False
        return True
    at = 0
    while (opened := _NESTED_TAG.match(text, at)) is not None:
        close = f"</{opened.group(1)}>"
        end = text.find(close, opened.end())
        if end < 0:
            return False
        at = end + len(close)
    return at > 0 and at == len(text)


def tool_name(block: str) -> str:
    """Return the name of the tool that a block calls; empty if the client would not run it."""
    _, opened, rest = block.partition("<name>")
    name, closed, _ = rest.partition("</name>")
    return name.strip() if opened and closed else ""


class BlockSplitter:
    """Splits streamed text at blocks, as the client does; chunking does not matter. Each piece says whether it is a block."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of OPEN
        self._block: list[str] | None = None
        self._size = 0
        self._overlap = ""

    @property
    def is_idle(self) -> bool:
        return self._block is None and not self._held

    def feed(self, text: str) -> list[tuple[bool, str]]:
        pieces: list[tuple[bool, str]] = []
        while text:
            text = self._find_open(text, pieces) if self._block is None else self._find_close(self._block, text, pieces)
        return pieces

    def flush(self) -> tuple[bool, str]:
        """Return the rest. An unclosed block is still one for the client if it names a tool."""
        rest = "".join(self._block or [self._held])
        self._block, self._held = None, ""
        return bool(tool_name(rest)), rest

    def _find_open(self, text: str, pieces: list[tuple[bool, str]]) -> str:
        before, opened, rest = (self._held + text).partition(OPEN)
        if opened:
            self._held, self._block, self._size, self._overlap = "", [OPEN], 0, ""
        else:
            at = _find_partial_open(before)
            before, self._held = before[:at], before[at:]
        if before:
            pieces.append((False, before))
        return rest

    def _find_close(self, block: list[str], text: str, pieces: list[tuple[bool, str]]) -> str:
        joined = self._overlap + text
        at = joined.find(CLOSE)
        if at < 0:
            block.append(text)
            self._size += len(text)
            self._overlap = joined[1 - len(CLOSE) :]
            if self._size > MAX_HELD:
                pieces.append((False, "".join(block)))
                self._block = None
            return ""
        end = at + len(CLOSE) - len(self._overlap)
        whole = "".join(block) + text[:end]
        pieces.append((bool(tool_name(whole)), whole))
        self._block = None
        return text[end:]


def _find_partial_open(text: str) -> int:
    """Return the index at which the end of the text may begin OPEN; its length if nowhere."""
    at = text.rfind("<", max(0, len(text) - len(OPEN) + 1))
    return at if at >= 0 and OPEN.startswith(text[at:]) else len(text)


class _ChoiceEncoder:
    """Encodes one choice of an answer."""

    def __init__(self, number: int, *, holds_text: bool) -> None:
        self.blocks: list[str] = []
        self.calls: dict[int, CallEntry] = {}  # not encoded yet, in the order in which they began
        self._number = number
        self._holds_text = holds_text
        self._held: list[StreamEvent] = []
        self._segment: list[StreamEvent] = []  # held since the last block
        self._size = 0
        self._has_text = False
        self._splitter = BlockSplitter()

    def add(self, event: StreamEvent, out: list[StreamEvent]) -> None:
        if not self._holds_text:
            self._has_text = self._has_text or _is_visible(event)
            out.append(event)
            return
        self._segment.append(event)
        if isinstance(event, TextDelta):
            self._size += len(event.text)
        if self._size > MAX_HELD:
            self._release(out)
            self._holds_text = False

    def add_text(self, event: TextDelta, out: list[StreamEvent]) -> None:
        if self._splitter.is_idle and "<" not in event.text:  # nearly every delta
            self.add(event, out)
            return
        for is_block, text in self._splitter.feed(event.text):
            if is_block:
                self._emit_block(text, out)
            else:
                self.add(TextDelta(text, self._number), out)

    def emit_calls(self, out: list[StreamEvent]) -> None:
        """Emit the calls up to the first unfinished one."""
        while self.calls and (entry := next(iter(self.calls.values()))).finished:
            del self.calls[entry.started.index]
            self._emit_call(entry.item(), out)

    def finish(self, finish: Finish, out: list[StreamEvent]) -> None:
        is_truncated = finish in ("length", "content_filter")
        out += (_notice("cut", entry.started.name) for entry in self.calls.values() if not entry.finished)
        self.calls = {index: entry for index, entry in self.calls.items() if entry.finished}
        self.emit_calls(out)
        is_block, rest = self._splitter.flush()
        if is_block and is_truncated:
            out.append(_notice("cut", tool_name(rest)))
        elif is_block:
            self._emit_block(rest + CLOSE if self._holds_text else rest, out)  # held text follows and must stay outside
        elif rest:
            self.add(TextDelta(rest, self._number), out)
        self._release(out)
        is_split = len(self.blocks) > 1 or self._has_text
        rule = "split_emitted" if is_split else "emitted"
        out += (replace(_notice(rule, tool_name(block)), split_emitted=is_split) for block in self.blocks)

    def fail(self, out: list[StreamEvent]) -> None:
        """Release held text only after blocks: if nothing was sent, the error can still be an HTTP status."""
        if self.blocks:
            self._release(out)

    def _emit_call(self, call: Call, out: list[StreamEvent]) -> None:
        try:
            block = encode_block(call)
        except UnencodableCallError as error:
            out.append(_notice("untellable", call.name))
            sentence = f"\n[the call of {call.name} was not passed on by the gateway: {error}]\n"
            self.add(TextDelta(sentence.replace("<", "("), self._number), out)  # it may quote tags
            return
        if is_retyped(call):
            out.append(_notice("retyped_value", call.name))
        self._emit_block(block, out)

    def _emit_block(self, block: str, out: list[StreamEvent]) -> None:
        self._end_segment()
        self.blocks.append(block)
        out.append(TextDelta(block, self._number))

    def _end_segment(self) -> None:
        """Hold the text before a block, unless it is blank. A line break keeps the texts around a block from forming OPEN."""
        if any(map(_is_visible, self._segment)):
            self._held += self._segment
            text = "".join(event.text for event in self._segment[-len(OPEN) :] if isinstance(event, TextDelta))
            if _find_partial_open(text) < len(text):
                self._held.append(TextDelta("\n", self._number))
        self._segment = []

    def _release(self, out: list[StreamEvent]) -> None:
        if self.blocks:
            self._end_segment()
        released = self._held + self._segment
        self._held, self._segment, self._size = [], [], 0
        self._has_text = self._has_text or any(map(_is_visible, released))
        out += released


def _is_visible(event: StreamEvent) -> bool:
    return not isinstance(event, MessageStarted) and (not isinstance(event, TextDelta) or bool(event.text.strip()))


def _notice(rule: str, tool: str) -> Noticed:
    return Noticed(event="tool_block", rule=rule, tool=tool or None, dialect="use_tool")


class XmlAnswerEncoder:
    """Encodes the events of one answer. If it cannot have blocks, its text is not held, whatever the order."""

    def __init__(self, *, order: BlockOrder = "tools_first", may_have_blocks: bool = True) -> None:
        self._holds_text = may_have_blocks and order == "tools_first"
        self._choices: dict[int, _ChoiceEncoder] = {}

    @property
    def blocks(self) -> Sequence[str]:
        """The blocks of the first choice so far."""
        return self._choice(0).blocks

    def encode(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        for event in events:
            self._encode_event(event, out)
        return out

    def _choice(self, number: int) -> _ChoiceEncoder:
        found = self._choices.get(number)
        if found is None:
            found = self._choices[number] = _ChoiceEncoder(number, holds_text=self._holds_text)
        return found

    def _encode_event(self, event: StreamEvent, out: list[StreamEvent]) -> None:
        match event:
            case TextDelta():
                self._choice(event.choice).add_text(event, out)
            case RefusalDelta() | AnnotationAdded():
                self._choice(event.choice).add(event, out)
            case MessageStarted():
                self._choice(0).add(event, out)
            case CallStarted():
                self._choice(event.choice).calls[event.index] = CallEntry(event)
            case ArgumentsDelta():
                entry = self._choice(event.choice).calls.get(event.index)
                if entry is not None:
                    entry.pieces.append(event.text)
            case CallFinished():
                choice = self._choice(event.choice)
                if event.index in choice.calls:
                    choice.calls[event.index].finished = True
                choice.emit_calls(out)
            case ChoiceFinished() | AnswerFinished():
                self._choice(event.choice if isinstance(event, ChoiceFinished) else 0).finish(event.finish, out)
                out.append(replace(event, finish="stop" if event.finish == "calls" else event.finish))
            case AnswerFailed():
                for choice in self._choices.values():
                    choice.fail(out)
                out.append(event)
            case _:
                out.append(event)
