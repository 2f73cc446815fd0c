"""Comments that keep a silent stream alive: when they flow, what they commit to, and when they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.gateway import Gateway, running
from tests.raw_client import RawClient
from tests.stage import BEGUN, FRONTS, REST, WIRES, Front, Stage, configuration, error, failure, frames, whole
from tests.upstream import CUT, Gate
from toolrelay.core.events import AnswerFailed, AnswerFinished, AnswerStarted, StreamEvent, TextDelta
from toolrelay.core.messages import Message
from toolrelay.core.request import Request
from toolrelay.errors import BackendError
from toolrelay.web.sinks import AnswerSink, BufferedSink, StreamSink
from toolrelay.wires.base import Envelope, discover

COMMENT = b": keep-alive"


async def put(sink: AnswerSink, events: list[StreamEvent]) -> None:
    waiting = sink.put(events)
    if waiting is not None:
        await waiting


@pytest.fixture(scope="module")
def lively(stage: Stage) -> Iterator[Gateway]:
    """A gateway that is soon afraid of silence."""
    with running(configuration(stage, before="[server]\nkeepalive_seconds = 0.05\n")) as gateway:
        yield gateway


def body_of(stream: bytes) -> bytes:
    """The stream without its comments and the marks of its chunks."""
    return b"\n".join(line for line in stream.replace(b"\r\n", b"\n").split(b"\n") if line.startswith(b"data: "))


def test_comments_flow_while_the_model_is_silent(lively: Gateway, stage: Stage, front: Front) -> None:  # bug 46
    before, after = Gate(), Gate()
    stage.play((before, BEGUN, after, REST))
    with RawClient(lively.port) as client:
        client.post(front.path, front.ask(stream=True))
        status, headers = client.head()
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
        assert [client.frame() for _ in range(3)] == [COMMENT] * 3
        before.open()
        while client.frame() == COMMENT:
            pass
        for _ in range(3):
            client.read_until(COMMENT + b"\n\n")
        after.open()
        assert frames(body_of(client.read_until(b"\r\n0\r\n\r\n")))


def test_nothing_follows_the_end_and_nothing_comes_without_a_stream(lively: Gateway, stage: Stage, front: Front) -> None:
    gate = Gate()
    stage.play(BEGUN + REST, (gate, whole()), (Gate(),))
    with RawClient(lively.port) as client, RawClient(lively.port) as clock:
        assert frames(client.post(front.path, front.ask(stream=True)).reply().body)
        client.post(front.path, front.ask())
        gate.reached.result(30)
        clock.post(front.path, front.ask(stream=True))
        for _ in range(5):
            clock.read_until(COMMENT)
        gate.open()
        assert client.reply().status == 200, "a stray comment would stand where the status line is expected"


def test_a_failure_after_a_comment_is_an_error_frame(lively: Gateway, stage: Stage, front: Front) -> None:  # bug 46
    gate = Gate()
    stage.play((gate, error(400, "too long", code="context_length_exceeded")))
    with RawClient(lively.port) as client:
        assert client.post(front.path, front.ask(stream=True)).head()[0] == 200
        assert client.frame() == COMMENT
        gate.open()
        stream = body_of(client.read_until(b"\r\n0\r\n\r\n"))
        assert failure(stream)["code"] == "context_length_exceeded"
        assert client.get("/healthz").reply().status == 200


def test_a_cut_after_a_comment_is_an_error_frame(lively: Gateway, stage: Stage, front: Front) -> None:  # bug 38
    gate = Gate()
    stage.play((BEGUN, gate, CUT))
    with RawClient(lively.port) as client:
        client.post(front.path, front.ask(stream=True)).read_until(COMMENT)
        gate.open()
        assert failure(body_of(client.read_until(b"\r\n0\r\n\r\n")))["code"] == "upstream_cut"


def test_a_client_that_hears_comments_and_leaves_lets_the_upstream_go(
    lively: Gateway, stage: Stage, front: Front
) -> None:  # bug 44
    asked = stage.play((Gate(),))
    with RawClient(lively.port) as client:
        client.post(front.path, front.ask(stream=True)).read_until(COMMENT)
    stage.left(asked).result(30)


def test_with_keepalive_off_no_comment_comes(stage: Stage, lively: Gateway, front: Front) -> None:
    gate = Gate()
    stage.play((gate, BEGUN + REST), (Gate(),))
    with (
        running(configuration(stage, before="[server]\nkeepalive_seconds = 0\n")) as gateway,
        RawClient(gateway.port) as client,
        RawClient(lively.port) as clock,
    ):
        client.post(front.path, front.ask(stream=True))
        gate.reached.result(30)
        clock.post(front.path, front.ask(stream=True))
        for _ in range(5):
            clock.read_until(COMMENT)
        gate.open()
        assert COMMENT not in client.reply().body


# By hand, where the order of things matters


class Ear:
    """A response, and what has been written to it. `write_paused` is True if the client does not read."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.write_paused = False
        self._enough = 0
        self._heard_enough = asyncio.Event()

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        self._hear("whole", body)

    def begin(self, status: int, headers: bytes) -> None:
        self._hear("begin", b"")

    def write(self, data: bytes) -> None:
        self._hear("piece", data)

    def end(self) -> None:
        self._hear("end", b"")

    def _hear(self, kind: str, data: bytes) -> None:
        self.heard.append((kind, data))
        if len(self.heard) == self._enough:
            self._heard_enough.set()

    async def hears(self, much: int) -> None:
        """Returns once that much has come."""
        self._enough = much
        await self._heard_enough.wait()

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.heard]

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.heard)


