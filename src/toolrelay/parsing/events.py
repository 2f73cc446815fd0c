"""Events of the scanner: those of the stream, broken and repaired calls, calls as they were printed, the end of reasoning."""

from __future__ import annotations

from msgspec import Struct

from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, StreamEvent


class CallBroken(Struct, frozen=True, kw_only=True):
    """A call that could not be parsed. `rule`: the reason; `text`: its text.

    `index`: the call's index if it had started; its arguments so far have been emitted.
    """

    rule: str
    text: str
    index: int | None = None


class CallRepaired(Struct, frozen=True):
    """The arguments of the call with that index were invalid JSON. Its end follows."""

    index: int


class CallPrinted(Struct, frozen=True):
    """The text of the call that was finished last, with the marks around it."""

    text: str


class ReasoningClosed(Struct, frozen=True):
    """The end tag of reasoning came without its start tag: the text so far was reasoning."""


ScannerEvent = StreamEvent | CallBroken | CallRepaired | CallPrinted | ReasoningClosed


class EventBuffer:
    """Buffer of the events of a chunk. Arguments between two other events are joined into one delta."""

    def __init__(self) -> None:
        self._events: list[ScannerEvent] = []
        self._arguments: list[str] = []
        self._has_arguments = False
        self._calls = 0
        self._open_call: int | None = None
        self.arguments = self._arguments.append

    def add(self, event: ScannerEvent) -> None:
        if self._arguments:
            self._flush_arguments()
        self._events.append(event)

    def start(self, name: str) -> None:
        self.add(CallStarted(self._calls, name))
        self._open_call = self._calls
        self._calls += 1
        self._has_arguments = False

    def finish(self, *, repaired: bool = False) -> None:
        self._flush_arguments()
        if not self._has_arguments:
            self._arguments.append("{}")
        if self._open_call is not None:
            if repaired:
                self.add(CallRepaired(self._open_call))
            self.add(CallFinished(self._open_call))
            self._open_call = None

    def broken(self, rule: str, text: str) -> None:
        self.add(CallBroken(rule=rule, text=text, index=self._open_call))
        self._open_call = None

    def drain(self) -> list[ScannerEvent]:
        if self._arguments:
            self._flush_arguments()
        events, self._events = self._events, []
        return events

    def _flush_arguments(self) -> None:
        text = "".join(self._arguments)
        self._arguments.clear()
        if text and self._open_call is not None:
            self._has_arguments = self._has_arguments or not text.isspace()
            self._events.append(ArgumentsDelta(self._open_call, text))
