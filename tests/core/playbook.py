"""A test harness for turns: input (>>) and expected commands (<<), from top to bottom.

    (
        Playbook(turn)
        << [RecordStep(TurnAccepted(model="m", wire="openai_chat")), CallModel(request)]
        >> [TextDelta("hi")]
        << [Emit([TextDelta("hi")])]
        >> [AnswerFinished(finish="stop")]
        << ...
    )

The commands must be checked before the next input: with `<<`, through `commands`, or skipped with `...`. Only those of the start
may be left unchecked. A mismatch fails with a diff, one line for each command and event.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from toolrelay.core.commands import AskPerson, CallModel, Command, Emit, Notice, RecordStep, RunTool
from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, StreamEvent
from toolrelay.core.identity import make_call_id
from toolrelay.core.messages import Call, Result
from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Request, Tool
from toolrelay.core.steps import QuestionAsked, StepEvent, ToolRunFinished, ToolRunStarted, VerdictGiven
from toolrelay.core.turn import Turn
from toolrelay.toolcalls.layer import ToolCallLayer

T = TypeVar("T", Turn, ToolCallLayer)

TOKEN = "Turn0000000000000000"
IDS = [make_call_id(TOKEN, number) for number in range(10)]


class Playbook(Generic[T]):
    def __init__(self, turn: T) -> None:
        self.turn: T = turn
        self._transcript: list[str] = []
        self._commands = turn.start()
        self._is_checked = True

    def __rshift__(self, received: Sequence[StreamEvent] | VerdictGiven | ToolRunFinished) -> Playbook[T]:
        __tracebackhide__ = True
        if not self._is_checked:
            raise AssertionError("\n".join([*self._transcript, "<< unchecked commands:", *_lines(self._commands)]))
        self._is_checked = False
        if isinstance(received, VerdictGiven | ToolRunFinished):
            self._transcript.append(f">> {format_value(received)}")
            self._commands = self.turn.handle_step(received)
        else:
            self._transcript += [f">> {format_value(event)}" for event in received]
            self._commands = self.turn.handle(received)
        return self

    def __lshift__(self, expected: Sequence[Command] | EllipsisType) -> Playbook[T]:
        __tracebackhide__ = True
        if expected is ...:
            self._is_checked = True
            return self
        actual = _lines(self.commands)
        if self.commands != list(expected):
            difference: list[str] = [line.rstrip("\n") for line in difflib.ndiff(_lines(expected), actual)]
            legend = "<< unexpected commands (- expected, + actual):"
            raise AssertionError("\n".join([*self._transcript, legend, *difference]))
        self._transcript += [f"<< {line}" for line in actual]
        return self

    @property
    def commands(self) -> list[Command]:
        """Return the latest commands, if not all of them matter."""
        self._is_checked = True
        return self._commands


def format_value(value: object) -> str:
    """Like repr, without default values."""
    if isinstance(value, Struct):
        fields = [(field.name, getattr(value, field.name), field.default) for field in structs.fields(type(value))]
        changed = [f"{name}={format_value(held)}" for name, held, default in fields if held != default]
        return f"{type(value).__name__}({', '.join(changed)})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    return repr(value)


def _lines(commands: Iterable[Command]) -> list[str]:
    lines = []
    for command in commands:
        match command:
            case Emit(events):
                lines += ["Emit", *(f"    {format_value(event)}" for event in events)]
            case RecordStep(step):
                lines.append(f"RecordStep {format_value(step)}")
            case _:
                lines.append(format_value(command))
    return lines


def emitted(commands: Iterable[Command]) -> list[StreamEvent]:
    return [event for command in commands if isinstance(command, Emit) for event in command.events]


def recorded(commands: Iterable[Command]) -> list[StepEvent]:
    return [command.step for command in commands if isinstance(command, RecordStep)]


def notices(commands: Iterable[Command]) -> list[tuple[str, str | None]]:
    return [(command.rule, command.tool) for command in commands if isinstance(command, Notice)]


def make_request(*tools: str, **members: Any) -> Request:
    """Return a client's request that declares those tools."""
    return Request(wire="openai_chat", model="m", items=(), tools=tuple(Tool(name=name) for name in tools), **members)


def make_turn(request: Request | None = None, *, approval: str = "", auto: str = "", max_rounds: int = 10) -> Turn:
    """Return a turn with gateway tools that need approval, and some that run automatically: names separated by blanks."""
    tools = {name: GatewayTool(tool=Tool(name=name)) for name in approval.split()}
    tools |= {name: GatewayTool(tool=Tool(name=name), needs_approval=False) for name in auto.split()}
    policy = Policy(tools=tools, max_tool_rounds=max_rounds)
    return Turn(token=TOKEN, request=make_request() if request is None else request, policy=policy)


def model_call(index: int, name: str, arguments: str = "{}", *, choice: int = 0) -> list[StreamEvent]:
    """Return the events of a whole call from a backend."""
    return [CallStarted(index, name, choice=choice), ArgumentsDelta(index, arguments, choice), CallFinished(index, choice)]


def client_call(index: int, name: str, arguments: str = "{}", *, number: int, choice: int = 0) -> list[StreamEvent]:
    """Return the events that the client gets. `number` counts all calls of the turn."""
    return [
        CallStarted(index, name, IDS[number], choice=choice),
        ArgumentsDelta(index, arguments, choice),
        CallFinished(index, choice),
    ]


def call_item(number: int, name: str, arguments: str = "{}") -> Call:
    return Call(id=IDS[number], name=name, arguments=arguments)


def result_item(number: int, output: str = "done") -> Result:
    return Result(call_id=IDS[number], output=output)


def allow(number: int, arguments: str | None = None) -> VerdictGiven:
    return VerdictGiven(call_id=IDS[number], verdict="allow", arguments=arguments)


def deny(number: int, reason: str | None = None) -> VerdictGiven:
    return VerdictGiven(call_id=IDS[number], verdict="deny", reason=reason)


def run_finished(number: int, output: str = "done") -> ToolRunFinished:
    return ToolRunFinished(call_id=IDS[number], output=output)


def ask_commands(number: int, name: str, arguments: str = "{}") -> list[Command]:
    return [RecordStep(QuestionAsked(call_id=IDS[number])), AskPerson(call_item(number, name, arguments))]


def run_commands(number: int, name: str, arguments: str = "{}") -> list[Command]:
    return [RecordStep(ToolRunStarted(call_id=IDS[number], arguments=arguments)), RunTool(call_item(number, name, arguments))]


def next_request(commands: Iterable[Command]) -> Request:
    """Return the request that the model gets."""
    (request,) = [command.request for command in commands if isinstance(command, CallModel)]
    return request
