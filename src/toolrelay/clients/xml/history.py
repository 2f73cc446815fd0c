"""What an XML client sends, read as what it means: its `<use_tool>` blocks are calls, its `Tool '…' result: …` are their results.

Only for a client that declares its tools: then the model is to see real calls. A client that declares none has told the model
its tools in its own words, so its history goes on as it came: with no tools in the request there is nothing that calls could
refer to, and the model goes on in the form that it was taught.

    in the history                              what becomes of it
    -----------------------------------------   --------------------------------------------------------------
    a block whose result is in the next user    a call and its result
    message
    a block without a result, or one that       it stays in the assistant's text; a call without a result is
    cannot be read                              something that no provider takes
    a result without a block; a line about      it stays in the user's text
    results in the middle of a paragraph
    results in another order than their blocks  each goes to its own; several of one name go by order
    more results of a name than blocks of it    one tool's output holds what looks like another's result. Where
                                                that one begins cannot be told, so nothing is taken apart: all of
                                                it is the first result, the others say where to look

Nothing of a tool's output ever becomes the user's own words that way. What the user wrote beside results follows them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, Noticed, TextDelta
from toolrelay.core.identity import derived_call_id
from toolrelay.core.messages import Call, Content, Item, Message, Part, Result, Text, plain_text
from toolrelay.core.request import Request, Tool
from toolrelay.dialects.use_tool import DIALECTS
from toolrelay.parsing.scanner import Scanner
from toolrelay.parsing.triggers import ScanOptions

# As the client looks for them (Obsidian Copilot up to 3.1): anywhere, a fence or not, unclosed at the end.
BLOCK = re.compile(r"<use_tool>(.*?)(?:</use_tool>|\Z)", re.DOTALL)
_RESULT = re.compile(r"Tool '([^'\n]{1,256})' result:")
_ELSEWHERE = "[the client's message does not tell where this result begins: it is part of the result of the call before]"
_ANYWHERE = ScanOptions(calls_in_fences=True)


class Spoken(Struct, frozen=True, kw_only=True):
    """`notices` are for the log."""

    request: Request
    notices: tuple[Noticed, ...] = ()


def as_spoken(request: Request) -> Spoken:
    """The same history gives the same bytes, ids too."""
    tools = {tool.name: tool for tool in request.functions()}
    if not tools:
        return Spoken(request=request)
    history = _History(tools)
    items = history.read(request.items)
    return Spoken(request=replace(request, items=items), notices=tuple(history.notices))


def expects_blocks(request: Request) -> bool:
    """Whether the model may be about to call tools: some are declared, or someone told it of blocks."""
    if request.functions() or "<use_tool>" in (request.instructions or ""):
        return True
    return any(isinstance(item, Message) and "<use_tool>" in plain_text(item.content) for item in request.items)


def result_names(text: str) -> list[str]:
    """The tools whose results stand in a user's message."""
    return [header.name for header in _headers(text)]


class _Block(Struct, frozen=True, kw_only=True):
    """A block that can be read: where it stands in which part of the message, and what it calls."""

    part: int
    start: int
    end: int
    name: str
    arguments: str


class _Header(Struct, frozen=True, kw_only=True):
    """Where a result begins, with what leads to it, and where its text does."""

    name: str
    start: int
    text: int


