"""Quotes inside a string that the model forgot to escape: `"He said "hello" to me"`.

    a quotation mark in a string                                       is
    ----------------------------------------------------------------   ------------------------------------------------
    after a blank, an opening bracket, `=` and the like (OPENERS),     the beginning of a quotation, unless a comma, a
    or at the start of the string                                      blank, a quote, a closing bracket or an end mark
                                                                       follows
    the next one after that                                            the end of the quotation; ambiguous if the value
                                                                       would end there, too
    `'` between two letters                                            an apostrophe
    any other                                                          the end of the string

Only what is doubtful needs more text: a mark that may begin or end a quotation.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from toolrelay.parsing.markers import is_complete, markers_of

OPENERS = frozenset({"", *" \t\r\n([{<>=:,;|/-"})  # "": the start of the string
_CLOSERS = re.compile(r"[}\])]*")
_BLANKS_AND_CLOSERS = re.compile(r"\s{0,64}[}\])]*")
_ENDS_STRING = frozenset(" \t\r\n,:\"'")


class QuoteRole(Enum):
    END = auto()  # of the string
    QUOTATION = auto()  # begins or ends one inside the string
    APOSTROPHE = auto()
    AMBIGUOUS = auto()
    INCOMPLETE = auto()  # more text is needed


def may_be_inner(text: str, at: int, previous: str) -> bool:
    """Return whether the quotation mark at that place may be something else than the end of its string. Cheap."""
    if previous in OPENERS:
        return True
    following = text[at + 1 : at + 2]
    return text[at] == "'" and (not following or following.isalnum())


def find_role(
    text: str, at: int, previous: str, *, in_quotation: bool, depth: int, ends: tuple[str, ...], closed: bool
) -> QuoteRole:
    """Return the role of the quotation mark at that place.

    `depth`: how many closing brackets end the value. `ends`: marks that end a call.
    """
    quote, after = text[at], at + 1
    following = text[after : after + 1]
    if not following and not closed:
        return QuoteRole.INCOMPLETE
    if previous.isalnum() and quote == "'" and following.isalnum():
        return QuoteRole.APOSTROPHE
    if in_quotation:
        return _role_in_quotation(text, after, depth, closed=closed)
    if previous not in OPENERS:
        return QuoteRole.END
    if not following or following in _ENDS_STRING:
        return QuoteRole.END
    found = _CLOSERS.match(text, after)
    end = after if found is None else found.end()
    if end > after:
        if end == len(text):
            return QuoteRole.END if closed else QuoteRole.INCOMPLETE
        return QuoteRole.QUOTATION if text[end] == quote else QuoteRole.END
    mark = markers_of(ends).pattern(closed=closed).match(text, after) if ends else None
    if mark is None:
        return QuoteRole.QUOTATION
    return QuoteRole.END if is_complete(mark) else QuoteRole.INCOMPLETE


def _role_in_quotation(text: str, after: int, depth: int, *, closed: bool) -> QuoteRole:
    found = _BLANKS_AND_CLOSERS.match(text, after)
    end = after if found is None else found.end()
    if end == len(text) and not closed:
        return QuoteRole.INCOMPLETE
    brackets = len(text[after:end].strip())
    goes_on = end < len(text) and (text[end].isalnum() or text[end] in "\"'")
    return QuoteRole.QUOTATION if brackets < depth or goes_on else QuoteRole.AMBIGUOUS
