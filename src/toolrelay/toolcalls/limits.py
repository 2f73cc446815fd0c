"""Limits on an answer: the request's rules for its calls, stop sequences, and maxima for calls and blanks."""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.events import CallStarted, Noticed, StreamEvent
from toolrelay.core.request import Request

MAX_CALLS = 128  # in one answer, bad ones included
MAX_BLANKS = 1024  # characters after a call
UNKNOWN_TOOL = "unknown_tool"


class CallRules:
    """Apply tool_choice and parallel_tool_calls to the calls of one answer."""

    def __init__(self, request: Request) -> None:
        self._choice = request.tool_choice
        self._single = request.parallel_tool_calls is False
        self._declared = frozenset([tool.name for tool in request.functions()])
        self._choices_with_call: set[int] = set()  # choices with a call

    def admit(self, start: CallStarted, out: list[StreamEvent]) -> bool:
        """Return whether the call may be emitted, and add a notice to `out` if it breaks a rule.

        A call of an unknown tool is admitted with a notice: the client may know the tool.
        """
        rule = self._find_broken_rule(start)
        if rule is None:
            self._choices_with_call.add(start.choice)
            if start.namespace is not None or start.name in self._declared:
                return True
        out.append(Noticed(event="tool_block", rule=rule or UNKNOWN_TOOL, tool=start.name))
        return rule is None

    def _find_broken_rule(self, start: CallStarted) -> str | None:
        choice = self._choice
        if choice is not None and choice.mode == "none":
            return "tool_choice_none"
        is_hosted = start.namespace is not None and choice is not None and choice.raw is not None  # its server knows the choice
        if choice is not None and not is_hosted and not choice.allows(start.kind, start.name):
            return "not_the_named_tool" if choice.mode == "named" else "not_in_allowed_tools"
        if self._single and start.choice in self._choices_with_call:
            return "parallel_tool_calls_false"
        return None


class OutputLimiter:
    """Count the printed calls of one answer and the blanks after them."""

    def __init__(self) -> None:
        self._calls = 0
        self._blanks = 0

    def count_call(self) -> bool:
        """Return whether this call is one too many."""
        self._calls += 1
        self._blanks = 0
        return self._calls > MAX_CALLS

    def check_text(self, text: str) -> str:
        """Return the rule by which text after the calls is cut, or "" while it may only separate two calls."""
        self._blanks += len(text) - len(text.lstrip())
        if self._blanks > MAX_BLANKS:
            return "blanks_after_calls"
        return "" if text.isspace() else "text_after_calls"


class StopFilter:
    """Pass text on up to the first stop sequence, for servers that do not support them. Chunking does not matter.

    `hit`: a sequence was found; no more text comes out. The possible beginning of a sequence is held back.
    """

    def __init__(self, sequences: Sequence[str]) -> None:
        self.hit = False
        self._sequences = sequences
        self._max_length = max(map(len, sequences))
        self._held = ""

    def feed(self, text: str) -> str:
        if self.hit:
            return ""
        text = self._held + text
        found = [at for at in map(text.find, self._sequences) if at >= 0]
        if found:
            self.hit = True
            self._held = ""
            return text[: min(found)]
        sizes = range(min(self._max_length - 1, len(text)), 0, -1)
        kept = next((size for size in sizes if self._is_prefix(text[-size:])), 0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def _is_prefix(self, text: str) -> bool:
        return any(sequence.startswith(text) for sequence in self._sequences)

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


def make_stop_filter(stop: str | Sequence[str] | None) -> StopFilter | None:
    sequences = [sequence for sequence in ([stop] if isinstance(stop, str) else stop or ()) if sequence]
    return StopFilter(sequences) if sequences else None
