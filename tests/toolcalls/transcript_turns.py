"""Conversations for tests of the transcript, and the way back: the turns that are read from one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tests.dialects.hearing import DIALECTS, tool
from toolrelay.core.messages import (
    Audio,
    Call,
    Content,
    File,
    Image,
    Item,
    Message,
    OpaqueItem,
    OpaquePart,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.core.request import Request
from toolrelay.dialects.base import Dialect
from toolrelay.toolcalls.names import Names
from toolrelay.toolcalls.transcript import flattened

HERMES = DIALECTS["hermes"]
SEALED = DIALECTS["sealed"]
WEATHER = tool("get.weather", {"city": {"type": "string"}})
ASKED = Request(wire="openai_chat", model="m", items=(), tools=(WEATHER,))
NAMES = Names(["get.weather"])
BREAKS = ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
_BEGUN: list[Item] = [Message(role="user", content="Hello"), Message(role="assistant", content="Hello!")]
PLACES = [
    "user",
    "file",
    "assistant",
    "thoughts",
    "output",
    "output_part",
    "arguments",
    "argument",
    "tool",
    "id",
    "name",
    "filename",
]


def conversation(**foreign: str) -> list[Item]:
    """One with a place for each kind of foreign text."""
    said = dict.fromkeys(PLACES, "fine") | {"id": "c1", "tool": "get.weather", "arguments": "{}"} | foreign
    argument = json.dumps({"city": said["argument"]}, ensure_ascii=False)
    return [
        Message(role="user", content=said["user"], name=said["name"]),
        Reasoning(text=(said["thoughts"],)),
        Message(role="assistant", content=said["assistant"]),
        Call(id=said["id"], name=said["tool"], arguments=said["arguments"]),
        Call(id="c2", name="get.weather", arguments=argument),
        Result(call_id=said["id"], output=said["output"]),
        Result(call_id="c2", output=(Text(text=said["output_part"]), Image(url="data:image/png;base64,AAAA"))),
        Message(role="user", content=(Text(text="See: "), File(filename=said["filename"]), Text(text=said["file"]))),
    ]


# The way back: what is written is read again with nothing but the frame's rules.


class Turn(Struct, frozen=True):
    """Who did what, the words in its header, and its content: texts, and in tuples what stands for the rest."""

    kind: str
    words: tuple[str | None, ...] = ()
    content: tuple[str | tuple[str, ...], ...] = ()


_STRING = r'("(?:[^"\\]|\\.)*")'
_HEADERS = [
    ("said", re.compile(rf"(user|assistant)(?:, name {_STRING})?")),
    ("called", re.compile(rf"assistant calls ([A-Za-z0-9_-]{{1,64}}), id {_STRING}")),
    ("returned", re.compile(rf"result of call \[(\d+)\], ([A-Za-z0-9_-]{{1,64}}), id {_STRING}")),
    ("returned", re.compile(rf"result of a call that is not shown, id {_STRING}")),
    ("thought", re.compile("assistant thinks")),
    ("opaque", re.compile(rf"something that cannot be shown, {_STRING}")),
]
_MARK = re.compile(rf"\[(image|audio|file|something that cannot be shown)(?:,? {_STRING})?\]")
_SPELLED_OUT = re.compile(r"<U\+([0-9A-F]{4,6})>")


def _heard(text: str) -> str:
    return _SPELLED_OUT.sub(lambda found: chr(int(found.group(1), 16)), text)


def _word(found: str | None) -> str | None:
    if found is None or not found.startswith('"'):
        return found
    text: str = json.loads(_heard(found))
    return text


def turns_of(text: str) -> list[Turn]:
    *lines, last = text.split("\n")
    assert last.startswith("[now] ")
    assert text.splitlines() == [*lines, last], "nothing but a line feed breaks a line"
    turns: list[Turn] = []
    crlf = ""
    in_text = False
    for line in lines:
        if line.startswith("| "):
            said = _heard(line[2:])
            *before, open_text = turns[-1].content if in_text else (*turns[-1].content, "")
            assert isinstance(open_text, str)
            content = (*before, f"{open_text}{crlf or chr(10)}{said}" if in_text else said)
            turns[-1] = replace(turns[-1], content=content)
            in_text = True
            continue
        in_text = False
        if found := re.fullmatch(r"\[(\d+)\] (.+?)(, lines end in CRLF)?", line):
            assert int(found.group(1)) == len(turns) + 1, "turns are numbered"
            crlf = "\r\n" if found.group(3) else ""
            kind, words = next((kind, one) for kind, form in _HEADERS if (one := form.fullmatch(found.group(2))))
            turns.append(Turn(kind, tuple(map(_word, words.groups()))))
        else:
            mark = _MARK.fullmatch(line)
            assert mark is not None, f"a line that is nobody's: {line!r}"
            shown = tuple(str(_word(group)) for group in mark.groups() if group is not None)
            turns[-1] = replace(turns[-1], content=(*turns[-1].content, shown))
    return turns


def meant(items: Sequence[Item], dialect: Dialect, names: Names = NAMES) -> list[Turn]:
    """The turns that a conversation's transcript must say."""
    turns: list[Turn] = []
    made: dict[str, tuple[str, str]] = {}
    for item in items:
        match item:
            case Message(role="system" | "developer"):
                pass
            case Message(role="assistant") if not any(_content(item.content)):
                pass
            case Message():
                turns.append(Turn("said", (item.role, item.name), _content(item.content)))
            case Call():
                name = names.to_model(item.name)
                turns.append(Turn("called", (name, item.id), (dialect.render_calls([replace(item, name=name)]),)))
                made[item.id] = str(len(turns)), name
            case Result():
                words = (*made[item.call_id], item.call_id) if item.call_id in made else (item.call_id,)
                turns.append(Turn("returned", words, _content(item.output)))
            case Reasoning():
                if thoughts := "\n\n".join(item.text or item.summary):
                    turns.append(Turn("thought", (), (thoughts,)))
            case OpaqueItem():
                turns.append(Turn("opaque", (str(item.raw.get("type", "")),)))
    return turns


def _content(content: Content) -> tuple[str | tuple[str, ...], ...]:
    out: list[str | tuple[str, ...]] = []
    for part in (Text(text=content),) if isinstance(content, str) else content:
        match part:
            case Text(text=text) | Refusal(text=text):
                if out and isinstance(out[-1], str):
                    out[-1] += text
                else:
                    out.append(text)
            case Image():
                out.append(("image",))
            case Audio():
                out.append(("audio",))
            case File(filename=name):
                out.append(("file",) if name is None else ("file", name))
            case OpaquePart():
                out.append(("something that cannot be shown", str(part.raw.get("type", ""))))
    return tuple(out)


def told(items: Sequence[Item], dialect: Dialect = HERMES, request: Request = ASKED) -> str:
    spoken = flattened(replace(request, items=tuple(items)), dialect, NAMES)
    [message] = spoken.items
    assert isinstance(message, Message)
    assert message.role == "user"
    assert isinstance(message.content, str)
    message.content.encode()  # whatever came in, it can be sent
    return message.content
