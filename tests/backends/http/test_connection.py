from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.http.pools import ASK, ENDLESS, MEBIBYTE, Run, fetch, pool_for, start_response
from tests.upstream import CLOSE, LAST_CHUNK, Gate, Script, Upstream, chunk, reply, result_of, stream, stream_head
from toolrelay.backends.http.connection import HIGH_WATER, UpstreamResponse
from toolrelay.backends.http.errors import ResponseTooLargeError

# Bodies


@pytest.mark.parametrize(
    "script",
    [
        [reply(b"hello world")],
        [stream(b"hello", b" ", b"world")],
        [ENDLESS + b"hello world", CLOSE],
        [b"HTTP/1.0 200 OK\r\ncontent-length: 11\r\n\r\nhello world", CLOSE],
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
def test_body_is_read_with_every_framing(run: Run, script: Script) -> None:
    async def main(upstream: Upstream) -> bytes:
        async with pool_for(upstream) as pool:
            return await fetch(pool)

    with Upstream(script) as upstream:
        assert run(main(upstream)) == b"hello world"


def test_packet_boundaries_do_not_matter() -> None:
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
            sending = asyncio.create_task(connection.send(ASK))
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


def test_chunks_that_arrive_together_are_read_together() -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            connection, response = await start_response(pool)
            connection.data_received(chunk(b"a") + chunk(b"b"))
            connection.data_received(chunk(b"c"))
            assert await response.read() == b"abc"
            connection.data_received(LAST_CHUNK)
            assert await response.read() == b""
            assert await response.read() == b""
            response.release()

    with Upstream(Gate()) as upstream:
        asyncio.run(main(upstream))


def test_status_and_headers_are_available_before_body(run: Run) -> None:
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


def test_interim_headers_and_trailers_are_ignored(run: Run) -> None:
    async def main(upstream: Upstream) -> list[bytes]:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            await response.read_all(10)
            response.release()
            return list(response.headers)

    interim = b"HTTP/1.1 103 Early Hints\r\nx-interim: 1\r\n\r\n"
    with Upstream(interim + stream_head() + chunk(b"x") + b"0\r\nx-trailer: 1\r\n\r\n") as upstream:
        assert run(main(upstream)) == [b"content-type", b"transfer-encoding"]


def test_body_over_limit_raises_and_closes_connection(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            with pytest.raises(ResponseTooLargeError, match="more than 1000 bytes"):
                await response.read_all(1000)
            response.release()
            await result_of(upstream.connections[0].closed)

    with Upstream([stream_head(), chunk(b"x" * 1001), Gate()]) as upstream:
        run(main(upstream))


def test_released_response_keeps_status_and_headers() -> None:
    async def main(upstream: Upstream) -> UpstreamResponse:
        async with pool_for(upstream) as pool:
            first = await pool.send(ASK)
            await first.read_all(10)
            first.release()
            await fetch(pool)
            return first

    with Upstream(reply(b"x", 404, headers="x-first: yes\r\n"), reply(b"y")) as upstream:
        first = asyncio.run(main(upstream))
    assert (first.status, first.header(b"x-first")) == (404, "yes")


# A released response


def test_drained_response_returns_connection_to_pool(run: Run) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            assert await response.read() == b"[DONE]"
            pool.kept = asyncio.get_running_loop().create_future()
            response.release(drain_seconds=60)
            assert not pool._idle
            gate.open()
            await pool.kept
            pool.kept = None
            assert await fetch(pool) == b"x"

    with Upstream([stream_head(), chunk(b"[DONE]"), gate, chunk(b"more"), LAST_CHUNK], reply(b"x")) as upstream:
        run(main(upstream))
        assert [request.connection for request in upstream.requests] == [0, 0]


@pytest.mark.parametrize("more", [[], [b"x" * HIGH_WATER * 2], [b"garbage\r\n"]], ids=["silence", "too much", "garbage"])
def test_draining_is_limited(run: Run, more: list[bytes]) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            assert await response.read() == b"[DONE]"
            response.release(drain_seconds=0.001 if not more else 60)
            gate.open()
            await result_of(upstream.connections[0].closed)

    gate = Gate()
    rest = [chunk(piece) if piece[0] == ord("x") else piece for piece in more]
    with Upstream([stream_head(), chunk(b"[DONE]"), gate, *rest, Gate()]) as upstream:
        run(main(upstream))


def test_second_release_has_no_effect(run: Run) -> None:
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
        assert len(upstream.connections) == 1


# Backpressure


def test_full_buffer_pauses_reading_until_read(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            connection, response = await start_response(pool)
            connection.data_received(chunk(bytes(HIGH_WATER - 100)))
            assert connection._transport.is_reading()
            connection.data_received(chunk(bytes(200)))
            assert not connection._transport.is_reading()
            assert len(await response.read()) == HIGH_WATER + 100
            assert connection._transport.is_reading()
            response.release()

    with Upstream(Gate()) as upstream:
        run(main(upstream))


def test_slow_reader_applies_backpressure(run: Run) -> None:
    total = 64 * MEBIBYTE  # more than all the buffers of the system between the two

    async def main(upstream: Upstream, other: Upstream) -> None:
        async with pool_for(upstream) as pool, pool_for(other) as beside:
            response = await pool.send(ASK)
            before = -1
            while upstream.connections[0].sent != before:
                before = upstream.connections[0].sent
                for _ in range(50):  # time in which the loop could read on
                    await fetch(beside)
            assert before < total
            (connection,) = pool._all
            size = 0
            while size < total:
                assert sum(map(len, connection.chunks)) <= HIGH_WATER + 2 * 256 * 1024
                size += len(await response.read())
            assert await response.read() == b""
            response.release()
            assert connection in pool._idle

    head = f"HTTP/1.1 200 OK\r\ncontent-length: {total}\r\n\r\n".encode()
    with Upstream(head + bytes(total)) as upstream, Upstream(reply(b"x")) as other:
        run(main(upstream, other))


def test_unread_complete_body_keeps_connection_usable(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            connection = await pool._connect()
            sending = asyncio.create_task(connection.send(ASK))
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
            assert not connection.chunks

    with Upstream(Gate()) as upstream:
        run(main(upstream))
