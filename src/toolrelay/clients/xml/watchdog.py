"""A watchdog that reports whether XML clients ran the blocks that they were sent.

Such a client sends no call ids. Its next request is recognised by its history: the same key, the same conversation up to our
answer, and the same blocks in that answer. Other text of the answer is ignored, as the client may have shortened it; so is
system text, as some clients put the time there. Results must follow the answer: a question in their place means that nothing
was run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct

from toolrelay import log
from toolrelay.clients.xml.answer import tool_name
from toolrelay.clients.xml.history import BLOCK, has_results
from toolrelay.core.messages import Call, Item, Message, Result, plain_text
from toolrelay.core.request import Request
from toolrelay.runtime.telemetry import Metrics


def fingerprint(key: str | None, items: Sequence[Item], blocks: Iterable[str]) -> bytes:
    """Identify an answer by the conversation before it and its blocks."""
    digest = sha256()
    for text in (key or "", *_texts(items), "blocks", *blocks):
        data = text.encode(errors="surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()


def _texts(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        match item:
            case Message(role="user" | "assistant"):
                yield item.role
                yield plain_text(item.content)
            case Call():
                yield item.arguments
            case Result():
                yield plain_text(item.output)


class FollowUp(Struct, frozen=True, kw_only=True):
    """A request that follows an answer with blocks."""

    fingerprint: bytes
    has_results: bool


def find_follow_up(request: Request) -> FollowUp | None:
    """Return what a request, as the client sent it, shows of the blocks in its last answer; None if it has no blocks."""
    items = request.items
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if isinstance(item, Message) and item.role == "assistant":
            blocks = [match.group() for match in BLOCK.finditer(plain_text(item.content)) if tool_name(match.group())]
            if not blocks:
                return None
            ran = any(isinstance(later, Message) and has_results(plain_text(later.content)) for later in items[place + 1 :])
            return FollowUp(fingerprint=fingerprint(request.key, items[:place], blocks), has_results=ran)
    return None


class _Wait(Struct, frozen=True, kw_only=True, eq=False):
    fingerprint: bytes
    turn: str
    model: str
    tools: list[str]
    started: float
    future: asyncio.Future[bool]


class ResultWatchdog:
    """Waits for the results of blocks. Each wait ends in a log line (`tool_result` or `no_result`) and a metric."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._waits: dict[_Wait, asyncio.TimerHandle] = {}  # the oldest first

    def observe(self, request: Request) -> None:
        """End the oldest wait that this request of an XML client follows."""
        found = find_follow_up(request) if self._waits else None
        if found is None:
            return
        wait = next((wait for wait in self._waits if wait.fingerprint == found.fingerprint), None)
        if wait is not None:
            self._end(wait, ran=found.has_results)

    def expect(self, request: Request, blocks: Sequence[str], *, turn: str, seconds: float) -> asyncio.Future[bool]:
        """Return a future of whether results of the blocks come in time."""
        loop = asyncio.get_running_loop()
        wait = _Wait(
            fingerprint=fingerprint(request.key, request.items, blocks),
            turn=turn,
            model=request.model,
            tools=[tool_name(block) for block in blocks],
            started=loop.time(),
            future=loop.create_future(),
        )
        self._waits[wait] = loop.call_later(seconds, lambda: self._end(wait, ran=False))
        return wait.future

    def close(self) -> None:
        for timer in self._waits.values():
            timer.cancel()
        self._waits.clear()

    def _end(self, wait: _Wait, *, ran: bool) -> None:
        self._waits.pop(wait).cancel()
        seconds = asyncio.get_running_loop().time() - wait.started
        write, event = (log.info, "tool_result") if ran else (log.warning, "no_result")
        write(event, turn=wait.turn, model=wait.model, tools=wait.tools, seconds=round(seconds, 3))
        metrics = self._metrics.model(wait.model)
        if ran:
            metrics.result_wait_seconds.add(seconds)
        else:
            metrics.no_results += 1
        if not wait.future.done():
            wait.future.set_result(ran)
