"""Turns in their own tasks, and what becomes of them after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.model_server import MODEL
from tests.runtime.stores import locked, opened
from tests.scripted import scripted
from tests.scripted_backend import ScriptedBackend
from tests.stores.rows import ACCEPTED, ANSWERED, PLANNED, STARTED, conversation, steps, turn
from toolrelay.core.commands import Notice, RecordStep
from toolrelay.core.events import AnswerFailed, AnswerFinished, AnswerStarted, StreamEvent, TextDelta
from toolrelay.core.json import Json
from toolrelay.core.messages import Message, plain_text
from toolrelay.core.request import Request
from toolrelay.core.steps import StepEvent, ToolRunFinished, TurnAccepted, TurnFailed, TurnFinished
from toolrelay.errors import InternalError, StoreError
from toolrelay.runtime.approvals import Approvals
from toolrelay.runtime.frames import FrameLog
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.runtime.service import INTERRUPTED, PLAIN, Observation, TurnOrder, TurnService
from toolrelay.runtime.turns import RunningTurn
from toolrelay.stores.base import Store
from toolrelay.stores.conversations import ConversationItem
from toolrelay.stores.sql.store import SqlStore
from toolrelay.stores.sqlite import SqliteDatabase
from toolrelay.stores.turns import StoredTurn, TurnRow

TOKEN = "a" * 20
REQUEST = Request(wire="openai_responses", model=MODEL, items=(Message(role="user", content="Hi"),), store=True)
BACKGROUND = replace(REQUEST, background=True)
IN_CONVERSATION = replace(REQUEST, conversation="conv_1")
FIRST, SECOND, STOP = TextDelta("Hel"), TextDelta("lo"), AnswerFinished(finish="stop")


class Quiet:
    def mark_first_event(self, now: float) -> None: ...

    def record(self, command: RecordStep) -> None: ...

    def notice(self, command: Notice) -> None: ...


class Reader:
    """A follower. It raises `error`, if there is one, instead of taking events."""

    def __init__(self, error: Exception | None = None) -> None:
        self.events: list[StreamEvent] = []
        self.read = asyncio.Event()
        self._error = error

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        if self._error is not None:
            raise self._error
        self.events += events
        self.read.set()
        return None


class Stage:
    """A service whose model says "Hel", waits for `go`, and says "lo"."""

    def __init__(self, store: Store) -> None:
        self.go = asyncio.Event()
        self.store = store
        self.backend = ScriptedBackend([[AnswerStarted(), FIRST, self.go, SECOND, STOP]])
        app = scripted(self.backend)
        self.service = TurnService(
            store=store,
            record="tools",
            models=app.models,
            tools=app.tools,
            executor=app.executor,
            approvals=Approvals(store, app.tools, entropy=bytes),
        )
        self.model = app.models[MODEL]
        self.ended: list[RunningTurn] = []

    async def start(self, follower: Reader | None, request: Request = REQUEST) -> RunningTurn:
        order = TurnOrder(token=TOKEN, owner="me", request=request, model=self.model, policy=PLAIN, observer=Quiet())
        return await self.service.start(order, follower, self.ended.append)

    async def resume_unfinished(self) -> None:
        await self.service.resume_unfinished(lambda _row, _request: Observation(Quiet(), self.ended.append))

    async def stored(self, name: str = TOKEN) -> StoredTurn:
        found = await self.store.load_turn(name)
        assert found is not None
        return found

    async def frame_types(self, name: str) -> list[str]:
        frames = await self.store.load_frames(name)
        return [frame.data.split(b"\n")[0].removeprefix(b"event: ").decode() for frame in frames]


Story = Callable[[Stage], Awaitable[None]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "toolrelay.db"


@asynccontextmanager
async def staged(path: Path, **options: Any) -> AsyncIterator[Stage]:
    async with opened(path, **options) as store:
        stage = Stage(store)
        yield stage
        await stage.service.turns.close()


def play(path: Path, story: Story, **options: Any) -> None:
    async def main() -> None:
        async with staged(path, **options) as stage:
            await story(stage)

    asyncio.run(main())


# Followers


def test_later_follower_gets_all_events(path: Path) -> None:
    async def story(stage: Stage) -> None:
        first, second = Reader(), Reader()
        running = await stage.start(first)
        await first.read.wait()
        running.attach(second)
        stage.go.set()
        await asyncio.gather(running.wait(first), running.wait(second))
        assert first.events == second.events == running.events
        assert first.events[-1] == STOP
        assert stage.ended == [running]
        assert not running.has_followers
        assert stage.service.turns.find(TOKEN, "me") is None

    play(path, story)


def test_follower_that_fails_does_not_end_the_turn(path: Path) -> None:
    async def story(stage: Stage) -> None:
        bad, good = Reader(ValueError("full")), Reader()
        running = await stage.start(bad)
        running.attach(good)
        stage.go.set()
        await running.wait(good)
        with pytest.raises(ValueError, match="full"):
            await running.wait(bad)
        assert good.events[-1] == STOP
        assert (await stage.stored()).row.status == "finished"

    play(path, story)


def test_turn_of_another_owner_is_not_found(path: Path) -> None:
    async def story(stage: Stage) -> None:
        running = await stage.start(None)
        assert stage.service.turns.find(TOKEN, "me") is running
        assert stage.service.turns.find(TOKEN, "you") is None

    play(path, story)


# Ends


def test_turn_that_is_cancelled_at_once_ends_like_any_other(path: Path) -> None:
    async def story(stage: Stage) -> None:
        reader = Reader()
        running = await stage.start(reader)
        await running.cancel()
        await running.wait(reader)
        assert stage.ended == [running]
        assert isinstance(reader.events[-1], AnswerFailed)
        assert (await stage.stored()).row.status == "cancelled"

    play(path, story)


def test_background_turn_is_on_record_before_its_id_is_given_out(path: Path) -> None:
    async def story(stage: Stage) -> None:
        running = await stage.start(None, BACKGROUND)
        await running.wait_for_record()
        assert (await stage.stored()).row.status == "running"

    play(path, story)


def test_background_turn_that_cannot_be_recorded_is_refused(path: Path) -> None:
    async def story(stage: Stage) -> None:
        with locked(path):
            running = await stage.start(None, BACKGROUND)
            with pytest.raises(StoreError, match="locked by another program"):
                await running.wait_for_record()

    play(path, story)


def test_cancelled_turn_stops_the_model_and_is_recorded(path: Path) -> None:
    async def story(stage: Stage) -> None:
        reader = Reader()
        running = await stage.start(reader)
        await reader.read.wait()
        gone = InternalError("The client has gone.", status=499, code="client_gone")
        await running.cancel(gone)
        await running.cancel(InternalError("Too late."))
        await running.wait(reader)
        assert stage.backend.abandoned.is_set()
        assert reader.events[-1] == AnswerFailed(gone)
        assert (await stage.stored()).row.status == "cancelled"

    play(path, story)


def test_second_cancel_waits_for_the_record_of_the_first(path: Path) -> None:
    async def story(stage: Stage) -> None:
        reader = Reader()
        running = await stage.start(reader)
        await reader.read.wait()
        with locked(path):
            cancels = [asyncio.create_task(running.cancel()) for _ in range(3)]
            for _ in range(50):
                await asyncio.sleep(0)
            assert not any(cancel.done() for cancel in cancels)
        await asyncio.gather(*cancels)
        await running.wait(reader)
        assert isinstance(reader.events[-1], AnswerFailed)
        assert (await stage.stored()).row.status == "cancelled"

    play(path, story, busy_seconds=30)


class Waiting(Reader):
    """A follower that is never ready for more."""

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        super().put(events)
        return asyncio.get_running_loop().create_future()


def test_follower_that_reads_nothing_does_not_stall_the_others(path: Path) -> None:
    async def story(stage: Stage) -> None:
        first, stalled = Reader(), Waiting()
        running = await stage.start(first)
        await first.read.wait()
        running.attach(stalled)
        stage.go.set()
        await running.wait(first)
        assert first.events[-1] == STOP

    play(path, story)


def test_closing_leaves_background_turns_open_and_fails_the_others(path: Path) -> None:
    async def story(stage: Stage) -> None:
        reader = Reader()
        await stage.start(reader)
        await reader.read.wait()
        await stage.service.turns.close()
        last = reader.events[-1]
        assert isinstance(last, AnswerFailed)
        assert last.error.code == "shutting_down"
        assert (await stage.stored()).row.status == "failed"

    async def background(stage: Stage) -> None:
        await stage.start(None, BACKGROUND)
        await stage.service.turns.close()
        assert (await stage.stored()).row.status == "running"

    play(path, story)
    play(path.with_name("second.db"), background)


def test_turn_whose_end_cannot_be_recorded_fails_and_says_so(path: Path) -> None:
    async def story(stage: Stage) -> None:
        reader = Reader()
        running = await stage.start(reader)
        await reader.read.wait()
        with locked(path):
            stage.go.set()
            await running.wait(reader)
        last = reader.events[-1]
        assert isinstance(last, AnswerFailed)
        assert "locked by another program" in last.error.message
        assert await stage.store.load_turn(TOKEN) is None  # nothing of it could be written

    play(path, story)


ENDS = ("response.completed", "response.failed", "response.incomplete")


async def read_all(frame_log: FrameLog) -> bytes:
    return b"".join([data async for data in frame_log.read(-1)])


async def wait_until_recorded(stage: Stage) -> None:
    async with asyncio.timeout(60):
        while stage.service.turns.find_unrecorded(TOKEN, "me") or stage.service.frame_logs:  # noqa: ASYNC110 -- has no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("when", ["in the answer", "by a cancel"])
def test_end_of_a_background_turn_is_recorded_as_soon_as_possible(path: Path, when: str) -> None:
    async def story(stage: Stage) -> None:
        running = await stage.start(None, BACKGROUND)
        await running.wait_for_record()
        frame_log = stage.service.frame_logs[TOKEN]
        with locked(path):
            if when == "by a cancel":
                await running.cancel()
            else:
                stage.go.set()
                await running.wait_for_end()
            shown = await read_all(frame_log)
            assert shown.count(b"event: response.failed") == 1
            assert (await stage.stored()).row.status == "running"
            unrecorded = stage.service.turns.find_unrecorded(TOKEN, "me")
            assert unrecorded is not None
            assert unrecorded.current_row.status == ("cancelled" if when == "by a cancel" else "failed")
            assert stage.service.turns.find_unrecorded(TOKEN, "you") is None
            assert not [each for each in await stage.frame_types(TOKEN) if each in ENDS], "an end that is not on record"
        await wait_until_recorded(stage)
        stored = await stage.stored()
        assert stored.row.status == unrecorded.current_row.status
        assert isinstance(stored.steps[-1].step, TurnFailed)
        frames = await stage.store.load_frames(TOKEN)
        assert b"".join([frame.data for frame in frames]) == shown

    play(path, story)


def test_finish_that_cannot_be_recorded_becomes_the_failure_that_was_shown(path: Path) -> None:
    async def story(stage: Stage) -> None:
        store = stage.store
        reader = Reader()
        await store.create_turn(turn(TOKEN, owner="me", stored=True, model=MODEL), steps(TurnAccepted(request=REQUEST)))
        stored = await stage.stored()
        running = await stage.service.resume(PastTurn.load(stored), reader, Observation(Quiet(), stage.ended.append))
        await reader.read.wait()
        with locked(path):
            stage.go.set()
            await running.wait(reader)
        assert isinstance(reader.events[-1], AnswerFailed)
        assert running.parts.turn.finish is None
        await wait_until_recorded(stage)
        stored = await stage.stored()
        assert stored.row.status == "failed"
        assert [each.step for each in stored.steps if isinstance(each.step, TurnFinished)] == []

    play(path, story)


def test_closing_tries_once_more_to_record_an_end(path: Path) -> None:
    async def story(stage: Stage) -> None:
        running = await stage.start(None, BACKGROUND)
        await running.wait_for_record()
        with locked(path):
            await running.cancel()
        await stage.service.turns.close()
        assert (await stage.stored()).row.status == "cancelled"

    play(path, story)


def test_closing_gives_up_an_end_that_cannot_be_recorded(path: Path) -> None:
    async def story(stage: Stage) -> None:
        running = await stage.start(None, BACKGROUND)
        await running.wait_for_record()
        with locked(path):
            await running.cancel()
            await stage.service.turns.close()
        assert (await stage.stored()).row.status == "running"
        assert not [each for each in await stage.frame_types(TOKEN) if each in ENDS]

    play(path, story)


def test_deleted_turn_is_not_recorded_later(path: Path) -> None:
    async def story(stage: Stage) -> None:
        running = await stage.start(None, BACKGROUND)
        await running.wait_for_record()
        with locked(path):
            await running.cancel()
        await stage.store.delete_response(TOKEN, "me")
        await wait_until_recorded(stage)
        assert await stage.store.load_turn(TOKEN) is None

    play(path, story)


# Conversations


def said(text: str) -> ConversationItem:
    content: list[Json] = [{"type": "input_text", "text": text}]
    return ConversationItem(id=f"msg_{text}", data={"type": "message", "role": "user", "content": content})


async def texts_in_conversation(store: Store) -> list[str]:
    contents: list[Any] = [item.data["content"] for item in await store.list_items("conv_1", "me") or ()]
    return [content[0]["text"] for content in contents]


def test_turn_is_added_to_its_conversation(path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.store.create_conversation(conversation())
        stage.go.set()
        running = await stage.start(Reader(), IN_CONVERSATION)
        await running.wait_for_end()
        assert await texts_in_conversation(stage.store) == ["Hi", "Hello"]

    play(path, story)


class RefusingEnds(SqlStore):
    """A store that cannot write the end of a turn."""

    async def create_turn(self, row: TurnRow, *args: Any, **options: Any) -> None:
        if row.status == "finished":
            raise StoreError("full")
        await super().create_turn(row, *args, **options)


def test_turn_whose_end_cannot_be_recorded_adds_nothing_to_its_conversation(path: Path) -> None:
    async def main() -> None:
        store = RefusingEnds(SqliteDatabase(path))
        await store.open()
        await store.create_conversation(conversation())
        stage = Stage(store)
        stage.go.set()
        running = await stage.start(Reader(), IN_CONVERSATION)
        await running.wait_for_end()
        assert await store.load_turn(TOKEN) is None
        assert await texts_in_conversation(store) == []
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("background", [False, True])
def test_conversation_that_is_deleted_during_a_turn_stays_deleted(path: Path, *, background: bool) -> None:
    async def story(stage: Stage) -> None:
        await stage.store.create_conversation(conversation())
        reader = Reader()
        running = await stage.start(reader, replace(IN_CONVERSATION, background=background))
        if background:
            await running.wait_for_record()
        else:
            await reader.read.wait()
        assert await stage.store.delete_conversation("conv_1", "me")
        stage.go.set()
        await running.wait_for_end()
        assert (await stage.stored()).row.status == "finished"
        assert await stage.store.load_conversation("conv_1", "me") is None

    play(path, story)


# After a restart


async def leave_behind(store: Store, *events: StepEvent, name: str = TOKEN, request: Request = REQUEST, **members: Any) -> None:
    accepted = replace(ACCEPTED, request=request)
    members = {"model": MODEL, "wire": request.wire, "stored": True, "background": request.background, **members}
    await store.create_turn(turn(name, **members), steps(accepted, *events))


def test_background_turn_goes_on(path: Path) -> None:
    async def story(stage: Stage) -> None:
        await leave_behind(stage.store, request=BACKGROUND)
        stage.go.set()
        await stage.resume_unfinished()
        running = stage.service.turns.find(TOKEN, "me")
        assert running is not None
        await running.wait_for_end()
        assert (await stage.stored()).row.status == "finished"
        assert (await stage.frame_types(TOKEN))[-1] == "response.completed"

    play(path, story)


@pytest.mark.parametrize("earlier", [[], ["Earlier"]])
def test_turn_goes_on_with_the_conversation_as_it_was(path: Path, earlier: list[str]) -> None:
    """Another turn was added to the conversation while the gateway was stopped."""

    async def begin() -> None:
        async with opened(path) as store:
            await store.create_conversation(conversation(), [said(text) for text in earlier])
            stage = Stage(store)
            running = await stage.start(None, replace(BACKGROUND, conversation="conv_1"))
            await running.wait_for_record()
            await stage.service.turns.close()

    async def go_on(stage: Stage) -> None:
        await stage.store.add_items("conv_1", "me", [said("Meanwhile")])
        stage.go.set()
        await stage.resume_unfinished()
        running = stage.service.turns.find(TOKEN, "me")
        assert running is not None
        await running.wait_for_end()
        [asked] = stage.backend.requests
        assert [plain_text(item.content) for item in asked.items if isinstance(item, Message)] == [*earlier, "Hi"]
        assert await texts_in_conversation(stage.store) == [*earlier, "Meanwhile", "Hi", "Hello"]

    asyncio.run(begin())
    play(path, go_on)


def test_foreground_turn_is_ended(path: Path) -> None:
    async def story(stage: Stage) -> None:
        await leave_behind(stage.store)
        await stage.resume_unfinished()
        stored = await stage.stored()
        assert stored.row.status == "failed"
        assert getattr(stored.steps[-1].step, "code", None) == INTERRUPTED

    play(path, story)


def test_turn_with_an_idempotency_key_waits_for_its_client_once_it_has_run_a_tool(path: Path) -> None:
    async def story(stage: Stage) -> None:
        await leave_behind(stage.store, ANSWERED, PLANNED, STARTED, name="t1", idempotency_key="k", request_digest="d")
        await leave_behind(stage.store, ANSWERED, PLANNED, name="t2", idempotency_key="l", request_digest="d")
        await stage.resume_unfinished()
        assert [(await stage.stored(name)).row.status for name in ("t1", "t2")] == ["parked", "failed"]
        found = await stage.service.find_repeated("me", "k", "d")
        assert found is not None
        assert found.can_resume
        assert await stage.service.find_repeated("me", "l", "d") is None
        assert await stage.service.find_repeated("you", "k", "d") is None

    play(path, story)


def test_turn_that_cannot_be_continued_is_ended_and_the_others_go_on(path: Path) -> None:
    """One has a model that is gone, one a record that makes no sense."""

    async def story(stage: Stage) -> None:
        await leave_behind(stage.store, name="t1", request=replace(BACKGROUND, model="gone"), model="gone")
        await leave_behind(stage.store, ToolRunFinished(call_id="call_9", output=""), name="t2", request=BACKGROUND)
        await leave_behind(stage.store, request=BACKGROUND)
        await stage.resume_unfinished()
        assert [(await stage.stored(name)).row.status for name in ("t1", "t2")] == ["failed", "failed"]
        assert stage.service.turns.find(TOKEN, "me") is not None
        await stage.service.end_stream(PastTurn.load(await stage.stored("t1")))
        assert (await stage.frame_types("t1"))[-1] == "response.failed"

    play(path, story)
