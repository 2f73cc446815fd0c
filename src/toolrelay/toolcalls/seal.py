"""The tag of the `sealed` dialect: constant for one conversation, so that prompt caches work, and secret outside of it, so that
quoted or injected text cannot become a call (decision 3).
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


def derive_tag(request: Request, secret: bytes) -> str:
    """Derive the tag from the key, the instructions and the tools. A tag that occurs in the request is skipped."""
    seed = _encode([request.key, request.instructions, _leading_system_texts(request), list(request.tools)])
    texts = list(_texts(request))
    for attempt in range(256):
        tag = hmac.new(secret, bytes([attempt]) + seed, sha256).hexdigest()[:_LENGTH]
        if not any(tag in text for text in texts):
            break
    return tag


def _leading_system_texts(request: Request) -> list[str]:
    """Return the system texts at the start of the conversation. Later ones must not change the tag."""
    leading = takewhile(lambda item: isinstance(item, Message) and item.role in ("system", "developer"), request.items)
    return [plain_text(item.content) for item in leading if isinstance(item, Message)]


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
