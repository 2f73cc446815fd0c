"""What becomes of a request before any model is asked, whatever the wire: what must hold, and what is cut."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.messages import Call, Content, Item, Part, Result, Text
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
    if choice is None:
        return
    param, among = ("function_call", "functions") if request.legacy_functions else ("tool_choice", "tools")
    declared = {(tool.kind, tool.name) for tool in request.functions()}
    for kind, name in choice.names:
        if (kind, name) not in declared:
            raise invalid(f"{param} names the tool {name!r}, which is not in {among}.", param, code="unknown_tool")
    if choice.mode == "required" and not request.tools:
        raise invalid("tool_choice is 'required', but the request declares no tools.", "tool_choice")


def without_tools(request: Request) -> Request:
    """For a model that is not to be offered any."""
    return replace(request, tools=(), tool_choice=None, parallel_tool_calls=None)


def with_results_cut(request: Request, limit: int) -> Request:
    """Tool results with more bytes of text than the limit are cut, with a mark that says so."""
    for item in request.items:
        if type(item) is Result and _size_over(item.output, limit):
            break
    else:
        return request
    items = tuple(
        replace(item, output=_cut_content(item.output, limit)) if isinstance(item, Result) else item for item in request.items
    )
    return replace(request, items=items)


def _size_over(content: Content, limit: int) -> int:
    """The size in bytes of its text, if over the limit; else 0."""
    texts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, Text)]
    if sum(map(len, texts)) * 4 <= limit:  # no character takes more than four
        return 0
    size = sum(len(_encoded(text)) for text in texts)
    return size if size > limit else 0


def _cut_content(content: Content, limit: int) -> Content:
    """Of several parts the first ones keep their text, as far as it goes. What is not text stays."""
    size = _size_over(content, limit)
    if not size:
        return content
    mark = f"\n[cut here by the gateway: at most {limit} of {size} bytes are shown]"
    if isinstance(content, str):
        return _first_bytes(content, limit) + mark
    kept: list[Part] = []
    left = limit
    for part in content:
        if not isinstance(part, Text):
            kept.append(part)
        elif left >= 0:
            taken = _first_bytes(part.text, left)
            cut = taken != part.text
            kept.append(replace(part, text=taken + mark) if cut else part)
            left = -1 if cut else left - len(_encoded(taken))
    return tuple(kept)


def _first_bytes(text: str, limit: int) -> str:
    """As many whole characters as fit."""
    whole = _encoded(text)
    if len(whole) <= limit:
        return text
    while whole[limit] & 0xC0 == 0x80:  # the middle of a character
        limit -= 1
    return whole[:limit].decode(errors="surrogatepass")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
