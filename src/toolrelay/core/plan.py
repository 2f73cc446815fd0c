"""What must hold of a request before any model is asked, whatever the wire."""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call, Item, Result
from toolrelay.core.request import Request
from toolrelay.errors import invalid


def orphan(items: Sequence[Item]) -> int | None:
    """The place of the first result whose call was not made before it."""
    made: set[str] = set()
    for place, item in enumerate(items):
        if isinstance(item, Call):
            made.add(item.id)
        elif isinstance(item, Result) and item.call_id not in made:
            return place
    return None


def check_tool_choice(request: Request) -> None:
    """A choice that cannot be met is the client's mistake: 400, never ignored."""
    choice = request.tool_choice
    if choice is None or choice.raw is not None:
        return
    declared = {(tool.kind, tool.name) for tool in request.functions()}
    for kind, name in choice.names:
        if (kind, name) not in declared:
            raise invalid(f"tool_choice names the tool {name!r}, which is not in tools.", "tool_choice", code="unknown_tool")
    if choice.mode == "required" and not request.tools:
        raise invalid("tool_choice is 'required', but the request declares no tools.", "tool_choice")
