"""Keep-alive comments, and the order of writes in both sinks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.gateway import Gateway, running
from tests.model_server import (
    BEGUN,
    CLIENT_APIS,
    REST,
    WIRES,
    ClientApi,
    ModelServer,
    configuration,
    error,
    failure,
    frames,
    whole,
)
from tests.raw_client import RawClient
from tests.upstream import CLOSE, Gate
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
def frequent(model_server: ModelServer) -> Iterator[Gateway]:
    """A gateway with frequent keep-alive comments."""
    with running(configuration(model_server, before="[server]\nkeepalive_seconds = 0.05\n")) as gateway:
        yield gateway


def body_of(stream: bytes) -> bytes:
    """Return the stream without comments and chunk framing."""
    return b"\n".join(line for line in stream.replace(b"\r\n", b"\n").split(b"\n") if line.startswith(b"data: "))


def test_comments_are_sent_while_the_model_is_silent(
    frequent: Gateway, model_server: ModelServer, api: ClientApi
) -> None:  # bug 46
    before, after = Gate(), Gate()
    model_server.enqueue((before, BEGUN, after, REST))
    with RawClient(frequent.port) as client:
        client.post(api.path, api.request_body(stream=True))
        status, headers = client.head()
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
        for _ in range(3):
            client.read_until(COMMENT + b"\n\n")
        before.open()
        client.read_until(b"Hello")
        for _ in range(3):
            client.read_until(COMMENT + b"\n\n")
        after.open()
        assert frames(body_of(client.read_until(b"\r\n0\r\n\r\n")))


def test_responses_stream_repeats_its_state_while_the_model_is_silent(frequent: Gateway, model_server: ModelServer) -> None:
    """Codex counts only events as life; `keepalive`, which OpenAI's servers send, is unknown to several clients."""
    api = CLIENT_APIS["openai_responses"]
    before, after = Gate(), Gate()
    model_server.enqueue((before, BEGUN, after, REST))
    with RawClient(frequent.port) as client:
        client.post(api.path, api.request_body(stream=True)).head()
        stream = client.read_until(b"response.in_progress") + client.read_until(COMMENT) + client.read_until(COMMENT)
        before.open()
        stream += client.read_until(b"Hello")
        stream += client.read_until(b"response.in_progress")
        after.open()
        stream += client.read_until(b"\r\n0\r\n\r\n")
    found = frames(body_of(stream))
    kinds = [frame["type"] for frame in found]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.in_progress"]
    assert kinds.count("response.created") == 1
    assert "response.in_progress" in kinds[kinds.index("response.output_text.delta") :]
    assert [frame["sequence_number"] for frame in found] == list(range(len(found)))
    assert found[-1]["response"]["output"][0]["content"][0]["text"] == "Hello there"


