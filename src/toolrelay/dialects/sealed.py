"""`<tool_call:TAG>{"name": …, "arguments": {…}}</tool_call:TAG>`: the house's own, for models that were trained on no dialect.

TAG is known only within the conversation (see _seal): text that merely quotes a call is text.
"""

from __future__ import annotations

from msgspec.structs import replace

from toolrelay.dialects import hermes
from toolrelay.dialects.base import Dialect


def sealed_with(tag: str) -> Dialect:
    """The dialect of one conversation."""
    return replace(hermes.dialect("sealed", f"tool_call:{tag}"), render_tools=None, seal=sealed_with)


DIALECTS = (sealed_with("TAG"),)
