"""The writer of an answer's events: it numbers calls, applies the request's rules, and withholds text."""

from __future__ import annotations

from itertools import groupby

from msgspec.structs import replace

from toolrelay.core.events import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    MessageStarted,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.toolcalls.limits import MAX_BLANKS, CallRules


class AnswerWriter:
    """Append events to `out`. `started` and `finished` count calls, including those dropped by a rule; `admitted` does not.

    Blank text before a call is dropped: clients take it for the answer. So blanks are held until other text follows. Blanks at
    the beginning of reasoning are held, too: a model that does not think prints an empty block.
    """

    def __init__(self, rules: CallRules) -> None:
        self.out: list[StreamEvent] = []
        self.started = 0
        self.admitted = 0
        self.finished = 0
        self._rules = rules
        self._dropped: set[int] = set()
        self._withheld: list[str | MessageStarted] = []
        self._reasoning_size = 0  # of what is withheld, the number of pieces that are reasoning if anything follows them
        self._withheld_reasoning: list[str] = []
        self._blanks = ""
        self._in_text = False  # other text than blanks was written since the last call
        self._blank_reasoning = ""
        self._in_reasoning = False

    # Text

    def write_text(self, event: TextDelta) -> None:
        if not self._in_text:
            text = self._blanks + event.text
            if len(text) <= MAX_BLANKS and text.isspace() and event.logprobs is None:
                self._blanks = text
                return
            event = replace(event, text=text) if self._blanks else event
            self._blanks, self._in_text = "", True
        self.out.append(event)

    def write_reasoning(self, event: ReasoningDelta) -> None:
        if not self._in_reasoning:
            text = self._blank_reasoning + event.text
            if len(text) <= MAX_BLANKS and text.isspace():
                self._blank_reasoning = text
                return
            event = replace(event, text=text) if self._blank_reasoning else event
            self._in_reasoning = True
        self.out.append(event)

    def release_blanks(self) -> None:
        if self._blanks:
            self.out.append(TextDelta(self._blanks))
            self._blanks, self._in_text = "", True

    def withhold(self, text: str) -> None:
        """Hold text back until a call shows that the answer is usable."""
        self._withheld.append(text)

    def start_message(self, event: MessageStarted) -> None:
        """Begin another message, behind the text that is held back."""
        if self._withheld:
            self._withheld.append(event)
        else:
            self.release_blanks()
            self.out.append(event)

    def close_reasoning(self) -> None:
        """Take the text that is withheld for reasoning. It stays text if nothing follows it."""
        self._reasoning_size = len(self._withheld)

    def discard_withheld(self) -> None:
        self._withheld = []
        self._reasoning_size = 0
        self._blanks = ""

    def release_withheld(self, *, before_call: bool = False) -> None:
        held, self._withheld = self._withheld, []
        size, self._reasoning_size = self._reasoning_size, 0
        if size and (before_call or any(isinstance(each, str) and each.strip() for each in held[size:])):
            self.write_reasoning(ReasoningDelta("".join(each for each in held[:size] if isinstance(each, str))))
            held = held[size:]
        for is_text, group in groupby(held, lambda each: isinstance(each, str)):
            if is_text:
                self.write_text(TextDelta("".join(map(str, group))))
            else:
                self.release_blanks()
                self.out += (each for each in group if not isinstance(each, str))

    @property
    def withholds_reasoning(self) -> bool:
        return bool(self._withheld_reasoning)

    def withhold_reasoning(self, text: str) -> None:
        """Hold reasoning back that may turn out to be the answer."""
        self._withheld_reasoning.append(text)

    def discard_reasoning(self) -> None:
        self._withheld_reasoning = []
        self._blank_reasoning = ""

    def release_reasoning(self) -> None:
        if self._withheld_reasoning:
            text = "".join(self._withheld_reasoning)
            self._withheld_reasoning = []
            self.write_reasoning(ReasoningDelta(text))

    def finish(self) -> None:
        """Write what is held at the end of the answer. Blanks beside calls are no text."""
        self.release_reasoning()
        self.release_withheld()
        if not self.admitted:
            self.release_blanks()

    # Calls

    def start_call(self, start: CallStarted) -> int:
        """Return the call's index in the answer."""
        index = self.started
        self.started += 1
        notices: list[StreamEvent] = []
        if self._rules.admit(start, notices):
            self.admitted += 1
            self.release_reasoning()
            self.release_withheld(before_call=True)
            self._blanks, self._in_text = "", False
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
