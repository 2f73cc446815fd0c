"""A backend behind the tool-calling layer, as a backend itself: it delivers the client's events, without call ids."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from toolrelay.backends.base import Backend, Deliver, deliver_batch
from toolrelay.core.commands import Notice, RecordStep
from toolrelay.core.events import CallStarted, Noticed, StreamEvent
from toolrelay.core.policy import Policy
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.core.steps import AnswerRejected
from toolrelay.core.turn import Turn
from toolrelay.runtime.driver import drive
from toolrelay.runtime.models import tool_calling_mode
from toolrelay.settings import ModelSettings
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.toolcalls.options import ActiveOptions


class Layered:
    """`rejected`: the rules of rejected answers."""

    def __init__(self, backend: Backend, mode: ActiveOptions) -> None:
        self.rejected: list[str] = []
        self._backend = backend
        self._mode = mode

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        collector = _Collector(self.rejected)
        layer = ToolCallLayer(Turn(token="t", request=request, policy=Policy(records_answers=False)), self._mode)
        await drive(layer, self._backend, collector, collector)
        await deliver_batch(deliver, collector.events)

    async def close(self) -> None:
        await self._backend.close()


class _Collector:
    def __init__(self, rejected: list[str]) -> None:
        self.events: list[StreamEvent] = []
        self._rejected = rejected

    def put(self, events: list[StreamEvent]) -> None:
        self.events += [replace(event, id="") if isinstance(event, CallStarted) else event for event in events]

    def record(self, command: RecordStep) -> None:
        if isinstance(command.step, AnswerRejected):
            self._rejected.append(command.step.rule)

    def notice(self, command: Notice) -> None:
        self.events.append(Noticed(event=command.event, rule=command.rule, tool=command.tool, dialect=command.dialect))


def layered(backend: Backend, profile: Profile, **settings: Any) -> Layered:
    return Layered(backend, tool_calling_mode(ModelSettings(**settings), profile, lambda: b"secret"))
