"""What a scanner makes of a model's text, folded: the same for any chunking, so tests compare it as a whole."""

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


class Thought(Struct, frozen=True):
    text: str


class Heard(Struct, frozen=True):
    """A call; `rule` says what became of it if it is not whole."""

    name: str
    arguments: str
    rule: str = ""

    @property
    def value(self) -> Any:
        return json.loads(self.arguments)


class Broken(Struct, frozen=True):
    """A call that never started."""

    rule: str
    text: str


Said = Text | Thought | Heard | Broken


def events(
    dialect: Dialect, chunks: Iterable[str], tools: Sequence[Tool] = (), quoting: ScanOptions | None = None
) -> list[ScannerEvent]:
    scanner = Scanner(dialect, {tool.name: tool for tool in tools}, quoting)
    out: list[ScannerEvent] = []
    for chunk in chunks:
        out += scanner.feed(chunk)
    return out + scanner.flush()


def folded(found: Iterable[ScannerEvent]) -> list[Said]:
    """Adjacent deltas joined, each call in one piece. Checks on the way that calls follow each other in order."""
    out: list[Said] = []
    name, pieces, index, made = "", [""], None, 0
    for event in found:
        match event:
            case TextDelta(text=text):
                assert text
                assert index is None
                if out and isinstance(out[-1], Text):
                    out[-1] = Text(out[-1].text + text)
                else:
                    out.append(Text(text))
            case ReasoningDelta(text=text):
                assert text
                assert index is None
                if out and isinstance(out[-1], Thought):
                    out[-1] = Thought(out[-1].text + text)
                else:
                    out.append(Thought(text))
            case CallStarted():
                assert index is None
                assert event.index == made
                name, pieces, index, made = event.name, [], event.index, made + 1
            case ArgumentsDelta(text=text):
                assert text
                assert event.index == index
                pieces.append(text)
            case CallFinished():
                assert event.index == index
                out.append(Heard(name, "".join(pieces)))
                index = None
            case CallBroken():
                assert event.index == index
                out.append(Broken(event.rule, event.text) if index is None else Heard(name, "".join(pieces), event.rule))
                index = None
            case _:
                raise AssertionError(event)
    assert index is None, "a call neither finished nor broken"
    return out


def hear(
    dialect: Dialect | str, text: str | Sequence[str], tools: Sequence[Tool] = (), quoting: ScanOptions | None = None
) -> list[Said]:
    """The text in one chunk, or in the chunks that are given; also checks that single characters give the same."""
    spoken = DIALECTS[dialect] if isinstance(dialect, str) else dialect
    chunks = [text] if isinstance(text, str) else list(text)
    found = folded(events(spoken, chunks, tools, quoting))
    assert found == folded(events(spoken, list("".join(chunks)), tools, quoting))
    return found


def call(name: str, arguments: Any = None, *, identifier: str = "call_0") -> Call:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return Call(id=identifier, name=name, arguments=written)


def tool(name: str, properties: Mapping[str, Any] | None = None, **schema: Any) -> Tool:
    return Tool(name=name, parameters={"type": "object", "properties": dict(properties or {}), **schema})


def spoken_text(found: Iterable[Said]) -> str:
    return "".join(one.text for one in found if isinstance(one, Text))


def calls_of(found: Iterable[Said]) -> list[tuple[str, Any]]:
    """Names and arguments of the whole calls."""
    return [(one.name, one.value) for one in found if isinstance(one, Heard) and not one.rule]
