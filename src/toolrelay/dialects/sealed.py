"""`<tool_call:TAG>{"name": …, "arguments": {…}}</tool_call:TAG>`: the house's own, for models that were trained on no dialect.

TAG is known only within the conversation (see _seal): text that merely quotes a call is text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from toolrelay.dialects import hermes
from toolrelay.dialects.base import Dialect, ToolResult


@lru_cache(maxsize=256)
def sealed_with(tag: str) -> Dialect:
    """The dialect of one conversation. Results are sealed, too: no tool's output can end its own frame."""

    def outcomes(results: Sequence[ToolResult]) -> str:
        return "\n".join(f"<tool_response:{tag}>\n{result.text}\n</tool_response:{tag}>" for result in results)

    sealed = hermes.dialect("sealed", f"tool_call:{tag}")
    return replace(sealed, render_tools=None, render_results=outcomes, seal=sealed_with)


DIALECTS = (sealed_with("TAG"),)
