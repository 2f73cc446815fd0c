"""Triggers that change the scanner's state: start markers, reasoning tags, fences."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache

from msgspec import Struct

from toolrelay.parsing.grammar import StartMarker
from toolrelay.parsing.markdown import FENCE_PATTERN, FenceState, LineState
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


class TriggerSet(Struct, frozen=True):
    """The triggers in one state of the scanner.

    pattern     finds where a trigger may start; `match` decides whether it does
    characters  finds any significant character inside a line: text without them neither triggers anything nor ends a line
    tag         ends reasoning, or begins it
    fences      fences and inline code quote their content
    """

    pattern: re.Pattern[str]
    characters: re.Pattern[str]
    start_markers: tuple[StartMarker, ...]
    tag: str
    fences: bool

    def match(self, text: str, at: int, line: LineState) -> tuple[TriggerKind, str]:
        """Return the trigger at that place, and its text."""
        known = [
            (marker.text, TriggerKind.START_MARKER) for marker in self.start_markers if marker.position != "line" or line.is_blank
        ]
        if self.tag:
            known.append((self.tag, TriggerKind.REASONING_TAG))
        for marker, kind in known:
            if text.startswith(marker, at):
                return kind, marker
        if any(marker.startswith(text[at : at + len(marker)]) for marker, _ in known):
            return TriggerKind.INCOMPLETE, ""
        if not (self.fences and line.may_open_fence):
            return TriggerKind.NONE, ""
        run = FenceState.opening_run(text, at)
        if run is None:
            return TriggerKind.INCOMPLETE, ""
        return (TriggerKind.FENCE, run) if run else (TriggerKind.NONE, "")


def triggers_for(start_markers: tuple[StartMarker, ...], options: ScanOptions, *, in_reasoning: bool, begun: bool) -> TriggerSet:
    """Return the triggers inside or outside of reasoning, before or after the answer has begun."""
    if in_reasoning and not options.calls_in_reasoning:
        start_markers = ()
    elif begun:
        start_markers = tuple(marker for marker in start_markers if marker.position != "start")
    tag = options.reasoning[1 if in_reasoning else 0] if options.reasoning is not None else ""
    return _trigger_set(start_markers, tag, fences=not in_reasoning and not options.calls_in_fences)


@lru_cache(maxsize=256)
def _trigger_set(start_markers: tuple[StartMarker, ...], tag: str, *, fences: bool) -> TriggerSet:
    markers = (*(marker.text for marker in start_markers), *([tag] if tag else []))
    inside_line = {marker.text[0] for marker in start_markers if marker.position != "line"} | {*tag[:1], "\n", "`"}
    alternatives = filter(None, (partial_pattern(markers), FENCE_PATTERN if fences else ""))
    return TriggerSet(
        re.compile("|".join(alternatives) or "(?!)"),
        re.compile(f"[{re.escape(''.join(sorted(inside_line)))}]"),
        start_markers,
        tag,
        fences,
    )


def split_reasoning_tag(text: str, tag: str) -> tuple[str, str, str | None]:
    """Split text into blanks, a partial tag, and the rest after the tag, which is None while more text is needed."""
    stripped = text.lstrip()
    blanks = text[: len(text) - len(stripped)]
    if stripped.startswith(tag):
        return blanks, "", stripped[len(tag) :]
    return (blanks, stripped, None) if tag.startswith(stripped) else (blanks, "", stripped)
