"""One request's way to its end: events in, commands out.

    handle(stream events)     what the model says
    handle_step(step event)   a verdict, or what came of a tool run

The states, by what the turn waits for:

    waits for    comes                          then
    ---------    ----------------------------   ------------------------------------------------------------
    the model    deltas                         they are emitted as they come; of gateway calls nothing is
    the model    AnswerFinished, no calls       end: stop
    the model    AnswerFinished, client calls   end: calls, handed over
    the model    AnswerFinished, gateway calls  each in order: ask (if the policy says so), run
    a person     VerdictGiven                   run as approved, or tell the model that it was denied
    a tool       RunFinished                    the next call; after the last: hand over the client's calls of the same answer,
                                                or else ask the model again
    anything     AnswerFailed                   end: failed

After a gateway run a tool_choice of required or named relaxes to auto, else the turn would loop. At the round limit the model is
asked once more with tool_choice none; a call made even then is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.commands import AskPerson, CallModel, Command, Emit, End, Notice, Record, RunTool
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finish,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.identity import call_id
from toolrelay.core.messages import Call, Content, Item, Result
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request, ToolChoice
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    CallsHandedOver,
    Owner,
    QuestionAsked,
    RunFinished,
    RunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    VerdictGiven,
)


class _Slot:
    """A call of the answer that is being received. `visible` is its index for the client; None: the client sees nothing of it."""

    __slots__ = ("dropped", "owner", "started", "visible")

    def __init__(self, started: CallStarted, owner: Owner, visible: int | None, *, dropped: bool) -> None:
        self.started = started
        self.owner = owner
        self.visible = visible
        self.dropped = dropped


class Turn:
    def __init__(self, *, token: str, request: Request, policy: Policy | None = None) -> None:
        self.token = token
        self.request = request
        self.policy = policy or Policy()
        self.usage: Usage | None = None
        self.finish: Finish | None = None
        self.error: AnswerFailed | None = None
        self._declared = frozenset(tool.name for tool in request.functions())
        self._history: list[Item] = list(request.items)
        self._rounds = 0
        self._made = 0
        self._shown: dict[int, int] = {}
        self._started = False
        self._over = False
        self._waiting: deque[Call] = deque()
        self._handed: list[Call] = []
        self._running: Call | None = None
        self._choice = request.tool_choice
        self._begin_answer()

    def _begin_answer(self) -> None:
        self._assembly = Assembly()
        self._slots: dict[tuple[int, int], _Slot] = {}

    def start(self) -> list[Command]:
        accepted = TurnAccepted(model=self.request.model, wire=self.request.wire)
        return [Record(accepted), CallModel(self._model_request())]

    def _model_request(self) -> Request:
        if not self.policy.tools and not self._rounds:
            return self.request
        own = tuple(own.tool for name, own in self.policy.tools.items() if name not in self._declared)
        return replace(self.request, items=tuple(self._history), tools=self.request.tools + own, tool_choice=self._choice)

    # What the model says

    def handle(self, events: Sequence[StreamEvent]) -> list[Command]:
        if self._over:
            return []
        add = self._assembly.add
        seen: list[StreamEvent] = []
        commands: list[Command] = []
        for event in events:
            if event.__class__ is TextDelta:  # nearly every event
                add(event)
                seen.append(event)
                continue
            match event:
                case CallStarted():
                    self._start_call(event, seen, commands)
                case ArgumentsDelta() | CallFinished():
                    self._grow_call(event, seen)
                case AnswerStarted():
                    add(event)
                    if not self._started:
                        self._started = True
                        seen.append(event)
                case AnswerFinished():
                    add(event)
                    _flush(seen, commands)
                    return commands + self._finish_answer(event)
                case AnswerFailed():
                    _flush(seen, commands)
                    return commands + self._fail(event)
                case _:
                    add(event)
                    seen.append(event)
        _flush(seen, commands)
        return commands

    def _start_call(self, event: CallStarted, seen: list[StreamEvent], commands: list[Command]) -> None:
        rule = self._breach(event)
        owner = self.policy.owner(event.name, self._declared)
        dropped = rule in _DROPPING
        if rule:
            commands.append(Notice(event="tool_block", rule=rule, tool=event.name))
        visible = None
        if owner == "client" and not dropped:
            visible = self._shown.get(event.choice, 0)
            self._shown[event.choice] = visible + 1
        identifier = call_id(self.token, self._made)
        self._made += 1
        started = replace(event, id=identifier)
        self._slots[event.choice, event.index] = _Slot(started, owner, visible, dropped=dropped)
        if not dropped:
            self._assembly.add(started)
        if visible is not None:
            seen.append(started if visible == event.index else replace(started, index=visible))

    def _breach(self, event: CallStarted) -> str | None:
        """The rule that this call breaks, if any."""
        choice = self._choice
        if choice is not None and choice.mode == "none":
            return "tool_choice_none"
        if choice is not None and choice.names and choice.mode != "named" and (event.kind, event.name) not in choice.names:
            return "not_in_allowed_tools"
        if self.request.parallel_tool_calls is False and any(
            key[0] == event.choice and not slot.dropped for key, slot in self._slots.items()
        ):
            return "parallel_tool_calls_false"
        if event.name not in self._declared and event.name not in self.policy.tools:
            return "unknown_tool"
        return None

    def _grow_call(self, event: ArgumentsDelta | CallFinished, seen: list[StreamEvent]) -> None:
        slot = self._slots.get((event.choice, event.index))
        if slot is None or slot.dropped:
            return
        self._assembly.add(event)
        if slot.visible is not None:
            seen.append(event if slot.visible == event.index else replace(event, index=slot.visible))

    def _finish_answer(self, event: AnswerFinished) -> list[Command]:
        answer = self._assembly.answer()
        if event.usage is not None:
            self.usage = event.usage if self.usage is None else self.usage + event.usage
        commands: list[Command] = [Record(AnswerReceived(items=answer.items, finish=answer.finish, usage=answer.usage))]
        owners = {slot.started.id: slot.owner for slot in self._slots.values()}
        commands += [Record(CallPlanned(call=call, owner=owners[call.id])) for call in answer.calls]
        self._history += answer.items
        self._waiting = deque(call for call in answer.calls if owners[call.id] == "gateway")
        self._handed = [call for call in answer.calls if owners[call.id] == "client"]
        if self._waiting:
            return commands + self._next_call()
        return commands + self._end(_corrected(answer), event)

    def _fail(self, event: AnswerFailed) -> list[Command]:
        self._over = True
        self.error = event
        failed = TurnFailed(code=event.error.code, message=event.error.message)
        return [Record(failed), Emit([event]), End()]

    # Gateway calls, one after the other

    def handle_step(self, step: VerdictGiven | RunFinished) -> list[Command]:
        call = self._running
        if self._over or call is None or call.id != step.call_id:
            return []
        commands: list[Command] = [Record(step)]
        match step:
            case VerdictGiven(verdict="allow"):
                return commands + self._run(call if step.arguments is None else replace(call, arguments=step.arguments))
            case VerdictGiven():
                reason = f" Reason: {step.reason}" if step.reason else ""
                output: Content = f"The user denied this call. It was not run.{reason}"
            case RunFinished():
                output = step.output
        self._history.append(Result(call_id=call.id, output=output))
        self._running = None
        return commands + self._next_call()

    def _next_call(self) -> list[Command]:
        if self._waiting:
            self._running = call = self._waiting.popleft()
            if self.policy.tools[call.name].needs_approval:
                return [Record(QuestionAsked(call_id=call.id)), AskPerson(call)]
            return self._run(call)
        if self._handed:
            return self._end("calls", AnswerFinished(finish="calls"))
        self._rounds += 1
        at_limit = self._rounds >= self.policy.max_tool_rounds
        self._choice = ToolChoice(mode="none") if at_limit else _relaxed(self._choice)
        self._begin_answer()
        return [CallModel(self._model_request())]

    def _run(self, call: Call) -> list[Command]:
        return [Record(RunStarted(call_id=call.id, arguments=call.arguments)), RunTool(call)]

    # The end

    def _end(self, finish: Finish, event: AnswerFinished) -> list[Command]:
        self._over = True
        self.finish = finish
        commands: list[Command] = []
        if self._handed:
            commands.append(Record(CallsHandedOver(call_ids=tuple(call.id for call in self._handed))))
        commands.append(Record(TurnFinished(finish=finish, usage=self.usage)))
        commands.append(Emit([replace(event, finish=finish, usage=self.usage)]))
        commands.append(End())
        return commands


_DROPPING = frozenset({"tool_choice_none", "not_in_allowed_tools", "parallel_tool_calls_false"})


def _flush(seen: list[StreamEvent], commands: list[Command]) -> None:
    if seen:
        commands.append(Emit(seen))


def _corrected(answer: Answer) -> Finish:
    """Providers say "stop" after calls, or "tool_calls" without any."""
    if answer.finish in ("stop", "calls"):
        return "calls" if answer.calls else "stop"
    return answer.finish


def _relaxed(choice: ToolChoice | None) -> ToolChoice | None:
    if choice is None or choice.mode in ("auto", "none"):
        return choice
    return replace(choice, mode="auto", names=choice.names if choice.mode == "required" else ())
