"""Tools that items of a conversation declare (additional_tools)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from msgspec.structs import replace

from toolrelay.core.messages import Item, OpaqueItem
from toolrelay.core.request import OpaqueTool, Request, is_input_group
from toolrelay.wires.json import encode
from toolrelay.wires.responses.request import ADDITIONAL_TOOLS, NAME
from toolrelay.wires.tools import decode_tool_group


def is_tool_group(item: Item) -> TypeGuard[OpaqueItem]:
    return type(item) is OpaqueItem and item.wire == NAME and item.raw.get("type") == ADDITIONAL_TOOLS


def inherit_tools(request: Request, context: Iterable[Item], param: str) -> Request:
    """Return the request with the tools that items before its own declare. `param` is what refers to those items."""
    groups = [item for item in context if is_tool_group(item)]
    if not groups:
        return request
    known = {encode(tool.raw) for tool in request.tools if is_input_group(tool)}
    inherited: list[OpaqueTool] = []
    for group in groups:
        if (encoded := encode(group.raw)) not in known:  # clients repeat them
            known.add(encoded)
            inherited.append(decode_tool_group(group.raw, NAME, param))
    return replace(request, tools=(*request.tools, *inherited))
