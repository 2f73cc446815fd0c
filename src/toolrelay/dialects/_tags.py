"""Calls with a tag for each parameter, such as `<parameter=k>v</parameter>`. Values are plain text, typed by the tool's schema.

Nothing in such a value is escaped, so it may hold its own closing tag. A closing tag counts only if, after blanks, the next
parameter or the end of the call follows.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from toolrelay.dialects._reader import BrokenError, Reader, Reading
from toolrelay.dialects._schema import ANY, STRING, Parameters, escaped, meant, quoted
from toolrelay.dialects.base import Speaker

HELD_LIMIT = 1024 * 1024


class TagForm(Struct, frozen=True, kw_only=True):
    """How a parameter is written: key_open KEY key_close value_open VALUE value_close. `ends` are what may follow the last one.

    `trims` takes one line break away at each end of a value, where the form puts it.
    """

    key_open: str
    key_close: str
    value_close: str
    ends: tuple[str, ...]
    value_open: str = ""
    trims: bool = False
    untyped: frozenset[str] = ANY


def tagged_call(reader: Reader, speaker: Speaker, form: TagForm, name: str) -> Reading[None]:
    """A call's parameters after its name, to the end of the call, which is passed."""
    parameters = Parameters(speaker.tools.get(name))
    known = name in speaker.tools
    speaker.start(name)
    first = True
    while True:
        yield from reader.blanks()
        mark = yield from reader.option(form.key_open, *form.ends)
        if not mark:
            raise BrokenError("malformed")
        if mark != form.key_open:
            break
        key = (yield from reader.word(form.key_close)).strip()
        if form.value_open:
            yield from reader.blanks()
            yield from reader.literal(form.value_open)
        speaker.argue(("{" if first else ", ") + quoted(key) + ": ")
        first = False
        yield from tagged_value(reader, speaker, form, parameters.types(key) if known else form.untyped)
    speaker.argue("{}" if first else "}")
    speaker.finish()


def tagged_value(reader: Reader, speaker: Speaker, form: TagForm, types: frozenset[str]) -> Reading[None]:
    """A value up to its closing tag. Strings go out as they come; other values when they are whole."""
    value: _Value = _Spoken(speaker, form) if types == STRING else _Held(speaker, form, types)
    while True:
        yield from reader.until(form.value_close, take=value.take)
        if (yield from reader.ahead(form.key_open, *form.ends)):
            break
        value.take(form.value_close)
    value.end()


class _Value(Protocol):
    def take(self, text: str) -> None: ...

    def end(self) -> None: ...


class _Spoken:
    """A string, given out as it comes, but for a line break at its end that may belong to the form."""

    def __init__(self, speaker: Speaker, form: TagForm) -> None:
        self._speaker = speaker
        self._trims = form.trims
        self._begun = False
        self._waiting = ""
        speaker.argue('"')

    def take(self, text: str) -> None:
        if self._trims:
            if not self._begun and text:
                self._begun = True
                text = text.removeprefix("\n")
            text = self._waiting + text
            self._waiting = ""
            if text.endswith("\n"):
                text, self._waiting = text[:-1], "\n"
        self._speaker.argue(escaped(text))

    def end(self) -> None:
        self._speaker.argue('"')


class _Held:
    """A value whose type is known only when it is whole."""

    def __init__(self, speaker: Speaker, form: TagForm, types: frozenset[str]) -> None:
        self._speaker = speaker
        self._trims = form.trims
        self._types = types
        self._pieces: list[str] = []
        self._size = 0

    def take(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size > HELD_LIMIT:
            raise BrokenError("held_too_long")

    def end(self) -> None:
        text = "".join(self._pieces)
        if self._trims:
            text = text.removeprefix("\n").removesuffix("\n")
        self._speaker.argue(meant(text, self._types))
