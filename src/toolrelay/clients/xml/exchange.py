"""A client that knows calls only as `<use_tool>` blocks: which requests are of one, and the sink that stands before its own.

What is read and written is decided in dialects/_xml_history and dialects/_xml_answer; here are the waiting and the report_to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping

from msgspec import Struct, structs

from toolrelay.clients.xml.answer import Order, XmlAnswer
from toolrelay.clients.xml.history import as_spoken, expects_blocks
from toolrelay.clients.xml.watchdog import ResultWatchdog
from toolrelay.core.commands import Notice
from toolrelay.core.events import AnswerFinished, Noticed, StreamEvent, TextDelta
from toolrelay.core.request import Request
from toolrelay.errors import invalid
from toolrelay.runtime.driver import Observer, Sink
from toolrelay.settings import ModelSettings

CLIENT_HEADER = b"x-toolrelay-client"
REEMIT_HEADER = b"x-toolrelay-reemit"
_STYLES = ("openai", "use_tool")


class XmlClientOptions(Struct, frozen=True, kw_only=True):
    """How this client is to be answered. `reemit`: once more, if nothing came of it, in the stream that is kept open for it."""

    order: Order = "tools_first"
    no_result_seconds: float = 0
    reemit: bool = False


def xml_client_options(settings: ModelSettings, headers: Mapping[bytes, bytes]) -> XmlClientOptions | None:
    """None: a client like any other. The header stands above the model's setting; names of headers are in lower case."""
    said = headers.get(CLIENT_HEADER, b"").decode(errors="replace").strip().lower()
    if said and said not in _STYLES:
        name = CLIENT_HEADER.decode()
        raise invalid(f"{name} is {said!r}; it can be {' or '.join(_STYLES)}.", name)
    if (said or settings.client_style) != "use_tool":
        return None
    return XmlClientOptions(
        order=settings.use_tool_order,
        no_result_seconds=settings.no_result_seconds,
        reemit=headers.get(REEMIT_HEADER, b"").strip() == b"1",
    )


class XmlExchange:
    """One request of such a client and its answer. `request` is what the model is to be asked."""

    def __init__(self, came: Request, wish: XmlClientOptions, guard: ResultWatchdog | None = None) -> None:
        spoken = as_spoken(came)
        self.request = spoken.request
        self._notices = spoken.notices
        self._came = came
        self._wish = wish
        self._guard = guard
        if guard is not None:
            guard.saw(came)

    def sink(self, sink: Sink, observer: Observer, *, turn: str) -> Sink:
        """What the turn's events go to, in place of the sink that writes them."""
        _tell(self._notices, observer)
        answer = XmlAnswer(order=self._wish.order, holds=expects_blocks(self._came))
        return _XmlSink(sink, observer, answer, self._ended(turn))

    def _ended(self, turn: str) -> _Ended | None:
        guard, wish = self._guard, self._wish
        if guard is None or not wish.no_result_seconds:
            return None
        return _Ended(guard, self._came, turn, wish.no_result_seconds, keeps_open=wish.reemit and self._came.stream)


class _Ended:
    """What happens once an answer with blocks has come to its end."""

    def __init__(self, guard: ResultWatchdog, came: Request, turn: str, seconds: float, *, keeps_open: bool) -> None:
        self._guard = guard
        self._came = came
        self._turn = turn
        self._seconds = seconds
        self.keeps_open = keeps_open

    def watch(self, answer: XmlAnswer) -> asyncio.Future[bool]:
        return self._guard.expect(self._came, answer.blocks, turn=self._turn, seconds=self._seconds)


class _XmlSink:
    def __init__(self, sink: Sink, observer: Observer, answer: XmlAnswer, ended: _Ended | None) -> None:
        self._sink = sink
        self._observer = observer
        self._answer = answer
        self._ended = ended

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        made = self._answer.put(events)
        said: list[StreamEvent] = [event for event in made if not isinstance(event, Noticed)]
        if len(said) != len(made):
            _tell((event for event in made if isinstance(event, Noticed)), self._observer)
        if not said:
            return None
        if self._ended is None or not isinstance(said[-1], AnswerFinished) or not self._answer.blocks:
            return self._sink.put(said)
        if self._ended.keeps_open:
            return self._keep_open(said, self._ended)
        self._ended.watch(self._answer)
        return self._sink.put(said)

    async def _keep_open(self, said: list[StreamEvent], ended: _Ended) -> None:
        """The answer's end waits for the client's results, and for nothing longer than the time set for them."""
        results = ended.watch(self._answer)  # before anything is written: a client may be that quick
        *before, last = said
        if before:
            await _put(self._sink, before)
        if not await results:
            self._observer.notice(Notice(event="tool_block", rule="reemitted", dialect="use_tool"))
            await _put(self._sink, [TextDelta(self._answer.blocks[0])])
        await _put(self._sink, [last])


async def _put(sink: Sink, events: list[StreamEvent]) -> None:
    full = sink.put(events)
    if full is not None:
        await full


def _tell(notices: Iterable[Noticed], observer: Observer) -> None:
    for notice in notices:
        observer.notice(Notice(**structs.asdict(notice)))
