"""An estimate of a request's input tokens, where the model's server cannot count them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from toolrelay.core.events import estimate_usage
from toolrelay.core.messages import Audio, Call, Content, File, Image, Item, Message, Reasoning, Result, plain_text
from toolrelay.core.request import AnyTool, Request

_MEDIA_CHARACTERS = 6000  # of an image or a document; Claude takes about 1,500 tokens for a large picture or a page
_ITEM_CHARACTERS = 16  # what marks the beginning and the end of an item


def estimate_input_tokens(request: Request) -> int:
    characters = len(request.instructions or "") + sum(map(_item_size, request.items)) + _tool_size(request.tools)
    return max(1, estimate_usage(characters, 0).input)


def _item_size(item: Item) -> int:
    match item:
        case Message(content=content) | Result(output=content):
            size = _content_size(content)
        case Call():
            size = len(item.name) + len(item.arguments)
        case Reasoning():
            size = sum(map(len, (*item.text, *item.summary)))
        case _:
            size = len(msgspec.json.encode(item.raw))
    return size + _ITEM_CHARACTERS


def _content_size(content: Content) -> int:
    if isinstance(content, str):
        return len(content)
    return len(plain_text(content)) + _MEDIA_CHARACTERS * sum(isinstance(part, Image | Audio | File) for part in content)


def _tool_size(tools: Iterable[AnyTool]) -> int:
    return sum(len(msgspec.json.encode(tool)) for tool in tools)