def stream_sink(name: str, ear: Ear, keepalive: float) -> StreamSink:
    return StreamSink(discover()[name], _envelope(name), ear, keepalive=keepalive)


def _envelope(name: str) -> Envelope:
    request = Request(wire=name, model="fast", items=(Message(role="user", content="Hi"),), stream=True)
    return Envelope(token="t", created=1, model="fast", request=request)


FINISHED: list[StreamEvent] = [AnswerStarted(), TextDelta("Hello"), AnswerFinished(finish="stop")]
FAILED: list[StreamEvent] = [AnswerFailed(BackendError("gone", code="upstream_cut"))]


def due(sink: StreamSink) -> None:
    """A comment's time has come."""
    sink._last_write -= 2000
    sink._tick()


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("fails", [False, True])
def test_no_comment_is_due_once_a_stream_has_ended(name: str, *, fails: bool) -> None:
    async def story() -> None:
        ear, clock = Ear(), Ear()
        sink, other = stream_sink(name, ear, 0.001), stream_sink(name, clock, 0.001)
        await put(sink, FINISHED[:2] if fails else FINISHED)
        if fails:
            assert sink.fail(BackendError("gone"))
        else:
            sink.close()
        await clock.hears(5)
        other.stop()
        assert ear.kinds[-1] == "end"
        assert ear.kinds.count("end") == 1

    asyncio.run(story())


@pytest.mark.parametrize("name", WIRES)
def test_a_failure_after_the_first_comment_begins_the_response_once(name: str) -> None:
    async def story() -> None:
        ear = Ear()
        sink = stream_sink(name, ear, 1000)
        due(sink)
        assert sink.fail(BackendError("gone", code="upstream_cut"))
        assert ear.kinds == ["begin", "piece", "piece", "end"]
        assert failure(ear.body)["code"] == "upstream_cut"

    asyncio.run(story())


@pytest.mark.parametrize("name", WIRES)
def test_no_comment_is_written_while_the_client_does_not_read(name: str) -> None:
    async def story() -> None:
        ear = Ear()
        sink = stream_sink(name, ear, 1000)
        await put(sink, FINISHED[:2])
        ear.write_paused = True
        due(sink)
        assert COMMENT not in ear.body
        ear.write_paused = False
        due(sink)
        assert COMMENT in ear.body
        sink.stop()

    asyncio.run(story())


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("before", [[], [AnswerStarted()]], ids=["at once", "after its start"])
def test_an_answer_that_fails_before_a_word_can_still_be_an_http_error(name: str, before: list[StreamEvent]) -> None:  # bug 39
    async def story(sink: AnswerSink) -> None:
        with pytest.raises(BackendError, match="gone"):
            await put(sink, before + FAILED)
        assert not sink.fail(BackendError("gone"))

    async def both() -> None:
        ear = Ear()
        await story(stream_sink(name, ear, 0))
        await story(BufferedSink(discover()[name], _envelope(name), ear))
        assert ear.heard == []

    asyncio.run(both())


@pytest.mark.parametrize("name", WIRES)
def test_a_client_that_has_left_is_not_written_to_any_more(name: str) -> None:
    async def story() -> None:
        ear, clock = Ear(), Ear()
        sink, other = stream_sink(name, ear, 0.001), stream_sink(name, clock, 0.001)
        await ear.hears(3)
        sink.stop()
        heard = len(ear.heard)
        await clock.hears(10)
        other.stop()
        assert len(ear.heard) == heard

    asyncio.run(story())


@pytest.mark.parametrize("name", WIRES)
def test_a_whole_answer_is_written_once(name: str) -> None:
    async def story() -> None:
        ear = Ear()
        sink = BufferedSink(discover()[name], _envelope(name), ear)
        await put(sink, FINISHED)
        sink.close()
        assert sink.fail(BackendError("gone")), "no error can be told any more"
        assert ear.kinds == ["whole"]

    asyncio.run(story())


def test_every_wire_has_its_front() -> None:
    assert sorted(FRONTS) == WIRES
