"""A backend that plays scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

from toolrelay.backends.base import Deliver, deliver_all
from toolrelay.core.events import AnswerFailed, AnswerFinished, StreamEvent
from toolrelay.core.request import Request
from toolrelay.errors import ToolrelayError

ScriptStep: TypeAlias = StreamEvent | Sequence[StreamEvent] | asyncio.Event | Exception
ScriptedAnswer: TypeAlias = Sequence[ScriptStep] | Callable[[Request], Sequence[ScriptStep]]


class ScriptedBackend:
    """Plays one answer per request; the last one repeats.

    step                effect
    -----------------   ---------------------------------------------------
    an event            delivered as a batch of its own
    several events      delivered as one batch
    an asyncio.Event    waited for
    a ToolrelayError    delivered as AnswerFailed
    another exception   raised

    `requests` are those received; `abandoned` is set when an answer is closed before its end.
    """

    def __init__(self, script: Sequence[ScriptedAnswer]) -> None:
        self.requests: list[Request] = []
        self.abandoned = asyncio.Event()
        self._script = script

    async def stream(self, request: Request) -> AsyncGenerator[list[StreamEvent], None]:
        answer = self._script[min(len(self.requests), len(self._script) - 1)]
        self.requests.append(request)
        batch: list[StreamEvent] = []
        try:
            for step in answer(request) if callable(answer) else answer:
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

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        await deliver_all(self.stream(request), deliver)

    async def close(self) -> None:
        pass
