"""Usage by minute, model and key: what is counted, and when it is written."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.durable import Workshop
from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, MODEL, STREAMED, ModelServer, call, configuration, end, error, whole
from tests.raw_client import RawClient
from tests.tool_rounds import Round, play
from tests.upstream import LAST_CHUNK, Upstream, chunk, reply, stream_head
from toolrelay import log
from toolrelay.core.events import MAX_TOKENS, Usage
from toolrelay.core.latencies import Latencies
from toolrelay.runtime.usage import MAX_ROWS, WRITE_SECONDS, UsageCounter, UsageTimer
from toolrelay.runtime.usage_report import UsageReporter
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import Store, open_store
from toolrelay.stores.usage import UsageQuery, UsageRow

CHAT, RESPONSES = CLIENT_APIS["openai_chat"], CLIENT_APIS["openai_responses"]
FIGURES = "model, key, turns, failed, input, output, cached, tool_runs"


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


def recorded(gateway: Gateway) -> list[tuple[object, ...]]:
    """Stop the gateway and return its usage, added up over the minutes."""
    assert gateway.stop() == 0
    sums = ", ".join(f"sum({name})" for name in FIGURES.split(", ")[2:])
    with sqlite3.connect(gateway.data_dir / "toolrelay.db") as database:
        return database.execute(f"SELECT model, key, {sums} FROM usage GROUP BY model, key ORDER BY model, key").fetchall()


def test_plain_relay_is_counted_for_the_local_owner(model_server: ModelServer) -> None:
    model_server.enqueue(STREAMED, whole())
    with running(configuration(model_server)) as gateway:
        for stream in (True, False):
            assert gateway.post(CHAT.path, CHAT.request_body(stream=stream)).status_code == 200
        assert recorded(gateway) == [(MODEL, "local", 2, 0, 14, 6, 0, 0)]


def test_stored_response_and_failed_turn_are_counted(model_server: ModelServer) -> None:
    model_server.enqueue(whole(), error(400))
    with running(configuration(model_server)) as gateway:
        assert gateway.post(RESPONSES.path, RESPONSES.request_body()).status_code == 200
        assert gateway.post(RESPONSES.path, RESPONSES.request_body(store=False)).status_code == 400
        assert recorded(gateway) == [(MODEL, "local", 2, 1, 7, 3, 0, 0)]


def test_refused_request_is_not_counted(model_server: ModelServer) -> None:
    with running(configuration(model_server)) as gateway:
        assert gateway.post(CHAT.path, CHAT.request_body() | {"model": "unknown"}).status_code == 404
        assert recorded(gateway) == []


def test_keys_are_counted_apart(model_server: ModelServer) -> None:
    model_server.enqueue(whole(), whole(), whole())
    keys = "".join(f'[[keys]]\nname = "{name}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n' for name in ("a", "b"))
    with running(configuration(model_server, before=keys)) as gateway:
        for name in ("a", "b", "b"):
            assert gateway.post(CHAT.path, CHAT.request_body(), authorization=f"Bearer {name}").status_code == 200
        assert recorded(gateway) == [(MODEL, "a", 1, 0, 7, 3, 0, 0), (MODEL, "b", 2, 0, 14, 6, 0, 0)]


def test_tool_runs_and_the_tokens_of_all_rounds_are_counted(model_server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "usage_tools.py").write_text(
        'from toolrelay import tool\n\n\n@tool\ndef now() -> str:\n    """Return the time."""\n    return "noon"\n'
    )
    model_server.enqueue(stream_head() + chunk(call("now", "{}") + end("tool_calls")) + LAST_CHUNK, STREAMED)
    toolset = '[toolsets.clock]\nkind = "python"\nmodule = "usage_tools"\napproval = "never"\n'
    config = configuration(model_server, model='toolsets = ["clock"]', before=toolset)
    with running(config, environ={"PYTHONPATH": str(tmp_path)}) as gateway:
        assert CHAT.text(gateway.post(CHAT.path, CHAT.request_body()).json()) == "Hello there"
        assert recorded(gateway) == [(MODEL, "local", 1, 0, 14, 6, 0, 1)]


def play_waiting() -> Upstream:
    """Return a model that runs `wait` in its second answer. Each of three answers has 7 and 3 tokens."""
    rounds = Round(calls=(("once", {"number": 1}),)), Round(calls=(("wait", {}),)), Round(text=("All done.",))
    return Upstream(play(*rounds))


def test_turn_that_goes_on_after_a_restart_is_counted_once(tmp_path: Path) -> None:
    with play_waiting() as upstream:
        workshop = Workshop(tmp_path, upstream)
        with workshop.start() as gateway:
            gateway.post(RESPONSES.path, {"model": MODEL, "input": "Hi", "background": True})
            workshop.await_line("wait")
            gateway.process.send_signal(signal.SIGTERM)
            workshop.await_that(gateway.refuses_connections, str)
            assert recorded(gateway) == [(MODEL, "local", 0, 0, 0, 0, 0, 2)]
            assert (gateway.log().count("turn_suspended"), gateway.log().count("status=")) == (1, 0)
        with workshop.start() as gateway:
            workshop.await_that(lambda: workshop.statuses() == ["finished"], workshop.statuses)
            assert recorded(gateway) == [(MODEL, "local", 1, 0, 21, 9, 0, 2)]


def test_answers_before_the_client_left_are_counted_once(tmp_path: Path) -> None:
    with play_waiting() as upstream:
        workshop = Workshop(tmp_path, upstream)
        with workshop.start() as gateway:
            body = CHAT.request_body(stream=True)
            with RawClient(gateway.port) as client:
                client.post(CHAT.path, body, "idempotency-key: k")
                workshop.await_line("wait")
            workshop.await_that(lambda: workshop.statuses() == ["cancelled"], workshop.statuses)
            content = json.dumps(body).encode()  # as RawClient sends it
            again = httpx.post(gateway.url + CHAT.path, content=content, headers={"idempotency-key": "k"}, timeout=60)
            assert "All done." in again.text
            assert recorded(gateway) == [(MODEL, "local", 2, 1, 21, 9, 0, 2)]


def test_nothing_is_written_to_the_disk_if_nothing_may_be_recorded(model_server: ModelServer) -> None:
    model_server.enqueue(whole())
    with running(configuration(model_server, before='[store]\nrecord = "none"\n')) as gateway:
        assert gateway.post(CHAT.path, CHAT.request_body()).status_code == 200
        assert gateway.stop() == 0
        assert not (gateway.data_dir / "toolrelay.db").exists()


# The counter


class Clock:
    def __init__(self) -> None:
        self.time = 600.0

    def __call__(self) -> float:
        return self.time


def count(counter: UsageCounter, model: str = MODEL, owner: str = "local") -> None:
    counter.add_turn(model, owner, failed=False, usage=Usage(input=3, output=2, cached=1), tool_runs=0)


async def rows(store: Store) -> list[UsageRow]:
    return [msgspec.convert(record, UsageRow) async for record in store.export() if record["type"] == "usage"]


def counted(minute: int, turns: int = 1, model: str = MODEL) -> UsageRow:
    return UsageRow(minute=minute, model=model, key="local", turns=turns, input=3 * turns, output=2 * turns, cached=turns)


def test_turn_counts_in_the_minute_of_its_end(tmp_path: Path) -> None:
    async def story() -> None:
        store, clock = open_store(StoreSettings(), tmp_path), Clock()
        await store.open()
        counter = UsageCounter(clock)
        for clock.time in (600.0, 659.9, 660.0):
            count(counter)
        await counter.write(store)
        await counter.write(store)  # what was written is not written again
        assert await rows(store) == [counted(10, 2), counted(11)]
        await store.close()

    asyncio.run(story())


def test_figures_are_kept_while_the_store_cannot_be_used(tmp_path: Path) -> None:
    async def story() -> None:
        closed, store = open_store(StoreSettings(), tmp_path), open_store(StoreSettings(), tmp_path)
        counter = UsageCounter(Clock())
        for _ in range(3):
            count(counter)
            await counter.write(closed)
        await store.open()
        await counter.write(store)
        assert await rows(store) == [counted(10, 3)]
        await store.close()

    with log.captured() as lines:
        asyncio.run(story())
    assert [line["event"] for line in lines].count("usage_not_written") == 1


def test_minutes_are_added_up_if_the_store_cannot_be_used_for_long(tmp_path: Path) -> None:
    async def story() -> None:
        closed, store = open_store(StoreSettings(), tmp_path), open_store(StoreSettings(), tmp_path)
        clock = Clock()
        counter = UsageCounter(clock)
        for _ in range(MAX_ROWS + 1):
            clock.time += 60
            count(counter)
        await counter.write(closed)
        await store.open()
        await counter.write(store)
        assert await rows(store) == [counted(10 + MAX_ROWS + 1, MAX_ROWS + 1)]
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize(("figure", "kept"), [(2**63, MAX_TOKENS), (10**400, MAX_TOKENS), (-(2**70), 0)])
def test_absurd_figure_is_cut(tmp_path: Path, figure: int, kept: int) -> None:
    async def story() -> None:
        closed, store = open_store(StoreSettings(), tmp_path), open_store(StoreSettings(), tmp_path)
        await store.open()
        counter = UsageCounter(Clock())
        for used in (closed, store, store):
            for _ in range(2):
                counter.add_turn(MODEL, "local", failed=False, usage=Usage(input=figure, output=1, cached=figure), tool_runs=0)
            await counter.write(used)
        assert await rows(store) == [
            UsageRow(minute=10, model=MODEL, key="local", turns=6, input=kept, output=6, cached=kept),
        ]
        await store.close()

    asyncio.run(story())


def test_absurd_figure_of_a_provider_does_not_stop_the_gateway(model_server: ModelServer) -> None:
    body = whole().partition(b"\r\n\r\n")[2].replace(b'"prompt_tokens": 7', b'"prompt_tokens": %d' % (2**64 - 1))
    absurd = reply(body)
    model_server.enqueue(absurd, absurd)
    with running(configuration(model_server)) as gateway:
        for path in (CHAT, RESPONSES):
            assert gateway.post(path.path, path.request_body()).status_code == 200
        ((*_, turns, failed, read, written, _, _),) = recorded(gateway)
        assert (turns, failed, written) == (2, 0, 6)
        assert read in (MAX_TOKENS, 2 * MAX_TOKENS)  # the turns may end in two minutes


def test_denials_and_latencies_are_kept_while_the_store_cannot_be_used(tmp_path: Path) -> None:
    async def story() -> None:
        closed, store = open_store(StoreSettings(), tmp_path), open_store(StoreSettings(), tmp_path)
        await store.open()
        counter = UsageCounter(Clock())
        for used in (closed, store, store):
            counter.add_turn(MODEL, "local", failed=False, usage=None, tool_runs=0, denials=1, first_seconds=0.001, seconds=0.002)
            counter.add_part(MODEL, "local", tool_runs=1, denials=1)
            await counter.write(used)
        (row,) = await rows(store)
        assert (row.turns, row.tool_runs, row.denials) == (3, 3, 6)
        assert (Latencies(row.first_latencies).counts, Latencies(row.turn_latencies).counts) == ({0: 3}, {8: 3})
        await store.close()

    asyncio.run(story())


def test_clock_that_jumps_back_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        store, clock = open_store(StoreSettings(), tmp_path), Clock()
        await store.open()
        counter = UsageCounter(clock)
        for clock.time in (660.0, 600.0, 661.0, 0.0):
            count(counter)
            await counter.write(store)
        assert await rows(store) == [counted(0), counted(10), counted(11, 2)]
        await store.close()

    asyncio.run(story())


def test_row_is_either_in_the_store_or_not_yet_written(tmp_path: Path) -> None:
    """However reads and writes are interleaved, a report has every turn once."""

    async def story() -> None:
        store, counter = open_store(StoreSettings(), tmp_path), UsageCounter(Clock())
        await store.open()
        reporter = UsageReporter(counter, store)
        query = UsageQuery(first=0, end=20, step=1)
        for turns in range(1, 30):
            count(counter)
            writing = [asyncio.create_task(counter.write(store)) for _ in range(turns % 3)]
            reports = await asyncio.gather(*[reporter.report(query) for _ in range(3)])
            assert [report.total.turns for report in reports] == [turns] * 3
            await asyncio.gather(*writing)
        await store.close()

    asyncio.run(story())


def test_report_has_what_a_broken_store_does_not_take(tmp_path: Path) -> None:
    async def story() -> None:
        closed, store = open_store(StoreSettings(), tmp_path), open_store(StoreSettings(), tmp_path)
        await store.open()
        counter = UsageCounter(Clock())
        count(counter)
        await counter.write(closed)
        query = UsageQuery(first=10, end=11, step=1, by="key")
        report = await UsageReporter(counter, store).report(query)
        assert [(group.name, group.total.turns, group.total.input) for group in report.groups] == [("local", 1, 3)]
        assert (report.models, report.keys) == ([MODEL], ["local"])
        for owner, turns in (("local", 1), ("other", 0)):
            assert (await UsageReporter(counter, store).report(query, owner)).total.turns == turns
        await store.close()

    asyncio.run(story())


# The timer


def test_timer_and_its_closing_survive_a_fault_of_the_store(tmp_path: Path) -> None:
    class FaultyStore:
        """Fails in an unforeseen way, the first time and the last time."""

        def __init__(self, store: Store) -> None:
            self.store = store
            self.is_faulty = True

        async def add_usage(self, rows: Sequence[UsageRow]) -> None:
            if self.is_faulty:
                raise OverflowError
            await self.store.add_usage(rows)

    async def story() -> None:
        store, counter = open_store(StoreSettings(), tmp_path), UsageCounter(Clock())
        wakes: asyncio.Queue[None] = asyncio.Queue()
        sleeps: asyncio.Queue[float] = asyncio.Queue()

        async def sleep(seconds: float) -> None:
            sleeps.put_nowait(seconds)
            await wakes.get()

        await store.open()
        faulty = FaultyStore(store)
        timer = UsageTimer(counter, faulty, sleep)
        timer.start()
        await sleeps.get()
        for faulty.is_faulty in (True, False):
            count(counter)
            wakes.put_nowait(None)
            await sleeps.get()
        assert await rows(store) == [counted(10)]  # without the rows that could not be written
        faulty.is_faulty = True
        count(counter)
        await timer.close()
        await store.close()

    with log.captured() as lines:
        asyncio.run(story())
    assert [line["event"] for line in lines].count("usage_lost") == 2


def test_timer_writes_every_minute_and_when_it_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        store, counter = open_store(StoreSettings(), tmp_path), UsageCounter(Clock())
        wakes: asyncio.Queue[None] = asyncio.Queue()
        sleeps: asyncio.Queue[float] = asyncio.Queue()

        async def sleep(seconds: float) -> None:
            sleeps.put_nowait(seconds)
            await wakes.get()

        await store.open()
        timer = UsageTimer(counter, store, sleep)
        timer.start()
        assert await sleeps.get() == WRITE_SECONDS
        count(counter)
        assert await rows(store) == []
        wakes.put_nowait(None)
        await sleeps.get()
        assert await rows(store) == [counted(10)]
        count(counter)
        await timer.close()
        assert await rows(store) == [counted(10, 2)]
        await store.close()

    asyncio.run(story())


def test_write_under_way_is_finished_when_the_timer_is_closed(tmp_path: Path) -> None:
    class SlowStore:
        """Lets the test decide when a write goes on."""

        def __init__(self, store: Store) -> None:
            self.store = store
            self.begun, self.allowed = asyncio.Event(), asyncio.Event()

        async def add_usage(self, rows: Sequence[UsageRow]) -> None:
            self.begun.set()
            await self.allowed.wait()
            await self.store.add_usage(rows)

    async def story() -> None:
        store, counter = open_store(StoreSettings(), tmp_path), UsageCounter(Clock())
        await store.open()
        slow = SlowStore(store)
        count(counter)
        timer = UsageTimer(counter, slow, lambda _: asyncio.sleep(0))
        timer.start()
        await slow.begun.wait()
        closing = asyncio.create_task(timer.close())
        await asyncio.sleep(0)
        slow.allowed.set()
        await closing
        assert await rows(store) == [counted(10)]
        await store.close()

    asyncio.run(story())
