"""The Codex backend over the real binary and a scripted upstream, both shared by several tests."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from tests.backends.codex.app_server import KEY, MODEL, location_in, probed_binary
from tests.backends.codex.upstream import Call, body_of
from tests.layered import Layered
from tests.upstream import Script, Step, Upstream
from toolrelay.backends.base import Backend
from toolrelay.backends.codex import CodexBackend
from toolrelay.backends.codex.pool import ProcessPool
from toolrelay.backends.codex.settings import CodexSettings
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    Noticed,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Item, Message
from toolrelay.core.request import Request, Tool
from toolrelay.errors import ToolrelayError
from toolrelay.runtime.models import tool_calling_mode

T = TypeVar("T")

SETTINGS = CodexSettings(name="mine", provider="codex", model=MODEL, api_key=KEY)
USER = Message(role="user", content="hi")
SCHEMA: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool(name="get_weather", description="The weather at a place", parameters=SCHEMA)
STARTED = AnswerStarted(model="scripted")
DONE = AnswerFinished(finish="stop", usage=Usage(input=7, output=3, total=10, cached=0, reasoning=0))
PARIS, ROME = Call("get_weather", {"city": "Paris"}), Call("get_weather", {"city": "Rome"})
PATCH = "*** Begin Patch\n*** Add File: hacked\n+x\n*** End Patch"
BUILT_IN = [
    Call("exec_command", {"cmd": "touch hacked"}),
    Call("shell", {"command": ["touch", "hacked"]}),
    Call("shell_command", {"command": "touch hacked"}),
    Call("apply_patch", {"input": PATCH}),
    Call("apply_patch", {"input": PATCH}, kind="custom_tool_call"),
    Call("update_plan", {"plan": []}),
    Call("view_image", {"path": "/etc/passwd"}),
    Call("web_search", {"query": "x"}),
    Call("request_user_input", {"questions": []}),
]


def request(*items: Item, **members: Any) -> Request:
    return Request(wire="openai_chat", model="mine", items=items or (USER,), **{"stream": True, **members})


class CodexHarness:
    """An event loop, a process and an upstream. `ask` sends one request while the upstream plays the scripts."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.upstream = Upstream()
        self.upstream.__enter__()
        self._runner = asyncio.Runner()
        self.settings = replace(SETTINGS, base_url=f"{self.upstream.url}/v1")
        self.pool = ProcessPool(location_in(folder, self.upstream, **more), size=1, binary=probed_binary())
        self.native = self.backend()

    def backend(self, *, probe_seconds: float = 5.0, **members: Any) -> CodexBackend:
        """Return another backend on the same pool."""
        return CodexBackend(replace(self.settings, **members), self.pool, probe_seconds=probe_seconds)

    def layered(self) -> Backend:
        """Return the backend behind the tool-calling layer, as in the gateway."""
        return Layered(self.native, tool_calling_mode(self.settings, PROVIDERS["codex"].profile, lambda: b"secret"))

    def with_dialect(self, dialect: str = "hermes", **members: Any) -> Backend:
        """Return the same model with calls printed in a dialect."""
        settings = replace(self.settings, tool_calling=dialect, **members)
        return Layered(self.native, tool_calling_mode(settings, PROVIDERS["codex"].profile, lambda: b"secret"))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(main)

    def script(self, *scripts: Script | Step) -> None:
        """Set the upstream's next answers and clear its log of requests."""
        self.upstream.reset(*scripts)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [body_of(received) for received in self.upstream.requests]

    def ask(self, request_: Request, *scripts: Script | Step, backend: Backend | None = None) -> list[StreamEvent]:
        if scripts:
            self.script(*scripts)
        return self.run(collect(backend or self.native, request_))

    def kill(self) -> None:
        for pooled in self.pool.processes:
            os.kill(pooled.process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.run(self.native.close())
        self._runner.close()
        self.upstream.__exit__()


async def collect(backend: Backend, request_: Request) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    await backend.stream_into(request_, events.extend)
    return events


def fold(events: Sequence[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


def error_of(events: Sequence[StreamEvent]) -> ToolrelayError:
    last = events[-1]
    assert isinstance(last, AnswerFailed), events
    return last.error


def finish_of(events: Sequence[StreamEvent]) -> AnswerFinished:
    last = events[-1]
    assert isinstance(last, AnswerFinished), events
    return last


def text(events: Sequence[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def client_events(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    """Drop log events and join adjacent deltas."""
    out: list[StreamEvent] = []
    for event in events:
        last = out[-1] if out else None
        match last, event:
            case _, Noticed():
                pass
            case TextDelta(), TextDelta():
                out[-1] = replace(last, text=last.text + event.text)
            case ReasoningDelta(), ReasoningDelta() if (last.kind, last.part) == (event.kind, event.part):
                out[-1] = replace(last, text=last.text + event.text)
            case ArgumentsDelta(), ArgumentsDelta() if last.index == event.index:
                out[-1] = replace(last, text=last.text + event.text)
            case _:
                out.append(event)
    return out
