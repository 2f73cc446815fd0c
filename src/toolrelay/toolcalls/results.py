"""What tools gave, as text in a conversation, framed so that nothing in it can end its frame and speak as somebody else.

A dialect's renderer puts marks around a result, or a heading before it. Text of the result that looks like one of these is
broken with a blank: `< /tool_response>`. So are the dialect's marks that look like a model's control tokens, which some servers
take for such wherever they stand. Nothing else of a result is changed.
"""

from __future__ import annotations

import re
from functools import lru_cache

from toolrelay.core.messages import Call
from toolrelay.dialects.base import Dialect, ToolResult

TAG = re.compile(r"</?[^\s<>{}=\"]+>|\[/?[A-Z_]+\]")
_CONTROLS = ("<|", "<｜", "[")
_NAME, _TEXT = "toolrelay_probe_name", "toolrelay_probe_text"


def framed(text: str, dialect: Dialect) -> str:
    """A result's text, fit to stand in the dialect's frame."""
    marks, heading = _ends(dialect)
    for mark in marks:
        while mark in text:
            text = text.replace(mark, f"{mark[0]} {mark[1:]}")
    return text if heading is None else heading.sub(r"\g<0> ", f"\n{text}")[1:]


@lru_cache(maxsize=256)
def is_closed(dialect: Dialect) -> bool:
    """Whether a mark says where a result ends, so that something else may follow it in the same message."""
    return bool(_frame(dialect)[1].strip())


def _frame(dialect: Dialect) -> tuple[str, str]:
    """What stands before a result, and after it."""
    call = Call(id="", name=_NAME, arguments="{}")
    before, _, after = dialect.render_results([ToolResult(call=call, text=_TEXT)]).partition(_TEXT)
    return before, after


@lru_cache(maxsize=256)
def _ends(dialect: Dialect) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    """All that could end a result, or begin another: marks, and the beginning of a line that would be a heading."""
    before, after = _frame(dialect)
    calls = dialect.render_calls([Call(id="", name=_NAME, arguments="{}")])
    others = TAG.findall(" ".join((calls, *dialect.end_markers, *(marker.text for marker in dialect.start_markers))))
    marks = {*TAG.findall(before), *TAG.findall(after), *(tag for tag in others if tag.startswith(_CONTROLS))}
    if "```" in after:
        marks.add("```")
    heading = before.strip()
    if after.strip() or not heading:
        return tuple(sorted(marks)), None
    further = re.sub(r"\d+", r"\\d+", re.escape(heading[1:]).replace(_NAME, r"[^\n]+"))
    return tuple(sorted(marks)), re.compile(f"[\n\r\x85\u2028\u2029][ \t]*{re.escape(heading[0])}(?={further})")
