"""The size limit of results that stay text: `Tool '…' result: …` in messages of a client that declares no tools.

    in the user's message                            limited to `limit` bytes
    ----------------------------------------------   --------------------------------------------------------------------
    as many results of a name as the answer before   each of them
      has blocks of it, or fewer
    more, or no answer with blocks before it         all of it from the first result on: an output may contain what
                                                     looks like further results
    text before the first result                     not at all: the user wrote it

A result ends where the next one begins, or with the message: the client writes no end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from toolrelay.clients.xml.answer import tool_name
from toolrelay.clients.xml.history import BLOCK, find_results
from toolrelay.core.messages import Item, Message, Text, plain_text
from toolrelay.core.request_checks import truncate_text


def truncate_printed_results(items: Sequence[Item], limit: int) -> tuple[Item, ...]:
    out: list[Item] = []
    blocks: Mapping[str, int] = {}
    for item in items:
        if isinstance(item, Message) and item.role == "assistant":
            blocks = Counter(tool_name(match.group()) for match in BLOCK.finditer(plain_text(item.content)))
        is_user = isinstance(item, Message) and item.role == "user"
        out.append(_truncate_message(item, blocks, limit) if is_user and isinstance(item, Message) else item)
    return tuple(out)


def _truncate_message(message: Message, blocks: Mapping[str, int], limit: int) -> Message:
    content = message.content
    if isinstance(content, str):
        text = _truncate_results(content, blocks, limit)
        return message if text is content else replace(message, content=text)
    parts = tuple(
        replace(part, text=_truncate_results(part.text, blocks, limit)) if isinstance(part, Text) else part for part in content
    )
    return replace(message, content=parts)


def _truncate_results(text: str, blocks: Mapping[str, int], limit: int) -> str:
    headers = find_results(text) if len(text) * 4 > limit else []  # a character takes at most four bytes
    if not headers:
        return text
    results = Counter(header.name for header in headers)
    if any(count > blocks.get(name, 0) for name, count in results.items()):
        headers = headers[:1]
    starts, ends = [header.end for header in headers], [*(header.start for header in headers[1:]), len(text)]
    pieces = [text[: starts[0]]]
    for start, end, following in zip(starts, ends, [*starts[1:], len(text)], strict=True):
        pieces += [truncate_text(text[start:end], limit), text[end:following]]
    return "".join(pieces)
