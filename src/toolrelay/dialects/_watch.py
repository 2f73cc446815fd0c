"""What may begin in a text: the marks that are looked for, as patterns and as the characters they begin with."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from toolrelay.dialects._fences import FENCE, Fence
from toolrelay.dialects._lines import Line
from toolrelay.dialects._steps import first_characters, marks_pattern
from toolrelay.dialects.base import Opener


class Quoting(Struct, frozen=True, kw_only=True):
    """Where a model's calls do not count, and how it marks its reasoning. A profile's data."""

    reasoning: tuple[str, str] | None = None
    begins_in_reasoning: bool = False
    calls_in_fences: bool = False
    calls_in_reasoning: bool = False


class Watch(Struct, frozen=True):
    """What may begin in one state. `trigger` finds that, and little that turns out to be none of it.

    So does `within_line` in a text without line breaks that goes on in a line that has begun: less may begin there, and nothing
    without one of the characters `first` and `second`, nor without one of `pairs` but for their first characters at the
    end. `at_line`: an opener may begin a line.
    """

    trigger: re.Pattern[str]
    within_line: re.Pattern[str]
    first: str
    second: str
    pairs: tuple[str, str, str]
    at_line: bool
    openers: tuple[Opener, ...]
    tag: str
    fences: bool

    def knows(self, mark: str) -> bool:
        return mark == self.tag or any(mark == opener.text for opener in self.openers)

    def mark_at(self, text: str, at: int, line: Line) -> str | None:
        """The mark that stands there; "" if none does; None if that cannot be told yet."""
        undecided = False
        for opener in self.openers:
            if opener.place == "line" and not line.is_blank:
                continue
            if text.startswith(opener.text, at):
                return opener.text
            undecided = undecided or opener.text.startswith(text[at : at + len(opener.text)])
        if self.tag:
            if text.startswith(self.tag, at):
                return self.tag
            undecided = undecided or self.tag.startswith(text[at : at + len(self.tag)])
        if undecided:
            return None
        return Fence.opening(text, at) if self.fences and line.may_open_fence else ""


def watching(openers: tuple[Opener, ...], quoting: Quoting, *, thinking: bool, begun: bool) -> Watch:
    """What may begin here: in reasoning or not, before or after the answer has begun. Entered fences look after themselves."""
    if thinking and not quoting.calls_in_reasoning:
        openers = ()
    elif begun:
        openers = tuple(opener for opener in openers if opener.place != "start")
    tag = quoting.reasoning[1 if thinking else 0] if quoting.reasoning is not None else ""
    return _watch_for(openers, tag, fences=not thinking and not quoting.calls_in_fences)


def past_tag(text: str, quoting: Quoting) -> tuple[str, str, str | None]:
    """Its blanks, what may be the beginning of the tag that begins reasoning, and what follows: None as long as that is open."""
    tag = quoting.reasoning[0] if quoting.reasoning is not None else ""
    said = text.lstrip()
    blanks = text[: len(text) - len(said)]
    if said.startswith(tag):
        return blanks, "", said[len(tag) :]
    return (blanks, said, None) if tag.startswith(said) else (blanks, "", said)


@lru_cache(maxsize=256)
def _watch_for(openers: tuple[Opener, ...], tag: str, *, fences: bool) -> Watch:
    anywhere = tuple(opener.text for opener in openers if opener.place != "line") + ((tag,) if tag else ())
    at_line = tuple(opener.text for opener in openers if opener.place == "line")
    after_break = "|".join(filter(None, (marks_pattern(at_line), FENCE if fences else "")))
    first, second = first_characters(anywhere or ("\n",))
    return Watch(
        _any_of(marks_pattern(anywhere), after_break),
        _any_of(marks_pattern(anywhere)),
        first,
        second,
        _pairs(anywhere),
        bool(at_line),
        openers,
        tag,
        fences,
    )


def _pairs(marks: tuple[str, ...]) -> tuple[str, str, str]:
    """The two, or the one, pairs of characters with which all of them begin, and the characters that these begin with.

    Of more than two pairs: what is in every text.
    """
    pairs = {mark[:2] for mark in marks}
    if not 0 < len(pairs) <= 2:
        return "", "", ""
    return min(pairs), max(pairs), "".join(pair[0] for pair in pairs)


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(filter(None, patterns)) or "(?!)")
