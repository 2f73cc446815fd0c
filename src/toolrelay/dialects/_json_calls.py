"""Calls that are JSON objects with a name and arguments, the commonest form."""

from __future__ import annotations

from toolrelay.dialects._reader import NAME_LIMIT, NotACallError, Reader, Reading, Taker
from toolrelay.dialects.base import Speaker

NAMES = ("name", "tool_name")
ARGUMENTS = ("arguments", "parameters", "args", "input")


def json_call(reader: Reader, speaker: Speaker) -> Reading[None]:
    """`{"name": "f", "arguments": {…}}`, its members in any order; the arguments may be a JSON string that holds them."""
    call = _Call(speaker)
    yield from _members(reader, call)
    call.end()


def _members(reader: Reader, call: _Call) -> Reading[None]:
    """The members of an object. A brace that is missing after a whole call is forgiven: nothing else can have been meant."""
    yield from reader.literal("{")
    yield from reader.blanks()
    if (yield from reader.option("}")):
        return
    while True:
        key: list[str] = []
        yield from reader.string(_limited(key))
        yield from reader.blanks()
        yield from reader.literal(":")
        yield from reader.blanks()
        yield from call.member("".join(key), reader)
        yield from reader.blanks()
        mark = yield from reader.option(",", "}")
        if mark == "}":
            return
        if not mark:
            if call.is_whole:
                return
            raise NotACallError
        yield from reader.blanks()
        if (yield from reader.option("}")):  # a comma too many
            return


class _Call:
    """The call that is being read. Arguments that come before the name wait for it."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._name = ""
        self._early: list[str] = []
        self._argued = False

    def member(self, key: str, reader: Reader) -> Reading[None]:
        first = yield from reader.peek()
        if key in NAMES and first == '"' and not self._name:
            pieces: list[str] = []
            yield from reader.string(_limited(pieces))
            self._start("".join(pieces))
        elif key in ARGUMENTS and not self._argued:
            self._argued = True
            if first == '"':
                yield from reader.string(self._argue)
            elif first == "n":
                yield from reader.literal("null")
                self._argue("{}")
            else:
                yield from reader.value(self._argue)
        elif key == "function" and first == "{":  # OpenAI's own nesting
            yield from _members(reader, self)
        else:
            yield from reader.value(_ignore)

    @property
    def is_whole(self) -> bool:
        return bool(self._name) and self._argued

    def _start(self, name: str) -> None:
        if not name:
            raise NotACallError
        self._name = name
        self._speaker.start(name)
        for piece in self._early:
            self._speaker.argue(piece)
        self._early.clear()

    def _argue(self, text: str) -> None:
        if self._name:
            self._speaker.argue(text)
        else:
            self._early.append(text)

    def end(self) -> None:
        if not self._name:
            raise NotACallError
        if not self._argued:
            self._speaker.argue("{}")
        self._speaker.finish()


def json_calls(reader: Reader, speaker: Speaker) -> Reading[None]:
    """One call, or a list of them."""
    yield from reader.blanks()
    if not (yield from reader.option("[")):
        yield from json_call(reader, speaker)
        return
    while True:
        yield from reader.blanks()
        if (yield from reader.option("]")):
            return
        yield from json_call(reader, speaker)
        yield from reader.blanks()
        if not (yield from reader.option(",")):
            yield from reader.literal("]")
            return


def _limited(pieces: list[str]) -> Taker:
    def take(piece: str) -> None:
        pieces.append(piece)
        if sum(map(len, pieces)) > NAME_LIMIT:
            raise NotACallError

    return take


def _ignore(_text: str) -> None:
    pass
