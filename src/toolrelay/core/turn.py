"""One request's way to its end: events in, commands out.

    handle(stream events)     what the model says
    handle_step(step event)   a verdict, or what came of a tool run

The states, by what the turn waits for:

    waits for    comes                          then
    ---------    ----------------------------   ------------------------------------------------------------
    the model    deltas                         they are emitted as they come; of gateway calls nothing is
    the model    a rejected answer              the model is asked again; what was emitted stays
    the model    AnswerFinished, no calls       end: stop
    the model    AnswerFinished, client calls   end: calls, handed over
    the model    AnswerFinished, gateway calls  each in order: ask (if the policy says so), run
    a person     VerdictGiven                   run as approved, or tell the model that it was denied
    a tool       RunFinished                    the next call; after the last: hand over the client's calls of the same answer,
                                                or else ask the model again
    anything     AnswerFailed                   end: failed

Whatever else comes is ignored: a second verdict, the result of a tool that does not run, events after the answer's end.

An answer that was cut keeps its finish, length or content_filter, whatever calls are whole in it. If the client has seen the
beginning of a call that was never finished, the model is not asked again: the client would take the stump for a call.

After a gateway run a tool_choice of required or named relaxes to auto, else the turn would loop. At the round limit the model is
asked once more with tool_choice none; a call made even then is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from toolrelay.core.assembly import Assembly, CallEntry
from toolrelay.core.commands import AskAgain, AskPerson, CallModel, Command, Emit, End, Notice, Record, RunTool
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    Noticed,
    StreamEvent,
    Usage,
)
from toolrelay.core.identity import call_id
from toolrelay.core.messages import Call, Content, Item, Result
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request, ToolChoice
from toolrelay.core.steps import (
    AnswerReceived,
    AnswerRejected,
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
from toolrelay.errors import InternalError


class Turn:
    def __init__(self, *, token: str, request: Request, policy: Policy | None = None) -> None:
        self.token = token
        self.request = request
        self.policy = policy or Policy()
        self.usage: Usage | None = None
        self.finish: Finish | None = None
        self.error: AnswerFailed | None = None
        self._declared = frozenset([tool.name for tool in request.functions()])
        self._own = tuple([own.tool for name, own in self.policy.tools.items() if name not in self._declared])
        self._keeps = self.policy.keeps or bool(self._own)
        self._history: list[Item] = list(request.items)
        self._choice = request.tool_choice
        self._rounds = 0
        self._made = 0  # call ids
        self._shown: dict[int, int] = {}  # calls that the client has seen begin, by choice
        self._started = False
        self._waits_for: Literal["the model", "a person", "a tool", "nothing"] = "the model"
        self._waiting: deque[Call] = deque()
        self._handed: list[Call] = []
        self._call: Call | None = None  # the gateway call whose verdict or result is or was last awaited
        self._last: AnswerFinished | None = None  # the turn's own end, where the answer at hand is its last
        self._begin_answer()

    def _begin_answer(self) -> None:
        self._assembly = Assembly()
        # Of each call that was not dropped, by choice and index: its index for the client, who sees nothing of a gateway call.
        self._visible: dict[tuple[int, int], int | None] = {}

    def start(self) -> list[Command]:
        accepted = TurnAccepted(model=self.request.model, wire=self.request.wire)
        shared = [Notice(event="tool_block", rule="declared_by_both", tool=n) for n in self.policy.tools if n in self._declared]
        return [Record(accepted), *shared, CallModel(self._model_request())]

    def _model_request(self) -> Request:
        """As the client sent it, unless the gateway has tools of its own: such turns always stream from the model."""
        if not self._own:
            return self.request
        tools = self.request.tools + self._own
        return replace(self.request, items=tuple(self._history), tools=tools, tool_choice=self._choice, stream=True)

    def _owner(self, call: Call | CallStarted) -> Owner:
        """A namespace is something that only a client declares."""
        return "client" if call.namespace is not None else self.policy.owner(call.name, self._declared)

    # What the model says

    def handle(self, events: Sequence[StreamEvent]) -> list[Command]:
        if self._waits_for != "the model":
            return self._handle_late(events)
        if not self._keeps and _LOOKED_AT.isdisjoint(map(type, events)):
            return [Emit(list(events))]
        add = self._assembly.add
        keeps = self._keeps
        seen: list[StreamEvent] = []
        commands: list[Command] = []
        for event in events:
            if type(event) not in _LOOKED_AT:
                if keeps:
                    add(event)
                seen.append(event)
            elif type(event) is ArgumentsDelta or type(event) is CallFinished:
                self._grow_call(event, seen)
            elif type(event) is AnswerStarted:
                add(event)
                if not self._started:
                    self._started = True
                    seen.append(event)
            elif type(event) is AnswerFinished:
                add(event)
                _flush(seen, commands)
                return commands + self._finish_answer(event)
            elif type(event) is CallStarted:
                self._start_call(event, seen, commands)
            elif type(event) is ChoiceFinished:
                seen.append(self._finish_choice(event))
            elif type(event) is Noticed:
                _flush(seen, commands)
                seen = []
                commands.append(Notice(event=event.event, rule=event.rule, tool=event.tool, dialect=event.dialect))
            elif type(event) is AnswerFailed:
                _flush(seen, commands)
                return commands + self._fail(event)
        if seen:
            commands.append(Emit(seen))
        return commands

    def ask_again(self, rule: str, request: Request) -> list[Command]:
        """The layer below rejected the answer by this rule and wants this request sent instead."""
        return [Record(AnswerRejected(rule=rule)), AskAgain(request)]

    def handle_model_stop(self) -> list[Command]:
        """The model's stream has ended without an end of the answer."""
        return self.handle([AnswerFailed(InternalError("The backend ended its answer without an end."))])

    def _handle_late(self, events: Sequence[StreamEvent]) -> list[Command]:
        """The answer is over; only a failure of the turn as a whole still matters."""
        failed = [event for event in events if isinstance(event, AnswerFailed)]
        return self._fail(failed[0]) if failed and self._waits_for != "nothing" else []

    def _start_call(self, event: CallStarted, seen: list[StreamEvent], commands: list[Command]) -> None:
        owner = self._owner(event)
        rule = self._breach(event, owner)
        if rule is not None:
            commands.append(Notice(event="tool_block", rule=rule, tool=event.name))
            self._visible.pop((event.choice, event.index), None)
            return
        started = replace(event, id=call_id(self.token, self._made))
        self._made += 1
        self._assembly.add(started)
        visible = None
        if owner == "client":
            visible = self._shown.get(event.choice, 0)
            self._shown[event.choice] = visible + 1
            seen.append(started if visible == event.index else replace(started, index=visible))
        self._visible[event.choice, event.index] = visible

    def _breach(self, event: CallStarted, owner: Owner) -> str | None:
        """Return the rule for which this call is dropped, if any. The request's own rules are kept by the layer below."""
        if owner == "gateway" and event.choice:
            return "gateway_tool_in_another_choice"  # a turn has one history, the first choice's
        if self.request.legacy_functions and owner == "client" and self._shown.get(event.choice):
            return "legacy_functions"  # a legacy function_call message holds one call
        return None

    def _grow_call(self, event: ArgumentsDelta | CallFinished, seen: list[StreamEvent]) -> None:
        key = event.choice, event.index
        if key not in self._visible:
            return
        self._assembly.add(event)
        visible = self._visible[key]
        if visible is not None:
            seen.append(event if visible == event.index else replace(event, index=visible))

    def _finish_choice(self, event: ChoiceFinished) -> ChoiceFinished:
        self._assembly.add(event)
        corrected = replace(event, finish=_corrected(event.finish, self._assembly.others[event.choice].answer().calls))
        self._assembly.add(corrected)
        return corrected

    def _finish_answer(self, event: AnswerFinished) -> list[Command]:
        answer = self._assembly.answer()
        calls = answer.calls
        if event.usage is not None:
            self.usage = event.usage if self.usage is None else self.usage + event.usage
        cut = any(
            isinstance(entry, CallEntry) and not entry.finished and self._owner(entry.started) == "client"
            for entry in self._assembly.entries
        )
        commands: list[Command] = []
        if self._keeps:
            commands.append(Record(AnswerReceived(items=answer.items, finish=answer.finish, usage=answer.usage, cut=cut)))
            self._history += answer.items
        for call in calls:
            owner = self._owner(call)
            commands.append(Record(CallPlanned(call=call, owner=owner)))
            (self._waiting if owner == "gateway" else self._handed).append(call)
            if call.kind == "function" and not _is_object(call.arguments):
                commands.append(Notice(event="tool_block", rule="malformed_arguments", tool=call.name))
        is_last = cut or self._handed or not self._waiting
        self._last = replace(event, finish=_corrected(event.finish, calls), usage=self.usage) if is_last else None
        return commands + self._go_on()

    def _fail(self, event: AnswerFailed) -> list[Command]:
        self._waits_for = "nothing"
        self.error = event
        failed = TurnFailed(code=event.error.code, message=event.error.message)
        return [Record(failed), Emit([event]), End()]

    # Gateway calls, one after the other

    def handle_step(self, step: VerdictGiven | RunFinished) -> list[Command]:
        call = self._call
        if call is None or call.id != step.call_id:
            return []
        match self._waits_for, step:
            case "a person", VerdictGiven(verdict="allow", arguments=edited):
                return [Record(step), *self._run(call if edited is None else replace(call, arguments=edited))]
            case "a person", VerdictGiven(reason=reason):
                why = f" Reason: {reason}" if reason else ""
                output: Content = f"The user denied this call. It was not run.{why}"
            case "a tool", RunFinished():
                output = step.output
            case _:
                return []
        self._history.append(Result(call_id=call.id, output=output, kind=call.kind))
        return [Record(step), *self._go_on()]

    def _go_on(self) -> list[Command]:
        """The next gateway call, or the end, or the next answer."""
        if self._waiting:
            self._call = call = self._waiting.popleft()
            if not self.policy.tools[call.name].needs_approval:
                return self._run(call)
            self._waits_for = "a person"
            return [Record(QuestionAsked(call_id=call.id)), AskPerson(call)]
        if self._last is not None:
            return self._end(self._last)
        self._rounds += 1
        at_limit = self._rounds >= self.policy.max_tool_rounds
        self._choice = ToolChoice(mode="none") if at_limit else _relaxed(self._choice)
        self._waits_for = "the model"
        self._begin_answer()
        return [CallModel(self._model_request())]

    def _run(self, call: Call) -> list[Command]:
        self._waits_for = "a tool"
        return [Record(RunStarted(call_id=call.id, arguments=call.arguments)), RunTool(call)]

    # The end

    def _end(self, event: AnswerFinished) -> list[Command]:
        self._waits_for = "nothing"
        self.finish = event.finish
        commands: list[Command] = []
        if self._handed:
            commands.append(Record(CallsHandedOver(call_ids=tuple(call.id for call in self._handed))))
        commands.append(Record(TurnFinished(finish=event.finish, usage=self.usage)))
        commands.append(Emit([event]))
        commands.append(End())
        return commands


# The rest is only passed on. Trying the cases of a match one after the other would cost more than all else that is done with it.
_LOOKED_AT: frozenset[type[StreamEvent]] = frozenset(
    {AnswerStarted, CallStarted, ArgumentsDelta, CallFinished, ChoiceFinished, Noticed, AnswerFinished, AnswerFailed}
)


def _flush(seen: list[StreamEvent], commands: list[Command]) -> None:
    if seen:
        commands.append(Emit(seen))


def _corrected(finish: Finish, calls: Sequence[Call]) -> Finish:
    """Providers say "stop" after calls, or "tool_calls" without any."""
    if finish in ("stop", "calls"):
        return "calls" if calls else "stop"
    return finish


def _relaxed(choice: ToolChoice | None) -> ToolChoice | None:
    if choice is None or (choice.mode in ("auto", "none") and choice.raw is None):
        return choice
    return ToolChoice(names=choice.names if choice.mode == "required" else ())


_read_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _is_object(arguments: str) -> bool:
    try:
        _read_object(arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return False
    return True
