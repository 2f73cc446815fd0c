"""A test harness for turns: input (>>) and expected commands (<<), from top to bottom.

    (
        Playbook(turn)
        << [RecordStep(TurnAccepted(request=request)), CallModel(request)]
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
from collections import Counter
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from toolrelay.core.approvals import approval_digest, approval_id
from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.commands import AskPerson, CallModel, Command, Emit, Notice, RecordStep, RunTool
from toolrelay.core.events import (
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    GatewayCallFinished,
    GatewayCallStarted,
    StreamEvent,
)
from toolrelay.core.gateway_calls import OUTCOME_UNKNOWN
from toolrelay.core.identity import make_call_id
from toolrelay.core.messages import Call, Result, plain_text
from toolrelay.core.playback import shown_events
from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Request, Tool
from toolrelay.core.steps import (
    AnswerRejected,
    QuestionAsked,
    QuestionClosed,
    ReceivedStep,
    StepEvent,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    VerdictGiven,
)
from toolrelay.core.turn import Turn
from toolrelay.toolcalls.layer import ToolCallLayer

T = TypeVar("T", Turn, ToolCallLayer)

TOKEN = "Turn0000000000000000"
IDS = [make_call_id(TOKEN, number) for number in range(10)]


class Playbook(Generic[T]):
    def __init__(self, turn: T) -> None:
        self.turn: T = turn
        self._transcript: list[str] = []
        self._executed: list[Command] = []
        self._commands = turn.start()
        self._is_checked = True
        self._check_replays()

    def __rshift__(self, received: Sequence[StreamEvent] | ReceivedStep) -> Playbook[T]:
        __tracebackhide__ = True
        if not self._is_checked:
            raise AssertionError("\n".join([*self._transcript, "<< unchecked commands:", *_lines(self._commands)]))
        self._is_checked = False
        if isinstance(received, ReceivedStep):
            self._transcript.append(f">> {format_value(received)}")
            self._commands = self.turn.handle_step(received)
        else:
            self._transcript += [f">> {format_value(event)}" for event in received]
            self._commands = self.turn.handle(received)
        self._check_replays()
        return self

    def _check_replays(self) -> None:
        """Check that every prefix of the steps so far, replayed, gives the same next commands. A layer records nothing else."""
        turn: object = self.turn
        if not (isinstance(turn, Turn) and turn.records):
            return
        self._executed += self._commands
        for end in range(len(self._executed) - len(self._commands), len(self._executed)):
            if isinstance(self._executed[end], RecordStep):
                check_replay(turn, self._executed[: end + 1], self._executed[end + 1 :])
        if turn.finish is not None and not turn.policy.status_text:
            shown = shown_events(recorded(self._executed), joins_answers=turn.policy.joins_answers)
            assert _assembled(shown) == _assembled(emitted(self._executed))

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


def check_replay(turn: Turn, executed: Sequence[Command], following: Sequence[Command]) -> None:
    """Check that the recorded steps, replayed, are followed by the same commands as in the turn itself.

    An answer that is being received is asked for again; a tool that is running is repeated or given up.
    """
    steps = recorded(executed)
    replayed = Turn.replay(steps, token=turn.token, policy=turn.policy)
    commands = _without_notices(replayed.resume())
    match steps[-1]:
        case TurnAccepted() | AnswerRejected():
            assert [type(command) for command in commands] == [CallModel], (steps, commands)
        case QuestionClosed(status="withdrawn"):  # the turn ends next; if it is taken up, the person is asked again
            assert isinstance(commands[-1], AskPerson), (steps, commands)
        case ToolRunStarted(call_id=call_id):
            assert ToolRunFinished(call_id=call_id, output=OUTCOME_UNKNOWN, failed=True) in recorded(commands)
        case _:
            waits = [step.call_id for step in steps if isinstance(step, ToolRunStarted | QuestionAsked)]
            answers = [step.call_id for step in steps if isinstance(step, ReceivedStep)]
            if Counter(waits) <= Counter(answers):  # else a call beside this one is taken up again
                assert commands[: len(following)] == [*_after_own_emit(steps[-1], following)], (steps, commands, following)


def _assembled(events: Iterable[StreamEvent]) -> Answer:
    """Return the first choice of an answer, without what only the provider knows."""
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return structs.replace(assembly.answer(), started=AnswerStarted(), others=())


def _without_notices(commands: Iterable[Command]) -> list[Command]:
    return [command for command in commands if not isinstance(command, Notice)]


def _after_own_emit(step: StepEvent, following: Sequence[Command]) -> list[Command]:
    """Leave out what a step itself shows to the client: whoever resumes a turn knows what was shown."""
    commands = _without_notices(following)
    shows = isinstance(step, ToolRunStarted | ReceivedStep | TurnFinished | TurnFailed)
    if shows and commands and isinstance(commands[0], Emit):
        del commands[0]
    if isinstance(step, TurnFinished | TurnFailed):
        return []
    return commands


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


def make_turn(
    request: Request | None = None,
    *,
    approval: str = "",
    auto: str = "",
    parallel: str = "",
    max_rounds: int = 10,
    **rules: Any,
) -> Turn:
    """Return a turn with gateway tools that need approval, run automatically, or run in parallel: names separated by blanks."""
    tools = {name: GatewayTool(tool=Tool(name=name)) for name in approval.split()}
    tools |= {name: GatewayTool(tool=Tool(name=name), needs_approval=False) for name in auto.split()}
    tools |= {name: GatewayTool(tool=Tool(name=name), needs_approval=False, parallel=True) for name in parallel.split()}
    policy = Policy(tools=tools, max_tool_rounds=max_rounds, **rules)
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


def allowed(number: int, arguments: str = "{}", *, edited: bool = False) -> VerdictGiven:
    """Return the verdict as the turn records it: with the digest of what may run."""
    verdict = allow(number, arguments if edited else None)
    return structs.replace(verdict, digest=approval_digest(IDS[number], "", arguments))


def deny(number: int, reason: str | None = None) -> VerdictGiven:
    return VerdictGiven(call_id=IDS[number], verdict="deny", reason=reason)


def run_finished(number: int, output: str = "done") -> ToolRunFinished:
    return ToolRunFinished(call_id=IDS[number], output=output)


def ask_commands(number: int, name: str, arguments: str = "{}") -> list[Command]:
    asked = QuestionAsked(call_id=IDS[number], tool=name, arguments=arguments)
    return [RecordStep(asked), AskPerson(call_item(number, name, arguments), arguments)]


def run_commands(number: int, name: str, arguments: str = "{}", *, asked: bool = False) -> list[Command]:
    approval = approval_id(IDS[number]) if asked else None
    shown = GatewayCallStarted(id=IDS[number], name=name, toolset="", arguments=arguments, approval=approval)
    started = RecordStep(ToolRunStarted(call_id=IDS[number], arguments=arguments))
    return [started, Emit([shown]), RunTool(call_item(number, name, arguments))]


def finish_commands(step: ToolRunFinished) -> list[Command]:
    return [RecordStep(step), Emit([GatewayCallFinished(id=step.call_id, output=plain_text(step.output), failed=step.failed)])]


def next_request(commands: Iterable[Command]) -> Request:
    """Return the request that the model gets."""
    (request,) = [command.request for command in commands if isinstance(command, CallModel)]
    return request
