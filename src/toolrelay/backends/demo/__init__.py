"""The demo model: a script that calls tools without a language model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from toolrelay.backends.base import BackendKind, Deliver, deliver_all
from toolrelay.backends.demo.responder import respond
from toolrelay.core.events import StreamEvent
from toolrelay.core.request import Request
from toolrelay.settings import ModelSettings

__all__ = ["BACKEND", "DemoBackend", "respond"]

MAX_BATCHES = 400


class DemoBackend:
    """Answers by `respond`. A streamed answer has a pause of `delay` seconds between batches."""

    def __init__(self, *, delay: float = 0.015) -> None:
        self._delay = delay

    async def stream(self, request: Request) -> AsyncGenerator[list[StreamEvent], None]:
        events = respond(request)
        size = 1 + len(events) // MAX_BATCHES if request.stream else len(events)
        for start in range(0, len(events), size):
            if start:
                await asyncio.sleep(self._delay)
            yield events[start : start + size]

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        await deliver_all(self.stream(request), deliver)

    async def close(self) -> None:
        pass


BACKEND = BackendKind(settings=ModelSettings, open=lambda *_: DemoBackend())
