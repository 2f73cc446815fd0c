"""The state machine of one request: stream events and step events in, commands out.

    handle(stream events)     the model's output
    handle_step(step event)   a verdict, or the result of a tool run

    state    input                          action and next state
    ------   ----------------------------   --------------------------------------------------------------------
    MODEL    deltas                         emit them, except those of gateway calls; MODEL
    MODEL    a rejected answer              ask the model again; what was emitted stays; MODEL
    MODEL    AnswerFinished, no calls       finish "stop"; ENDED
    MODEL    AnswerFinished, client calls   hand the calls over, finish "calls"; ENDED
    MODEL    AnswerFinished, gateway calls  take the first: PERSON if it needs approval, else run it: TOOL
    PERSON   VerdictGiven, allow            run the call as approved; TOOL
    PERSON   VerdictGiven, deny             make the denial its result; then as after ToolRunFinished
    TOOL     ToolRunFinished                    the next gateway call: PERSON or TOOL; after the last one: ENDED if the answer
                                            has client calls, else ask the model again: MODEL
    any      AnswerFailed                   fail; ENDED

All other input is ignored: a second verdict, the result of a tool that does not run, events after the end of an answer.

A truncated answer keeps its finish (length or content_filter) even if it has complete calls. If the client has seen the start of
a call that never finished, the model is not asked again: the client would take the fragment for a call.

After a gateway run a tool_choice of required or named becomes auto; otherwise the turn would loop. At the round limit the model
is asked once more with tool_choice none; a call made even then is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto

from msgspec.structs import replace

from toolrelay.core.assembly import Assembly, CallEntry
from toolrelay.core.commands import AskAgain, AskPerson, CallModel, Command, Emit, End, Notice, RecordStep, RunTool
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
from toolrelay.core.identity import make_call_id
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
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    VerdictGiven,
)
from toolrelay.core.validation import is_json_object
from toolrelay.errors import InternalError


class TurnState(Enum):
    """What the turn waits for."""

    MODEL = auto()
    PERSON = auto()
    TOOL = auto()
    ENDED = auto()


_MODEL = TurnState.MODEL  # looking a member up costs as much as a call, and every batch needs this one


class Turn:
    def __init__(self, *, token: str, request: Request, policy: Policy | None = None) -> None:
        self.token = token
        self.request = request
        self.policy = policy or Policy()
        self.usage: Usage | None = None
        self.finish: Finish | None = None
        self.error: AnswerFailed | None = None
        self._state = TurnState.MODEL
        self._declared = frozenset([tool.name for tool in request.functions()])
        self._gateway_tools = tuple([own.tool for name, own in self.policy.tools.items() if name not in self._declared])
        self._records_answers = self.policy.records_answers or bool(self._gateway_tools)
        self._history: list[Item] = list(request.items)
        self._tool_choice = request.tool_choice
        self._rounds = 0
        self._call_count = 0
        self._client_call_counts: dict[int, int] = {}  # by choice
        self._started = False
        self._queue: deque[Call] = deque()  # gateway calls that have not been run
        self._client_calls: list[Call] = []
        self._current: Call | None = None  # the latest gateway call that was asked about or run
        self._final: AnswerFinished | None = None  # set if the turn ends with the current answer
        self._begin_answer()

    def _begin_answer(self) -> None:
        self._assembly = Assembly()
        # (choice, index) of each call that was not dropped: its index for the client, or None for a gateway call.
        self._client_indexes: dict[tuple[int, int], int | None] = {}

    def start(self) -> list[Command]:
        accepted = TurnAccepted(model=self.request.model, wire=self.request.wire)
        shared = [Notice(event="tool_block", rule="declared_by_both", tool=n) for n in self.policy.tools if n in self._declared]
        return [RecordStep(accepted), *shared, CallModel(self._model_request())]

    def _model_request(self) -> Request:
        """Return the client's request; with gateway tools added it always streams."""
        if not self._gateway_tools:
            return self.request
        tools = self.request.tools + self._gateway_tools
        return replace(self.request, items=tuple(self._history), tools=tools, tool_choice=self._tool_choice, stream=True)

    def _owner(self, call: Call | CallStarted) -> Owner:
        """Only clients declare namespaces."""
        return "client" if call.namespace is not None else self.policy.owner(call.name, self._declared)

    # Model output

    def handle(self, events: Sequence[StreamEvent]) -> list[Command]:
        if self._state is not _MODEL:
            return self._handle_late(events)
        records = self._records_answers
        if not records and _HANDLED.isdisjoint(map(type, events)):
            return [Emit(list(events))]
        add = self._assembly.add
        out: list[StreamEvent] = []
        commands: list[Command] = []
        for event in events:
            if type(event) not in _HANDLED:
                if records:
                    add(event)
                out.append(event)
            elif type(event) is ArgumentsDelta or type(event) is CallFinished:
                self._continue_call(event, out)
            elif type(event) is AnswerStarted:
                add(event)
                if not self._started:
                    self._started = True
                    out.append(event)
            elif type(event) is AnswerFinished:
                add(event)
                _flush(out, commands)
                return commands + self._finish_answer(event)
            elif type(event) is CallStarted:
                self._start_call(event, out, commands)
            elif type(event) is ChoiceFinished:
                out.append(self._finish_choice(event))
            elif type(event) is Noticed:
                _flush(out, commands)
                out = []
                commands.append(Notice(event=event.event, rule=event.rule, tool=event.tool, dialect=event.dialect))
            elif type(event) is AnswerFailed:
                _flush(out, commands)
                return commands + self._fail(event)
        _flush(out, commands)
        return commands

    def ask_again(self, rule: str, request: Request) -> list[Command]:
        """Replace the current answer: the layer below rejected it by this rule."""
        return [RecordStep(AnswerRejected(rule=rule)), AskAgain(request)]

    def handle_model_stop(self) -> list[Command]:
        """Fail: the model's stream ended before the answer did."""
        return self.handle([AnswerFailed(InternalError("The backend ended its answer without an end."))])

    def _handle_late(self, events: Sequence[StreamEvent]) -> list[Command]:
        """Ignore events after the end of an answer, except a failure of the whole turn."""
        failed = next((event for event in events if isinstance(event, AnswerFailed)), None)
        return [] if failed is None or self._state is TurnState.ENDED else self._fail(failed)

    def _start_call(self, event: CallStarted, out: list[StreamEvent], commands: list[Command]) -> None:
        owner = self._owner(event)
        rule = self._find_broken_rule(event, owner)
        if rule is not None:
            commands.append(Notice(event="tool_block", rule=rule, tool=event.name))
            self._client_indexes.pop((event.choice, event.index), None)
            return
        started = replace(event, id=make_call_id(self.token, self._call_count))
        self._call_count += 1
        self._assembly.add(started)
        index = None
        if owner == "client":
            index = self._client_call_counts.get(event.choice, 0)
            self._client_call_counts[event.choice] = index + 1
            out.append(started if index == event.index else replace(started, index=index))
        self._client_indexes[event.choice, event.index] = index

    def _find_broken_rule(self, event: CallStarted, owner: Owner) -> str | None:
        """Return the rule by which this call is dropped, or None. The layer below enforces the request's own rules."""
        if owner == "gateway" and event.choice:
            return "gateway_tool_in_another_choice"  # a turn has one history, that of the first choice
        if self.request.legacy_functions and owner == "client" and self._client_call_counts.get(event.choice):
            return "legacy_functions"  # a legacy function_call message holds one call
        return None

    def _continue_call(self, event: ArgumentsDelta | CallFinished, out: list[StreamEvent]) -> None:
        key = event.choice, event.index
        if key not in self._client_indexes:
            return
        self._assembly.add(event)
        index = self._client_indexes[key]
        if index is not None:
            out.append(event if index == event.index else replace(event, index=index))

    def _finish_choice(self, event: ChoiceFinished) -> ChoiceFinished:
        self._assembly.add(event)
        corrected = replace(event, finish=_correct_finish(event.finish, self._assembly.others[event.choice].answer().calls))
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
        if self._records_answers:
            commands.append(RecordStep(AnswerReceived(items=answer.items, finish=answer.finish, usage=answer.usage, cut=cut)))
            self._history += answer.items
        for call in calls:
            owner = self._owner(call)
            commands.append(RecordStep(CallPlanned(call=call, owner=owner)))
            (self._queue if owner == "gateway" else self._client_calls).append(call)
            if call.kind == "function" and not is_json_object(call.arguments):
                commands.append(Notice(event="tool_block", rule="malformed_arguments", tool=call.name))
        is_last = cut or self._client_calls or not self._queue
        self._final = replace(event, finish=_correct_finish(event.finish, calls), usage=self.usage) if is_last else None
        return commands + self._advance()

    def _fail(self, event: AnswerFailed) -> list[Command]:
        self._state = TurnState.ENDED
        self.error = event
        failed = TurnFailed(code=event.error.code, message=event.error.message)
        return [RecordStep(failed), Emit([event]), End()]

    # Gateway calls, one after the other

    def handle_step(self, step: VerdictGiven | ToolRunFinished) -> list[Command]:
        call = self._current
        if call is None or call.id != step.call_id:
            return []
        match self._state, step:
            case TurnState.PERSON, VerdictGiven(verdict="allow", arguments=edited):
                return [RecordStep(step), *self._run(call if edited is None else replace(call, arguments=edited))]
            case TurnState.PERSON, VerdictGiven(reason=reason):
                why = f" Reason: {reason}" if reason else ""
                output: Content = f"The user denied this call. It was not run.{why}"
            case TurnState.TOOL, ToolRunFinished():
                output = step.output
            case _:
                return []
        self._history.append(Result(call_id=call.id, output=output, kind=call.kind))
        return [RecordStep(step), *self._advance()]

    def _advance(self) -> list[Command]:
        """Take the next gateway call; after the last one end the turn, or ask the model again."""
        if self._queue:
            self._current = call = self._queue.popleft()
            if not self.policy.tools[call.name].needs_approval:
                return self._run(call)
            self._state = TurnState.PERSON
            return [RecordStep(QuestionAsked(call_id=call.id)), AskPerson(call)]
        if self._final is not None:
            return self._end(self._final)
        self._rounds += 1
        at_limit = self._rounds >= self.policy.max_tool_rounds
        self._tool_choice = ToolChoice(mode="none") if at_limit else _relax(self._tool_choice)
        self._state = TurnState.MODEL
        self._begin_answer()
        return [CallModel(self._model_request())]

    def _run(self, call: Call) -> list[Command]:
        self._state = TurnState.TOOL
        return [RecordStep(ToolRunStarted(call_id=call.id, arguments=call.arguments)), RunTool(call)]

    def _end(self, event: AnswerFinished) -> list[Command]:
        self._state = TurnState.ENDED
        self.finish = event.finish
        call_ids = tuple([call.id for call in self._client_calls])
        handed_over = [RecordStep(CallsHandedOver(call_ids=call_ids))] if call_ids else []
        return [*handed_over, RecordStep(TurnFinished(finish=event.finish, usage=self.usage)), Emit([event]), End()]


# All other events are only passed on. One set lookup is cheaper than trying the cases of a `match` in turn.
_HANDLED: frozenset[type[StreamEvent]] = frozenset(
    {AnswerStarted, CallStarted, ArgumentsDelta, CallFinished, ChoiceFinished, Noticed, AnswerFinished, AnswerFailed}
)


def _flush(events: list[StreamEvent], commands: list[Command]) -> None:
    if events:
        commands.append(Emit(events))


def _correct_finish(finish: Finish, calls: Sequence[Call]) -> Finish:
    """Some providers report "stop" with calls, or "calls" without any."""
    if finish in ("stop", "calls"):
        return "calls" if calls else "stop"
    return finish


def _relax(choice: ToolChoice | None) -> ToolChoice | None:
    """Return the choice for the answer after a gateway run: a call is no longer required."""
    if choice is None or (choice.mode in ("auto", "none") and choice.raw is None):
        return choice
    return ToolChoice(names=choice.names if choice.mode == "required" else ())