class _History:
    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.notices: list[Noticed] = []
        self._tools = tools
        self._out: list[Item] = []
        self._made = 0

    def read(self, items: Iterable[Item]) -> tuple[Item, ...]:
        asked: Message | None = None
        for item in items:
            if isinstance(item, Message) and item.role == "user" and asked is not None and self._bind(asked, item):
                asked = None
                continue
            if asked is not None:
                self._out.append(asked)
                asked = None
            if isinstance(item, Message) and item.role == "assistant":
                asked = item
            else:
                self._out.append(item)
        if asked is not None:
            self._out.append(asked)
        return tuple(self._out)

    def _bind(self, asked: Message, answer: Message) -> bool:
        """False: the two have nothing to do with each other."""
        text, others = _first_text(answer.content)
        headers = _headers(text)
        if not headers:
            return False
        blocks = self._blocks(asked)
        outputs, begin = self._outputs(blocks, headers, text)
        if not outputs:
            return False
        self._say(asked, [blocks[place] for place in outputs])
        calls = {place: self._call(blocks[place]) for place in outputs}
        self._out += calls.values()
        self._out += (Result(call_id=calls[place].id, name=calls[place].name, output=output) for place, output in outputs.items())
        before = text[:begin].strip()
        if before or others:
            own: Content = (*([Text(text=before)] if before else ()), *others) if others else before
            self._out.append(replace(answer, content=own))
        return True

    def _blocks(self, message: Message) -> list[_Block]:
        texts = [message.content] if isinstance(message.content, str) else [_text_of(part) for part in message.content]
        found: list[_Block] = []
        for number, text in enumerate(texts):
            for match in BLOCK.finditer(text):
                called = _called(match.group(1), self._tools)
                if called is not None:
                    name, arguments = called
                    found.append(_Block(part=number, start=match.start(), end=match.end(), name=name, arguments=arguments))
        return found

    def _outputs(self, blocks: Sequence[_Block], headers: Sequence[_Header], text: str) -> tuple[dict[int, str], int]:
        """What came of which block, by its place, and where in the text that begins."""
        waiting = Counter(block.name for block in blocks)
        counted = [header for header in headers if header.name in waiting]
        if not counted:
            return {}, 0
        free: dict[str, list[int]] = {}
        for place, block in enumerate(blocks):
            free.setdefault(block.name, []).append(place)
        told = Counter(header.name for header in counted)
        if all(told[name] <= waiting[name] for name in told):
            ends = [header.start for header in counted[1:]] + [len(text)]
            found = {free[header.name].pop(0): text[header.text : end] for header, end in zip(counted, ends, strict=True)}
        else:
            self.notices.append(Noticed(event="tool_block", rule="ambiguous_results", dialect="use_tool"))
            first = free[counted[0].name].pop(0)
            others = [place for name in told for place in free[name][: told[name] - (name == counted[0].name)]]
            found = {first: text[counted[0].text :], **dict.fromkeys(others, _ELSEWHERE)}
        return dict(sorted(found.items())), counted[0].start

    def _say(self, message: Message, taken: Sequence[_Block]) -> None:
        """What is left of the assistant's text when the blocks that became calls are out."""
        if isinstance(message.content, str):
            left: Content = _without(message.content, taken)
        else:
            parts = [
                replace(part, text=_without(part.text, [block for block in taken if block.part == number]))
                if isinstance(part, Text)
                else part
                for number, part in enumerate(message.content)
            ]
            left = tuple(part for part in parts if not isinstance(part, Text) or part.text)
        if left:
            self._out.append(replace(message, content=left))

    def _call(self, block: _Block) -> Call:
        identifier = derived_call_id(self._made, block.name, block.arguments)
        self._made += 1
        return Call(id=identifier, name=block.name, arguments=block.arguments)


def _text_of(part: Part) -> str:
    return part.text if isinstance(part, Text) else ""


def _first_text(content: Content) -> tuple[str, tuple[Part, ...]]:
    """The first piece of text, and the other parts."""
    if isinstance(content, str):
        return content, ()
    for place, part in enumerate(content):
        if isinstance(part, Text):
            return part.text, content[:place] + content[place + 1 :]
    return "", content


def _headers(text: str) -> list[_Header]:
    """The client writes one at the beginning of its message, and one after each blank line between results."""
    found: list[_Header] = []
    beginning = len(text) - len(text.lstrip())
    for match in _RESULT.finditer(text):
        start, end = match.span()
        if start == beginning:
            lead = start
        elif text[max(start - 2, 0) : start] == "\n\n":
            lead = start - 2
        else:
            continue
        found.append(_Header(name=match.group(1), start=lead, text=end + (text[end : end + 1] == " ")))
    return found


def _without(text: str, blocks: Sequence[_Block]) -> str:
    if not blocks:
        return text
    at, kept = 0, []
    for block in blocks:
        kept.append(text[at : block.start])
        at = block.end
    kept.append(text[at:])
    return "".join(piece for piece in kept if piece.strip()).strip()


def _called(inner: str, tools: Mapping[str, Tool]) -> tuple[str, str] | None:
    """The name and arguments of a block, typed as the tool's schema has them; None if it cannot be read."""
    scanner = Scanner(DIALECTS[0], tools, _ANYWHERE)
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
