"""The no-result guard: did an XML client run what it was sent? Its next request says so, if there is one.

A client of that kind has no ids, so its next request is known by its history: the same key, the same words up to our answer,
and in that answer the same blocks. (The client may have cut our narrative; blocks it leaves as they are. System text does not
count, as some clients write the time into it.) A result must stand in the message after it: a question in its place means that
the client did not run anything.

    Awaited   what is waited for, and since when; the time is handed in
    ResultWatchdog     the same with a clock and a timer
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from msgspec import Struct

from toolrelay import log
from toolrelay.clients.xml.answer import tool_of
from toolrelay.clients.xml.history import BLOCK, result_names
from toolrelay.core.messages import Call, Item, Message, Result, plain_text
from toolrelay.core.request import Request
from toolrelay.runtime.telemetry import Metrics


def mark(key: str | None, items: Sequence[Item], blocks: Iterable[str]) -> bytes:
    """What a request with that history, answered with these blocks, has in common with the next one of its conversation."""
    digest = sha256()
    for text in (key or "", *_said(items), "blocks", *blocks):
        data = text.encode(errors="surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()


def _said(items: Sequence[Item]) -> Iterable[str]:
    for item in items:
        match item:
            case Message(role="user" | "assistant"):
                yield item.role
                yield plain_text(item.content)
            case Call():
                yield item.arguments
            case Result():
                yield plain_text(item.output)
            case _:
                pass


class Continued(Struct, frozen=True, kw_only=True):
    """A request that goes on after blocks of ours. `ran`: it brings results."""

    mark: bytes
    ran: bool


def continued(request: Request) -> Continued | None:
    """What the request, as the client sent it, has to say of the blocks in its last answer."""
    items = request.items
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if isinstance(item, Message) and item.role == "assistant":
            blocks = [match.group() for match in BLOCK.finditer(plain_text(item.content)) if tool_of(match.group())]
            if not blocks:
                return None
            ran = any(isinstance(later, Message) and result_names(plain_text(later.content)) for later in items[place + 1 :])
            return Continued(mark=mark(request.key, items[:place], blocks), ran=ran)
    return None


class Expectation(Struct, frozen=True, kw_only=True):
    """Blocks have gone out in that turn. `since` and `due` are seconds of the same clock."""

    mark: bytes
    turn: str
    model: str
    tools: tuple[str, ...]
    since: float
    due: float


class Waited(Struct, frozen=True, kw_only=True):
    """How a wait ended: `ran`: with results."""

    expectation: Expectation
    seconds: float
    ran: bool


class Awaited:
    """Of several waits that look alike the oldest is answered first."""

    def __init__(self) -> None:
        self._open: dict[bytes, deque[Expectation]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def expect(self, expectation: Expectation) -> None:
        self._open.setdefault(expectation.mark, deque()).append(expectation)

    def answer(self, request: Continued, now: float) -> Waited | None:
        waiting = self._open.get(request.mark)
        if not waiting:
            return None
        found = waiting.popleft()
        if not waiting:
            del self._open[request.mark]
        return Waited(expectation=found, seconds=now - found.since, ran=request.ran)

    def overdue(self, now: float) -> list[Waited]:
        late = [each for waiting in self._open.values() for each in waiting if each.due <= now]
        for each in late:
            self.forget(each)
        return [Waited(expectation=each, seconds=now - each.since, ran=False) for each in late]

    def forget(self, expectation: Expectation) -> None:
        waiting = self._open.get(expectation.mark)
        if waiting and expectation in waiting:
            waiting.remove(expectation)
            if not waiting:
                del self._open[expectation.mark]

    def next_due(self) -> float | None:
        return min((each.due for waiting in self._open.values() for each in waiting), default=None)


class ResultWatchdog:
    """`report` is told how each wait ended."""

    def __init__(self, report: Callable[[Waited], None], clock: Callable[[], float] | None = None) -> None:
        self._report = report
        self._clock = clock
        self._awaited = Awaited()
        self._ends: dict[str, asyncio.Future[bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def _now(self) -> float:
        return self._clock() if self._clock is not None else asyncio.get_running_loop().time()

    def saw(self, request: Request) -> None:
        """A request of an XML client, as it came."""
        if not len(self._awaited):
            return
        found = continued(request)
        ended = self._awaited.answer(found, self._now()) if found is not None else None
        if ended is not None:
            self._end(ended)

    def expect(self, request: Request, blocks: Sequence[str], *, turn: str, seconds: float) -> asyncio.Future[bool]:
        """Waits for what comes of the blocks. The future says whether results came in time."""
        now = self._now()
        tools = tuple(tool_of(block) for block in blocks)
        due = now + seconds
        common = mark(request.key, request.items, blocks)
        self._awaited.expect(Expectation(mark=common, turn=turn, model=request.model, tools=tools, since=now, due=due))
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ends[turn] = end
        self._set_timer()
        return end

    def look(self) -> None:
        """Reports what is overdue by now."""
        for ended in self._awaited.overdue(self._now()):
            self._end(ended)
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self.close()
        due = self._awaited.next_due()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - self._now()), self.look)

    def _end(self, ended: Waited) -> None:
        self._report(ended)
        end = self._ends.pop(ended.expectation.turn, None)
        if end is not None and not end.done():
            end.set_result(ended.ran)


def report_to(metrics: Metrics) -> Callable[[Waited], None]:
    """A line in the log for each wait, a warning where nothing came, and figures."""

    def tell(ended: Waited) -> None:
        expected = ended.expectation
        figures = metrics.model(expected.model)
        say = log.info if ended.ran else log.warning
        say(
            "tool_result" if ended.ran else "no_result",
            turn=expected.turn,
            model=expected.model,
            tools=list(expected.tools),
            seconds=round(ended.seconds, 3),
        )
        if ended.ran:
            figures.waits.add(ended.seconds)
        else:
            figures.no_results += 1

    return tell