def test_no_comment_after_a_stream_or_without_one(frequent: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    gate = Gate()
    model_server.enqueue(BEGUN + REST, (gate, whole()), (Gate(),))
    with RawClient(frequent.port) as client, RawClient(frequent.port) as clock:
        assert frames(client.post(api.path, api.request_body(stream=True)).reply().body)
        client.post(api.path, api.request_body())
        gate.reached.result(30)
        clock.post(api.path, api.request_body(stream=True))
        for _ in range(5):
            clock.read_until(COMMENT)
        gate.open()
        assert client.reply().status == 200, "a stray comment would precede the status line"


def test_failure_after_a_comment_is_an_error_frame(
    frequent: Gateway, model_server: ModelServer, api: ClientApi
) -> None:  # bug 46
    gate = Gate()
    model_server.enqueue((gate, error(400, "too long", code="context_length_exceeded")))
    with RawClient(frequent.port) as client:
        assert client.post(api.path, api.request_body(stream=True)).head()[0] == 200
        assert client.frame() == COMMENT
        gate.open()
        stream = body_of(client.read_until(b"\r\n0\r\n\r\n"))
        assert failure(stream)["code"] == "context_length_exceeded"
        assert client.get("/healthz").reply().status == 200


def test_truncation_after_a_comment_is_an_error_frame(
    frequent: Gateway, model_server: ModelServer, api: ClientApi
) -> None:  # bug 38
    gate = Gate()
    model_server.enqueue((BEGUN, gate, CLOSE))
    with RawClient(frequent.port) as client:
        client.post(api.path, api.request_body(stream=True)).read_until(COMMENT)
        gate.open()
        assert failure(body_of(client.read_until(b"\r\n0\r\n\r\n")))["code"] == "upstream_cut"


def test_disconnect_after_a_comment_closes_the_upstream(
    frequent: Gateway, model_server: ModelServer, api: ClientApi
) -> None:  # bug 44
    asked = model_server.enqueue((Gate(),))
    with RawClient(frequent.port) as client:
        client.post(api.path, api.request_body(stream=True)).read_until(COMMENT)
    model_server.closed(asked).result(30)


def test_keepalive_zero_sends_no_comment(model_server: ModelServer, frequent: Gateway, api: ClientApi) -> None:
    gate = Gate()
    model_server.enqueue((gate, BEGUN + REST), (Gate(),))
    with (
        running(configuration(model_server, before="[server]\nkeepalive_seconds = 0\n")) as gateway,
        RawClient(gateway.port) as client,
        RawClient(frequent.port) as clock,
    ):
        client.post(api.path, api.request_body(stream=True))
        gate.reached.result(30)
        clock.post(api.path, api.request_body(stream=True))
        for _ in range(5):
            clock.read_until(COMMENT)
        gate.open()
        assert COMMENT not in client.reply().body


# Sinks without a gateway


class RecordingWriter:
    """A response writer that records its calls."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, bytes]] = []
        self.write_paused = False
        self._expected = 0
        self._reached = asyncio.Event()

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        self._record("whole", body)

    def begin(self, status: int, headers: bytes) -> None:
        self._record("begin", b"")

    def write(self, data: bytes) -> None:
        self._record("piece", data)

    def end(self) -> None:
        self._record("end", b"")

    def _record(self, kind: str, data: bytes) -> None:
        self.writes.append((kind, data))
        if len(self.writes) == self._expected:
            self._reached.set()

    async def wait_for(self, number: int) -> None:
        """Wait until there are that many writes."""
        self._expected = number
        await self._reached.wait()

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.writes]

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.writes)


def stream_sink(name: str, writer: RecordingWriter, keepalive: float) -> StreamSink:
    return StreamSink(discover()[name], _envelope(name), writer, keepalive=keepalive)


def _envelope(name: str) -> Envelope:
    request = Request(wire=name, model="fast", items=(Message(role="user", content="Hi"),), stream=True)
    return Envelope(token="t", created=1, model="fast", request=request)


FINISHED: list[StreamEvent] = [AnswerStarted(), TextDelta("Hello"), AnswerFinished(finish="stop")]
FAILED: list[StreamEvent] = [AnswerFailed(BackendError("gone", code="upstream_cut"))]


def fire_timer(sink: StreamSink) -> None:
    """Make the next comment due, and run the timer."""
    sink._last_write -= 2000
    sink._tick()


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("fails", [False, True])
def test_no_comment_is_written_after_the_end(name: str, *, fails: bool) -> None:
    async def scenario() -> None:
        writer, clock = RecordingWriter(), RecordingWriter()
        sink, other = stream_sink(name, writer, 0.001), stream_sink(name, clock, 0.001)
        await put(sink, FINISHED[:2] if fails else FINISHED)
        if fails:
            assert sink.fail(BackendError("gone"))
        else:
            sink.close()
        await clock.wait_for(5)
        other.stop()
        assert writer.kinds[-1] == "end"
        assert writer.kinds.count("end") == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("name", WIRES)
def test_failure_after_the_first_comment_starts_the_response_once(name: str) -> None:
    async def scenario() -> None:
        writer = RecordingWriter()
        sink = stream_sink(name, writer, 1000)
        fire_timer(sink)
        assert sink.fail(BackendError("gone", code="upstream_cut"))
        assert writer.kinds == ["begin", "piece", "piece", "end"]
        assert failure(writer.body)["code"] == "upstream_cut"

    asyncio.run(scenario())


@pytest.mark.parametrize("name", WIRES)
def test_no_comment_is_written_while_the_client_does_not_read(name: str) -> None:
    async def scenario() -> None:
        writer = RecordingWriter()
        sink = stream_sink(name, writer, 1000)
        await put(sink, FINISHED[:2])
        writer.write_paused = True
        fire_timer(sink)
        assert COMMENT not in writer.body
        writer.write_paused = False
        fire_timer(sink)
        assert COMMENT in writer.body
        sink.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("before", [[], [AnswerStarted()]], ids=["at once", "after its start"])
def test_failure_before_the_first_delta_can_be_an_http_error(name: str, before: list[StreamEvent]) -> None:  # bug 39
    async def scenario(sink: AnswerSink) -> None:
        with pytest.raises(BackendError, match="gone"):
            await put(sink, before + FAILED)
        assert not sink.fail(BackendError("gone"))

    async def both() -> None:
        writer = RecordingWriter()
        await scenario(stream_sink(name, writer, 0))
        await scenario(BufferedSink(discover()[name], _envelope(name), writer))
        assert writer.writes == []

    asyncio.run(both())


@pytest.mark.parametrize("name", WIRES)
def test_stopped_sink_writes_nothing(name: str) -> None:
    async def scenario() -> None:
        writer, clock = RecordingWriter(), RecordingWriter()
        sink, other = stream_sink(name, writer, 0.001), stream_sink(name, clock, 0.001)
        await writer.wait_for(3)
        sink.stop()
        writes = len(writer.writes)
        await clock.wait_for(10)
        other.stop()
        assert len(writer.writes) == writes

    asyncio.run(scenario())


@pytest.mark.parametrize("name", WIRES)
def test_whole_answer_is_written_once(name: str) -> None:
    async def scenario() -> None:
        writer = RecordingWriter()
        sink = BufferedSink(discover()[name], _envelope(name), writer)
        await put(sink, FINISHED)
        sink.close()
        assert sink.fail(BackendError("gone")), "the response is already sent"
        assert writer.kinds == ["whole"]

    asyncio.run(scenario())


def test_every_wire_has_a_front() -> None:
    assert sorted(CLIENT_APIS) == WIRES
