"""The driver with a scripted backend, and the responses of the gateway when a backend fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Literal

import pytest

from tests.exchange import trusting_layer
from tests.model_server import CLIENT_APIS, WIRES, ClientApi, failure
from tests.scripted import ask, scripted, serving
from tests.scripted_backend import ScriptedBackend
from toolrelay import log
from toolrelay.backends.base import Deliver, deliver_all
from toolrelay.core.commands import AskAgain, CallModel, Command, DrainModel, Emit, End, Notice, RecordStep
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Noticed,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.messages import Message
from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Request, Tool
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    CallsHandedOver,
    ReceivedStep,
    StepEvent,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
)
from toolrelay.core.turn import Turn
from toolrelay.errors import BackendError, InternalError
from toolrelay.runtime import driver
from toolrelay.runtime.driver import drive

REQUEST = Request(wire="openai_chat", model="fast", items=(Message(role="user", content="Hi"),), tools=(Tool(name="search"),))
BEGUN: list[StreamEvent] = [AnswerStarted(), TextDelta("Hello")]
CALL: list[StreamEvent] = [CallStarted(0, "search"), ArgumentsDelta(0, "{}"), CallFinished(0)]
END = AnswerFinished(finish="stop")


class Client:
    """A sink and an observer that record. It can be made to wait (`reading`) or to raise (`breaks`)."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []
        self.batches = 0
        self.records: list[RecordStep] = []
        self.notices: list[Notice] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.waits = asyncio.Event()
        self.breaks: Exception | None = None

    def put(self, events: list[StreamEvent]) -> Awaitable[None]:
        return self._keep(events)

    async def _keep(self, events: list[StreamEvent]) -> None:
        if self.breaks is not None:
            raise self.breaks
        if not self.reading.is_set():
            self.waits.set()
            await self.reading.wait()
        self.batches += 1
        self.events += events

    def record(self, command: RecordStep) -> None:
        self.records.append(command)

    def notice(self, command: Notice) -> None:
        self.notices.append(command)


def turn(request: Request = REQUEST, policy: Policy | None = None) -> Turn:
    return Turn(token="t", request=request, policy=policy)


def test_model_events_reach_client_in_batches() -> None:
    async def story() -> None:
        client = Client()
        backend = ScriptedBackend([[BEGUN, TextDelta(" there"), END]])
        await drive(turn(), backend, client, client)
        assert client.events == [*BEGUN, TextDelta(" there"), END]
        assert client.batches == 3
        assert backend.requests == [REQUEST]
        assert not backend.abandoned.is_set()

    asyncio.run(story())


class Steps:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.steps: list[StepEvent] = []

    def add(self, step: StepEvent) -> None:
        self.steps.append(step)

    async def flush(self) -> None: ...


def test_record_of_an_answer_has_its_times_and_retries() -> None:
    async def story() -> None:
        client, ledger = Client(), Steps()
        retried = Noticed(event="upstream_retried", rule="status_429")
        rounds = ScriptedBackend([[[retried], BEGUN, CALL, END]])
        await drive(turn(policy=Policy(records_answers=True)), rounds, client, client, ledger=ledger)
        (answer,) = [step for step in ledger.steps if isinstance(step, AnswerReceived)]
        assert answer.retries == ("status_429",)
        assert answer.first_ms is not None
        assert answer.ms is not None
        assert 0 <= answer.first_ms <= answer.ms
        assert [(notice.event, notice.rule) for notice in client.notices] == [("upstream_retried", "status_429")]

    asyncio.run(story())


def test_steps_are_recorded_in_order() -> None:
    async def story() -> None:
        client = Client()
        await drive(turn(), ScriptedBackend([[BEGUN, CALL, END]]), client, client)
        assert [type(record.step) for record in client.records] == [
            TurnAccepted,
            AnswerReceived,
            CallPlanned,
            CallsHandedOver,
            TurnFinished,
        ]

    asyncio.run(story())


