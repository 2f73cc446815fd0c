"""Literals that are not JSON into JSON, as they come: without recursion, and without ever evaluating anything.

what                         becomes
--------------------------   ----------------------------------------------------------
a string, in any quotes      a JSON string; strings that stand side by side are one
a bare word                  what the form says it is; as a key of a dict: a string
a tuple                      a list
a comma before a bracket     nothing

What a text comes to depends on nothing but the text and its position: which brackets are open, and what came last. Models write
in tokens, and between strings always the same ones, so what a few characters came to is remembered: up to 16 of them at a time,
which may be a part of what a model wrote. That stays in the process's memory, where it is bounded, and goes nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from string import ascii_letters, digits
from typing import TypeAlias

from toolrelay.dialects._faults import BrokenError
from toolrelay.dialects._reader import Reader, Reading
from toolrelay.dialects._schema import escaped, quoted
from toolrelay.dialects._steps import Taker, handed_over, marks, whole_marks

_BLANK = re.compile(r"[ \t\r\n]*")
_WORD_LIMIT = 256
_DEPTH_LIMIT = 256
_BRACKETS = {"[": ("[", "]"), "(": ("[", ")"), "{": ("{", "}")}
_SHORT = 16
_MANY = 8192
_START = "  "
_AT_END = ("", " ")
_WORDS = frozenset(f"{ascii_letters}{digits}_.+-")
_PLAIN = "".join(sorted(_WORDS))

Escape: TypeAlias = Callable[[str, int], tuple[str, int] | None]
"""What the escape at that place means, and where it ends. None: it is not all there."""


class Literals:
    """How literals are written.

    quotes   what strings stand in
    word     what a value may be that stands in none, and `key` what a key may
    spell    the JSON of such a value
    escape   reads an escape, where there are any
    brackets what lists, dicts and the like begin with
    """

    def __init__(
        self,
        *,
        quotes: tuple[str, ...],
        word: re.Pattern[str],
        key: re.Pattern[str],
        spell: Callable[[str], str],
        escape: Escape | None = None,
        brackets: str = "[{(",
    ) -> None:
        self.openings = (marks(quotes), whole_marks(quotes))
        self.ends = {quote: marks((quote, "\\") if escape else (quote,)) for quote in quotes}
        self.word = word
        self.key = key
        self.spell = spell
        self.escape = escape
        self.brackets = brackets
        self.punctuation = ",:" + "".join(_BRACKETS[bracket][1] for bracket in brackets)
        self.plain = "".join(character for character in _PLAIN if character not in "".join(quotes))
        self.known_move = lru_cache(maxsize=_MANY)(self.quick_move)
        self._known_part = lru_cache(maxsize=_MANY)(self.move)

    def read(self, reader: Reader, take: Taker) -> Reading[None]:
        """A literal that comes next; its JSON is handed over as it comes."""
        literal = _Literal(self, reader, take)
        piece = literal.step("")
        if piece is not None:
            take(piece)
            yield literal

    def move(self, position: str, text: str, *, closed: bool = False) -> _Move:
        walk = _Walk(self, position, text, closed=closed)
        rule = ""
        try:
            while not walk.is_done and (walk.in_string() if walk.quote else walk.token()):
                pass
        except BrokenError as error:
            rule = error.rule
        return ("" if walk.is_done else walk.position), walk.quote[:1], "".join(walk.out), walk.at, rule

    def quick_move(self, position: str, text: str) -> _Move:
        """The same, but what is seldom the same twice is not walked: letters and digits at the beginning and at the end."""
        if position[0] == " ":
            return self.move(position, text)
        before, begin = "", 0
        if position[-1] != " ":
            begin = len(text) - len(text.lstrip(self.plain))
            before = text[:begin]
        elif text[:1] in _WORDS and (known := _word_at(position)) is not None:
            lead, following, in_key = known
            found = (self.key if in_key else self.word).match(text)
            begin = found.end() if found else 0
            if begin > _WORD_LIMIT:
                return self.move(position, text)
            if begin == len(text):
                return position, "", "", 0, ""
            if begin:
                try:
                    before = lead + (quoted(text[:begin].strip()) if in_key else self.spell(text[:begin]))
                except BrokenError as error:
                    return position, "", lead, 0, error.rule
                position = following
        end = max(len(text.rstrip(self.plain)), begin)
        following, quote, piece, at, rule = self._part(position, text[begin:end], text[end:])
        return following, quote, before + piece, begin + at, rule

    def _part(self, position: str, text: str, after: str) -> _Move:
        """`after`: letters and digits that follow the text."""
        if len(text) > _SHORT or (after and not text):
            return self.move(position, text + after)
        move = self._known_part(position, text)
        if not after:
            return move
        if move[3] < len(text) and "\\" not in text:  # quotes that might have been longer ones
            move = self._known_part(position, text + self.plain[0])
            if move[1] and move[3] > len(text) and not move[4]:
                return move[0], move[1], move[2][:-1] + after, len(text + after), ""
        elif move[3] == len(text) and not move[4] and move[0][:1] not in _AT_END:
            if move[1]:
                return move[0], move[1], move[2] + after, len(text + after), ""
            if "e" not in move[0]:
                return move
        return self.move(position, text + after)


@lru_cache(maxsize=_MANY)
def _word_at(position: str) -> tuple[str, str, bool] | None:
    """What comes before a word that is read at that position, the next position, and whether it is a key."""
    stack, flags, quote = position.split(" ")
    if not stack or quote or "f" in flags or "e" in flags:
        return None
    in_key = "k" in flags
    return (", " if "c" in flags else ""), f"{stack} {'fk' if in_key else 'f'} ", in_key


_Move: TypeAlias = tuple[str, str, str, int, str]
"""Where a text leads: the next position, "" at the end; what the quotes begin with that are open; its JSON; how much of it was
read; the rule that was broken, if one was.
"""


class _Literal:
    """One literal, as far as it has come."""

    __slots__ = ("_form", "_position", "_quote", "_reader", "take")

    def __init__(self, form: Literals, reader: Reader, take: Taker) -> None:
        self._form = form
        self._position = _START
        self._quote = ""
        self._reader = reader
        self.take = take

    def step(self, text: str) -> str | None:
        reader, quote = self._reader, self._quote
        inside = ""
        if reader.at < len(reader.text):
            may_be_word = not quote and text.isalnum()
            text = reader.text[reader.at :] + text
            if may_be_word and self._form.key.fullmatch(text) and len(text) <= _WORD_LIMIT:
                reader.text, reader.at = text, 0  # a word that has not come to its end
                return ""
        elif quote and text and '"' not in text and "\\" not in text and text.isprintable():
            if quote not in text:
                return text
            if quote not in text[:2]:  # what comes before it is not worth remembering
                inside, _, after = text.partition(quote)
                text = quote + after
        if reader.closed:
            move = self._form.move(self._position, text, closed=True)
        elif len(text) > _SHORT:
            move = self._form.quick_move(self._position, text)
        else:
            move = self._form.known_move(self._position, text)
        self._position, self._quote, piece, reader.at, rule = move
        reader.text = text
        if inside:
            piece = inside + piece
        if self._position and not rule and not reader.closed:
            return piece
        if rule:
            self.take(piece)
            raise BrokenError(rule)
        return handed_over(piece, self, reader, done=not self._position)


class _Walk:
    """From one position to another.

    `stack` holds the brackets that are open. `filled`: a value stands there, and a separator or a bracket must follow. `in_key`:
    what comes is a key of a dict. `ended`: a string has ended, unless another one follows. `comma`: one was read, and is given
    out with what follows.
    """

    __slots__ = ("_closed", "_comma", "_ended", "_filled", "_form", "_in_key", "_stack", "_text", "at", "out", "quote")

    def __init__(self, form: Literals, position: str, text: str, *, closed: bool) -> None:
        self._form = form
        self._text = text
        self._closed = closed
        self._stack, flags, self.quote = position.split(" ")
        self._comma, self._ended, self._filled, self._in_key = (flag in flags for flag in "cefk")
        self.at = 0
        self.out: list[str] = []

    @property
    def position(self) -> str:
        flags = zip("cefk", (self._comma, self._ended, self._filled, self._in_key), strict=True)
        return f"{self._stack} {''.join(flag for flag, is_set in flags if is_set)} {self.quote}"

    @property
    def is_done(self) -> bool:
        return self._filled and not self._stack and not self.quote and not self._ended

    def token(self) -> bool:
        """Reads one token; False if more must come first."""
        text = self._text
        blank = _BLANK.match(text, self.at)
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
            self.out.append(", ")
            self._comma = False

    def _open_bracket(self, bracket: str) -> None:
        self._begin()
        if len(self._stack) == _DEPTH_LIMIT:
            raise BrokenError("nested_too_deeply")
        opening, closing = _BRACKETS[bracket]
        self.out.append(opening)
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
            self.out.append(": ")
            self._filled = self._in_key = False
        else:
            self.out.append("}" if in_dict else "]")
            self._stack = self._stack[:-1]
            self._comma, self._filled, self._in_key = False, True, False

    def _word(self) -> bool:
        form = self._form
        found = (form.key if self._in_key else form.word).match(self._text, self.at)
        end = found.end() if found else self.at
        if end == self.at or end - self.at > _WORD_LIMIT:
            raise BrokenError("malformed")
        if end == len(self._text) and not self._closed:
            return False
        self._begin()
        word = self._text[self.at : end]
        self.out.append(quoted(word.strip()) if self._in_key else form.spell(word))
        self._filled = True
        self.at = end
        return True

    # Strings

    def _open_string(self, opening: re.Match[str]) -> bool:
        if opening.lastindex is not None:
            return False
        if not self._ended:
            self._begin()
            self.out.append('"')
        self.quote, self._ended, self._filled = opening.group(), False, True
        self.at = opening.end()
        return True

    def _end_string(self, *, at_end: bool) -> None:
        if self._ended and at_end:
            self.out.append('"')
            self._ended = False

    def in_string(self) -> bool:
        text, form = self._text, self._form
        found = form.ends[self.quote].search(text, self.at)
        end = len(text) if found is None else found.start()
        if end > self.at:
            self.out.append(escaped(text[self.at : end]))
            self.at = end
        if found is None:
            return False
        if found.lastindex is not None:  # a part of the end, or what it would be made of
            if self._closed:
                self.out.append(escaped(found.group()))
                self.at = found.end()
            return False
        if found.group() == self.quote or form.escape is None:
            self.at = found.end()
            self.quote, self._ended = "", True
            return True
        escape = form.escape(text, end)
        if escape is None:
            return False
        self.out.append(escaped(escape[0]))
        self.at = escape[1]
        return True
