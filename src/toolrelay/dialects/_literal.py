"""Literals that are not JSON into JSON, as they come: without recursion, and without ever evaluating anything.

what                         becomes
--------------------------   ----------------------------------------------------------
a string, in any quotes      a JSON string; strings that stand side by side are one
a bare word                  what the form says it is; as a key of a dict: a string
a tuple                      a list
a comma before a bracket     nothing

What a text comes to depends on its position, which is what brackets are open and what came last, and on its shape: where in it
there are quotes, brackets and the like, and where anything else. So a text is walked once for each shape; how its JSON is made
of it is remembered, as a recipe, with the position. Models write in tokens, and between strings always the same ones: what came
of up to 12 characters is remembered, too. That stays in the process's memory, where it is bounded, and goes nowhere else.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from toolrelay.dialects._faults import BrokenError, CutError
from toolrelay.dialects._literal_walk import BLANK, CODES, WORD_LIMIT, Become, Form, Part, Place, Walk
from toolrelay.dialects._reader import Reader, Reading
from toolrelay.dialects._schema import escaped
from toolrelay.dialects._steps import Taker

_SHORT = 32
_TOKEN = 12
_MANY = 8192
_DIGIT = re.compile("[0-9]")
_CODE = re.compile(rf"\\[{''.join(CODES)}]")


class _Position:
    """A place, and what is known of texts that come there: how they move on, and the recipes for texts of some shapes.

    `mark` is what the open quotes begin with.
    """

    __slots__ = ("in_word", "mark", "moves", "place", "recipes")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.mark = place.quote[:1]
        self.in_word = place.in_word
        self.moves: dict[str, _Move] = {}
        self.recipes: dict[bytes, _Recipe] = {}


_Recipe: TypeAlias = tuple[_Position, int, str, int, int, Become | None, str]
"""Where a text leads; how much of it is read; of what its JSON is made: this, a part of the text or what it becomes, and that."""
_Move: TypeAlias = tuple[_Position, str, str]
"""Where a text leads; what of it waits for more; its JSON."""


class Literals:
    """Reads literals of a form."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self.positions: dict[Place, _Position] = {}
        self.known_moves = 0
        self._known = 0
        telling = f".{form.brackets}{form.punctuation}\\{''.join(quote[0] for quote in form.quotes)}"
        self.kinds = self._kinds_beside(telling)
        self.kinds_in_marks = self._kinds_beside(f"{telling}{''.join(CODES) if form.escape else ''}{''.join(form.quotes)}")
        self.mark = "\\" if form.escape else form.quotes[0][0]

    def _kinds_beside(self, telling: str) -> bytes:
        """What stands for each character in a shape: itself, or one that nothing here tells from it."""
        kinds: dict[object, int] = {}
        table = bytearray(range(256))
        for code in range(128):
            character = chr(code)
            if character not in telling:
                patterns = (BLANK, self._form.word, self._form.key, _DIGIT)
                alike = (*(bool(one.fullmatch(character)) for one in patterns), escaped(character) == character)
                table[code] = kinds.setdefault(alike, code)
        return bytes(table)

    def read(self, reader: Reader, take: Taker) -> Reading[None]:
        """A literal that comes next; its JSON is handed over as it comes."""
        literal = _Literal(self, reader, take)
        piece = literal.step("")
        if piece is not None:
            take(piece)
            yield literal

    def position(self, place: Place) -> _Position:
        position = self.positions.get(place)
        if position is None:
            self._make_room()
            position = self.positions[place] = _Position(place)
        return position

    def recipe(self, position: _Position, text: str, shape: bytes) -> _Recipe | None:
        """For texts of that shape; None if each of them must be walked."""
        if len(text) > _SHORT or not text.isascii() or _CODE.search(text):
            return None
        walk = self.walk(position, text, closed=False)
        if walk.rule or walk.is_done or not walk.is_sure:
            return None
        self._make_room()
        recipe = position.recipes[shape] = (self.position(walk.place), walk.at, *_made_of(walk.parts))
        return recipe

    def walk(self, position: _Position, text: str, *, closed: bool) -> Walk:
        walk = Walk(self._form, position.place, text, closed=closed)
        try:
            while not walk.is_done and (walk.in_string() if walk.quote else walk.token()):
                pass
        except BrokenError as error:
            walk.rule = error.rule
        return walk

    def _make_room(self) -> None:
        """For another position, or a recipe."""
        self._known += 1
        if self._known > _MANY:
            self._known = 0
            self.forget_moves()
            for position in self.positions.values():
                position.recipes.clear()
            self.positions.clear()

    def forget_moves(self) -> None:
        self.known_moves = 0
        for position in self.positions.values():
            position.moves.clear()


