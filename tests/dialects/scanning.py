"""Scanner output folded into calls, text and reasoning, independent of chunking; builders of calls and tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, ReasoningDelta, TextDelta
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, discover
from toolrelay.parsing.events import CallBroken, ScannerEvent
from toolrelay.parsing.scanner import Scanner
from toolrelay.parsing.triggers import ScanOptions

DIALECTS = discover()


class Text(Struct, frozen=True):
    text: str


class Reasoning(Struct, frozen=True):
    text: str


class ParsedCall(Struct, frozen=True):
    """A call that was started. `rule`: why it was broken, if it was."""

    name: str
    arguments: str
    rule: str = ""

    @property
    def value(self) -> Any:
        return json.loads(self.arguments)


class BrokenCall(Struct, frozen=True):
    """A call that was broken before it was started."""

    rule: str
    text: str


Output = Text | Reasoning | ParsedCall | BrokenCall


def scan_chunks(
    dialect: Dialect, chunks: Iterable[str], tools: Sequence[Tool] = (), options: ScanOptions | None = None
) -> list[ScannerEvent]:
    scanner = Scanner(dialect, {tool.name: tool for tool in tools}, options)
    out: list[ScannerEvent] = []
    for chunk in chunks:
        out += scanner.feed(chunk)
    return out + scanner.flush()


def fold(events: Iterable[ScannerEvent]) -> list[Output]:
    """Join adjacent deltas, and the events of each call. Asserts that the events are in a valid order."""
    out: list[Output] = []
    name, pieces, index, started = "", [""], None, 0
    for event in events:
        match event:
            case TextDelta(text=text) | ReasoningDelta(text=text):
                assert text
                assert index is None
                kind = Text if isinstance(event, TextDelta) else Reasoning
                last = out[-1] if out else None
                if isinstance(last, kind):
                    out[-1] = kind(last.text + text)
                else:
                    out.append(kind(text))
            case CallStarted():
                assert index is None
                assert event.index == started
                name, pieces, index, started = event.name, [], event.index, started + 1
            case ArgumentsDelta(text=text):
                assert text
                assert event.index == index
                pieces.append(text)
            case CallFinished():
                assert event.index == index
                out.append(ParsedCall(name, "".join(pieces)))
                index = None
            case CallBroken():
                assert event.index == index
                broken = BrokenCall(event.rule, event.text) if index is None else ParsedCall(name, "".join(pieces), event.rule)
                out.append(broken)
                index = None
            case _:
                raise AssertionError(event)
    assert index is None, "a call neither finished nor broken"
    return out


def scan(
    dialect: Dialect | str, text: str | Sequence[str], tools: Sequence[Tool] = (), options: ScanOptions | None = None
) -> list[Output]:
    """Scan the text in one chunk, or in the given chunks. Asserts that single characters give the same result."""
    chosen = DIALECTS[dialect] if isinstance(dialect, str) else dialect
    chunks = [text] if isinstance(text, str) else list(text)
    output = fold(scan_chunks(chosen, chunks, tools, options))
    assert output == fold(scan_chunks(chosen, list("".join(chunks)), tools, options))
    return output


def text_of(output: Iterable[Output]) -> str:
    return "".join(one.text for one in output if isinstance(one, Text))


def calls_of(output: Iterable[Output]) -> list[tuple[str, Any]]:
    """Return names and arguments of the finished calls."""
    return [(one.name, one.value) for one in output if isinstance(one, ParsedCall) and not one.rule]


def call(name: str, arguments: Any = None, *, identifier: str = "call_0") -> Call:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return Call(id=identifier, name=name, arguments=text)


def tool(name: str, properties: Mapping[str, Any] | None = None, **schema: Any) -> Tool:
    return Tool(name=name, parameters={"type": "object", "properties": dict(properties or {}), **schema})
