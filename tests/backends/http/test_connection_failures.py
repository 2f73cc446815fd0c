"""Exchanges that fail: cut, invalid, timed out, or cancelled."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from tests.backends.http.pools import ASK, ENDLESS, MEBIBYTE, Run, fetch, pool_for, start_response
from tests.upstream import CLOSE, LAST_CHUNK, RESET, Gate, Script, Upstream, chunk, reply, result_of, stream_head
from toolrelay.backends.http.errors import ConnectionCutError, InvalidResponseError, ReadTimeoutError
from toolrelay.backends.http.origin import Origin
from toolrelay.backends.http.pool import ConnectionPool

# Failures


@pytest.mark.parametrize(
    "script",
    [
        [stream_head(), chunk(b"hello"), CLOSE],
        [stream_head(), chunk(b"hello"), RESET],
        [stream_head() + b"a\r\nhello", CLOSE],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello", CLOSE],
    ],
    ids=["between chunks", "reset", "in a chunk", "length"],
)
def test_cut_body_gives_received_bytes_then_error(run: Run, script: Script) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            response = await pool.send(ASK)
            if script[-1] is CLOSE:  # a reset may overtake what came before it
                assert await response.read() == b"hello"
            for _ in range(2):
                with pytest.raises(ConnectionCutError, match="in the middle of its answer"):
                    await response.read_all(10)
            response.release()

    with Upstream(script) as upstream:
        run(main(upstream))


def test_upstream_closing_during_send_raises(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            pool = ConnectionPool(Origin(secure=False, host="127.0.0.1", port=server.getsockname()[1]), read_timeout=0)
            sending = asyncio.create_task(pool.send(b"POST / HTTP/1.1\r\n\r\n" + bytes(64 * MEBIBYTE)))
            peer, _ = await loop.sock_accept(server)
            with peer:
                await loop.sock_recv(peer, 1)
                peer.shutdown(socket.SHUT_WR)
                with pytest.raises(ConnectionCutError):
                    await sending
            await pool.close()

    run(main())


def test_reset_of_body_without_length_raises(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            with pytest.raises(ConnectionCutError):
                await fetch(pool)

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
def test_invalid_http_raises_invalid_response(run: Run, garbage: bytes) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            with pytest.raises(InvalidResponseError, match=r"did not answer in HTTP/1\.1"):
                await fetch(pool)
            await result_of(upstream.connections[0].closed)

    with Upstream([garbage, Gate()]) as upstream:
        run(main(upstream))


def test_framing_overhead_of_long_stream_is_allowed(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            connection, response = await start_response(pool)
            for _ in range(100):
                connection.data_received(b"1;" + b"e" * 1000 + b"\r\n")
                connection.data_received(b"x\r\n")
                assert await response.read() == b"x"
            response.release()

    with Upstream(Gate()) as upstream:
        run(main(upstream))


@pytest.mark.parametrize("before", [[], [b"HTTP/1.1 200 "], [stream_head()], [stream_head(), chunk(b"x")]])
def test_read_timeout_raises_and_closes_connection(run: Run, before: list[bytes]) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, read_timeout=0.05) as pool:
            with pytest.raises(ReadTimeoutError, match=r"sent nothing for 0\.05 seconds"):
                await fetch(pool)
            await result_of(upstream.connections[0].closed)

    with Upstream([*before, Gate()]) as upstream:
        run(main(upstream))


def test_zero_read_timeout_sets_no_timer(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, read_timeout=0) as pool:
            assert await fetch(pool) == b"x"
            assert next(iter(pool._idle))._timeout_timer is None

    with Upstream(reply(b"x")) as upstream:
        run(main(upstream))


def test_read_timeout_counts_from_last_byte(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, read_timeout=1000) as pool:
            connection, response = await start_response(pool)
            reading = asyncio.create_task(response.read_all(10))
            for packet in (b"1\r\n", b"x\r\n", b"1\r", b"\ny\r\n"):  # bytes that are no body are a sign of life too
                await asyncio.sleep(0)
                connection._waiting_since -= 900
                connection._check_timeout()
                assert connection.error is None
                connection.data_received(packet)
            await asyncio.sleep(0)
            connection._waiting_since -= 1001
            connection._check_timeout()
            with pytest.raises(ReadTimeoutError):
                await reading
            response.release()

    with Upstream(Gate()) as upstream:
        run(main(upstream))


def test_slow_reader_does_not_cause_read_timeout(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, read_timeout=1000) as pool:
            connection, response = await start_response(pool)
            connection._waiting_since -= 5000
            connection._check_timeout()
            connection.data_received(chunk(b"x") + LAST_CHUNK)
            assert await response.read_all(10) == b"x"
            response.release()

    with Upstream(Gate()) as upstream:
        run(main(upstream))


# Cancellation


@pytest.mark.parametrize("before", [[], [b"HTTP/1.1 200 OK\r\n"], [stream_head()], [stream_head(), chunk(b"x")]])
def test_cancelled_request_closes_connection(run: Run, before: list[bytes]) -> None:  # bug 44
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            task = asyncio.create_task(fetch(pool))
            await result_of(gate.reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await result_of(upstream.connections[0].closed)
            assert not pool._all

    with Upstream([*before, gate]) as upstream:
        run(main(upstream))


def test_cancelled_request_closes_reused_connection(run: Run) -> None:  # bug 44
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            await fetch(pool)
            task = asyncio.create_task(fetch(pool))
            await result_of(gate.reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await result_of(upstream.connections[0].closed)

    with Upstream(reply(b"x"), gate) as upstream:
        run(main(upstream))
        assert len(upstream.connections) == 1


def test_cancelled_request_closes_tls_connection(run: Run, certificate: Path, server_context: ssl.SSLContext) -> None:  # bug 44
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, context=ssl.create_default_context(cafile=certificate)) as pool:
            task = asyncio.create_task(fetch(pool))
            await result_of(gate.reached)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await result_of(upstream.connections[0].closed)

    with Upstream([stream_head(), gate], context=server_context) as upstream:
        run(main(upstream))
