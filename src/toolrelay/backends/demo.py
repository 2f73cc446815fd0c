"""The demo model: an embedded script that really calls tools, and, given scripts of its own, the house's test double."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

from toolrelay.backends._demo_mind import think
from toolrelay.backends.base import Backend, BackendKind, Deliver, deliver_all
from toolrelay.core.events import AnswerFailed, AnswerFinished, StreamEvent
from toolrelay.core.request import Request
from toolrelay.errors import ToolrelayError
from toolrelay.settings import Environment, ModelSettings

PACE = 0.015
MOST_BATCHES = 400

Step: TypeAlias = StreamEvent | Sequence[StreamEvent] | asyncio.Event | Exception
Answer: TypeAlias = Sequence[Step] | Callable[[Request], Sequence[Step]]


class DemoBackend:
    """Answers by its own mind, a piece every `pace` seconds where the client streams; or by a script.

    A script holds answers: each request plays the next one, and the last one repeats. A step of an answer is an event, several
    that arrive together, an asyncio.Event to wait for, a ToolrelayError with which the answer fails, or another exception,
    which is raised as a backend never should. `requests` are those that the script was asked; `abandoned` is set once an answer
    of it was let go before its end.
    """

    def __init__(self, *, pace: float = PACE, script: Sequence[Answer] = ()) -> None:
        self.requests: list[Request] = []
        self.abandoned = asyncio.Event()
        self._pace = pace
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
        events = think(request)
        # A long answer comes in larger batches, so that it takes seconds, not minutes.
        size = 1 + len(events) // MOST_BATCHES if request.stream else len(events)
        for start in range(0, len(events), size):
            if start:
                await asyncio.sleep(self._pace)
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
                    case Sequence():
                        batch = list(step)
                    case _:
                        batch = [step]
                yield batch
        except (GeneratorExit, asyncio.CancelledError):
            if not batch or not isinstance(batch[-1], AnswerFinished | AnswerFailed):
                self.abandoned.set()
            raise


def _open(_settings: ModelSettings, _environment: Environment) -> Backend:
    return DemoBackend()


BACKEND = BackendKind(settings=ModelSettings, open=_open)
