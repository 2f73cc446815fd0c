"""The demo model: a script without a language model that calls tools. With answers of its own it is the test double."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

from toolrelay.backends.base import BackendKind, Deliver, deliver_all
from toolrelay.backends.demo.responder import respond
from toolrelay.core.events import AnswerFailed, AnswerFinished, StreamEvent
from toolrelay.core.request import Request
from toolrelay.errors import ToolrelayError
from toolrelay.settings import ModelSettings

__all__ = ["BACKEND", "DemoBackend", "Step", "respond"]

MAX_BATCHES = 400

Step: TypeAlias = StreamEvent | Sequence[StreamEvent] | asyncio.Event | Exception
Answer: TypeAlias = Sequence[Step] | Callable[[Request], Sequence[Step]]


class DemoBackend:
    """Answers by `respond`, an event every `delay` seconds where the client streams; or by a script, an answer for each request.

    The script's last answer repeats. A step is an event, several events that arrive together, an asyncio.Event to wait for, a
    ToolrelayError as the answer's failure, or another exception, which is raised. `requests` are those that the script
    answered; `abandoned` is set when one of its answers is closed before its end.
    """

    def __init__(self, *, delay: float = 0.015, script: Sequence[Answer] = ()) -> None:
        self.requests: list[Request] = []
        self.abandoned = asyncio.Event()
        self._delay = delay
        self._script = script

    def stream(self, request: Request) -> AsyncGenerator[list[StreamEvent], None]:
        if not self._script:
            return self._answer(request)
        answer = self._script[min(len(self.requests), len(self._script) - 1)]
        self.requests.append(request)
        return self._play(answer(request) if callable(answer) else answer)

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        await deliver_all(self.stream(request), deliver)

    async def close(self) -> None:
        pass

    async def _answer(self, request: Request) -> AsyncGenerator[list[StreamEvent], None]:
        events = respond(request)
        size = 1 + len(events) // MAX_BATCHES if request.stream else len(events)
        for start in range(0, len(events), size):
            if start:
                await asyncio.sleep(self._delay)
            yield events[start : start + size]

    async def _play(self, steps: Sequence[Step]) -> AsyncGenerator[list[StreamEvent], None]:
        batch: list[StreamEvent] = []
        try:
            for step in steps:
                match step:
                    case asyncio.Event():
                        await step.wait()
                        continue
                    case ToolrelayError():
                        batch = [AnswerFailed(step)]
                    case Exception():
                        raise step
                    case _:
                        batch = list(step) if isinstance(step, Sequence) else [step]
                yield batch
        except (GeneratorExit, asyncio.CancelledError):
            if not batch or not isinstance(batch[-1], AnswerFinished | AnswerFailed):
                self.abandoned.set()
            raise


BACKEND = BackendKind(settings=ModelSettings, open=lambda *_: DemoBackend())
