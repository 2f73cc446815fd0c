"""Turns with a tool on real models, and the trial of `toolrelay check --try`: what worked, and what to change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Literal

from msgspec import Struct

from toolrelay.backends.base import Backend, Deliver, Wanted
from toolrelay.cli._text import escape_controls, shorten
from toolrelay.core.assembly import Assembly
from toolrelay.core.commands import Notice, RecordStep
from toolrelay.core.events import CallFinished, CallStarted, Noticed, StreamEvent, TextDelta
from toolrelay.core.messages import Call, Item, Message
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request, Tool
from toolrelay.core.turn import Turn
from toolrelay.core.validation import validate
from toolrelay.dialects.base import discover
from toolrelay.errors import BackendError, ToolrelayError
from toolrelay.parsing.scanner import Scanner
from toolrelay.runtime.driver import drive
from toolrelay.runtime.models import Model
from toolrelay.setting_types import quote_key
from toolrelay.toolcalls.layer import ToolCallLayer

_TOKEN = "Trial000000000000000"  # noqa: S105 -- a turn's token, which is random elsewhere
MAX_SECONDS = 120.0
MAX_SCANNED = 65536  # characters of an answer without a call that are searched for one
MAX_ADVICE = 300  # characters of an error message
_QUESTION = "What is the weather in Paris? Call the tool get_weather to find out."
_TOOL = Tool(
    name="get_weather",
    description="Returns the current weather of a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)

CallSource = Literal["native", "read from text", "none", "wrong", "off", "-"]


class Trial(Struct, frozen=True, kw_only=True):
    """`call`: where the call came from; none: the model answered without one; wrong: it is not the call that was asked for.

    `simulated` is what the gateway does for the model's server. `first_seconds` is the time until the first event, if one came.
    """

    model: str
    answered: bool
    call: CallSource
    seconds: float
    first_seconds: float | None = None
    simulated: tuple[str, ...] = ()
    advice: str = ""

    @property
    def is_good(self) -> bool:
        return self.call in ("native", "read from text", "off")


class PlayedTurn(Struct, frozen=True, kw_only=True):
    """The outcome of one turn. `rules` are those of notices. `has_native_call`: the model's server reported a call."""

    calls: tuple[Call, ...] = ()
    text: str = ""
    rules: frozenset[str] = frozenset()
    has_native_call: bool = False
    seconds: float = 0.0
    first_seconds: float | None = None
    error: ToolrelayError | None = None


async def play_turn(model: Model, items: Sequence[Item], tools: Sequence[Tool], seconds: float = MAX_SECONDS) -> PlayedTurn:
    """Ask the model. Tools are not run. After `seconds` without an end, the outcome is an error."""
    name = model.settings.name
    request = Request(wire="openai_chat", model=name, items=tuple(items), tools=tuple(tools), stream=True, include_usage=True)
    observer = _Observer()
    backend = _WatchedBackend(model.backend)
    turn = Turn(token=_TOKEN, request=request, policy=Policy(records_answers=False))
    started = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            await drive(ToolCallLayer(turn, model.mode), backend, observer, observer)
    except TimeoutError:
        observer.error = BackendError(f"no answer within {seconds:g} s", status=504)
    except ToolrelayError as error:
        observer.error = error
    return PlayedTurn(
        calls=tuple(observer.calls()),
        text=observer.text(),
        rules=frozenset(observer.rules),
        has_native_call=backend.has_native_call,
        seconds=time.monotonic() - started,
        first_seconds=None if backend.first_event is None else backend.first_event - started,
        error=observer.error,
    )


async def try_model(model: Model, seconds: float = MAX_SECONDS) -> Trial:
    """Ask the model one question that needs a tool. The tool is not run."""
    name = model.settings.name
    tools = () if model.settings.tool_calling == "off" else (_TOOL,)
    played = await play_turn(model, (Message(role="user", content=_QUESTION),), tools, seconds)
    if played.error is not None:
        advice = one_line(played.error.message)
        return Trial(model=name, answered=False, call="-", seconds=played.seconds, advice=advice)
    call, advice = _judge(model, played)
    return Trial(
        model=name,
        answered=True,
        call=call,
        seconds=played.seconds,
        first_seconds=played.first_seconds,
        simulated=_simulated_parts(model, call),
        advice=advice,
    )


