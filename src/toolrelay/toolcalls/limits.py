"""Limits on an answer: the request's rules for its calls, stop sequences, and maxima for calls and blanks."""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.events import CallStarted, Noticed, StreamEvent
from toolrelay.core.request import Request
from toolrelay.errors import invalid

MAX_CALLS = 128  # in one answer, bad ones included
MAX_BLANKS = 1024  # characters after a call
MAX_STOPS = 64  # emulated stop sequences; OpenAI takes 4
MAX_STOP_SIZE = 65536  # characters of them
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


class _StopSequence:
    """One sequence, looked for as text arrives (Knuth, Morris, Pratt): the time is linear in the text, whatever the sequence.

    `matched`: so many characters at the end of the text so far are the beginning of the sequence.
    """

    def __init__(self, sequence: str) -> None:
        self.sequence = sequence
        self.matched = 0
        self._borders = [0] * len(sequence)  # of each prefix, the longest that is also its end
        for at in range(1, len(sequence)):
            self._borders[at] = self._extend(self._borders[at - 1], sequence[at])

    def _extend(self, matched: int, character: str) -> int:
        while matched and self.sequence[matched] != character:
            matched = self._borders[matched - 1]
        return matched + (self.sequence[matched] == character)

    def feed(self, text: str) -> int:
        """Return where the sequence ends in the text, or -1."""
        at, matched, first = 0, self.matched, self.sequence[0]
        while at < len(text):
            if not matched and (at := text.find(first, at)) < 0:
                break
            matched = self._extend(matched, text[at])
            at += 1
            if matched == len(self.sequence):
                return at
        self.matched = matched
        return -1


class StopFilter:
    """Pass text on up to the first stop sequence, for servers that do not support them. Chunking does not matter.

    `hit`: a sequence was found, which is `found`; no more text comes out. The possible beginning of a sequence is held back.
    """

    def __init__(self, sequences: Sequence[str]) -> None:
        self.hit = False
        self.found = ""
        self._sequences = [_StopSequence(sequence) for sequence in sequences]
        self._held = ""

    def feed(self, text: str) -> str:
        if self.hit:
            return ""
        before = len(self._held)
        ends = [(end, -len(each.sequence)) for each in self._sequences if (end := each.feed(text)) >= 0]
        text = self._held + text
        if ends:
            self.hit = True
            self._held = ""
            end, length = min(ends)
            self.found = text[before + end + length : before + end]
            return text[: before + end + length]
        kept = max(each.matched for each in self._sequences)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def flush(self) -> str:
        held, self._held = self._held, ""
        for each in self._sequences:
            each.matched = 0
        return held


def make_stop_filter(stop: str | Sequence[str] | None) -> StopFilter | None:
    sequences = [sequence for sequence in ([stop] if isinstance(stop, str) else stop or ()) if sequence]
    if len(sequences) > MAX_STOPS or sum(map(len, sequences)) > MAX_STOP_SIZE:
        raise invalid(f"stop may have at most {MAX_STOPS} sequences, of {MAX_STOP_SIZE} characters together.", "stop")
    return StopFilter(sequences) if sequences else None
