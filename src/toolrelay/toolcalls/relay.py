"""Answers that are relayed as they come: nothing is scanned, repaired or retried; only the request's rules apply."""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.events import AnswerFailed, AnswerFinished, ArgumentsDelta, CallFinished, CallStarted, StreamEvent
from toolrelay.core.messages import Call
from toolrelay.core.request import Request, ToolChoice
from toolrelay.toolcalls.limits import CallRules
from toolrelay.toolcalls.names import ToolNames
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.states import State

_HANDLED = frozenset({CallStarted, ArgumentsDelta, CallFinished, AnswerFinished, AnswerFailed})


def can_relay(request: Request, options: ToolCallOptions) -> bool:
    """Return whether the request needs no ToolCallSession."""
    if options.emulates_stop and request.sampling.stop:
        return False
    if not options.native:
        return options.scan.reasoning is None and not request.tools and not any(isinstance(item, Call) for item in request.items)
    if not request.tools and not options.scans_reasoning:
        return True
    if (request.sampling.n or 1) > 1 or request.sampling.logprobs:
        return True
    if (request.tool_choice or ToolChoice()).mode != "auto" or request.parallel_tool_calls is False:
        return False
    if options.scans_text or options.scans_reasoning or options.whole_calls or options.on_bad_call != "pass":
        return False
    return options.accepts_any_name or ToolNames(tool.name for tool in request.functions()).are_unchanged


class RelaySession:
    """The interface of ToolCallSession. Calls that break a rule are dropped; `n` > 1 is possible."""

    rejected_for = ""
    printed = ""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.state = State.READING
        self._rules: CallRules | None = None  # made with the first call: most answers have none
        self._dropped: set[tuple[int, int]] = set()

    def feed(self, events: Sequence[StreamEvent]) -> Sequence[StreamEvent]:
        if _HANDLED.isdisjoint(map(type, events)):
            return events
        out: list[StreamEvent] = []
        for event in events:
            if type(event) not in _HANDLED:
                out.append(event)
            elif type(event) is CallStarted:
                self._start_call(event, out)
            elif type(event) is ArgumentsDelta or type(event) is CallFinished:
                if (event.choice, event.index) not in self._dropped:
                    out.append(event)
            else:
                out.append(event)
                self.state = State.ENDED
                break
        return out

    def _start_call(self, event: CallStarted, out: list[StreamEvent]) -> None:
        if self._rules is None:
            self._rules = CallRules(self.request)
        if self._rules.admit(event, out):
            self._dropped.discard((event.choice, event.index))
            out.append(event)
        else:
            self._dropped.add((event.choice, event.index))
