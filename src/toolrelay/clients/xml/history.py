"""Decoding of an XML client's history: `<use_tool>` blocks become calls, `Tool '…' result: …` their results.

Only if the client declares its tools. If it declares none, they are in its own prompt: then there is nothing that calls could
refer to, and the history stays text in the form that the model was taught.

    in the history                              becomes
    -----------------------------------------   --------------------------------------------------------------
    a block with a result in the next user      a call and its result
    message
    a block without a result, or an invalid     unchanged text of the assistant: no provider accepts a call without
    one                                         a result
    a result without a block; a result in the   unchanged text of the user
    middle of a paragraph
    results in another order than their blocks  each belongs to its block; several of one name go by order
    more results of a name than blocks of it    a tool's output contains what looks like another result. Where it
                                                begins is unknown, so nothing is split: all of it is the first
                                                result, the others refer to it

So a tool's output never becomes text of the user. What the user wrote beside results follows them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, Noticed, TextDelta
from toolrelay.core.identity import derive_call_id
from toolrelay.core.messages import Call, Content, Item, Message, Part, Result, Text, plain_text
from toolrelay.core.request import Request, Tool
from toolrelay.dialects.use_tool import DIALECTS
from toolrelay.parsing.scanner import Scanner
from toolrelay.parsing.triggers import ScanOptions

# As Obsidian Copilot up to 3.1 finds them: anywhere, also in a code fence, or unclosed at the end.
BLOCK = re.compile(r"<use_tool>(.*?)(?:</use_tool>|\Z)", re.DOTALL)
_RESULT = re.compile(r"Tool '([^'\n]{1,256})' result:")
_ELSEWHERE = "[the client's message does not tell where this result begins: it is part of the result of the call before]"
_SCAN_OPTIONS = ScanOptions(calls_in_fences=True)


def decode_history(request: Request) -> tuple[Request, Sequence[Noticed]]:
    """Return the request with calls and results, and notices. The same history gives the same bytes, ids included."""
    tools = {tool.name: tool for tool in request.functions()}
    if not tools:
        return request, ()
    decoder = _HistoryDecoder(tools)
    return replace(request, items=decoder.decode(request.items)), decoder.notices


def may_print_blocks(request: Request) -> bool:
    """Return whether the answer may have blocks: tools are declared, or blocks are mentioned."""
    if request.functions() or "<use_tool>" in (request.instructions or ""):
        return True
    return any(isinstance(item, Message) and "<use_tool>" in plain_text(item.content) for item in request.items)


def has_results(text: str) -> bool:
    """Return whether a user's message contains results of tools."""
    return bool(find_results(text))


class _CalledBlock(Struct, frozen=True, kw_only=True):
    """A valid block: its part of the message, its place there, and its call."""

    part: int
    start: int
    end: int
    name: str
    arguments: str


class ResultHeader(Struct, frozen=True, kw_only=True):
    """The header of a result: `start` includes the blank line before it, `end` is where the output begins."""

    name: str
    start: int
    end: int


