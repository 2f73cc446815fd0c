"""One exchange with an XML client: who is one, the request for the model, and the sink for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct, structs

from toolrelay.clients.xml.answer import BlockOrder, XmlAnswerEncoder
from toolrelay.clients.xml.history import decode_history, may_print_blocks
from toolrelay.clients.xml.result_limits import truncate_printed_results
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
    """`reemit`: keep the stream open for `no_result_seconds`, and send the first block again if no results came.

    `max_result_bytes` is for results that stay text.
    """

    order: BlockOrder = "tools_first"
    no_result_seconds: float = 0
    reemit: bool = False
    max_result_bytes: int = 262144


def xml_client_options(settings: ModelSettings, headers: Mapping[bytes, bytes]) -> XmlClientOptions | None:
    """Return None for other clients. The header overrides the model's setting; header names are in lower case."""
    style = headers.get(CLIENT_HEADER, b"").decode(errors="replace").strip().lower()
    if style and style not in _STYLES:
        name = CLIENT_HEADER.decode()
        raise invalid(f"{name} is {style!r}; it can be {' or '.join(_STYLES)}.", name)
    if (style or settings.client_style) != "use_tool":
        return None
    return XmlClientOptions(
        order=settings.use_tool_order,
        no_result_seconds=settings.no_result_seconds,
        reemit=headers.get(REEMIT_HEADER, b"").strip() == b"1",
        max_result_bytes=settings.max_tool_result_bytes,
    )


class XmlExchange:
    """`request` is the one for the model."""

    def __init__(self, received: Request, options: XmlClientOptions, watchdog: ResultWatchdog | None = None) -> None:
        decoded, self._notices = decode_history(received)
        items = truncate_printed_results(decoded.items, options.max_result_bytes)
        self.request = structs.replace(decoded, items=items, reads_blocks=True)
        self._received = received
        self._options = options
        self._watchdog = watchdog
        if watchdog is not None:
            watchdog.observe(received)

    def sink(self, sink: Sink, observer: Observer, *, turn: str) -> Sink:
        """Return a sink that encodes the turn's events before it passes them on."""
        _report(self._notices, observer)
        options, expect = self._options, None
        if self._watchdog is not None and options.no_result_seconds:
            expect = partial(self._watchdog.expect, self._received, turn=turn, seconds=options.no_result_seconds)
        encoder = XmlAnswerEncoder(order=options.order, may_have_blocks=may_print_blocks(self._received))
        return _XmlSink(sink, observer, encoder, expect, keeps_open=options.reemit and self._received.stream)


class _XmlSink:
    """`expect`: starts to wait for the results of blocks. `keeps_open`: the answer's end waits for them, too."""

    def __init__(
        self,
        sink: Sink,
        observer: Observer,
        encoder: XmlAnswerEncoder,
        expect: Callable[[Sequence[str]], asyncio.Future[bool]] | None,
        *,
        keeps_open: bool,
    ) -> None:
        self._sink = sink
        self._observer = observer
        self._encoder = encoder
        self._expect = expect
        self._keeps_open = keeps_open

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        encoded = self._encoder.encode(events)
        _report((event for event in encoded if isinstance(event, Noticed)), self._observer)
        encoded = [event for event in encoded if not isinstance(event, Noticed)]
        if not encoded:
            return None
        if self._expect is not None and isinstance(encoded[-1], AnswerFinished) and self._encoder.blocks:
            results = self._expect(self._encoder.blocks)  # before anything is written: the client may be fast
            if self._keeps_open:
                return self._put_and_keep_open(encoded, results)
        return self._sink.put(encoded)

    async def _put_and_keep_open(self, events: list[StreamEvent], results: asyncio.Future[bool]) -> None:
        await self._put_now(events[:-1])
        if not await results:
            self._observer.notice(Notice(event="tool_block", rule="reemitted", dialect="use_tool"))
            await self._put_now([TextDelta(self._encoder.blocks[0])])
        await self._put_now(events[-1:])

    async def _put_now(self, events: list[StreamEvent]) -> None:
        waiting = self._sink.put(events) if events else None
        if waiting is not None:
            await waiting


def _report(notices: Iterable[Noticed], observer: Observer) -> None:
    for notice in notices:
        observer.notice(Notice(**structs.asdict(notice)))
