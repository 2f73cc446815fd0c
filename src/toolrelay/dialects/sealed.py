"""Sealed: Hermes with a secret tag, for models that were trained on no dialect.

    <tool_call:TAG>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call:TAG>

TAG is made for each conversation (toolcalls.seal): text that quotes a call cannot become one. Results have the tag, too, so that
a tool's output cannot end its own frame.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from toolrelay.dialects import hermes
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.rendering import framed_results


@lru_cache(maxsize=256)
def sealed_with(tag: str) -> Dialect:
    """Return the dialect of one conversation."""
    return replace(
        hermes.dialect("sealed", f"tool_call:{tag}"),
        render_tools=None,
        render_results=framed_results(f"<tool_response:{tag}>\n", f"\n</tool_response:{tag}>"),
        seal=sealed_with,
    )


DIALECTS = (sealed_with("TAG"),)