def _made_of(pieces: list[Part]) -> tuple[str, int, int, Become | None, str]:
    parts: list[Part] = []
    for part in pieces:
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    match parts:
        case [] | [str()]:
            return "".join(map(str, parts)), 0, 0, None, ""
        case [(start, end, become)]:
            return "", start, end, become, ""
        case [str(before), (start, end, become)]:
            return before, start, end, become, ""
        case [(start, end, become), str(after)]:
            return "", start, end, become, after
        case [str(before), (start, end, become), str(after)]:
            return before, start, end, become, after

    def made(text: str) -> str:
        return "".join([part if isinstance(part, str) else _cut(text, *part) for part in parts])

    return "", 0, _SHORT, made, ""


def _cut(text: str, start: int, end: int, become: Become | None) -> str:
    return text[start:end] if become is None else become(text[start:end])


class _Literal:
    """One literal, as far as it has come. `held` is what waits for more text."""

    __slots__ = ("_form", "_held", "_position", "_reader", "take")

    def __init__(self, form: Literals, reader: Reader, take: Taker) -> None:
        self._form = form
        self._held = ""
        self._position = form.position(Place())
        self._reader = reader
        self.take = take

    def step(self, text: str) -> str | None:
        position, held = self._position, self._held
        if not text:
            return self._go_on()
        if held:
            if position.in_word and text.isalnum() and len(held) + len(text) <= WORD_LIMIT:
                self._held = held + text
                return ""
            text = held + text
        else:
            mark = position.mark
            if mark and mark not in text and '"' not in text and "\\" not in text and text.isprintable():
                return text
        move = position.moves.get(text)
        if move is not None:
            self._position, self._held, piece = move
            return piece
        form = self._form
        shape = text.encode().translate(form.kinds_in_marks if form.mark in text else form.kinds)
        recipe = position.recipes.get(shape) or form.recipe(position, text, shape)
        if recipe is None:
            return self._slowly(text, len(text) - len(held))
        to, at, before, start, end, become, after = recipe
        if become is None:
            piece = before + text[start:end] + after
        else:
            try:
                piece = before + become(text[start:end]) + after
            except BrokenError:
                return self._walk(text)
        rest = text[at:]
        if len(text) <= _TOKEN:
            if form.known_moves >= _MANY:
                form.forget_moves()
            form.known_moves += 1
            position.moves[text] = to, rest, piece
        self._position, self._held = to, rest
        return piece

    def _go_on(self) -> str | None:
        """With what the reader has."""
        reader = self._reader
        text = self._held + reader.text[reader.at :]
        reader.text, reader.at = text, len(text)
        if not reader.closed:
            return self._slowly(text, len(text) - len(self._held))
        before = self._in_pieces(text)
        if before:
            self.take(before)
        return None if before is None else self._walk(self._held, closed=True)

    def _slowly(self, text: str, fresh: int) -> str | None:
        """`fresh`: so much of it has just come."""
        return self._walk(text) if fresh <= _SHORT else self._in_pieces(text)

    def _in_pieces(self, text: str) -> str | None:
        """A long text takes the way of many short ones, which costs less than a long walk."""
        given: list[str] = []
        take, self.take = self.take, given.append
        self._held = ""
        at, ended = 0, True
        try:
            for at in range(0, len(text), _TOKEN):
                piece = self.step(text[at : at + _TOKEN])
                if piece is None:
                    return None
                given.append(piece)
            ended = False
            return "".join(given)
        finally:
            self.take = take
            if ended:  # or broken: the rest has not been read
                self._reader.text += text[at + _TOKEN :]
                take("".join(given))

    def _walk(self, text: str, *, closed: bool = False) -> str | None:
        reader, form = self._reader, self._form
        walk = form.walk(self._position, text, closed=closed)
        piece = "".join(walk.out)
        if not (walk.rule or walk.is_done or closed):
            self._position, self._held = form.position(walk.place), text[walk.at :]
            return piece
        reader.text, reader.at = text, walk.at
        if piece:
            self.take(piece)
        if walk.rule:
            raise BrokenError(walk.rule)
        if not walk.is_done:
            raise CutError
        return None
