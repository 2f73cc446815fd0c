"""A model heard as one that calls tools well: what it says in, calls and text out, and what to ask it again.

    what the model does                     what the client gets
    -------------------------------------   -----------------------------------------------------------------
    prints a call                           the call; its arguments as they form, or whole where they must be checked first
    goes on after its printed calls         nothing of it: the answer is cut there (`cutoff`)
    does not stop calling, or goes blank    128 calls; 1 KiB of blanks after a call: then the answer is cut, too
    was to think first, and did not         what it says, as if that had not been expected
    makes a bad call                        by `on_bad_call`; retry: nothing, and the model is asked once more with the error
    makes no call although it must          nothing: its text is held back, it is asked once more, and then it is an error
    is cut off in a call by its limit       no call; finish `length`

A bad call is one of an unknown tool, with arguments that are no JSON object and cannot be repaired without guessing, or in breach
of a strict schema. What has left cannot be taken back: then the call goes out as it came, and the log says so. A native model's
calls pass as they come where that is the policy; what looks like a call in its text and is none that can be used stays text.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.events import (
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
)
from toolrelay.core.messages import Call
from toolrelay.core.request import Request, Tool
from toolrelay.dialects._asking import EXPLAINED, Asking
from toolrelay.dialects._ear import ear, ear_for_the_thoughtless
from toolrelay.dialects._excess import Excess
from toolrelay.dialects._heard_call import Fault, HeardCall, free_text, must_be_checked
from toolrelay.dialects._manner import Manner
from toolrelay.dialects._scanner import CallBroken, Scanner
from toolrelay.errors import ModelError

TRIES = 2
HELD_LIMIT = 1024 * 1024  # characters
SHOWN_LIMIT = 8192  # characters of a bad answer that the model is shown again
_CHARACTERS_PER_TOKEN = 4
_REFUSALS = frozenset({400, 422, 500, 501})  # with which servers answer to a schema that they cannot take


class Conversation:
    """`request` is what to ask the model now. After each `hear`:

    over     the answer has ended
    was_cut  it has, but for its cost: of what more the model says nothing else is heard
    again    the model is to be asked anew, once it has told its cost
    costed   it has
    """

    def __init__(self, request: Request, manner: Manner) -> None:
        self.over = False
        self.was_cut = False
        self.again = False
        self.costed = False
        self._streams = request.stream
        self._single = request.parallel_tool_calls is False
        self._manner = manner
        self._asking = Asking(request, manner)
        self._must = self._asking.must
        self._usage: Usage | None = None
        self._tries = 0
        self._begun = 0
        self._made = 0
        self._cuts = False
        self._out: list[StreamEvent] = []
        self._listen()

    @property
    def request(self) -> Request:
        return self._asking.request

    def _listen(self) -> None:
        self._tries += 1
        self.costed = False
        self._scanner = ear(self._asking, self._manner)
        self._excess = Excess()
        self._open: dict[int, HeardCall] = {}
        self._printed: list[str] = []
        self._withheld: list[str] = []

    # What the model says

    def hear(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        self._out = out
        for event in events:
            if self.over:
                break
            if self.was_cut or self.again:
                self._overhear(event)
            elif type(event) is TextDelta and self._scanner is not None:
                self._printed.append(event.text)
                self._take_all(self._scanner.feed(event.text))
            else:
                self._take_native(event)
        return out

    def _take_native(self, event: StreamEvent) -> None:
        match event:
            case CallStarted(index=index, name=name):
                self._start(index, replace(event, name=self._asking.names.to_client(name)), printed=False)
            case ArgumentsDelta(index=index):
                self._argue(index, event.text)
            case CallFinished(index=index):
                self._finish_call(index)
            case AnswerFinished():
                self._finish(event)
            case AnswerFailed(error=error) if self._asking.is_constrained and error.status in _REFUSALS and not self._printed:
                self._notice("constraint_refused", "")
                self._asking.unconstrained()
                self._tries -= 1
                self.again = self.costed = True
            case AnswerFailed():
                self.over = True
                self._out.append(event)
            case AnswerStarted() if self._tries > 1:
                pass
            case ReasoningDelta() if not self._printed:
                self._out.append(event)
                self._reasoning_is_apart()
            case TextDelta() if self._must_call():
                self._printed.append(event.text)
                self._withheld.append(event.text)
            case _:
                self._out.append(event)

    def _reasoning_is_apart(self) -> None:
        """The server tells reasoning and text apart itself: then the text does not begin in the midst of reasoning."""
        if self._manner.quoting.begins_in_reasoning:
            self._manner = replace(self._manner, quoting=replace(self._manner.quoting, begins_in_reasoning=False))
            self._scanner = ear(self._asking, self._manner)

    def _take_all(self, found: Sequence[StreamEvent | CallBroken]) -> None:
        for event in found:
            if self.over or self.again or self.was_cut:
                return
            if type(event) is TextDelta:  # several times cheaper than a `match`, and this is the busiest place
                self._take_text(event)
            elif type(event) is ArgumentsDelta:
                self._argue(~event.index, event.text)
            else:
                self._take_printed(event)

    def _take_printed(self, event: StreamEvent | CallBroken) -> None:
        match event:
            case ReasoningDelta():
                self._out.append(event)
            case CallStarted() | CallBroken(index=None) if self._excess.in_calls():
                self._stop()
            case CallStarted(index=index, name=name):
                self._start(~index, CallStarted(0, self._asking.names.to_client(name)), printed=True)
            case CallFinished(index=index):
                self._finish_call(~index)
            case CallBroken():
                self._break(event)
            case _:
                self._out.append(event)

    def _must_call(self) -> bool:
        return self._must and not self._begun

    def _take_text(self, event: TextDelta) -> None:
        if self._cuts:
            rule = self._excess.in_rest(event.text)
            if rule:
                self._cut(rule)
        elif not self._must or self._begun:
            self._out.append(event)
        else:
            self._withheld.append(event.text)

    # Calls. A native one has its index for a key, a printed one the complement of its own.

    def _start(self, key: int, start: CallStarted, *, printed: bool) -> None:
        if self._single and self._made:
            self._cut("parallel_tool_calls_false")
            return
        tool = self._asking.tools.get(start.name)
        index = None if self._holds(tool, printed=printed) else self._leave(start)
        self._open[key] = HeardCall(start, tool, index, printed=printed)

    def _holds(self, tool: Tool | None, *, printed: bool) -> bool:
        """The call is shown only when it is whole: it may have to be checked, or taken back."""
        if not printed and self._manner.on_bad_call == "pass":
            return False
        return must_be_checked(tool) or not self._streams

    def _leave(self, start: CallStarted) -> int:
        self._release()  # a call has come: what was said before it may be heard
        index = self._begun
        self._begun += 1
        self._out.append(replace(start, index=index))
        return index

    def _release(self) -> None:
        if self._withheld:
            self._out.append(TextDelta("".join(self._withheld)))
            self._withheld = []

    def _argue(self, key: int, text: str) -> None:
        call = self._open.get(key)
        if call is None:
            return
        call.pieces.append(text)
        if call.index is not None:
            self._out.append(ArgumentsDelta(call.index, text))
            return
        call.size += len(text)
        if call.size > HELD_LIMIT:
            self._hold_no_longer(key, call)

    def _hold_no_longer(self, key: int, call: HeardCall) -> None:
        """So much is held of no call. One that is only held to be tried again may leave; one that has to be checked may not."""
        if must_be_checked(call.tool):
            del self._open[key]
            self._bad(call, Fault("held_too_long"))
        else:
            call.index = self._leave(call.start)
            self._out.append(ArgumentsDelta(call.index, call.arguments))

    def _finish_call(self, key: int) -> None:
        call = self._open.pop(key, None)
        if call is None:
            return
        fault = call.fault(self._manner)
        if call.mended is not None:
            self._notice("repaired_json", call.start.name)
            if call.index is not None:
                self._out.append(ArgumentsDelta(call.index, call.mended))
        if fault is None:
            self._close(call)
        else:
            self._bad(call, fault)

    def _close(self, call: HeardCall) -> None:
        """The call is the client's now."""
        if call.index is None:
            start, arguments = call.start, call.arguments
            if call.printed and call.tool is not None and call.tool.kind == "custom":
                start, arguments = replace(start, kind="custom"), free_text(arguments)
            call.index = self._leave(start)
            self._out.append(ArgumentsDelta(call.index, arguments))
        self._out.append(CallFinished(call.index))
        self._made += 1
        cutoff = self._manner.cutoff
        if call.printed and cutoff != "off":
            self._cuts = True
            if cutoff == "first" or self._single:
                self._cut("first_call")

    # Bad calls

    def _break(self, broken: CallBroken) -> None:
        call = None if broken.index is None else self._open.pop(~broken.index, None)
        if call is not None and call.index is not None:
            self._notice(broken.rule, call.start.name)
            self._fail("The model did not finish a call of which a part had already been sent.")
            return
        if call is None or self._manner.on_bad_call == "text" or self._tries == TRIES:
            call = HeardCall.broken(broken.text)
        self._bad(call, Fault(broken.rule))

    def _bad(self, call: HeardCall, fault: Fault) -> None:
        name, rule = call.start.name, fault.rule
        policy = self._manner.on_bad_call
        passes = policy == "pass" and bool(name) and not (call.printed and self._manner.native)
        if not (passes and rule == "unknown_tool"):  # of a call that it is handed the turn says so itself
            self._notice(rule, name)
        if call.index is not None:
            self._bad_after_leaving(call, call.index)
        elif policy == "retry" and not self._made and not self._begun and self._tries < TRIES:
            seen = Call(id="", name=name, arguments=call.arguments, kind=call.start.kind)
            self._ask_again(fault.explained(self._asking.names.to_model(name)), None if call.printed else seen)
        elif policy == "fail":
            self._fail(f"The model made a call that cannot be used ({rule}).")
        elif passes:
            self._close(call)
        elif self._must_call():
            self._withheld.append(call.as_printed(self._asking))
        else:
            self._out.append(TextDelta(call.as_printed(self._asking)))

    def _bad_after_leaving(self, call: HeardCall, index: int) -> None:
        if self._manner.on_bad_call == "fail":
            self._fail("The model made a call that cannot be used, and a part of it had already been sent.")
        elif call.arguments:
            self._out.append(CallFinished(index))
            self._made += 1

    def _ask_again(self, error: str, call: Call | None = None) -> None:
        self.again = True
        printed = "".join(self._printed)
        self._asking.again(error, printed if len(printed) <= SHOWN_LIMIT else f"{printed[:SHOWN_LIMIT]}…", call)

    def next_try(self) -> None:
        """The model is being asked again."""
        self.again = False
        self._listen()

    # The end

    def _finish(self, event: AnswerFinished) -> None:
        self._count(event.usage)
        truncated = event.finish in ("length", "content_filter")
        in_call = bool(self._open)
        if self._scanner is not None:
            found: Sequence[StreamEvent | CallBroken] = self._scanner.flush()
            if truncated:
                in_call = in_call or any(isinstance(one, CallBroken) for one in found)
                found = [kept for one in found if (kept := self._at_limit(one)) is not None]
            self._take_all(found)
            if not truncated:
                self._hear_otherwise()
            if self.was_cut:
                self._end_cut()
            if self.over or self.again:
                return
        if self._must_call() and not (truncated and in_call):
            self._miss(truncated=truncated)
            return
        self._release()
        finish: Finish = event.finish if truncated else "calls" if self._made else "stop"
        self._end(replace(event, finish=finish, usage=self._usage))

    def _at_limit(self, event: StreamEvent | CallBroken) -> StreamEvent | None:
        """A call that the limit cut is not a bad one, and is dropped; one that was bad and whole is text."""
        if not isinstance(event, CallBroken):
            return event
        if event.rule == "cut":
            return None
        self._notice(event.rule, "")
        is_whole = event.index is None and event.text.rstrip().endswith(self._asking.dialect.closers)
        return TextDelta(event.text) if is_whole else None

    def _miss(self, *, truncated: bool) -> None:
        """The model was to make a call, and did not."""
        if truncated:
            self._fail("The model was to call a tool, and reached its limit before it did.", code="tool_choice_unmet")
        elif self._tries < TRIES:
            self._notice("no_call", "")
            self._asking.print_from_now_on()
            self._ask_again(EXPLAINED["no_call"])
        else:
            self._fail("The model was to call a tool, and did not, although it was asked twice.", code="tool_choice_unmet")

    def _hear_otherwise(self) -> None:
        """What the model was expected to do, it may not have done: to keep to a schema, to think first. Then it is heard anew."""
        if self._must_call() and self._asking.is_constrained and not (self.over or self.again):
            self._asking.unconstrained()
            self._hear_anew(ear(self._asking, self._manner))
        if self._scanner is not None and self._scanner.presumes and not (self._begun or self.over or self.again):
            self._hear_anew(ear_for_the_thoughtless(self._asking, self._manner))

    def _hear_anew(self, scanner: Scanner | None) -> None:
        self._scanner = scanner
        if scanner is not None:
            self._excess, self._withheld = Excess(), []
            self._take_all([*scanner.feed("".join(self._printed)), *scanner.flush()])

    def _stop(self) -> None:
        """The model makes calls without an end."""
        if self._must_call():
            self._miss(truncated=False)
        else:
            self._cut("too_many_calls")

    def _cut(self, rule: str) -> None:
        self.was_cut = True
        self._out.append(Noticed(event="tool_cutoff", rule=rule, dialect=self._asking.dialect.name))

    def _overhear(self, event: StreamEvent) -> None:
        """Of what comes after a cut only the cost counts."""
        if isinstance(event, AnswerFinished):
            self._count(event.usage)
            if self.was_cut:
                self._end_cut()

    def settle(self) -> list[StreamEvent]:
        """For an answer that was cut and whose cost nobody told: an estimate, marked as one."""
        self._out = []
        printed = sum(map(len, self._printed))
        counts = {"input": self._asking.size() // _CHARACTERS_PER_TOKEN, "output": printed // _CHARACTERS_PER_TOKEN}
        self._count(Usage(**counts, estimated=True))
        if self.was_cut:
            self._end_cut()
        return self._out

    def _count(self, usage: Usage | None) -> None:
        self.costed = True
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage + usage

    def _end_cut(self) -> None:
        self._end(AnswerFinished(finish="calls" if self._made else "stop", usage=self._usage))

    def _end(self, event: AnswerFinished) -> None:
        self.over = True
        self._out.append(event)

    def _fail(self, message: str, code: str = "bad_call") -> None:
        self.over = True
        self._out.append(AnswerFailed(ModelError(message, code=code)))

    def _notice(self, rule: str, tool: str) -> None:
        self._out.append(Noticed(event="tool_block", rule=rule, tool=tool or None, dialect=self._asking.dialect.name))
