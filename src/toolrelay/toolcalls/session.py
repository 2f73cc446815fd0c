"""One answer of a model, through any number of tries: the model's events in, events with usable calls out.

    the model                                the client gets
    --------------------------------------   ----------------------------------------------------------------------------
    prints a call                            the call; its arguments as they arrive, or whole if they must be checked
    writes on after its printed calls        none of that: the answer is cut there (`cutoff`)
    never stops calling, or prints blanks    128 calls, 1 KiB of blanks after a call; then the answer is cut, too
    should have reasoned first, and did not  its text, scanned again without that expectation
    ends its reasoning with calls, unclosed  the calls, too
    prints only blanks before a call         not the blanks
    makes a bad call                         by `on_bad_call`; retry: nothing, and the model is asked again with the error
    makes no call although it must           nothing: its text is withheld and it is asked again; then it is an error
    calls a tool that tool_choice excludes   not that call; if it must call, the same as without a call
    is truncated in a call                   no call; finish `length`

A bad call names an unknown tool, has arguments that are not a JSON object and cannot be repaired unambiguously, or violates a
strict schema. Calls that the gateway runs are passed on: bad ones get an error result.

    on_bad_call   no part of the call is visible                                         a part is visible
    -----------   --------------------------------------------------------------------   -------------------------
    pass          emitted as it came; a call in a native model's text that cannot be     finished as it came
                  used stays text, or is left out if it is a `<use_tool>` block
    retry         the model is asked again, once and if no call was emitted; then text   finished as it came
    text          emitted as text, as the model printed it                               finished as it came
    fail          error                                                                  error

A malformed call of which a part is visible stays unfinished: it is not a call. It is an error if the answer has no other one.

All of these leave a notice in the log. A native model's calls are not checked with `pass`, unless `whole_calls` is set.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    MessageStarted,
    Noticed,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
    estimate_usage,
)
from toolrelay.core.messages import Call
from toolrelay.core.request import Request
from toolrelay.errors import ModelError
from toolrelay.parsing.events import CallBroken, CallPrinted, CallRepaired, ReasoningClosed, ScannerEvent
from toolrelay.parsing.scanner import Scanner
from toolrelay.toolcalls.limits import UNKNOWN_TOOL, CallRules, OutputLimiter, StopFilter, make_stop_filter
from toolrelay.toolcalls.model_request import ModelRequest
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.pending_calls import MAX_HELD, CallError, CallKey, PendingCall, PendingCalls
from toolrelay.toolcalls.states import READING, TRANSITIONS, WAITING, State
from toolrelay.toolcalls.writer import AnswerWriter

MAX_TRIES = 2
MAX_SHOWN = 8192  # characters of a rejected answer that the model is shown again
MAX_DOUBTFUL = 64  # characters of a stream that was to begin with reasoning, and may be a short answer
_SCHEMA_REFUSED = frozenset({400, 422, 500, 501})  # statuses with which servers refuse a schema

_UNFINISHED = "The model did not finish a call of which a part had already been sent."
_AFTER_TEXT = frozenset({AnnotationAdded, RefusalDelta})  # events before which blanks are text
_WITHIN_TEXT = frozenset({AnnotationAdded, AnswerFinished, AnswerStarted, Noticed})  # the text around them may go on


class ToolCallSession:
    """`request` is the request to send now; `rejected_for` is the rule by which the last try was rejected."""

    def __init__(self, request: Request, options: ToolCallOptions) -> None:
        self.state = State.READING
        self.rejected_for = ""
        self._options = options
        self._plan = ModelRequest(request, options)
        self._streams = request.stream
        self._single = request.parallel_tool_calls is False
        self._usage: Usage | None = None
        self._tries = 0
        self._writer = AnswerWriter(CallRules(request))
        self._cuts_text = False
        self._begin_try()

    @property
    def request(self) -> Request:
        """Return the request to send now. A server without stop sequences is not told of any."""
        request = self._plan.request
        if self._options.emulates_stop and request.sampling.stop:
            return replace(request, sampling=replace(request.sampling, stop=None))
        return request

    @property
    def printed(self) -> str:
        """Return the text of the current try that was read for calls, as the model printed it."""
        return "".join(self._printed)

    def retry(self) -> None:
        """Begin the next try: the model is being asked again."""
        self._enter(State.READING)
        self._begin_try()

    def _begin_try(self) -> None:
        self._tries += 1
        self._scanner = self._plan.make_scanner()
        self._stop = self._make_stop_filter()
        self._limiter = OutputLimiter()
        self._pending = PendingCalls(self._options, self._plan.tools, self._writer, streams=self._streams)
        self._bad_call: PendingCall | None = None  # becomes text as soon as that is complete
        # The text of a whole answer is reasoning if an end tag follows it: the model's template may have opened it.
        self._may_be_reasoning = not self._streams and self._scanner is not None and self._scanner.may_be_reasoning
        self._is_call_open = False  # a malformed call of which a part is visible
        self._printed: list[str] = []  # text to scan again, or to show the model again
        self._output_size = 0
        self._writer.discard_withheld()
        self._writer.discard_reasoning()

    def _enter(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.state.name} is not followed by {state.name}")
        self.state = state

    # The model's events

    def feed(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        self._writer.out = out
        for event in events:
            if self.state is READING:
                if type(event) is TextDelta:
                    self._read_text(event)
                else:
                    if type(event) not in _WITHIN_TEXT:
                        self._release_held_by_stop()
                    self._read(event)
            elif self.state in WAITING:
                if type(event) is AnswerFinished:
                    self._end_waiting(event.usage)
            else:
                break
        return out

    def _read(self, event: StreamEvent) -> None:
        match event:
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
                self._reject("constraint_refused")
                self._enter(State.RETRY)  # a refused request has no usage
            case AnswerFailed():
                self._enter(State.ENDED)
                self._writer.out.append(event)
            case ReasoningDelta():
                self._end_doubt()
                self._expect_separate_reasoning()
                self._writer.write_reasoning(event)
            case MessageStarted():
                if self._scanner is not None:
                    self._read_scanned(self._scanner.release())
                self._release_held_by_stop()
                self._writer.start_message(event)
            case _:
                if type(event) in _AFTER_TEXT:
                    self._writer.release_blanks()
                self._writer.out.append(event)

    def _expect_separate_reasoning(self) -> None:
        """Read the text so far as text: the server sends reasoning separately."""
        if self._scanner is not None and self._scanner.assumes_reasoning and self._plan.expect_separate_reasoning():
            self._writer.discard_reasoning()
            self._scanner = self._plan.make_scanner()
            if self._scanner is not None and self._printed:
                self._read_scanned(self._scanner.feed(self.printed))

    def _read_text(self, event: TextDelta) -> None:
        self._output_size += len(event.text)
        if self._scanner is not None:
            self._printed.append(event.text)
            found = self._scanner.feed(event.text)
            if self._writer.withholds_reasoning and not self._may_be_text():
                self._writer.release_reasoning()
            self._read_scanned(found)
            return
        if self._must_call():
            self._printed.append(event.text)
        self._emit_text(event)

    def _read_scanned(self, found: Sequence[ScannerEvent]) -> None:
        for event in found:
            if self.state is not READING:
                return
            if type(event) is TextDelta:  # several times cheaper than a `match`, and this is the busiest place
                self._emit_text(event)
            elif type(event) is ArgumentsDelta:
                self._add_arguments((True, event.index), event.text)
            else:
                self._read_printed_call(event)

    def _read_printed_call(self, event: ScannerEvent) -> None:
        self._release_held_by_stop()
        match event:
            case CallRepaired(index=index):
                self._notice("repaired_json", self._pending.name_of((True, index)))
            case CallPrinted(text=text):
                self._show_bad_call(text)
            case ReasoningClosed():
                if self._may_be_reasoning:
                    self._writer.close_reasoning()
            case CallStarted() | CallBroken(index=None) if self._limiter.count_call():
                if self._must_call():
                    self._handle_missing_call()
                else:
                    self._cut("too_many_calls")
            case CallStarted(index=index, name=name):
                self._start_call((True, index), CallStarted(0, self._plan.names.to_client(name)))
            case CallFinished(index=index):
                self._finish_call((True, index))
            case CallBroken():
                self._reject_malformed(event)
            case ReasoningDelta(text=text) if self._may_be_text():
                self._writer.withhold_reasoning(text)
            case ReasoningDelta():
                self._end_doubt()
                self._writer.write_reasoning(event)
            case _:
                self._writer.out.append(event)

    def _end_doubt(self) -> None:
        """Read the text so far as text: reasoning is marked, or comes separately."""
        if self._may_be_reasoning:
            self._may_be_reasoning = False
            if not self._withholds_text():
                self._writer.release_withheld()

    def _may_be_text(self) -> bool:
        """Return whether reasoning may still turn out to be the answer's text. A stream waits for a few words only."""
        return self._may_read_again() and not (self._streams and self._output_size > MAX_DOUBTFUL)

    def _may_read_again(self) -> bool:
        scanner = self._scanner
        is_open = scanner is not None and scanner.assumes_reasoning and not self._writer.started
        return is_open and self._output_size <= MAX_HELD

    def _must_call(self) -> bool:
        """A call that a rule dropped does not count: it names a tool that tool_choice excludes."""
        return self._plan.must_call and not self._writer.admitted

    def _emit_text(self, event: TextDelta) -> None:
        if self._stop is None:
            self._pass_text(event)
            return
        text = self._stop.feed(event.text)
        if text:
            self._pass_text(TextDelta(text))
        if self._stop.hit and self.state is State.READING:
            self._scanner = None  # what the model says after it does not count
            self._enter(State.STOPPED)

    def _release_held_by_stop(self) -> None:
        """Pass on text that could have begun a stop sequence: it has ended, or a call begins."""
        if self._stop is not None and (text := self._stop.flush()):
            self._pass_text(TextDelta(text))

    def _make_stop_filter(self) -> StopFilter | None:
        """Return a filter for the text of an answer. Calls and reasoning may contain what they like."""
        return make_stop_filter(self._plan.request.sampling.stop) if self._options.emulates_stop else None

    def _pass_text(self, event: TextDelta) -> None:
        if self._cuts_text:
            rule = self._limiter.check_text(event.text)
            if rule:
                self._cut(rule)
        elif self._withholds_text():
            self._writer.withhold(event.text)
        else:
            self._writer.write_text(event)

    def _withholds_text(self) -> bool:
        """Return whether the text may turn out to be that of a rejected try, or reasoning."""
        if self._must_call():
            return True
        if self._streams or self._scanner is None or self._writer.admitted:
            return False
        may_retry = self._options.on_bad_call == "retry" and self._tries < MAX_TRIES
        return may_retry or self._may_be_reasoning

    # Calls

    def _start_call(self, key: CallKey, start: CallStarted) -> None:
        if self._single and self._writer.finished and not self._must_call():
            self._cut("parallel_tool_calls_false")
        else:
            self._pending.start(key, start)

    def _add_arguments(self, key: CallKey, text: str) -> None:
        too_long = self._pending.add_arguments(key, text)
        if too_long is not None:
            self._handle_bad_call(too_long, CallError("held_too_long"))

    def _finish_call(self, key: CallKey) -> None:
        call = self._pending.pop(key)
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
        call.write_to(self._writer)
        if self._must_call():
            return
        cutoff = self._options.cutoff
        if (call.printed or self._options.whole_calls) and cutoff != "off":
            self._cuts_text = True
            if cutoff == "first" or self._single:
                self._cut("first_call")

    # Bad calls

    def _reject_malformed(self, broken: CallBroken) -> None:
        call = None if broken.index is None else self._pending.pop((True, broken.index))
        if call is not None and (call.by_gateway or call.index is not None):
            self._notice(broken.rule, call.start.name)
            if call.by_gateway:
                self._emit_call(call)
            elif self._options.on_bad_call == "fail":
                self._fail(_UNFINISHED)
            else:
                self._is_call_open = True
            return
        if call is None or self._options.on_bad_call == "text" or self._tries == MAX_TRIES:
            call = PendingCall.malformed(broken.text)
        call.printed_text = broken.text
        self._bad_call = None
        self._handle_bad_call(call, CallError(broken.rule))

    def _handle_bad_call(self, call: PendingCall, error: CallError) -> None:
        name, policy = call.start.name, self._options.on_bad_call
        is_quote = call.printed and self._options.native and (self._must_call() or self._plan.as_text or error.rule != "schema")
        passes = policy == "pass" and bool(name) and not is_quote
        if not (passes and error.rule == UNKNOWN_TOOL):  # the rules report that when the call is emitted
            self._notice(error.rule, name)
        if call.index is not None:
            if policy == "fail":
                self._fail("The model made a call that cannot be used, and a part of it had already been sent.")
            elif call.arguments:
                self._writer.finish_call(call.index)
        elif policy == "retry" and not self._writer.admitted and self._tries < MAX_TRIES:
            self._ask_again(error, call)
        elif policy == "fail":
            self._fail(f"The model made a call that cannot be used ({error.rule}).")
        elif passes:
            self._emit_call(call)
        elif policy != "text" and self._plan.is_remnant(call.printed_text, error.rule):
            pass  # the notice tells of it
        else:
            self._show_bad_call()
            self._bad_call = call
            if not call.printed or call.printed_text:
                self._show_bad_call()

    def _show_bad_call(self, printed: str = "") -> None:
        """Emit a bad call as text, as the model printed it."""
        call, self._bad_call = self._bad_call, None
        if call is not None:
            text = call.as_text(self._plan) if call.printed_text else printed or call.as_text(self._plan)
            if self._options.on_bad_call != "text" and self._plan.is_remnant(text, ""):
                return  # the notice tells of it
            if self._withholds_text():
                self._writer.withhold(text)
            else:
                self._writer.write_text(TextDelta(text))

    def _ask_again(self, error: CallError, call: PendingCall | None = None) -> None:
        printed = self.printed if len(self.printed) <= MAX_SHOWN else f"{self.printed[:MAX_SHOWN]}…"
        name, native = "" if call is None else call.start.name, None
        if call is not None and not call.printed:
            native = Call(id="", name=name, arguments=call.arguments, kind=call.start.kind)
        self._plan.add_correction(error.correction(self._plan.names.to_model(name)), printed, native)
        self._reject(error.rule)

    def _reject(self, rule: str) -> None:
        self.rejected_for = rule
        self._enter(State.REJECTED)

    # The end of the answer

    def _finish(self, event: AnswerFinished) -> None:
        truncated = event.finish in ("length", "content_filter")
        in_call = bool(self._pending)
        if self._scanner is not None:
            found: Sequence[ScannerEvent] = self._scanner.flush(complete=not truncated)
            if truncated:
                in_call = in_call or any(isinstance(one, CallBroken) for one in found)
                found = [kept for one in found if (kept := self._filter_truncated(one)) is not None]
            self._read_scanned(found)
            self._show_bad_call()
            if not truncated:
                self._scan_again()
        if self._is_call_open and not self._writer.finished and not truncated and self.state is State.READING:
            self._fail(_UNFINISHED)
        self._release_held_by_stop()
        if self.state is State.READING and self._must_call() and not (truncated and in_call):
            self._handle_missing_call(truncated=truncated)
        if self.state is not State.READING:
            self._end_waiting(event.usage)
            return
        self._writer.finish()
        self._count(event.usage)
        finish: Finish = event.finish if truncated else "calls" if self._writer.finished else "stop"
        self._enter(State.ENDED)
        self._writer.out.append(replace(event, finish=finish, usage=self._usage))

    def _filter_truncated(self, event: ScannerEvent) -> ScannerEvent | None:
        """Drop a call that was truncated; one that was whole and malformed becomes text."""
        if not isinstance(event, CallBroken):
            return event
        if event.rule == "cut":
            return None
        self._notice(event.rule, "")
        is_whole = event.index is None and event.text.rstrip().endswith(self._plan.dialect.end_markers)
        return TextDelta(event.text) if is_whole else None

    def _handle_missing_call(self, *, truncated: bool = False) -> None:
        if truncated:
            self._fail("The model was to call a tool, and reached its limit before it did.", code="tool_choice_unmet")
        elif self._tries < MAX_TRIES:
            self._notice("no_call", "")
            self._plan.switch_to_text()
            self._ask_again(CallError("no_call"))
        else:
            self._fail("The model was to call a tool, and did not, although it was asked twice.", code="tool_choice_unmet")

    def _scan_again(self) -> None:
        """Scan the text without a schema that the model ignored, and without reasoning that did not come."""
        if self._must_call() and self._plan.is_constrained and self.state is State.READING:
            self._plan.drop_constraint()
            self._rescan(self._plan.make_scanner())
        if self._scanner is not None and self._scanner.in_reasoning and self.state is State.READING:
            may_be_text = self._may_read_again()
            if not self._read_last_calls() and may_be_text:
                self._writer.discard_reasoning()
                self._rescan(self._plan.make_scanner_without_reasoning())

    def _read_last_calls(self) -> bool:
        """Read calls at the end of reasoning that was not closed. Everything before them stays reasoning."""
        if self._writer.started or self._output_size > MAX_HELD:
            return False
        scanner = self._plan.make_scanner_without_reasoning()
        found = [*scanner.feed(self._plan.after_reasoning_tag(self.printed)), *scanner.flush(complete=True)]
        last = max((n for n, event in enumerate(found) if type(event) is CallFinished), default=-1)
        if last < 0 or any(type(event) is TextDelta and event.text.strip() for event in found[last:]):
            return False
        if self._may_read_again() and not any(type(event) is CallStarted and event.name in scanner.tools for event in found):
            return False
        if self._writer.withholds_reasoning:
            self._writer.discard_reasoning()
            self._writer.withhold_reasoning("".join(event.text for event in found if type(event) is TextDelta))
        self._scanner = scanner
        self._read_scanned([event for event in found if type(event) is not TextDelta])
        return True

    def _rescan(self, scanner: Scanner | None) -> None:
        self._scanner = scanner
        if scanner is not None:
            self._limiter = OutputLimiter()
            self._stop = self._make_stop_filter()
            self._writer.discard_withheld()
            self._may_be_reasoning = False
            self._read_scanned([*scanner.feed(self.printed), *scanner.flush(complete=True)])

    def _cut(self, rule: str) -> None:
        self._enter(State.CUT)
        self._writer.out.append(Noticed(event="tool_cutoff", rule=rule, dialect=self._dialect_name()))

    def finish_with_estimate(self) -> list[StreamEvent]:
        """End a waiting state: the model was stopped before it reported its usage, which is estimated."""
        self._writer.out = []
        self._end_waiting(estimate_usage(self._plan.input_size(), self._output_size))
        return self._writer.out

    def _end_waiting(self, usage: Usage | None) -> None:
        """Leave a waiting state: the usage is known."""
        if self.state is State.STOPPED:
            found = "" if self._stop is None else self._stop.found
            self._enter(State.READING)
            self._finish(AnswerFinished(finish="stop", usage=usage, extra={"stop_sequence": found}))
            return
        self._count(usage)
        if self.state is State.CUT:
            self._writer.finish()
            self._enter(State.ENDED)
            self._writer.out.append(AnswerFinished(finish="calls" if self._writer.finished else "stop", usage=self._usage))
        elif self.state is State.REJECTED:
            self._enter(State.RETRY)

    def _count(self, usage: Usage | None) -> None:
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage + usage

    def _fail(self, message: str, code: str = "bad_call") -> None:
        self._enter(State.ENDED)
        self._writer.out.append(AnswerFailed(ModelError(message, code=code)))

    def _notice(self, rule: str, tool: str) -> None:
        self._writer.out.append(Noticed(event="tool_block", rule=rule, tool=tool or None, dialect=self._dialect_name()))

    def _dialect_name(self) -> str | None:
        is_native = self._options.whole_calls and not self._plan.as_text
        return None if is_native else self._plan.dialect.name
