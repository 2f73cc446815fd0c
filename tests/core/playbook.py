"""A turn's story, read from top to bottom: what comes in (>>) and what the turn then wants (<<).

    (
        Playbook(turn)
        << [Record(TurnAccepted(model="m", wire="openai_chat")), CallModel(request)]
        >> [TextDelta("hi")]
        << [Emit([TextDelta("hi")])]
        >> [AnswerFinished(finish="stop")]
        << ...
    )

What a turn wants must be spelt out before the next thing comes in, or be looked at through `commands`, or be passed over with
`...`; only the start may be left out. A story that goes another way fails with a difference, one line for each command and event.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from toolrelay.core.commands import AskPerson, CallModel, Command, Emit, Notice, Record, RunTool
from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, StreamEvent
from toolrelay.core.identity import call_id
from toolrelay.core.messages import Call, Result
from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Request, Tool
from toolrelay.core.steps import QuestionAsked, RunFinished, RunStarted, StepEvent, VerdictGiven
from toolrelay.core.turn import Turn
from toolrelay.toolcalls.layer import ToolCallLayer

T = TypeVar("T", Turn, ToolCallLayer)

TOKEN = "Turn0000000000000000"
IDS = [call_id(TOKEN, number) for number in range(10)]


class Playbook(Generic[T]):
    def __init__(self, turn: T) -> None:
        self.turn: T = turn
        self._story: list[str] = []
        self._commands = turn.start()
        self._looked_at = True

    def __rshift__(self, comes: Sequence[StreamEvent] | VerdictGiven | RunFinished) -> Playbook[T]:
        __tracebackhide__ = True
        if not self._looked_at:
            raise AssertionError("\n".join([*self._story, "<< nobody looked at:", *_lines(self._commands)]))
        self._looked_at = False
        if isinstance(comes, VerdictGiven | RunFinished):
            self._story.append(f">> {shown(comes)}")
            self._commands = self.turn.handle_step(comes)
        else:
            self._story += [f">> {shown(event)}" for event in comes]
            self._commands = self.turn.handle(comes)
        return self

    def __lshift__(self, wanted: Sequence[Command] | EllipsisType) -> Playbook[T]:
        __tracebackhide__ = True
        if wanted is ...:
            self._looked_at = True
            return self
        got = _lines(self.commands)
        if self.commands != list(wanted):
            difference: list[str] = [line.rstrip("\n") for line in difflib.ndiff(_lines(wanted), got)]
            legend = "<< the turn wants something else (- expected, + got):"
            raise AssertionError("\n".join([*self._story, legend, *difference]))
        self._story += [f"<< {line}" for line in got]
        return self

    @property
    def commands(self) -> list[Command]:
        """What the turn wanted last, for stories in which not all of it matters."""
        self._looked_at = True
        return self._commands


def shown(value: object) -> str:
    """Like repr, without what is as it is by default."""
    if isinstance(value, Struct):
        fields = [(field.name, getattr(value, field.name), field.default) for field in structs.fields(type(value))]
        return f"{type(value).__name__}({', '.join(f'{name}={shown(held)}' for name, held, usual in fields if held != usual)})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value)


def _lines(commands: Iterable[Command]) -> list[str]:
    lines = []
    for command in commands:
        match command:
            case Emit(events):
                lines += ["Emit", *(f"    {shown(event)}" for event in events)]
            case Record(step):
                lines.append(f"Record {shown(step)}")
            case _:
                lines.append(shown(command))
    return lines


def emitted(commands: Iterable[Command]) -> list[StreamEvent]:
    return [event for command in commands if isinstance(command, Emit) for event in command.events]


def recorded(commands: Iterable[Command]) -> list[StepEvent]:
    return [command.step for command in commands if isinstance(command, Record)]


def notices(commands: Iterable[Command]) -> list[tuple[str, str | None]]:
    return [(command.rule, command.tool) for command in commands if isinstance(command, Notice)]


def asked(*tools: str, **members: Any) -> Request:
    """A client's request that declares those tools."""
    return Request(wire="openai_chat", model="m", items=(), tools=tuple(Tool(name=name) for name in tools), **members)


def turn(request: Request | None = None, *, approved: str = "", free: str = "", rounds: int = 10) -> Turn:
    """A turn in which the gateway has tools, named with blanks between: those that need approval, and those that are free."""
    tools = {name: GatewayTool(tool=Tool(name=name)) for name in approved.split()}
    tools |= {name: GatewayTool(tool=Tool(name=name), needs_approval=False) for name in free.split()}
    policy = Policy(tools=tools, max_tool_rounds=rounds)
    return Turn(token=TOKEN, request=asked() if request is None else request, policy=policy)


def called(index: int, name: str, arguments: str = "{}", *, choice: int = 0) -> list[StreamEvent]:
    """A whole call, as a backend tells it."""
    return [CallStarted(index, name, choice=choice), ArgumentsDelta(index, arguments, choice), CallFinished(index, choice)]


def seen(index: int, name: str, arguments: str = "{}", *, number: int, choice: int = 0) -> list[StreamEvent]:
    """The same as the client sees it. `number` is the place of its id among all those that the turn made."""
    return [
        CallStarted(index, name, IDS[number], choice=choice),
        ArgumentsDelta(index, arguments, choice),
        CallFinished(index, choice),
    ]


def made(number: int, name: str, arguments: str = "{}") -> Call:
    """The same as an item."""
    return Call(id=IDS[number], name=name, arguments=arguments)


def answered(number: int, output: str = "done") -> Result:
    return Result(call_id=IDS[number], output=output)


def allowed(number: int, arguments: str | None = None) -> VerdictGiven:
    return VerdictGiven(call_id=IDS[number], verdict="allow", arguments=arguments)


def denied(number: int, reason: str | None = None) -> VerdictGiven:
    return VerdictGiven(call_id=IDS[number], verdict="deny", reason=reason)


def ran(number: int, output: str = "done") -> RunFinished:
    return RunFinished(call_id=IDS[number], output=output)


def asking(number: int, name: str, arguments: str = "{}") -> list[Command]:
    return [Record(QuestionAsked(call_id=IDS[number])), AskPerson(made(number, name, arguments))]


def running(number: int, name: str, arguments: str = "{}") -> list[Command]:
    return [Record(RunStarted(call_id=IDS[number], arguments=arguments)), RunTool(made(number, name, arguments))]


def next_request(commands: Iterable[Command]) -> Request:
    """What the model is asked."""
    (request,) = [command.request for command in commands if isinstance(command, CallModel)]
    return request
