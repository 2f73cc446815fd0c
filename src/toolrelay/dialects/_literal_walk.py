"""A text that belongs to a literal, from one place in it to another (see _literal)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from toolrelay.dialects._faults import BrokenError
from toolrelay.dialects._schema import escaped, quoted
from toolrelay.dialects._steps import marks, whole_marks

BLANK = re.compile(r"[ \t\r\n]*")
CODES = ("x", "u", "U")
WORD_LIMIT = 256
_DEPTH_LIMIT = 256
_FIGURES = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_AFTER_ZERO = ("", ".")
_BRACKETS = {"[": ("[", "]"), "(": ("[", ")"), "{": ("{", "}")}

Escape: TypeAlias = Callable[[str, int], tuple[str, int] | None]
"""What the escape at that place means, and where it ends. None: it is not all there."""
Become: TypeAlias = Callable[[str], str]
Part: TypeAlias = str | tuple[int, int, Become | None]
"""Of a piece of JSON: itself, or where it is in the text, and what it becomes, if that is something else."""


class Form:
    """How literals are written.

    quotes   what strings stand in
    word     what a value may be that stands in none, and `key` what a key may: runs of characters, letters and digits among them
    spell    the JSON of such a value; of one that is a JSON number it is the same
    escape   reads an escape, where there are any: two characters, or more if the second is one of x, u, U
    brackets what lists, dicts and the like begin with
    """

    def __init__(
        self,
        *,
        quotes: tuple[str, ...],
        word: re.Pattern[str],
        key: re.Pattern[str],
        spell: Become,
        escape: Escape | None = None,
        brackets: str = "[{(",
    ) -> None:
        self.quotes = quotes
        self.openings = (marks(quotes), whole_marks(quotes))
        self.ends = {quote: marks((quote, "\\") if escape else (quote,)) for quote in quotes}
        self.word = word
        self.key = key
        self.spell = spell
        self.escape = escape
        self.brackets = brackets
        self.punctuation = ",:" + "".join(_BRACKETS[bracket][1] for bracket in brackets)

    def spell_figures(self, word: str) -> str:
        """A word of digits, with or without a fraction, is a JSON number, unless it begins with zeros."""
        return word if word[0] != "0" or word[1:2] in _AFTER_ZERO else self.spell(word)

    def meaning(self, escape: str) -> str:
        """Of an escape of two characters, as a part of a JSON string."""
        found = self.escape(escape, 0) if self.escape is not None else None
        return escaped(found[0] if found is not None else escape)


class Place(NamedTuple):
    """`stack` holds the brackets that are open, `quote` the quotes.

    `comma`: one was read, and is given out with what follows. `ended`: a string has ended, unless another one follows.
    `filled`: a value stands there, and a separator or a bracket must follow. `in_key`: what comes is a key of a dict.
    `in_word`: a word has begun, and waits for its end.
    """

    stack: str = ""
    quote: str = ""
    comma: bool = False
    ended: bool = False
    filled: bool = False
    in_key: bool = False
    in_word: bool = False


class Walk:
    """From one place to another. `is_sure`: another text of the same shape takes the same way."""

    __slots__ = (
        "_closed", "_comma", "_ended", "_filled", "_form", "_in_key", "_in_word", "_stack", "_text",
        "at", "is_sure", "out", "parts", "quote", "rule",
    )  # fmt: skip

    def __init__(self, form: Form, place: Place, text: str, *, closed: bool) -> None:
        self._form = form
        self._text = text
        self._closed = closed
        self._stack, self.quote, self._comma, self._ended, self._filled, self._in_key, _ = place
        self._in_word = False
        self.at = 0
        self.out: list[str] = []
        self.parts: list[Part] = []
        self.is_sure = True
        self.rule = ""

    @property
    def place(self) -> Place:
        return Place(self._stack, self.quote, self._comma, self._ended, self._filled, self._in_key, self._in_word)

    @property
    def is_done(self) -> bool:
        return self._filled and not self._stack and not self.quote and not self._ended

    def _say(self, text: str) -> None:
        self.out.append(text)
        self.parts.append(text)

    def _give(self, end: int, become: Become) -> None:
        """What the text up to that place has become."""
        text = self._text[self.at : end]
        piece = become(text)
        self.out.append(piece)
        self.parts.append((self.at, end, None if become is escaped and piece == text else become))
        self.at = end

    def token(self) -> bool:
        """Reads one token; False if more must come first."""
        text = self._text
        blank = BLANK.match(text, self.at)
        at = self.at = blank.end() if blank else self.at
        if at == len(text):
            self._end_string(at_end=self._closed)
            return False
        opening = self._form.openings[self._closed].match(text, at)
        if opening is not None:
            return self._open_string(opening)
        self._end_string(at_end=True)
        first = text[at]
        if first in self._form.brackets:
            self._open_bracket(first)
        elif self._filled and not self._stack:
            return True
        elif not self._stack or first not in self._form.punctuation:
            return self._word()
        else:
            self._punctuate(first)
        self.at = at + 1
        return True

    def _begin(self) -> None:
        """A value begins here."""
        if self._filled:
            raise BrokenError("malformed")
        if self._comma:
            self._say(", ")
            self._comma = False

    def _open_bracket(self, bracket: str) -> None:
        self._begin()
        if len(self._stack) == _DEPTH_LIMIT:
            raise BrokenError("nested_too_deeply")
        opening, closing = _BRACKETS[bracket]
        self._say(opening)
        self._stack += closing
        self._filled, self._in_key = False, bracket == "{"

    def _punctuate(self, mark: str) -> None:
        in_dict = self._stack[-1] == "}"
        if mark == ",":
            fits = self._filled and not self._in_key
        elif mark == ":":
            fits = self._filled and self._in_key
        else:
            fits = mark == self._stack[-1] and (not in_dict or self._filled != self._in_key)
        if not fits:
            raise BrokenError("malformed")
        if mark == ",":
            self._comma, self._filled, self._in_key = True, False, in_dict
        elif mark == ":":
            self._say(": ")
            self._filled = self._in_key = False
        else:
            self._say("}" if in_dict else "]")
            self._stack = self._stack[:-1]
            self._comma, self._filled, self._in_key = False, True, False

    def _word(self) -> bool:
        form = self._form
        found = (form.key if self._in_key else form.word).match(self._text, self.at)
        end = found.end() if found else self.at
        if end == self.at or end - self.at > WORD_LIMIT:
            raise BrokenError("malformed")
        if end == len(self._text) and not self._closed:
            self._in_word = True
            return False
        self._begin()
        if self._in_key:
            self._give(end, _key)
        else:
            self._give(end, form.spell_figures if _FIGURES.fullmatch(self._text, self.at, end) else form.spell)
        self._filled = True
        return True

    # Strings

    def _open_string(self, opening: re.Match[str]) -> bool:
        if opening.lastindex is not None:
            return False
        if not self._ended:
            self._begin()
            self._say('"')
        self.quote, self._ended, self._filled = opening.group(), False, True
        self.at = opening.end()
        return True

    def _end_string(self, *, at_end: bool) -> None:
        if self._ended and at_end:
            self._say('"')
            self._ended = False

    def in_string(self) -> bool:
        text, form = self._text, self._form
        found = form.ends[self.quote].search(text, self.at)
        end = len(text) if found is None else found.start()
        if end > self.at:
            self._give(end, escaped)
        if found is None:
            return False
        if found.lastindex is not None:  # a part of the end, or what it would be made of
            if self._closed:
                self._give(found.end(), escaped)
            return False
        if found.group() == self.quote or form.escape is None:
            self.at = found.end()
            self.quote, self._ended = "", True
            return True
        if text.startswith(CODES, end + 1):
            self.is_sure = False
        escape = form.escape(text, end)
        if escape is None:
            return False
        if self.is_sure:
            self._give(escape[1], form.meaning)
        else:
            self._say(escaped(escape[0]))
            self.at = escape[1]
        return True


def _key(word: str) -> str:
    return f'"{word}"' if word.isidentifier() else quoted(word.strip())
