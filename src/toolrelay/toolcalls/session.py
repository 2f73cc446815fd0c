"""One answer of a model, through any number of tries: the model's events in, the events of a well-behaved model out.

    the model                                the client gets
    --------------------------------------   ----------------------------------------------------------------------------
    prints a call                            the call; its arguments as they arrive, or whole where they must be checked
    writes on after its printed calls        nothing of it: the answer is cut there (`cutoff`)
    never stops calling, or prints blanks    128 calls, 1 KiB of blanks after a call; then the answer is cut, too
    should have reasoned first, and did not  its text, scanned again without that expectation
    makes a bad call                         by `on_bad_call`; retry: nothing, and the model is asked again with the error
    makes no call although it must           nothing: its text is withheld and it is asked again; then it is an error
    is truncated in a call                   no call; finish `length`

A bad call names an unknown tool, has arguments that are no JSON object and cannot be repaired unambiguously, or breaks a strict
schema. What the client has seen cannot be taken back: then the call goes out as it came, with a notice in the log. A native
model's calls pass unchecked if `on_bad_call` is `pass`; what looks like a call in its text and is not usable stays text.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import TypeAlias

from msgspec.structs import replace

from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finish,
    Noticed,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Usage,
    estimated_usage,
)
from toolrelay.core.messages import Call
from toolrelay.core.request import Request, Tool
from toolrelay.errors import ModelError
from toolrelay.parsing.events import CallBroken
from toolrelay.parsing.scanner import Scanner
from toolrelay.toolcalls.limits import OutputLimiter
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.pending_call import CallError, PendingCall, free_text, must_be_checked
from toolrelay.toolcalls.prompt_plan import CORRECTIONS, PromptPlan
from toolrelay.toolcalls.rules import UNKNOWN_TOOL, CallRules
from toolrelay.toolcalls.stop_sequences import stop_sequences
from toolrelay.toolcalls.writer import AnswerWriter

MAX_TRIES = 2
MAX_HELD = 1024 * 1024  # characters of one call
MAX_SHOWN = 8192  # characters of a rejected answer that the model is shown again
_SCHEMA_REFUSED = frozenset({400, 422, 500, 501})  # statuses with which servers refuse a schema

_WITHIN_TEXT = frozenset({AnnotationAdded, AnswerStarted, Noticed})  # events that do not end the text around them

_CallKey: TypeAlias = tuple[bool, int]  # printed or native, and its index there


class State(Enum):
    """What is expected of the model. In the three waiting states its output is ignored and only its usage is still read."""

    READING = auto()
    CUT = auto()  # waiting: the answer ends with the calls made so far
    STOPPED = auto()  # waiting: a stop sequence was reached; the answer ends as if the model had stopped there
    REJECTED = auto()  # waiting: the model is asked again afterwards
    RETRY = auto()  # the model is to be asked again now
    ENDED = auto()


WAITING = frozenset({State.CUT, State.STOPPED, State.REJECTED})

_TRANSITIONS = {
    State.READING: {State.CUT, State.STOPPED, State.REJECTED, State.RETRY, State.ENDED},
    State.CUT: {State.ENDED},
    State.STOPPED: {State.READING},
    State.REJECTED: {State.RETRY},
    State.RETRY: {State.READING},
    State.ENDED: set(),
}


class ToolCallSession:
    """`request` is what to send the model now; `rejected_for` is the rule for which it is asked again."""

    def __init__(self, request: Request, options: ToolCallOptions) -> None:
        self.state = State.READING
        self.rejected_for = ""
        self._options = options
        self._plan = PromptPlan(request, options)
        self._streams = request.stream
        self._single = request.parallel_tool_calls is False
        self._usage: Usage | None = None
        self._usage_known = False  # that of the current try
        self._tries = 0
        self._writer = AnswerWriter(CallRules(request))
        self._cuts_text = False
        self._begin_try()

    @property
    def request(self) -> Request:
        return self._plan.request

    def retry(self) -> None:
        """The model is being asked again."""
        self._enter(State.READING)
        self._begin_try()

    def _begin_try(self) -> None:
        self._tries += 1
        self._usage_known = False
        self._scanner = self._plan.make_scanner()
        self._stop = stop_sequences(self.request.sampling.stop) if self._options.emulates_stop else None
        self._limiter = OutputLimiter()
        self._pending: dict[_CallKey, PendingCall] = {}
        self._printed: list[str] = []
        self._writer.discard_withheld()

    def _enter(self, state: State) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise AssertionError(f"{self.state.name} is not followed by {state.name}")
        self.state = state

    # The model's events

    def feed(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        self._writer.out = out
        for event in events:
            if self.state is State.READING:
                if type(event) is TextDelta and self._stop is None:
                    self._read_text(event)
                else:
                    self._read(event)
            elif self.state in WAITING:
                if type(event) is AnswerFinished:
                    self._end_waiting(event.usage)
            else:
                break
        return out

    def _read_text(self, event: TextDelta) -> None:
        if self._scanner is not None:
            self._printed.append(event.text)
            self._read_scanned(self._scanner.feed(event.text))
        elif self._must_call():
            self._printed.append(event.text)
            self._writer.withhold(event.text)
        elif self._cuts_text:
            self._check_text_after_calls(event.text)
        else:
            self._writer.out.append(event)

    def _read(self, event: StreamEvent) -> None:
        if self._stop is not None and self._apply_stop(event):
            return
        match event:
            case TextDelta():
                self._read_text(event)
            case CallStarted(index=index, name=name):
                self._start_call((False, index), replace(event, name=self._plan.names.to_client(name)))
            case ArgumentsDelta(index=index):
                self._add_arguments((False, index), event.text)
            case CallFinished(index=index):
                self._finish_call((False, index))
            case AnswerFinished():
                self._finish(event)
            case AnswerFailed(error=error) if self._plan.is_constrained and error.status in _SCHEMA_REFUSED and not self._printed:
                self._notice("constraint_refused", "")
                self._plan.drop_constraint()
                self._tries -= 1
                self._usage_known = True
                self._reject("constraint_refused")
            case AnswerFailed():
                self._enter(State.ENDED)
                self._writer.out.append(event)
            case AnswerStarted() if self._tries > 1:
                pass
            case ReasoningDelta() if not self._printed:
                self._writer.out.append(event)
                if self._plan.expect_separate_reasoning():
                    self._scanner = self._plan.make_scanner()
            case _:
                self._writer.out.append(event)

    def _apply_stop(self, event: StreamEvent) -> bool:
        """Return whether the event was text, which is passed on up to a stop sequence."""
        stop = self._stop
        if stop is None or type(event) in _WITHIN_TEXT:
            return False
        text = stop.feed(event.text) if isinstance(event, TextDelta) else stop.flush()
        if text:
            self._read_text(TextDelta(text))
        if stop.hit and self.state is State.READING:
            self._enter(State.STOPPED)
        return isinstance(event, TextDelta)

    def _read_scanned(self, found: Sequence[StreamEvent | CallBroken]) -> None:
        for event in found:
            if self.state is not State.READING:
                return
            if type(event) is TextDelta:  # several times cheaper than a `match`, and this is the busiest place
                self._read_scanned_text(event)
            elif type(event) is ArgumentsDelta:
                self._add_arguments((True, event.index), event.text)
            else:
                self._read_printed_call(event)

    def _read_printed_call(self, event: StreamEvent | CallBroken) -> None:
        match event:
            case CallStarted() | CallBroken(index=None) if self._limiter.count_call():
                self._end_endless_calls()
            case CallStarted(index=index, name=name):
                self._start_call((True, index), CallStarted(0, self._plan.names.to_client(name)))
            case CallFinished(index=index):
                self._finish_call((True, index))
            case CallBroken():
                self._reject_malformed(event)
            case _:
                self._writer.out.append(event)

    def _must_call(self) -> bool:
        return self._plan.must_call and not self._writer.started

    def _read_scanned_text(self, event: TextDelta) -> None:
        if self._cuts_text:
            self._check_text_after_calls(event.text)
        elif self._must_call():
            self._writer.withhold(event.text)
        else:
            self._writer.out.append(event)

    def _check_text_after_calls(self, text: str) -> None:
        rule = self._limiter.check_text(text)
        if rule:
            self._cut(rule)

    # Calls

    def _start_call(self, key: _CallKey, start: CallStarted) -> None:
        if self._single and self._writer.finished:
            self._cut("parallel_tool_calls_false")
            return
        tool = self._plan.tools.get(start.name)
        printed, _ = key
        index = None if self._is_held(tool, printed=printed) else self._writer.start_call(start)
        self._pending[key] = PendingCall(start, tool, index, printed=printed)

    def _is_held(self, tool: Tool | None, *, printed: bool) -> bool:
        """Whether the call is emitted only when it is whole, because it may have to be checked or discarded."""
        if not printed and (self._options.whole_calls or self._options.on_bad_call == "pass"):
            return self._options.whole_calls
        return must_be_checked(tool) or not self._streams

    def _add_arguments(self, key: _CallKey, text: str) -> None:
        call = self._pending.get(key)
        if call is None:
            return
        call.pieces.append(text)
        if call.index is not None:
            self._writer.add_arguments(call.index, text)
            return
        call.size += len(text)
        if call.size > MAX_HELD:
            self._end_holding(key, call)

    def _end_holding(self, key: _CallKey, call: PendingCall) -> None:
        """A call that is only held to be retried may be emitted now; one that must be checked may not."""
        if must_be_checked(call.tool):
            del self._pending[key]
            self._handle_bad_call(call, CallError("held_too_long"))
        else:
            call.index = self._writer.start_call(call.start)
            self._writer.add_arguments(call.index, call.arguments)

    def _finish_call(self, key: _CallKey) -> None:
        call = self._pending.pop(key, None)
        if call is None:
            return
        error = call.check(self._options)
        if call.repair_suffix is not None:
            self._notice("repaired_json", call.start.name)
            if call.index is not None:
                self._writer.add_arguments(call.index, call.repair_suffix)
        if error is None:
            self._emit_call(call)
        else:
            self._handle_bad_call(call, error)

    def _emit_call(self, call: PendingCall) -> None:
        """Emit what was held of the call, and its end."""
        if call.index is None:
            start, arguments = call.start, call.arguments
            if call.printed and call.tool is not None and call.tool.kind == "custom":
                start, arguments = replace(start, kind="custom"), free_text(arguments)
            call.index = self._writer.start_call(start)
            self._writer.add_arguments(call.index, arguments)
        self._writer.finish_call(call.index)
        cutoff = self._options.cutoff
        if (call.printed or self._options.whole_calls) and cutoff != "off":
            self._cuts_text = True
            if cutoff == "first" or self._single:
                self._cut("first_call")

    # Bad calls

    def _reject_malformed(self, broken: CallBroken) -> None:
        call = None if broken.index is None else self._pending.pop((True, broken.index), None)
        if call is not None and call.index is not None:
            self._notice(broken.rule, call.start.name)
            self._fail("The model did not finish a call of which a part had already been sent.")
            return
        if call is None or self._options.on_bad_call == "text" or self._tries == MAX_TRIES:
            call = PendingCall.malformed(broken.text)
        self._handle_bad_call(call, CallError(broken.rule))

    def _handle_bad_call(self, call: PendingCall, error: CallError) -> None:
        name, rule = call.start.name, error.rule
        policy = self._options.on_bad_call
        passes = policy == "pass" and bool(name) and not (call.printed and self._options.native)
        if not (passes and rule == UNKNOWN_TOOL):  # the rules report that when the call is emitted
            self._notice(rule, name)
        if call.index is not None:
            self._handle_bad_visible_call(call, call.index)
        elif policy == "retry" and not self._writer.started and self._tries < MAX_TRIES:
            shown = Call(id="", name=name, arguments=call.arguments, kind=call.start.kind)
            self._ask_again(rule, error.correction(self._plan.names.to_model(name)), None if call.printed else shown)
        elif policy == "fail":
            self._fail(f"The model made a call that cannot be used ({rule}).")
        elif passes:
            self._emit_call(call)
        elif self._must_call():
            self._writer.withhold(call.as_text(self._plan))
        else:
            self._writer.out.append(TextDelta(call.as_text(self._plan)))

    def _handle_bad_visible_call(self, call: PendingCall, index: int) -> None:
        if self._options.on_bad_call == "fail":
            self._fail("The model made a call that cannot be used, and a part of it had already been sent.")
        elif call.arguments:
            self._writer.finish_call(index)

    def _ask_again(self, rule: str, error: str, call: Call | None = None) -> None:
        printed = "".join(self._printed)
        self._plan.add_correction(error, printed if len(printed) <= MAX_SHOWN else f"{printed[:MAX_SHOWN]}…", call)
        self._reject(rule)

    def _reject(self, rule: str) -> None:
        self.rejected_for = rule
        self._enter(State.RETRY if self._usage_known else State.REJECTED)

    # The end of the answer

    def _finish(self, event: AnswerFinished) -> None:
        self._count(event.usage)
        truncated = event.finish in ("length", "content_filter")
        in_call = bool(self._pending)
        if self._scanner is not None:
            found: Sequence[StreamEvent | CallBroken] = self._scanner.flush()
            if truncated:
                in_call = in_call or any(isinstance(one, CallBroken) for one in found)
                found = [kept for one in found if (kept := self._kept_at_limit(one)) is not None]
            self._read_scanned(found)
            if not truncated:
                self._scan_again()
            if self.state is State.CUT:
                self._end_cut()
            if self.state is not State.READING:
                return
        if self._must_call() and not (truncated and in_call):
            self._handle_missing_call(truncated=truncated)
            return
        self._writer.release_withheld()
        finish: Finish = event.finish if truncated else "calls" if self._writer.finished else "stop"
        self._end(replace(event, finish=finish, usage=self._usage))

    def _kept_at_limit(self, event: StreamEvent | CallBroken) -> StreamEvent | None:
        """A call that was truncated is dropped; one that was whole and malformed becomes text."""
        if not isinstance(event, CallBroken):
            return event
        if event.rule == "cut":
            return None
        self._notice(event.rule, "")
        is_whole = event.index is None and event.text.rstrip().endswith(self._plan.dialect.end_markers)
        return TextDelta(event.text) if is_whole else None

    def _handle_missing_call(self, *, truncated: bool) -> None:
        if truncated:
            self._fail("The model was to call a tool, and reached its limit before it did.", code="tool_choice_unmet")
        elif self._tries < MAX_TRIES:
            self._notice("no_call", "")
            self._plan.switch_to_text()
            self._ask_again("no_call", CORRECTIONS["no_call"])
        else:
            self._fail("The model was to call a tool, and did not, although it was asked twice.", code="tool_choice_unmet")

    def _scan_again(self) -> None:
        """The model may have ignored its schema, or the expectation that it reasons first: then its text is scanned without."""
        if self._must_call() and self._plan.is_constrained and self.state is State.READING:
            self._plan.drop_constraint()
            self._rescan(self._plan.make_scanner())
        scanner = self._scanner
        if scanner is not None and scanner.assumes_reasoning and not self._writer.started and self.state is State.READING:
            self._rescan(self._plan.make_scanner_without_reasoning())

    def _rescan(self, scanner: Scanner | None) -> None:
        self._scanner = scanner
        if scanner is not None:
            self._limiter = OutputLimiter()
            self._writer.discard_withheld()
            self._read_scanned([*scanner.feed("".join(self._printed)), *scanner.flush()])

    def _end_endless_calls(self) -> None:
        if self._must_call():
            self._handle_missing_call(truncated=False)
        else:
            self._cut("too_many_calls")

    def _cut(self, rule: str) -> None:
        self._enter(State.CUT)
        self._writer.out.append(Noticed(event="tool_cutoff", rule=rule, dialect=self._dialect_name()))

    def finish_with_estimate(self) -> list[StreamEvent]:
        """The model was stopped in a waiting state before it reported its usage: estimate it."""
        self._writer.out = []
        self._end_waiting(estimated_usage(self._plan.input_size(), sum(map(len, self._printed))))
        return self._writer.out

    def _end_waiting(self, usage: Usage | None) -> None:
        match self.state:
            case State.CUT:
                self._count(usage)
                self._end_cut()
            case State.STOPPED:
                self._stop = None
                self._enter(State.READING)
                self._finish(AnswerFinished(finish="stop", usage=usage))
            case _:
                self._count(usage)
                self._enter(State.RETRY)

    def _count(self, usage: Usage | None) -> None:
        self._usage_known = True
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage + usage

    def _end_cut(self) -> None:
        self._end(AnswerFinished(finish="calls" if self._writer.finished else "stop", usage=self._usage))

    def _end(self, event: AnswerFinished) -> None:
        self._enter(State.ENDED)
        self._writer.out.append(event)

    def _fail(self, message: str, code: str = "bad_call") -> None:
        self._enter(State.ENDED)
        self._writer.out.append(AnswerFailed(ModelError(message, code=code)))

    def _notice(self, rule: str, tool: str) -> None:
        self._writer.out.append(Noticed(event="tool_block", rule=rule, tool=tool or None, dialect=self._dialect_name()))

    def _dialect_name(self) -> str | None:
        is_native = self._options.whole_calls and not self._plan.as_text
        return None if is_native else self._plan.dialect.name