def test_unknown_tool_is_noticed() -> None:
    async def story() -> None:
        client = Client()
        odd: list[StreamEvent] = [CallStarted(0, "serch"), ArgumentsDelta(0, "{}"), CallFinished(0)]
        await drive(trusting_layer(turn()), ScriptedBackend([[BEGUN, odd, END]]), client, client)
        assert [(notice.rule, notice.tool) for notice in client.notices] == [("unknown_tool", "serch")]

    asyncio.run(story())


def test_failed_answer_is_emitted_and_recorded() -> None:
    async def story() -> None:
        client = Client()
        await drive(turn(), ScriptedBackend([[BEGUN, BackendError("gone", code="upstream_cut")]]), client, client)
        assert isinstance(client.events[-1], AnswerFailed)
        assert isinstance(client.records[-1].step, TurnFailed)

    asyncio.run(story())


def test_answer_without_end_is_internal_error() -> None:  # bug 38
    async def story() -> None:
        client = Client()
        await drive(turn(), ScriptedBackend([[BEGUN]]), client, client)
        last = client.events[-1]
        assert isinstance(last, AnswerFailed)
        assert isinstance(last.error, InternalError)

    asyncio.run(story())


def test_empty_answer_is_internal_error() -> None:
    async def story() -> None:
        client = Client()
        await drive(turn(), ScriptedBackend([[]]), client, client)
        assert [type(event) for event in client.events] == [AnswerFailed]

    asyncio.run(story())


def test_slow_client_applies_backpressure_to_backend() -> None:
    async def story() -> None:
        client = Client()
        client.reading.clear()
        word: list[StreamEvent] = [TextDelta("x")]
        backend = _Counting([*[word] * 1000, [END]])
        driving = asyncio.create_task(drive(turn(), backend, client, client))
        await client.waits.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert backend.given == 1
        client.reading.set()
        await driving
        assert backend.given == 1001
        assert backend.closed

    asyncio.run(story())


class _Counting:
    """A backend that counts its batches, and knows whether its stream was closed."""

    def __init__(self, batches: list[list[StreamEvent]]) -> None:
        self._batches = batches
        self.given = 0
        self.closed = False

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        await deliver_all(self._stream(), deliver)

    async def _stream(self) -> AsyncGenerator[list[StreamEvent], None]:
        try:
            for batch in self._batches:
                self.given += 1
                yield batch
        finally:
            self.closed = True

    async def close(self) -> None:
        pass


class _RetryingLayer:
    """Rejects the first answer while it is drained, then ends with the second."""

    def __init__(self) -> None:
        self.stopped = False

    def start(self) -> list[Command]:
        return [CallModel(REQUEST)]

    def handle(self, events: Sequence[StreamEvent]) -> list[Command]:
        match events[-1]:
            case AnswerStarted():
                return [DrainModel()]
            case TextDelta():
                return [Emit(list(events)), AskAgain(REQUEST)]
            case _:
                return [End()]

    def handle_step(self, step: ReceivedStep) -> list[Command]:
        raise AssertionError(step)

    def handle_model_stop(self) -> list[Command]:
        self.stopped = True
        return [End()]


def test_slow_client_does_not_lose_the_retry_of_a_drained_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "USAGE_SECONDS", 0)

    async def scenario() -> None:
        client, layer = Client(), _RetryingLayer()
        client.reading.clear()
        backend = ScriptedBackend([[AnswerStarted(), TextDelta("late")], [END]])
        driving = asyncio.create_task(drive(layer, backend, client, client))
        await client.waits.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        client.reading.set()
        await driving
        assert len(backend.requests) == 2
        assert not layer.stopped

    asyncio.run(scenario())


@pytest.mark.parametrize("steps", [[], [BEGUN]])
def test_cancelled_turn_closes_backend_stream(steps: list[list[StreamEvent]]) -> None:  # bug 44
    async def story() -> None:
        client = Client()
        never, reached = asyncio.Event(), asyncio.Event()
        backend = ScriptedBackend([lambda _request: [*steps, _Reached(reached), never, END]])
        driving = asyncio.create_task(drive(turn(), backend, client, client))
        await reached.wait()
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        assert backend.abandoned.is_set()

    asyncio.run(story())


