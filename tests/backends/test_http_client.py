from __future__ import annotations

import asyncio
import datetime as dt
import gc
import ipaddress
import itertools
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.upstream import CUT, LAST_CHUNK, RESET, Gate, Script, Step, Upstream, chunk, reply, seen, stream, stream_head

from toolrelay.backends import _http_client
from toolrelay.backends._http_client import Origin, Pool, UnreachableError
from toolrelay.backends._http_connection import (
    HIGH_WATER,
    Connection,
    CutError,
    ExchangeError,
    GarbledError,
    OversizedError,
    Response,
    SilentError,
)

T = TypeVar("T")


class Run(Protocol):
    def __call__(self, main: Coroutine[Any, Any, T]) -> T: ...


ASK = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}"
MEBIBYTE = 1024 * 1024
ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def runner(main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(main)

    return runner


class WatchedPool(Pool):
    """Tells when it keeps or loses a connection."""

    kept: asyncio.Future[None] | None = None
    lost: asyncio.Future[None] | None = None

    def keep(self, connection: Connection) -> None:
        super().keep(connection)
        if self.kept is not None:
            self.kept.set_result(None)

    def forget(self, connection: Connection) -> None:
        super().forget(connection)
        if self.lost is not None and not self.lost.done():
            self.lost.set_result(None)


@asynccontextmanager
async def pool_for(upstream: Upstream, silence: float = 30, context: ssl.SSLContext | None = None) -> AsyncIterator[WatchedPool]:
    pool = WatchedPool(Origin(secure=context is not None, host="127.0.0.1", port=upstream.port), silence=silence, context=context)
    try:
        yield pool
    finally:
        await pool.close()
        assert not pool._all
        assert not pool._idle


async def whole(pool: Pool) -> bytes:
    response = await pool.send(ASK)
    try:
        return await response.read_all(64 * MEBIBYTE)
    finally:
        response.release()


# Bodies


@pytest.mark.parametrize(
    "script",
    [
        [reply(b"hello world")],
        [stream(b"hello", b" ", b"world")],
        [ENDLESS + b"hello world", CUT],
        [b"HTTP/1.0 200 OK\r\ncontent-length: 11\r\n\r\nhello world", CUT],
        [stream_head() + b'5;name="value"\r\nhello\r\n6\r\n world\r\n0\r\ntrailer: x\r\n\r\n'],
        [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + reply(b"hello world")],
        [bytes([byte]) for byte in stream(b"hello ", b"world")],
        [bytes([byte]) for byte in reply(b"hello world")],
    ],
    ids=[
        "length",
        "chunks",
        "end of connection",
        "HTTP/1.0",
        "extensions and trailers",
        "interim",
        "chunks by byte",
        "length by byte",
    ],
)
def test_a_body_arrives_whole_however_its_end_is_marked(run: Run, script: Script) -> None:
    async def main(upstream: Upstream) -> bytes:
        async with pool_for(upstream) as pool:
            return await whole(pool)

    with Upstream(script) as upstream:
        assert run(main(upstream)) == b"hello world"


def test_the_cuts_between_packets_never_matter() -> None:
    frames = b"HTTP/1.1 100 Continue\r\n\r\n" + stream("grüße, ".encode(), b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n")
    body = "grüße, ".encode() + b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"

    @settings(max_examples=200, deadline=None)
    @given(st.sets(st.integers(1, len(frames) - 1)))
    def check(cuts: set[int]) -> None:
        places = [0, *sorted(cuts), len(frames)]
        packets = [frames[start:end] for start, end in itertools.pairwise(places)]
        assert asyncio.run(main(packets)) == body

    async def main(packets: list[bytes]) -> bytes:
        async with pool_for(upstream) as pool:
            connection = await pool._connect()
            sending = asyncio.create_task(connection.exchange(ASK))
            await asyncio.sleep(0)
            for packet in packets:
                connection.data_received(packet)
            response = await sending
            try:
                return await response.read_all(1000)
            finally:
                response.release()
                assert list(pool._idle) == [connection]

    with Upstream(Gate()) as upstream:
        check()


def test_what_arrives_together_is_read_together() -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            connection = await pool._connect()
            sending = asyncio.create_task(connection.exchange(ASK))
            await asyncio.sleep(0)
            connection.data_received(stream_head())
            response = await sending
            connection.data_received(chunk(b"a") + chunk(b"b"))
            connection.data_received(chunk(b"c"))
            assert await response.read() == b"abc"
            connection.data_received(LAST_CHUNK)
            assert await response.read() == b""
            assert await response.read() == b""
            response.release()

    with Upstream(Gate()) as upstream:
        asyncio.run(main(upstream))


def test_status_and_headers_are_there_before_the_body(run: Run) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            assert response.status == 418
            assert response.header(b"retry-after") == "7"
            assert response.header(b"x-none") is None
            gate.open()
            assert await response.read_all(10) == b"tea"
            response.release()

    head, _, body = reply(b"tea", 418, headers="Retry-After: 7\r\n").rpartition(b"\r\n\r\n")
    with Upstream([head + b"\r\n\r\n", gate, body]) as upstream:
        run(main(upstream))


def test_a_body_over_the_limit_is_refused_and_its_connection_closed(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            with pytest.raises(OversizedError, match="more than 1000 bytes"):
                await response.read_all(1000)
            response.release()
            await seen(upstream.links[0].left)

    with Upstream([stream_head(), chunk(b"x" * 1001), Gate()]) as upstream:
        run(main(upstream))


# Keeping connections


def test_one_connection_serves_one_request_after_another(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            assert [await whole(pool) for _ in range(5)] == [b"1", b"2", b"34", b"5", b"5"]

    with Upstream(reply(b"1"), reply(b"2"), stream(b"3", b"4"), reply(b"5")) as upstream:
        run(main(upstream))
        assert [request.link for request in upstream.requests] == [0, 0, 0, 0, 0]
        assert upstream.requests[0].body == b"{}"


def test_requests_at_the_same_time_have_a_connection_each_and_the_latest_is_used_again(run: Run) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            tasks = [asyncio.create_task(whole(pool)) for _ in range(3)]
            await seen(upstream.request(2))
            gate.open()
            await asyncio.gather(*tasks)
            assert len(upstream.links) == 3
            latest = list(pool._idle)[-1]
            await whole(pool)
            assert list(pool._idle)[-1] is latest
            assert len(upstream.links) == 3

    with Upstream([gate, reply(b"x")]) as upstream:
        run(main(upstream))


@pytest.mark.parametrize(
    "script",
    [
        [reply(b"x", headers="connection: close\r\n")],
        [b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx"],
        [reply(b"x") + reply(b"nobody asked for this")],
        [reply(b"x") + b"garbage"],
        [ENDLESS + b"x", CUT],
    ],
    ids=["close", "HTTP/1.0", "a second response", "garbage after it", "no length"],
)
def test_a_connection_that_cannot_be_trusted_is_not_used_again(run: Run, script: Script) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            assert await whole(pool) == b"x"
            assert await whole(pool) == b"x"

    with Upstream(script) as upstream:
        run(main(upstream))
        assert [request.link for request in upstream.requests] == [0, 1]


@pytest.mark.parametrize("ending", [CUT, RESET, b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_an_idle_connection_that_the_upstream_ends_leaves_the_pool_at_once(run: Run, ending: Step) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            await whole(pool)
            assert len(pool._idle) == 1
            pool.lost = asyncio.get_running_loop().create_future()
            gate.open()
            await pool.lost
            assert not pool._idle
            assert await whole(pool) == b"x"

    with Upstream([reply(b"x"), gate, ending], reply(b"x")) as upstream:
        run(main(upstream))
        assert [request.link for request in upstream.requests] == [0, 1]


@pytest.mark.parametrize("ending", [CUT, RESET])
def test_a_kept_connection_that_dies_before_the_first_byte_is_replaced(run: Run, ending: Step) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            assert await whole(pool) == b"1"
            assert await whole(pool) == b"2"

    with Upstream(reply(b"1"), ending, reply(b"2")) as upstream:
        run(main(upstream))
        assert [request.link for request in upstream.requests] == [0, 0, 1]


def test_a_kept_connection_that_dies_after_the_first_byte_is_not_replaced(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            assert await whole(pool) == b"1"
            with pytest.raises(CutError, match="in the middle") as error:
                await whole(pool)
            assert not error.value.retryable

    with Upstream(reply(b"1"), [b"HTTP/1.1 2", CUT]) as upstream:
        run(main(upstream))
        assert len(upstream.requests) == 2


def test_a_new_connection_that_dies_before_the_first_byte_is_reported(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            with pytest.raises(CutError, match="without an answer") as error:
                await whole(pool)
            assert error.value.retryable

    with Upstream(CUT) as upstream:
        run(main(upstream))
        assert len(upstream.requests) == 1


def test_an_answer_that_came_before_the_request_was_read_ends_the_connection(run: Run) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            pool = Pool(Origin(secure=False, host="127.0.0.1", port=server.getsockname()[1]), silence=30)
            sending = asyncio.create_task(pool.send(b"POST / HTTP/1.1\r\n\r\n" + bytes(64 * MEBIBYTE)))
            peer, _ = await asyncio.get_running_loop().sock_accept(server)
            with peer:
                await asyncio.get_running_loop().sock_recv(peer, 1)
                await asyncio.get_running_loop().sock_sendall(peer, reply(b"too much", 413))
                response = await sending
                assert await response.read_all(100) == b"too much"
                response.release()
                assert not pool._idle
                assert not pool._all
            await pool.close()

    run(main())


def test_idle_connections_are_dropped_after_a_while_and_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            monkeypatch.setattr(_http_client, "MAX_IDLE", 2)
            tasks = [asyncio.create_task(whole(pool)) for _ in range(3)]
            await seen(upstream.request(2))
            gate.open()
            await asyncio.gather(*tasks)
            older, newer = pool._idle
            newer.idle_since += 1000
            older.idle_since -= 1000
            pool._drop_idle()
            assert list(pool._idle) == [newer]
            newer.idle_since -= 2000
            pool._drop_idle()
            assert not pool._idle
            for link in upstream.links:
                await seen(link.left)

    with Upstream([gate, reply(b"x")]) as upstream:
        run(main(upstream))


def test_nothing_of_a_connection_stays_behind_without_the_garbage_collector(run: Run) -> None:
    async def main(upstream: Upstream) -> weakref.ref[Connection]:
        async with pool_for(upstream) as pool:
            await whole(pool)
            (connection,) = pool._idle
            return weakref.ref(connection)

    with Upstream(reply(b"x")) as upstream:
        gc.collect()
        gc.disable()
        try:
            reference = run(main(upstream))
            assert reference() is None
        finally:
            gc.enable()


# A released response


def test_the_rest_of_a_body_that_nobody_needs_may_still_come_and_the_connection_is_kept(run: Run) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            assert await response.read() == b"[DONE]"
            pool.kept = asyncio.get_running_loop().create_future()
            response.release(linger=60)
            assert not pool._idle
            gate.open()
            await pool.kept
            pool.kept = None
            assert await whole(pool) == b"x"

    with Upstream([stream_head(), chunk(b"[DONE]"), gate, chunk(b"more"), LAST_CHUNK], reply(b"x")) as upstream:
        run(main(upstream))
        assert [request.link for request in upstream.requests] == [0, 0]


@pytest.mark.parametrize("more", [[], [b"x" * HIGH_WATER * 2], [b"garbage\r\n"]], ids=["silence", "too much", "garbage"])
def test_the_rest_of_a_body_is_not_waited_for_for_long(run: Run, more: list[bytes]) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            assert await response.read() == b"[DONE]"
            response.release(linger=0.001 if not more else 60)
            gate.open()
            await seen(upstream.links[0].left)

    gate = Gate()
    rest = [chunk(piece) if piece[0] == ord("x") else piece for piece in more]
    with Upstream([stream_head(), chunk(b"[DONE]"), gate, *rest, Gate()]) as upstream:
        run(main(upstream))


def test_a_response_can_be_released_twice_and_harms_nobody(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            first = await pool.send(ASK)
            await first.read_all(10)
            first.release()
            second = await pool.send(ASK)
            first.release()
            assert await second.read_all(10) == b"x"
            second.release()

    with Upstream(reply(b"x")) as upstream:
        run(main(upstream))
        assert len(upstream.links) == 1


# What goes wrong


@pytest.mark.parametrize(
    "script",
    [
        [stream_head(), chunk(b"hello"), CUT],
        [stream_head(), chunk(b"hello"), RESET],
        [stream_head() + b"a\r\nhello", CUT],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello", CUT],
    ],
    ids=["between chunks", "reset", "in a chunk", "length"],
)
def test_a_body_that_is_cut_gives_what_came_and_then_an_error(run: Run, script: Script) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            if script[-1] is CUT:  # a reset may overtake what came before it
                assert await response.read() == b"hello"
            for _ in range(2):
                with pytest.raises(CutError, match="in the middle of its answer"):
                    await response.read_all(10)
            response.release()

    with Upstream(script) as upstream:
        run(main(upstream))


def test_a_body_without_a_length_that_breaks_off_is_an_error(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            with pytest.raises(CutError):
                await whole(pool)

    with Upstream([ENDLESS, RESET]) as upstream:
        run(main(upstream))


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x50",
        b"HTTP/1.1 999999 what\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n\x00",
        b"HTTP/1.1 200 OK\r\n" + b"x-more: and more\r\n" * 8000,
        b"HTTP/1.1 200 OK\r\nx-long: " + b"x" * 200_000,
        stream_head() + chunk(b"x") + b"0\r\n" + b"x-trailer: and more\r\n" * 80000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 8000,
    ],
    ids=["ssh", "tls", "status", "length", "chunk", "upgrade", "headers", "header", "trailers", "interim"],
)
def test_what_is_not_http_is_said_to_be_none(run: Run, garbage: bytes) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            with pytest.raises(GarbledError, match=r"did not answer in HTTP/1\.1"):
                await whole(pool)
            await seen(upstream.links[0].left)

    with Upstream([garbage, Gate()]) as upstream:
        run(main(upstream))


@pytest.mark.parametrize("before", [[], [b"HTTP/1.1 200 "], [stream_head()], [stream_head(), chunk(b"x")]])
def test_silence_beyond_the_limit_is_an_error_and_closes_the_connection(run: Run, before: list[bytes]) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, silence=0.05) as pool:
            with pytest.raises(SilentError, match=r"sent nothing for 0\.05 seconds"):
                await whole(pool)
            await seen(upstream.links[0].left)

    with Upstream([*before, Gate()]) as upstream:
        run(main(upstream))


def test_silence_is_counted_from_the_last_byte_not_from_the_first(run: Run) -> None:
    async def main(upstream: Upstream) -> bytes:
        async with pool_for(upstream, silence=1000) as pool:
            response = await pool.send(ASK)
            (connection,) = pool._all
            reading = asyncio.create_task(response.read_all(100))
            for gate in gates:
                await seen(gate.reached)
                connection._check_silence()
                gate.open()
            try:
                return await reading
            finally:
                response.release()

    gates = [Gate() for _ in range(3)]
    steps = [step for gate in gates for step in (chunk(b"x"), gate)]
    with Upstream([stream_head(), *steps, LAST_CHUNK]) as upstream:
        assert run(main(upstream)) == b"xxx"


def test_a_slow_reader_is_not_taken_for_a_silent_upstream(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, silence=0.02) as pool:
            response = await pool.send(ASK)
            await asyncio.sleep(0.1)  # the reader's own time, several times the limit
            gate.open()
            assert await response.read_all(10) == b"x"
            response.release()

    gate = Gate()
    with Upstream([stream_head(), gate, chunk(b"x") + LAST_CHUNK]) as upstream:
        run(main(upstream))


def test_no_limit_means_no_timer(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, silence=0) as pool:
            assert await whole(pool) == b"x"
            assert next(iter(pool._idle))._watch is None

    with Upstream(reply(b"x")) as upstream:
        run(main(upstream))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_refused_connection_is_reported_in_the_systems_words(run: Run) -> None:
    async def main() -> None:
        pool = Pool(Origin(secure=False, host="127.0.0.1", port=free_port()), silence=30)
        with pytest.raises(UnreachableError, match="cannot be reached: Connection refused") as error:
            await pool.send(ASK)
        assert error.value.retryable
        assert not pool._all
        await pool.close()

    run(main())


def test_an_unknown_host_is_not_worth_another_try(run: Run) -> None:
    async def main() -> None:
        pool = Pool(Origin(secure=False, host="no-such-host.invalid", port=80), silence=30)
        with pytest.raises(UnreachableError) as error:
            await pool.send(ASK)
        assert error.value.code == "upstream_unreachable"
        assert not pool._all

    run(main())


def test_a_connection_that_takes_too_long_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http_client, "CONNECT_SECONDS", 0.05)

    async def main() -> None:
        # A listener that never answers the TLS handshake.
        with socket.create_server(("127.0.0.1", 0)) as server:
            pool = Pool(Origin(secure=True, host="127.0.0.1", port=server.getsockname()[1]), silence=30)
            with pytest.raises(UnreachableError, match=r"no connection within 0\.05 seconds") as error:
                await pool.send(ASK)
            assert error.value.retryable
            assert not pool._all
            await pool.close()

    run(main())


# Backpressure


def test_nobody_reading_stops_the_socket_and_reading_starts_it_again(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            connection = await pool._connect()
            sending = asyncio.create_task(connection.exchange(ASK))
            await asyncio.sleep(0)
            connection.data_received(stream_head())
            response = await sending
            connection.data_received(chunk(bytes(HIGH_WATER - 100)))
            assert connection._transport.is_reading()
            connection.data_received(chunk(bytes(200)))
            assert not connection._transport.is_reading()
            assert len(await response.read()) == HIGH_WATER + 100
            assert connection._transport.is_reading()
            response.release()

    with Upstream(Gate()) as upstream:
        run(main(upstream))


def test_a_slow_reader_slows_the_upstream_down(run: Run) -> None:
    total = 64 * MEBIBYTE  # more than all the buffers of the system between the two

    async def main(upstream: Upstream, other: Upstream) -> None:
        async with pool_for(upstream) as pool, pool_for(other) as beside:
            response = await pool.send(ASK)
            before = -1
            while upstream.links[0].sent != before:
                before = upstream.links[0].sent
                for _ in range(50):  # time in which the loop could read on
                    await whole(beside)
            assert before < total
            (connection,) = pool._all
            size = 0
            while size < total:
                assert sum(map(len, connection.pieces)) <= HIGH_WATER + 2 * 256 * 1024
                size += len(await response.read())
            assert await response.read() == b""
            response.release()
            assert connection in pool._idle

    head = f"HTTP/1.1 200 OK\r\ncontent-length: {total}\r\n\r\n".encode()
    with Upstream(head + bytes(total)) as upstream, Upstream(reply(b"x")) as other:
        run(main(upstream, other))


def test_an_unread_body_that_had_come_whole_leaves_a_connection_that_works(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            connection = await pool._connect()
            sending = asyncio.create_task(connection.exchange(ASK))
            await asyncio.sleep(0)
            body = bytes(HIGH_WATER)
            connection.data_received(stream_head())
            response = await sending
            connection.data_received(chunk(body))
            connection.data_received(LAST_CHUNK)
            assert not connection._transport.is_reading()
            response.release()
            assert connection._transport.is_reading()
            assert list(pool._idle) == [connection]
            assert not connection.pieces

    with Upstream(Gate()) as upstream:
        run(main(upstream))


# Cancellation  (bug 44)


@pytest.mark.parametrize("before", [[], [b"HTTP/1.1 200 OK\r\n"], [stream_head()], [stream_head(), chunk(b"x")]])
def test_cancelling_closes_the_connection_wherever_it_was(run: Run, before: list[bytes]) -> None:  # bug 44
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            task = asyncio.create_task(whole(pool))
            await seen(gate.reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await seen(upstream.links[0].left)
            assert not pool._all

    with Upstream([*before, gate]) as upstream:
        run(main(upstream))


def test_cancelling_on_a_kept_connection_closes_it_too(run: Run) -> None:  # bug 44
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            await whole(pool)
            task = asyncio.create_task(whole(pool))
            await seen(gate.reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await seen(upstream.links[0].left)

    with Upstream(reply(b"x"), gate) as upstream:
        run(main(upstream))
        assert len(upstream.links) == 1


def test_cancelling_at_any_step_of_connecting_leaks_nothing(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            for steps in range(12):
                task = asyncio.create_task(whole(pool))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert not pool._all

    with Upstream(Gate()) as upstream:
        run(main(upstream))


def test_closing_the_pool_ends_what_is_still_open(run: Run) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            task = asyncio.create_task(whole(pool))
            await seen(gate.reached)
            await pool.close()
            with pytest.raises(CutError):
                await task
            with pytest.raises(UnreachableError, match="closing"):
                await pool.send(ASK)

    with Upstream([stream_head(), gate]) as upstream:
        run(main(upstream))


# Addresses and TLS


@pytest.mark.parametrize(
    ("origin", "authority", "address"),
    [
        (Origin(secure=True, host="example.com", port=443), "example.com", "example.com:443"),
        (Origin(secure=False, host="example.com", port=80), "example.com", "example.com:80"),
        (Origin(secure=True, host="example.com", port=80), "example.com:80", "example.com:80"),
        (Origin(secure=False, host="::1", port=8000), "[::1]:8000", "[::1]:8000"),
        (Origin(secure=False, host="fe80::1%eth0", port=80), "[fe80::1]", "[fe80::1]:80"),
    ],
)
def test_the_host_header_leaves_out_the_port_that_everyone_assumes(origin: Origin, authority: str, address: str) -> None:
    assert origin.authority == authority
    assert origin.address == address


def test_packets_are_not_held_back(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            await whole(pool)
            (connection,) = pool._idle
            sock = connection._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    with Upstream(reply(b"x")) as upstream:
        run(main(upstream))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 that it signed itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "upstream")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path_factory.mktemp("tls") / "upstream.pem"
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_tls_carries_streams_and_keeps_its_connections(run: Run, certificate: Path) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, context=ssl.create_default_context(cafile=certificate)) as pool:
            assert await whole(pool) == b"ab"
            assert len(await whole(pool)) == 3 * MEBIBYTE
            with pytest.raises(CutError):
                await whole(pool)

    scripts: list[Script] = [[stream(b"a", b"b")], [reply(bytes(3 * MEBIBYTE))], [stream_head(), chunk(b"x"), CUT]]
    with Upstream(*scripts, context=server_context(certificate)) as upstream:
        run(main(upstream))
        assert {request.link for request in upstream.requests} == {0}


def test_cancelling_closes_a_tls_connection_at_once(run: Run, certificate: Path) -> None:  # bug 44
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, context=ssl.create_default_context(cafile=certificate)) as pool:
            task = asyncio.create_task(whole(pool))
            await seen(gate.reached)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await seen(upstream.links[0].left)

    with Upstream([stream_head(), gate], context=server_context(certificate)) as upstream:
        run(main(upstream))


def test_a_certificate_that_nobody_vouches_for_is_refused(run: Run, certificate: Path) -> None:
    async def main(upstream: Upstream) -> None:
        pool = Pool(Origin(secure=True, host="127.0.0.1", port=upstream.port), silence=30)
        with pytest.raises(UnreachableError, match=r"certificate is not valid: self.signed") as error:
            await pool.send(ASK)
        assert not error.value.retryable
        assert not pool._all
        await pool.close()

    with Upstream(reply(b"x"), context=server_context(certificate)) as upstream:
        run(main(upstream))


def test_tls_to_a_plain_port_is_explained(run: Run) -> None:
    async def main() -> ExchangeError:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
            await reader.read(1)
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            pool = Pool(Origin(secure=True, host="127.0.0.1", port=server.sockets[0].getsockname()[1]), silence=30)
            with pytest.raises(UnreachableError) as error:
                await pool.send(ASK)
            await pool.close()
            return error.value

    assert "TLS failed: WRONG_VERSION_NUMBER" in str(run(main()))


def test_a_response_knows_its_status_after_its_connection_went_on() -> None:
    async def main(upstream: Upstream) -> Response:
        async with pool_for(upstream) as pool:
            first = await pool.send(ASK)
            await first.read_all(10)
            first.release()
            await whole(pool)
            return first

    with Upstream(reply(b"x", 404, headers="x-first: yes\r\n"), reply(b"y")) as upstream:
        first = asyncio.run(main(upstream))
    assert (first.status, first.header(b"x-first")) == (404, "yes")
