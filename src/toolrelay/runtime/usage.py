"""Usage by minute, model and key: counted when a turn ends, written to the store by a timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from toolrelay import log
from toolrelay.core.events import MAX_TOKENS, Usage, limit_tokens
from toolrelay.core.latencies import LatencyCounter
from toolrelay.errors import StoreError
from toolrelay.stores.usage import UsageRow

WRITE_SECONDS = 60
MAX_ROWS = 10_000  # more, while the store cannot be used, are added up over the minutes


class UsageStore(Protocol):
    """The part of a store that keeps usage. See stores.base.Store."""

    async def add_usage(self, rows: Sequence[UsageRow]) -> None: ...


class _Counts:
    """The figures of a UsageRow, to be added to."""

    __slots__ = ("cached", "denials", "failed", "first", "input", "output", "tool_runs", "turn", "turns")

    def __init__(self) -> None:
        self.turns = self.failed = self.input = self.output = self.cached = self.tool_runs = self.denials = 0
        self.first = LatencyCounter()
        self.turn = LatencyCounter()

    def add_tokens(self, read: int, written: int, cached: int) -> None:
        self.input = min(self.input + limit_tokens(read), MAX_TOKENS)
        self.output = min(self.output + limit_tokens(written), MAX_TOKENS)
        self.cached = min(self.cached + limit_tokens(cached), MAX_TOKENS)


class UsageCounter:
    """Counts turns in the minute in which they end. Rows stay until they are written."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[tuple[int, str, str], _Counts] = {}
        self._is_broken = False
        self._writing = asyncio.Lock()

    def add_turn(
        self,
        model: str,
        owner: str,
        *,
        failed: bool,
        usage: Usage | None,
        tool_runs: int,
        denials: int = 0,
        first_seconds: float | None = None,
        seconds: float | None = None,
    ) -> None:
        """Count a turn that has ended. Its latencies are None if they say nothing: it failed, or went on after a restart."""
        counts = self._find(int(self._clock() // 60), model, owner)
        counts.turns += 1
        counts.failed += failed
        counts.tool_runs += tool_runs
        counts.denials += denials
        if usage is not None:
            counts.add_tokens(usage.input, usage.output, usage.cached or 0)
        if first_seconds is not None:
            counts.first.add(first_seconds)
        if seconds is not None:
            counts.turn.add(seconds)

    def add_part(self, model: str, owner: str, *, tool_runs: int, denials: int) -> None:
        """Count what a turn that goes on after a restart has done so far. The rest of it counts when it ends."""
        if tool_runs or denials:
            counts = self._find(int(self._clock() // 60), model, owner)
            counts.tool_runs += tool_runs
            counts.denials += denials

    def _find(self, minute: int, model: str, owner: str) -> _Counts:
        found = self._counts.get((minute, model, owner))
        if found is None:
            found = self._counts[minute, model, owner] = _Counts()
        return found

    async def write(self, store: UsageStore) -> None:
        """Write what was counted. If the store cannot be used, keep it for the next time and log that once.

        What the store fails at in another way is dropped: it would fail at it again.
        """
        async with self._writing:
            await self._write(store)

    @asynccontextmanager
    async def unwritten(self) -> AsyncGenerator[Sequence[UsageRow], None]:
        """Yield the rows that the store does not have. Nothing is written meanwhile, so that no row is read twice."""
        async with self._writing:
            yield self._rows()

    async def _write(self, store: UsageStore) -> None:
        rows = self._rows()
        self._counts = {}
        if not rows:
            return
        try:
            await store.add_usage(rows)
        except StoreError as error:
            self._put_back(rows)
            if not self._is_broken:
                log.warning("usage_not_written", reason=error.message)
            self._is_broken = True
        except Exception:  # noqa: BLE001 -- a fault in one row must not end the counting
            log.exception("usage_lost", rows=len(rows))
        else:
            self._is_broken = False

    def _rows(self) -> list[UsageRow]:
        return [
            UsageRow(
                minute=minute,
                model=model,
                key=owner,
                turns=each.turns,
                failed=each.failed,
                input=each.input,
                output=each.output,
                cached=each.cached,
                tool_runs=each.tool_runs,
                denials=each.denials,
                first_latencies=each.first.encode(),
                turn_latencies=each.turn.encode(),
            )
            for (minute, model, owner), each in self._counts.items()
        ]

    def _put_back(self, rows: list[UsageRow]) -> None:
        latest = max(row.minute for row in rows) if len(rows) > MAX_ROWS else None
        for row in rows:
            counts = self._find(row.minute if latest is None else latest, row.model, row.key)
            counts.turns += row.turns
            counts.failed += row.failed
            counts.add_tokens(row.input, row.output, row.cached)
            counts.tool_runs += row.tool_runs
            counts.denials += row.denials
            counts.first.add_text(row.first_latencies)
            counts.turn.add_text(row.turn_latencies)


class UsageTimer:
    """Writes usage every minute, and when it is closed."""

    def __init__(
        self, counter: UsageCounter, store: UsageStore, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._counter = counter
        self._store = store
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None
        self._write: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """A write that has begun is finished: it would otherwise be lost, or counted twice."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._write is not None:
            await self._write
        await self._counter.write(self._store)

    async def _run(self) -> None:
        while True:
            await self._sleep(WRITE_SECONDS)
            self._write = asyncio.create_task(self._counter.write(self._store))
            await asyncio.shield(self._write)
