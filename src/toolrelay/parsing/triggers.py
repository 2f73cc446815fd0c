"""Triggers that change the scanner's state: start markers, reasoning tags, fences."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache

from msgspec import Struct

from toolrelay.parsing.grammar import END_OF_TURN, CallSyntax, StartMarker
from toolrelay.parsing.markdown import FENCE_PATTERN, HTML_BLOCKS, FenceState, LineState
from toolrelay.parsing.markers import partial_pattern


class ScanOptions(Struct, frozen=True, kw_only=True):
    """The tags around a model's reasoning, and whether calls inside fences or reasoning count."""

    reasoning: tuple[str, str] | None = None
    begins_in_reasoning: bool = False
    calls_in_fences: bool = False
    calls_in_reasoning: bool = False


class TriggerKind(Enum):
    NONE = auto()
    INCOMPLETE = auto()  # more text is needed
    START_MARKER = auto()
    REASONING_TAG = auto()
    FENCE = auto()
    HTML_BLOCK = auto()
    STRAY_MARK = auto()  # an end marker or another mark of the dialect outside of calls


_NO_STRAY = "\n `"  # a stray mark that begins with one of these is Markdown

NONE, INCOMPLETE = TriggerKind.NONE, TriggerKind.INCOMPLETE  # looking a member up costs as much as a call


class TriggerSet(Struct, frozen=True):
    """The triggers in one state of the scanner.

    pattern     finds where a trigger may start; `match` decides whether it does
    characters  finds any significant character inside a line: text without them neither triggers anything nor ends a line
    markers     all but fences, by first character, the longest first; whether each counts only at the start of a line
    fences      fences and inline code quote their content
    """

    pattern: re.Pattern[str]
    characters: re.Pattern[str]
    markers: dict[str, list[tuple[str, TriggerKind, bool]]]
    fences: bool

    def match(self, text: str, at: int, line: LineState, *, closed: bool = False) -> tuple[TriggerKind, str]:
        """Return the trigger at that place, and its text. Of two, the longer one counts. `closed`: no more text follows."""
        for marker, kind, starts_line in self.markers.get(text[at], ()):
            if starts_line and not line.is_blank:
                continue
            if text.startswith(marker, at):
                return kind, marker
            if not closed and marker.startswith(text[at : at + len(marker)]):
                return INCOMPLETE, ""
        if not (self.fences and line.may_open_fence):
            return NONE, ""
        run = FenceState.opening_run(text, at)
        if run is None:
            return INCOMPLETE, ""
        return (TriggerKind.FENCE, run) if run else (NONE, "")


def triggers_for(syntax: CallSyntax, options: ScanOptions, *, in_reasoning: bool, begun: bool) -> TriggerSet:
    """Return the triggers inside or outside of reasoning, before or after the answer has begun."""
    start_markers = syntax.start_markers
    strays: tuple[str, ...] = ()
    if in_reasoning and not options.calls_in_reasoning:
        start_markers = ()
    elif begun:
        start_markers = tuple(marker for marker in start_markers if marker.position != "start")
    if not in_reasoning:
        strays = (*syntax.end_markers, *syntax.stray_marks, *END_OF_TURN) if start_markers else ()
        strays += options.reasoning[1:] if options.reasoning is not None else ()
    tag = options.reasoning[1 if in_reasoning else 0] if options.reasoning is not None else ""
    return _trigger_set(start_markers, strays, tag, fences=not in_reasoning and not options.calls_in_fences)


@lru_cache(maxsize=256)
def _trigger_set(start_markers: tuple[StartMarker, ...], strays: tuple[str, ...], tag: str, *, fences: bool) -> TriggerSet:
    known = {mark: (TriggerKind.STRAY_MARK, False) for mark in strays if mark[0] not in _NO_STRAY}
    known |= {marker.text: (TriggerKind.START_MARKER, marker.position == "line") for marker in start_markers}
    if fences:
        known |= dict.fromkeys(HTML_BLOCKS, (TriggerKind.HTML_BLOCK, True))
    if tag:
        known[tag] = (TriggerKind.REASONING_TAG, False)
    inside_line = {marker[0] for marker, (_, starts_line) in known.items() if not starts_line} | {"\n", "`"}
    markers: dict[str, list[tuple[str, TriggerKind, bool]]] = {}
    for marker in sorted(known, key=len, reverse=True):
        markers.setdefault(marker[0], []).append((marker, *known[marker]))
    alternatives = filter(None, (partial_pattern(tuple(known)), FENCE_PATTERN if fences else ""))
    return TriggerSet(
        re.compile("|".join(alternatives) or "(?!)"),
        re.compile(f"[{re.escape(''.join(sorted(inside_line)))}]"),
        markers,
        fences,
    )


def split_reasoning_tag(text: str, tag: str, marks: tuple[str, ...]) -> tuple[str, str, str | None]:
    """Split text into blanks, a partial tag or mark, and the rest after the tag, which is None while more text is needed."""
    stripped = text.lstrip()
    blanks = text[: len(text) - len(stripped)]
    if stripped.startswith(tag):
        return blanks, "", stripped[len(tag) :]
    is_partial = not stripped.startswith(marks) and any(mark.startswith(stripped) for mark in (tag, *marks))
    return (blanks, stripped, None) if is_partial else (blanks, "", stripped)
