"""Stands between the gateway and a model that can only print: offers it tools in text, and hears calls in what it prints.

To everyone else it is a backend like any other. What it does is decided in dialects/_conversation; here are only the waiting
and the asking again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from toolrelay.backends.base import Backend
from toolrelay.core.events import AnswerFinished, StreamEvent, Usage
from toolrelay.core.request import Request
from toolrelay.dialects._conversation import Conversation, Manner

USAGE_WITHIN = 0.1  # seconds that a cut answer's cost is waited for


class Interpreter:
    def __init__(self, backend: Backend, manner: Manner) -> None:
        self._backend = backend
        self._manner = manner

    async def stream(self, request: Request) -> AsyncGenerator[list[StreamEvent], None]:
        conversation = Conversation(request, self._manner)
        while True:
            async with aclosing(self._backend.stream(conversation.request)) as batches:
                async for batch in batches:
                    events = conversation.hear(batch)
                    if events:
                        yield events
                    if conversation.was_cut:
                        yield conversation.settle(await _cost(batches))
                    if conversation.over:
                        return
                    if conversation.again:
                        break
            if not conversation.again:
                return  # the backend gave no end; the driver sees to it
            conversation.next_try()

    async def close(self) -> None:
        await self._backend.close()


async def _cost(batches: AsyncGenerator[list[StreamEvent], None]) -> Usage | None:
    """What a cut answer has cost, if the backend says so in time."""
    try:
        async with asyncio.timeout(USAGE_WITHIN):
            async for batch in batches:
                for event in batch:
                    if isinstance(event, AnswerFinished):
                        return event.usage
    except TimeoutError:
        pass
    return None
