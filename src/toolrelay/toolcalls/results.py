"""Tool results as text in a conversation, escaped so that a result cannot end its frame and continue as someone else.

A dialect's renderer puts delimiters around a result, or a heading before it. Text in the result that looks like one of these is
broken up with a blank: `< /tool_response>`. The same applies to the dialect's markers that look like a model's control tokens,
which some servers interpret anywhere. Nothing else in a result is changed.
"""

from __future__ import annotations

import re
from functools import lru_cache

from toolrelay.core.messages import Call
from toolrelay.dialects.base import Dialect, ToolResult

TAG = re.compile(r"</?[^\s<>{}=\"]+>|\[/?[A-Z_]+\]")
_CONTROL_PREFIXES = ("<|", "<｜", "[")
_NAME, _TEXT = "toolrelay_probe_name", "toolrelay_probe_text"
_PROBE = ToolResult(call=Call(id="", name=_NAME, arguments="{}"), text=_TEXT)


def escape_result(text: str, dialect: Dialect) -> str:
    """Escape the text of a result for the dialect's frame."""
    delimiters, heading = _find_delimiters(dialect)
    for delimiter in delimiters:
        while delimiter in text:
            text = text.replace(delimiter, f"{delimiter[0]} {delimiter[1:]}")
    return text if heading is None else heading.sub(r"\g<0> ", f"\n{text}")[1:]


@lru_cache(maxsize=256)
def has_end_delimiter(dialect: Dialect) -> bool:
    """Return whether a delimiter ends a result, so that other text may follow in the same message.

    What a tag begins, only a tag ends.
    """
    before, after = _find_frame(dialect)
    return TAG.search(after) is not None if TAG.search(before) else bool(after.strip())


def _find_frame(dialect: Dialect) -> tuple[str, str]:
    """Return the rendered text before a result and after it."""
    before, _, after = dialect.render_results([_PROBE]).partition(_TEXT)
    return before, after


@lru_cache(maxsize=256)
def _find_delimiters(dialect: Dialect) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    """Return all delimiters that could end a result or start another, and a pattern for a line that looks like a heading."""
    before, after = _find_frame(dialect)
    calls = dialect.render_calls([Call(id="", name=_NAME, arguments="{}")])
    markers = TAG.findall(" ".join((calls, *dialect.end_markers, *(marker.text for marker in dialect.start_markers))))
    found = {
        *TAG.findall(dialect.render_results([_PROBE, _PROBE])),
        *(tag for tag in markers if tag.startswith(_CONTROL_PREFIXES)),
    }
    if "```" in after:
        found.add("```")
    delimiters = tuple(sorted(found))
    heading = before.strip()
    if after.strip() or not heading:
        return delimiters, None
    rest = re.sub(r"\d+", r"\\d+", re.escape(heading[1:]).replace(_NAME, r"[^\n]+"))
    return delimiters, re.compile(f"[\n\r\x85\u2028\u2029][ \t]*{re.escape(heading[0])}(?={rest})")