class _Reached(asyncio.Event):
    """A step that does not wait, and sets another event when the script reaches it."""

    def __init__(self, reached: asyncio.Event) -> None:
        super().__init__()
        self._reached = reached

    async def wait(self) -> Literal[True]:
        self._reached.set()
        return True


def test_cancelled_turn_with_slow_client_closes_backend_stream() -> None:  # bug 44
    async def story() -> None:
        client = Client()
        client.reading.clear()
        backend = ScriptedBackend([[BEGUN, TextDelta("more"), END]])
        driving = asyncio.create_task(drive(turn(), backend, client, client))
        await client.waits.wait()
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        assert backend.abandoned.is_set()

    asyncio.run(story())


def test_sink_error_closes_backend_stream() -> None:
    async def story() -> None:
        client = Client()
        client.breaks = OSError("broken")
        backend = _Counting([BEGUN, [END]])
        with pytest.raises(OSError, match="broken"):
            await drive(turn(), backend, client, client)
        assert backend.closed

    asyncio.run(story())


def test_gateway_tool_call_is_internal_error() -> None:
    async def story() -> None:
        client = Client()
        policy = Policy(tools={"search": GatewayTool(tool=Tool(name="search"))})
        request = Request(wire="openai_chat", model="fast", items=REQUEST.items)
        backend = _Counting([[AnswerStarted(), *CALL, END]])
        with pytest.raises(InternalError, match="gateway tool"):
            await drive(turn(request, policy), backend, client, client)
        assert backend.closed

    asyncio.run(story())


# Responses


@pytest.fixture(params=WIRES)
def api(request: pytest.FixtureRequest) -> ClientApi:
    return CLIENT_APIS[request.param]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [RuntimeError, RecursionError, TimeoutError])
def test_backend_exception_is_500_with_turn_id(api: ClientApi, kind: type[Exception], *, stream: bool) -> None:
    async def story() -> None:
        with log.captured() as lines:
            async with serving(scripted(ScriptedBackend([[kind("a secret thing")]]))) as port:
                status, body = await ask(port, api.path, api.request_body(stream=stream))
        assert status == 500
        assert b'"internal_error"' in body
        assert b"secret" not in body
        logged, ended = lines
        assert logged["event"] == "internal_error"
        assert f"{kind.__name__}: a secret thing" in logged["exception"]
        assert logged["turn"].encode() in body, "so that the line can be found"
        assert (ended["event"], ended["status"], ended["code"]) == ("turn", 500, "internal_error")

    asyncio.run(story())


def test_backend_exception_mid_stream_ends_stream_with_error(api: ClientApi) -> None:  # bug 38
    async def story() -> None:
        with log.captured() as lines:
            async with serving(scripted(ScriptedBackend([[BEGUN, RuntimeError("a secret thing")]]))) as port:
                status, body = await ask(port, api.path, api.request_body(stream=True))
        assert status == 200
        assert body.endswith(b"0\r\n\r\n"), "in good order"
        assert failure(body)["code"] == "internal_error"
        assert b"secret" not in body
        assert [line["event"] for line in lines] == ["internal_error", "turn"]

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("steps", [[], [BEGUN]])
def test_unfinished_answer_is_reported_as_error(
    api: ClientApi, steps: list[list[StreamEvent]], *, stream: bool
) -> None:  # bug 38
    async def story() -> None:
        async with serving(scripted(ScriptedBackend([steps]))) as port:
            status, body = await ask(port, api.path, api.request_body(stream=stream))
        if stream and steps:
            assert failure(body)["code"] == "internal_error"
        else:
            assert status == 500

    with log.captured():
        asyncio.run(story())


def test_first_event_is_timed_unless_it_is_a_failure(api: ClientApi) -> None:
    async def story() -> None:
        with log.captured() as lines:
            app = scripted(ScriptedBackend([[BackendError("gone")], [BEGUN, END]]))
            async with serving(app) as port:
                for _ in range(2):
                    await ask(port, api.path, api.request_body(stream=True))
        failed, answered = lines
        assert "first_ms" not in failed
        assert "first_ms" in answered
        assert b'toolrelay_first_event_seconds_count{model="fast"} 1.0' in app.metrics.exposition()

    asyncio.run(story())
