"""The state machine of one request: stream events and step events in, commands out.

    handle(stream events)     the model's output
    handle_step(step event)   an answer to a question, or the result of a tool run

    waits for       input                          action
    -------------   ----------------------------   -----------------------------------------------------------------
    the model       deltas                         emit them, except those of gateway calls
    the model       a rejected answer              ask the model again; what was emitted stays
    the model       AnswerFinished, no calls       finish "stop"; end
    the model       AnswerFinished, client calls   hand the calls over, finish "calls"; end
    the model       AnswerFinished, gateway calls  ask a person about the first call, or run it; run further ones beside it
                                                   if all of them may run in parallel
    a person        VerdictGiven, allow            run the call as approved
    a person        VerdictGiven, deny             make the denial its result; then as after ToolRunFinished
    a person        QuestionClosed, expired        likewise
    a person        QuestionLeft                   take the next gateway call; after the last one end with the questions
    tools           ToolRunFinished                ask a person what to share of the result, if the tool wants that; take the next
                                                   gateway call; after the last one end if the answer has client calls, else
                                                   ask the model again
    anything        AnswerFailed                   withdraw open questions; fail; end

A turn that answers the questions of an earlier one starts with that turn's calls instead of the model.

All other input is ignored: a second verdict, the result of a tool that does not run, events after the end of an answer.

Everything that a turn decides is a step, recorded before it is acted on. `replay` folds recorded steps (core/progress.py) into a
turn that goes on where they end: `resume` returns its next commands. An answer that was being received is asked for again; a
tool that was running is repeated if it is idempotent, otherwise the model is told that the outcome is unknown.

A truncated answer keeps its finish (length or content_filter) even if it has complete calls. If the client has seen the start of
a call that never finished, the model is not asked again: the client would take the fragment for a call.

After a gateway run a tool_choice of required or named becomes auto; otherwise the turn would loop. Allowed tools stay the same.
At the round limit, after a third identical call, and when `max_tool_calls` is used up, the model is asked once more with
tool_choice none; a call made even then is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from toolrelay.core.assembly import Assembly, CallEntry
from toolrelay.core.commands import AskAgain, CallModel, Command, Emit, End, Notice, RecordStep
from toolrelay.core.events import (
    UPSTREAM_RETRIED,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    MessageStarted,
    Noticed,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.gateway_calls import GatewayCalls
from toolrelay.core.identity import make_call_id
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import ApprovalRequest, Call, GatewayCall, Item, insert_results, withhold_private
from toolrelay.core.policy import BREAK, GatewayTool, Policy
from toolrelay.core.progress import TurnProgress
from toolrelay.core.request import ALLOWED_TOOLS, Request, Tool, ToolChoice
from toolrelay.core.steps import (
    AnswerReceived,
    AnswerRejected,
    CallPlanned,
    CallsHandedOver,
    CallsTakenUp,
    Owner,
    QuestionClosed,
    ReceivedStep,
    StepEvent,
    TakenCall,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    VerdictGiven,
)
from toolrelay.core.validation import is_json_object
from toolrelay.errors import InternalError, ToolrelayError


class Turn:
    """`context` is the conversation that the request continues, if it is not part of the request. See TurnAccepted.

    `taken` are the calls of an earlier turn, `verdicts` the client's answers to its questions.
    """

    def __init__(
        self,
        *,
        token: str,
        request: Request,
        policy: Policy | None = None,
        context: tuple[Item, ...] = (),
        context_end: int | None = None,
        taken: tuple[TakenCall, ...] = (),
        verdicts: Sequence[VerdictGiven | QuestionClosed] = (),
    ) -> None:
        self.token = token
        self.request = request
        self.policy = policy or Policy()
        self.finish: Finish | None = None
        self.error: AnswerFailed | None = None
        self._context, self._context_end = context, context_end
        self._taken, self._verdicts = taken, verdicts
        self._progress = TurnProgress()
        self._is_reading = True  # an answer of the model
        own = self.policy.tools
        declared = {tool.name for tool in request.functions()} if request.tools else set()
        self._shared = tuple([name for name in own if name in declared])
        if self._shared and self.policy.same_name == "client":
            own = {name: tool for name, tool in own.items() if name not in declared}
        self._own_tools: Mapping[str, GatewayTool] = own
        self._calls = GatewayCalls(self._progress, own, request.max_tool_calls, status_text=self.policy.status_text)
        self._takes_unknown_names = bool(own) and not declared.difference(own)  # nobody but the gateway could run them
        self._records_answers = self.policy.records_answers or bool(own)
        self._call_count = 0
        self._client_call_counts: dict[int, int] = {}  # by choice
        self._started = False
        self._needs_break = False
        self._begin_answer()

    @classmethod
    def replay(
        cls, steps: Sequence[StepEvent], *, token: str, policy: Policy | None = None, context: tuple[Item, ...] = ()
    ) -> Turn:
        """Return the turn with these steps, the first of which is TurnAccepted. `resume` continues it."""
        accepted, *others = steps
        if not isinstance(accepted, TurnAccepted):
            raise InternalError("The record of a turn does not begin with its request.")
        turn = cls(token=token, request=accepted.request, policy=policy, context=context)
        for step in others:
            turn._apply(step)
        turn._is_reading = False
        turn._call_count = turn._progress.call_count
        turn._started = turn._progress.answer is not None
        return turn

    @property
    def usage(self) -> Usage | None:
        return self._progress.usage

    @property
    def uncounted_usage(self) -> Usage | None:
        return self._progress.uncounted_usage

    @property
    def has_ended(self) -> bool:
        return self._progress.has_ended

    @property
    def records(self) -> bool:
        """Return whether the turn's answers are recorded, so that it can be replayed."""
        return self._records_answers

    @property
    def has_gateway_tools(self) -> bool:
        return bool(self._own_tools)

    @property
    def waits_for_person(self) -> bool:
        """Return whether a question is open and nothing else is under way."""
        progress = self._progress
        return bool(progress.asked()) and len(progress.asked()) == len(progress.active())

    @property
    def items(self) -> tuple[Item, ...]:
        """Return the conversation so far."""
        progress = self._progress
        given = insert_results(self.request.items, progress.inherited) if progress.inherited else self.request.items
        return (*self._context, *given, *progress.history)

    @property
    def history(self) -> tuple[Item, ...]:
        """Return what the turn has added to the conversation."""
        return tuple(self._progress.history)

    def _begin_answer(self) -> None:
        self._assembly = Assembly()
        self._retries: list[str] = []  # reasons for which the backend asked its model again
        # (choice, index) of each call that was not dropped: its index for the client, or None for a gateway call.
        self._client_indexes: dict[tuple[int, int], int | None] = {}

    def start(self) -> list[Command]:
        shared = [Notice(event="tool_block", rule="declared_by_both", tool=name) for name in self._shared]
        accepted = RecordStep(TurnAccepted(request=self.request, context_end=self._context_end))
        return [*shared, accepted, *self._take_up(), *self._advance()]

    def _take_up(self) -> list[Command]:
        """Take up the calls of an earlier turn. All verdicts are recorded before any is acted on."""
        if not self._taken:
            return []
        taken = self._record(CallsTakenUp(calls=self._taken))
        commands = [command for verdict in self._verdicts for command in self._calls.handle(verdict)]
        return [taken, *sorted(commands, key=lambda command: not isinstance(command, RecordStep))]

    def resume(self) -> list[Command]:
        """Return the commands after a replay."""
        return [] if self.has_ended else self._calls.resume() + self._advance()

    def _record(self, step: StepEvent) -> RecordStep:
        self._apply(step)
        return RecordStep(step)

    def _apply(self, step: StepEvent) -> None:
        self._progress.apply(step)
        if isinstance(step, TurnFinished):
            self.finish = step.finish

    def _model_request(self) -> Request:
        """Return the client's request; with gateway tools added it always streams.

        A turn that goes on after a restart may have results that its model may no longer see, or no tools any more.
        """
        request, own = self.request, self._own_tools
        progress = self._progress
        if not own and not self._context and not progress.history and not progress.inherited:
            return request
        items = self.items if self.policy.sees_private else withhold_private(self.items)
        if not own:
            return replace(request, items=items)
        kept = [tool for tool in request.tools if not (isinstance(tool, Tool) and tool.name in own)]
        tools = (*kept, *[each.tool for each in own.values()])
        return replace(request, items=items, tools=tools, tool_choice=self._tool_choice(), stream=True)

    def _tool_choice(self) -> ToolChoice | None:
        progress, limit = self._progress, self.request.max_tool_calls
        if not progress.rounds:
            return self.request.tool_choice
        is_out_of_calls = limit is not None and progress.runs >= limit
        if progress.rounds >= self.policy.max_tool_rounds or progress.repeats or is_out_of_calls:
            return ToolChoice(mode="none", reads_calls=True)
        return _relax(self.request.tool_choice)

    def _owner(self, call: Call | CallStarted) -> Owner:
        """Only clients declare namespaces."""
        return "gateway" if call.namespace is None and self.is_gateway_call(call.name) else "client"

    def is_gateway_call(self, name: str) -> bool:
        return name in self._own_tools or self._takes_unknown_names

    # Model output

    def handle(self, events: Sequence[StreamEvent]) -> list[Command]:
        if not self._is_reading:
            return self._handle_late(events)
        records = self._records_answers
        if not records and not self._needs_break and _HANDLED.isdisjoint(map(type, events)):
            return [Emit(list(events))]
        add = self._assembly.add
        out: list[StreamEvent] = []
        commands: list[Command] = []
        for event in events:
            if type(event) not in _HANDLED:
                if records:
                    add(event)
                if self._needs_break and type(event) is TextDelta and event.text:
                    self._needs_break = False
                    out.append(replace(event, text=BREAK + event.text))
                else:
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
            elif type(event) is MessageStarted:
                if records:
                    add(event)
                self._needs_break = self._needs_break or (self.policy.joins_answers and event.is_separate)
                out.append(event)
            elif type(event) is ChoiceFinished:
                out.append(self._finish_choice(event))
            elif type(event) is Noticed:
                _flush(out, commands)
                out = []
                if event.event == UPSTREAM_RETRIED:
                    self._retries.append(event.rule)
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
        return [] if failed is None or self.has_ended else self._fail(failed)

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
        self._is_reading = False
        answer = self._assembly.answer()
        cut = any(
            isinstance(entry, CallEntry) and not entry.finished and self._owner(entry.started) == "client"
            for entry in self._assembly.entries
        )
        received = self._record(
            AnswerReceived(
                items=tuple([item for item in answer.items if not isinstance(item, _SHOWN_ITEMS)]),
                finish=event.finish,
                usage=event.usage,
                cut=cut,
                call_count=self._call_count,
                service_tier=event.service_tier,
                extra=event.extra,
                retries=tuple(self._retries),
            )
        )
        commands: list[Command] = [received] if self._records_answers else []
        return commands + self._advance()

    def fail(self, error: ToolrelayError) -> list[Command]:
        """End the turn with an error that is not the model's, unless it has ended."""
        return [] if self.has_ended else self._fail(AnswerFailed(error))

    def _fail(self, event: AnswerFailed) -> list[Command]:
        self._is_reading = False
        self.error = event
        return [*self._calls.withdraw(), self._record(_failed_step(event.error)), Emit([event]), End()]

    def retract_finish(self, error: ToolrelayError) -> TurnFailed:
        """Fail a turn whose finish could not be recorded and was shown to nobody. Return the step to record instead."""
        self.finish = None
        self.error = AnswerFailed(error)
        return _failed_step(error)

    # What comes next, by the steps so far

    def _advance(self) -> list[Command]:
        progress = self._progress
        if progress.has_ended:
            return []
        if progress.answer is None:
            return self._call_model()
        if not progress.unplanned and not progress.pending:
            return self._end(progress.answer)
        commands: list[Command] = []
        for call in [*progress.unplanned]:
            own = self._own_tools.get(call.name) if call.namespace is None else None
            toolset = "" if own is None else own.toolset
            commands.append(self._record(CallPlanned(call=call, owner=self._owner(call), toolset=toolset)))
            if call.kind == "function" and not is_json_object(call.arguments):
                commands.append(Notice(event="tool_block", rule="malformed_arguments", tool=call.name))
        commands += self._calls.start()
        if progress.has_only_left:
            return commands + self._end(progress.answer)
        if not progress.is_settled:
            return commands
        if progress.answer.cut or progress.client_calls:
            return commands + self._end(progress.answer)
        return commands + self._call_model()

    def _call_model(self) -> list[Command]:
        self._is_reading = True
        if self.policy.joins_answers and self._progress.has_text:
            self._needs_break = not self.policy.status_text  # which ends with a break
        if self._progress.answer is not None:
            self._begin_answer()
        return [CallModel(self._model_request())]

    def _end(self, answer: AnswerReceived) -> list[Command]:
        commands: list[Command] = []
        if self._progress.client_calls and not self._progress.handed_over:
            call_ids = tuple([call.id for call in self._progress.client_calls])
            commands.append(self._record(CallsHandedOver(call_ids=call_ids)))
        calls = [item for item in answer.items if type(item) is Call]
        finish = _correct_finish(answer.finish, calls)
        commands.append(self._record(TurnFinished(finish=finish, usage=self.usage)))
        finished = AnswerFinished(finish=finish, usage=self.usage, service_tier=answer.service_tier, extra=answer.extra)
        return [*commands, Emit([finished]), End()]

    def handle_step(self, step: ReceivedStep) -> list[Command]:
        commands = self._calls.handle(step)
        return commands + self._advance() if commands else []


_SHOWN_ITEMS = (GatewayCall, ApprovalRequest)  # not the model's
# All other events are only passed on. One set lookup is cheaper than trying the cases of a `match` in turn.
_HANDLED: frozenset[type[StreamEvent]] = frozenset(
    {
        AnswerStarted, MessageStarted, CallStarted, ArgumentsDelta, CallFinished, ChoiceFinished, Noticed, AnswerFinished,
        AnswerFailed,
    }
)  # fmt: skip


def _failed_step(error: ToolrelayError) -> TurnFailed:
    return TurnFailed(code=error.code, message=error.message, status=error.status, error_type=error.type, param=error.param)


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
    if choice.raw is not None and choice.is_list:
        return replace(choice, mode="auto", raw=_make_optional(choice.raw))
    return ToolChoice(names=choice.names if choice.mode == "required" else ())


def _make_optional(raw: JsonObject) -> JsonObject:
    """Return allowed tools of which none has to be called. Chat nests their members."""
    nested = raw.get(ALLOWED_TOOLS)
    return {**raw, ALLOWED_TOOLS: {**nested, "mode": "auto"}} if isinstance(nested, dict) else {**raw, "mode": "auto"}
