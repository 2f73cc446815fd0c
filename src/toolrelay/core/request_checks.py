"""Checks and limits that apply to every request before a model is called."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from toolrelay.core.messages import Call, Content, Item, Part, Result, Text
from toolrelay.core.request import Request
from toolrelay.errors import invalid


def find_orphan_result(items: Sequence[Item]) -> int | None:
    """Return the index of the first result that has no call before it."""
    call_ids: set[str] = set()
    for index, item in enumerate(items):
        if isinstance(item, Call):
            call_ids.add(item.id)
        elif isinstance(item, Result) and item.call_id not in call_ids:
            return index
    return None


def check_tool_choice(request: Request, gateway_tools: Collection[str] = ()) -> None:
    """Raise ClientError (400) for a choice that cannot be met by the client's tools or the gateway's."""
    choice = request.tool_choice
    if choice is None:
        return
    param, among = ("function_call", "functions") if request.legacy_functions else ("tool_choice", "tools")
    declared = {(tool.kind, tool.name) for tool in request.functions()}
    for kind, name in () if choice.raw is not None else choice.names:  # a provider's tools may contain others
        if (kind, name) not in declared and not (kind == "function" and name in gateway_tools):
            raise invalid(f"{param} names the tool {name!r}, which is not in {among}.", param, code="unknown_tool")
    if choice.mode == "required" and not request.tools and not gateway_tools:
        raise invalid("tool_choice is 'required', but the request declares no tools.", "tool_choice")


def remove_tools(request: Request) -> Request:
    return replace(request, tools=(), tool_choice=None, parallel_tool_calls=None)


def truncate_results(request: Request, limit: int) -> Request:
    """Truncate tool results with more bytes of text than the limit, and say so in the result."""
    for item in request.items:
        if type(item) is Result and _text_size(item.output, limit) > limit:
            break
    else:
        return request
    items = tuple(
        replace(item, output=truncate_content(item.output, limit)) if isinstance(item, Result) else item for item in request.items
    )
    return replace(request, items=items)


def _text_size(content: Content, limit: int) -> int:
    """Return the bytes of the text, or 0 if they are certainly within the limit."""
    texts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, Text)]
    if sum(map(len, texts)) * 4 <= limit:  # a character takes at most four bytes
        return 0
    return sum(len(_encode(text)) for text in texts)


def truncate_content(content: Content, limit: int) -> Content:
    """Keep the first `limit` bytes of the text of all parts together, and all parts that are not text."""
    size = _text_size(content, limit)
    if size <= limit:
        return content
    note = _truncation_note(limit, size)
    if isinstance(content, str):
        return _truncate(content, limit) + note
    kept: list[Part] = []
    left = limit
    for part in content:
        if not isinstance(part, Text):
            kept.append(part)
        elif left >= 0:
            text = _truncate(part.text, left)
            is_cut = text != part.text
            kept.append(replace(part, text=text + note) if is_cut else part)
            left = -1 if is_cut else left - len(_encode(text))
    return tuple(kept)


def truncate_text(text: str, limit: int) -> str:
    """Keep the first `limit` bytes of the text."""
    size = _text_size(text, limit)
    return text if size <= limit else _truncate(text, limit) + _truncation_note(limit, size)


def _truncation_note(limit: int, size: int) -> str:
    return f"\n[cut here by the gateway: at most {limit} of {size} bytes are shown]"


def _truncate(text: str, limit: int) -> str:
    """Return the first whole characters that fit into `limit` bytes."""
    encoded = _encode(text)
    if len(encoded) <= limit:
        return text
    while encoded[limit] & 0xC0 == 0x80:  # inside a character
        limit -= 1
    return encoded[:limit].decode(errors="surrogatepass")


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