class _HistoryDecoder:
    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.notices: list[Noticed] = []
        self._tools = tools
        self._items: list[Item] = []
        self._calls = 0

    def decode(self, items: Sequence[Item]) -> tuple[Item, ...]:
        place = 0
        while place < len(items):
            match items[place : place + 2]:
                case (Message(role="assistant") as answer, Message(role="user") as reply) if self._add_calls(answer, reply):
                    place += 2
                case _:
                    self._items.append(items[place])
                    place += 1
        return tuple(self._items)

    def _add_calls(self, answer: Message, reply: Message) -> bool:
        """Add the calls of an answer and their results; return False if the reply has no results of them."""
        text, others = _split_first_text(reply.content)
        headers = find_results(text)
        blocks = self._find_blocks(answer) if headers else []
        outputs, start = self._assign_outputs(blocks, headers, text)
        if not outputs:
            return False
        self._add_text(answer, [blocks[place] for place in outputs])
        calls = {place: self._make_call(blocks[place]) for place in outputs}
        self._items += calls.values()
        self._items += (
            Result(call_id=calls[place].id, name=calls[place].name, output=output) for place, output in outputs.items()
        )
        before = text[:start].strip()
        if before or others:
            content: Content = (*([Text(text=before)] if before else ()), *others) if others else before
            self._items.append(replace(reply, content=content))
        return True

    def _find_blocks(self, message: Message) -> list[_CalledBlock]:
        content = message.content
        texts = [content] if isinstance(content, str) else [part.text if isinstance(part, Text) else "" for part in content]
        return [
            _CalledBlock(part=number, start=match.start(), end=match.end(), name=call[0], arguments=call[1])
            for number, text in enumerate(texts)
            for match in BLOCK.finditer(text)
            if (call := _parse_block(match.group(1), self._tools)) is not None
        ]

    def _assign_outputs(
        self, blocks: Sequence[_CalledBlock], headers: Sequence[ResultHeader], text: str
    ) -> tuple[dict[int, str], int]:
        """Return the outputs by the index of their block, and where in the text they begin."""
        free: dict[str, list[int]] = {}
        for place, block in enumerate(blocks):
            free.setdefault(block.name, []).append(place)
        headers = [header for header in headers if header.name in free]
        if not headers:
            return {}, 0
        results = Counter(header.name for header in headers)
        if all(count <= len(free[name]) for name, count in results.items()):
            ends = [header.start for header in headers[1:]] + [len(text)]
            found = {free[header.name].pop(0): text[header.end : end] for header, end in zip(headers, ends, strict=True)}
        else:
            self.notices.append(Noticed(event="tool_block", rule="ambiguous_results", dialect="use_tool"))
            first = headers[0]
            found = dict.fromkeys((place for name, count in results.items() for place in free[name][:count]), _ELSEWHERE)
            found[free[first.name][0]] = text[first.end :]
        return dict(sorted(found.items())), headers[0].start

    def _add_text(self, message: Message, removed: Sequence[_CalledBlock]) -> None:
        """Add the assistant's text without the blocks that became calls."""
        if isinstance(message.content, str):
            left: Content = _remove(message.content, removed)
        else:
            parts = [
                replace(part, text=_remove(part.text, [block for block in removed if block.part == number]))
                if isinstance(part, Text)
                else part
                for number, part in enumerate(message.content)
            ]
            left = tuple(part for part in parts if not isinstance(part, Text) or part.text)
        if left:
            self._items.append(replace(message, content=left))

    def _make_call(self, block: _CalledBlock) -> Call:
        identifier = derive_call_id(self._calls, block.name, block.arguments)
        self._calls += 1
        return Call(id=identifier, name=block.name, arguments=block.arguments)


def _split_first_text(content: Content) -> tuple[str, tuple[Part, ...]]:
    """Return the first text part, and the other parts."""
    if isinstance(content, str):
        return content, ()
    for place, part in enumerate(content):
        if isinstance(part, Text):
            return part.text, content[:place] + content[place + 1 :]
    return "", content


def find_results(text: str) -> list[ResultHeader]:
    """Find the headers that the client writes: at the beginning of its message, and after blank lines."""
    found: list[ResultHeader] = []
    beginning = len(text) - len(text.lstrip())
    for match in _RESULT.finditer(text):
        start, end = match.span()
        is_after_blank_line = text[max(start - 2, 0) : start] == "\n\n"
        if start == beginning or is_after_blank_line:
            lead = start if start == beginning else start - 2
            found.append(ResultHeader(name=match.group(1), start=lead, end=end + (text[end : end + 1] == " ")))
    return found


def _remove(text: str, blocks: Sequence[_CalledBlock]) -> str:
    if not blocks:
        return text
    starts, ends = [0, *(block.end for block in blocks)], [*(block.start for block in blocks), len(text)]
    pieces = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    return "".join(piece for piece in pieces if piece.strip()).strip()


def _parse_block(inner: str, tools: Mapping[str, Tool]) -> tuple[str, str] | None:
    """Return the name and the arguments, typed by the tool's schema; None if the block is invalid."""
    scanner = Scanner(DIALECTS[0], tools, _SCAN_OPTIONS)
    name, pieces, finished = "", [], False
    for event in (*scanner.feed(f"<use_tool>{inner}</use_tool>"), *scanner.flush()):
        match event:
            case CallStarted():
                name = event.name
            case ArgumentsDelta():
                pieces.append(event.text)
            case CallFinished():
                finished = True
            case TextDelta() if event.text.isspace():
                pass
            case _:
                return None
    return (name, "".join(pieces)) if finished else None
