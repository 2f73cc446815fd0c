"""What becomes of a request before any model is asked, whatever the wire: what must hold, and what is cut."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.messages import Call, Content, Item, Result, Text
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


def without_tools(request: Request) -> Request:
    """For a model that is not to be offered any."""
    return replace(request, tools=(), tool_choice=None, parallel_tool_calls=None)


def with_results_cut(request: Request, limit: int) -> Request:
    """Tool results over the limit are cut, with a mark that says so."""
    if not any(isinstance(item, Result) and _is_long(item.output, limit) for item in request.items):
        return request
    items = tuple(
        replace(item, output=_cut_content(item.output, limit)) if isinstance(item, Result) else item for item in request.items
    )
    return replace(request, items=items)


def _is_long(content: Content, limit: int) -> bool:
    texts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, Text)]
    return any(len(text) * 4 > limit and len(text.encode()) > limit for text in texts)


def _cut_content(content: Content, limit: int) -> Content:
    if isinstance(content, str):
        return _cut(content, limit)
    return tuple(replace(part, text=_cut(part.text, limit)) if isinstance(part, Text) else part for part in content)


def _cut(text: str, limit: int) -> str:
    whole = text.encode()
    if len(whole) <= limit:
        return text
    kept = whole[:limit].decode(errors="ignore")
    return f"{kept}\n[cut here by the gateway: {limit} of {len(whole)} bytes are shown]"
