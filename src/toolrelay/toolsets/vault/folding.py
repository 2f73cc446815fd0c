"""Folding: the form in which texts are compared, without case, accents and compatibility forms.

Each character is folded alone, so that a place in a folded text can be found again in the text.
"""

from __future__ import annotations

import re
import unicodedata

_BLOCK = 512  # characters that are folded at once when a place is looked up
_FIRST_ACCENT = 10  # marks of lower combining classes (nukta, kana voicing, virama) make another letter
_FEW = 64  # of so many different characters, replacing one after the other is four times as fast as translating
_ASCII_BLANKS = "\t\n\r\x0b\x0c"
_LINE_SEPARATORS = "\x85\u2028\u2029"

# Scripts that are written without blanks: kana, Han, Hangul.
CJK = (
    r"\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_CJK_RUN = re.compile(f"[{CJK}]+")

UNICODE_VERSION = unicodedata.unidata_version


def normalize(text: str) -> str:
    """Return the composed form (NFC). Texts are folded in this form only."""
    return unicodedata.normalize("NFC", text)


def fold_character(character: str) -> str:
    """Fold one character: compatibility decomposition without accents, in lower case, composed again. Blanks become spaces."""
    if character in _ASCII_BLANKS or character in _LINE_SEPARATORS:
        return " "
    parts = unicodedata.normalize("NFKD", character)
    kept = "".join(part for part in parts if unicodedata.combining(part) < _FIRST_ACCENT)
    if " " in kept and kept != " ":  # an accent that stands alone
        return character
    return unicodedata.normalize("NFC", kept.casefold().lower())


class _FoldTable(dict[int, str]):
    """The folded form of each character, filled on demand."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = fold_character(chr(code))
        return folded


_TABLE = _FoldTable()


def fold(text: str) -> str:
    """Fold a text in composed form: the same as folding each of its characters."""
    if not text.isascii():
        others = [character for character in set(text) if character > "\x7f"]
        if len(others) <= _FEW:  # folded characters are folded again to themselves, so the order does not matter
            for character in others:
                text = text.replace(character, _TABLE[ord(character)])
        else:
            text = text.translate(_TABLE)
    text = text.lower()
    for blank in _ASCII_BLANKS:
        text = text.replace(blank, " ")
    return text


def fold_input(text: str) -> str:
    """Compose and fold a text that comes from outside."""
    return fold(normalize(text))


def find_place(text: str, folded_place: int) -> int:
    """Return the place in the text whose folded form is at `folded_place` in its folded text."""
    start, done = 0, 0
    while start < len(text):
        length = len(fold(text[start : start + _BLOCK]))
        if done + length > folded_place:
            break
        start, done = start + _BLOCK, done + length
    for place in range(start, min(start + _BLOCK, len(text))):
        done += len(fold(text[place]))
        if done > folded_place:
            return place
    return len(text)


def split_cjk(folded: str) -> list[tuple[bool, str]]:
    """Split a text into runs that are CJK (True) and those that are not."""
    runs: list[tuple[bool, str]] = []
    end = 0
    for match in _CJK_RUN.finditer(folded):
        if match.start() > end:
            runs.append((False, folded[end : match.start()]))
        runs.append((True, match[0]))
        end = match.end()
    if end < len(folded):
        runs.append((False, folded[end:]))
    return runs


def bigrams(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)]


def index_text(folded: str) -> str:
    """Return the text that the tokenizer gets: a CJK run becomes its bigrams and its last character."""
    return folded if folded.isascii() else _CJK_RUN.sub(_spread, folded)


def _spread(match: re.Match[str]) -> str:
    run = match[0]
    return f" {' '.join([*bigrams(run), run[-1]])} "
