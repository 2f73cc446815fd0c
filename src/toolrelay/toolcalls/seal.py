"""The tag that seals a conversation's calls (decision 3): the same for one conversation, so that prompt caches work, and unknown
outside of it, so that nothing that is quoted or injected can become a call.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import sha256
from itertools import takewhile

import msgspec

from toolrelay.core.messages import Call, Message, Reasoning, Result, plain_text
from toolrelay.core.request import Request

_LENGTH = 12
_encode = msgspec.json.Encoder().encode


def tag_for(request: Request, secret: bytes) -> str:
    """Made from the key, the instructions and the tools; another one if it occurs in what comes in."""
    seed = _encode([request.key, request.instructions, _opening(request), list(request.tools)])
    texts = list(_texts(request))
    for attempt in range(256):
        tag = hmac.new(secret, bytes([attempt]) + seed, sha256).hexdigest()[:_LENGTH]
        if not any(tag in text for text in texts):
            break
    return tag


def _opening(request: Request) -> list[str]:
    """The system texts that a conversation begins with. One that comes later must not change the tag."""
    spoken = takewhile(lambda item: isinstance(item, Message) and item.role in ("system", "developer"), request.items)
    return [plain_text(item.content) for item in spoken if isinstance(item, Message)]


def _texts(request: Request) -> Iterator[str]:
    yield request.instructions or ""
    for item in request.items:
        match item:
            case Message():
                yield plain_text(item.content)
            case Result():
                yield plain_text(item.output)
            case Call():
                yield item.arguments
            case Reasoning():
                yield from (*item.text, *item.summary)
            case _:
                yield _encode(item.raw).decode()