def _simulated_parts(model: Model, call: CallSource) -> tuple[str, ...]:
    """Return what the gateway does in the place of the model's server."""
    if model.settings.tool_calling == "off":
        return ()
    options = model.mode.options
    is_read = call == "read from text" or not options.native
    parts = {
        f"calls ({options.dialect.name})": is_read,
        "tool_choice": not is_read and not options.enforces_tool_choice,
        "stop": options.emulates_stop,
    }
    return tuple(name for name, is_simulated in parts.items() if is_simulated)


def _judge(model: Model, played: PlayedTurn) -> tuple[CallSource, str]:
    setting, tool_calling = f"models.{quote_key(model.settings.name)}", model.settings.tool_calling
    if tool_calling == "off":
        return "off", ""
    if not played.calls:
        advice = _advise(setting, played.text, is_native=model.mode.options.native, tool_calling=tool_calling)
        return "none", f"{advice}; `toolrelay probe {model.settings.name}` tries more"
    made = played.calls[0]
    problem = "another tool" if made.name != _TOOL.name else validate(_TOOL, made.arguments)
    if problem is not None:
        return "wrong", f"the call is not the one that was asked for ({one_line(problem)}); a larger model may do better"
    if "native_tools_refused" in played.rules:
        return "read from text", f'the server refuses tools: set {setting}.tool_calling = "{model.mode.options.dialect.name}"'
    return ("native" if played.has_native_call else "read from text"), ""


def _advise(setting: str, text: str, *, is_native: bool, tool_calling: str) -> str:
    found = find_printed_dialects(text)
    if is_native and "use_tool" in found:
        return f'it prints calls: set {setting}.printed_calls = "catch"'
    if found:
        return f'it prints calls as {found[0]}: set {setting}.tool_calling = "{found[0]}"'
    if is_native:
        return f'it does not call tools: try {setting}.tool_calling = "sealed"'
    return f'it does not print calls as {tool_calling}: try {setting}.tool_calling = "sealed" or another model'


def find_printed_dialects(text: str) -> list[str]:
    """Return the dialects in which the text has a call of the tool, in order of their names."""
    return [name for name, dialect in sorted(discover().items()) if _has_call(Scanner(dialect, {_TOOL.name: _TOOL}), text)]


def _has_call(scanner: Scanner, text: str) -> bool:
    events = [*scanner.feed(text[:MAX_SCANNED]), *scanner.flush()]
    names = [event.name for event in events if isinstance(event, CallStarted)]
    return names[:1] == [_TOOL.name] and any(isinstance(event, CallFinished) for event in events)


def one_line(text: str) -> str:
    """Return text of others as one line that is safe for a terminal."""
    return escape_controls(shorten(" ".join(text.split()), MAX_ADVICE))


class _WatchedBackend:
    """Notes when the answer began, and whether the model made a call of its own accord, not in its text."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.has_native_call = False
        self.first_event: float | None = None

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        def watch(batch: list[StreamEvent]) -> Awaitable[Wanted | None] | Wanted | None:
            if self.first_event is None and not isinstance(batch[0], Noticed):
                self.first_event = time.monotonic()
            self.has_native_call = self.has_native_call or any(isinstance(event, CallStarted) for event in batch)
            return deliver(batch)

        await self._backend.stream_into(request, watch)

    async def close(self) -> None:
        await self._backend.close()


class _Observer:
    """Collects the answer and the rules of notices."""

    def __init__(self) -> None:
        self.rules: set[str] = set()
        self.error: ToolrelayError | None = None
        self._assembly = Assembly()
        self._texts: list[str] = []

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        for event in events:
            self._assembly.add(event)
            if isinstance(event, TextDelta):
                self._texts.append(event.text)
        self.error = self._assembly.error
        return None

    def record(self, command: RecordStep) -> None:
        pass

    def notice(self, command: Notice) -> None:
        self.rules.add(command.rule)

    def calls(self) -> Sequence[Call]:
        return self._assembly.answer().calls

    def text(self) -> str:
        return "".join(self._texts)
