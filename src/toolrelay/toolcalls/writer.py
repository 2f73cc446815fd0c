"""The writer of an answer's events: it numbers calls, applies the request's rules, and withholds text."""

from __future__ import annotations

from msgspec.structs import replace

from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, StreamEvent, TextDelta
from toolrelay.toolcalls.limits import CallRules


class AnswerWriter:
    """Append events to `out`. `started` and `finished` count calls, including those dropped by a rule; `admitted` does not."""

    def __init__(self, rules: CallRules) -> None:
        self.out: list[StreamEvent] = []
        self.started = 0
        self.admitted = 0
        self.finished = 0
        self._rules = rules
        self._dropped: set[int] = set()
        self._withheld: list[str] = []

    def withhold(self, text: str) -> None:
        """Hold text back until a call shows that the answer is usable."""
        self._withheld.append(text)

    def discard_withheld(self) -> None:
        self._withheld = []

    def release_withheld(self) -> None:
        if self._withheld:
            self.out.append(TextDelta("".join(self._withheld)))
            self._withheld = []

    def start_call(self, start: CallStarted) -> int:
        """Return the call's index in the answer."""
        index = self.started
        self.started += 1
        notices: list[StreamEvent] = []
        if self._rules.admit(start, notices):
            self.admitted += 1
            self.release_withheld()
            self.out += [*notices, replace(start, index=index)]
        else:
            self.out += notices
            self._dropped.add(index)
        return index

    def add_arguments(self, index: int, text: str) -> None:
        if index not in self._dropped:
            self.out.append(ArgumentsDelta(index, text))

    def finish_call(self, index: int) -> None:
        if index not in self._dropped:
            self.out.append(CallFinished(index))
        self.finished += 1
