from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import ssl
import weakref
from pathlib import Path

import pytest

from tests.backends.http.pools import ASK, MEBIBYTE, Run, fetch, pool_for
from tests.upstream import CLOSE, RESET, Gate, Script, Step, Upstream, chunk, reply, result_of, stream, stream_head
from toolrelay.backends.http import pool as http_pool
from toolrelay.backends.http.connection import UpstreamConnection
from toolrelay.backends.http.errors import ConnectError, ConnectionCutError, UpstreamError
from toolrelay.backends.http.origin import Origin
from toolrelay.backends.http.pool import ConnectionPool

# Keeping connections


def test_sequential_requests_reuse_one_connection(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            assert [await fetch(pool) for _ in range(5)] == [b"1", b"2", b"34", b"5", b"5"]

    with Upstream(reply(b"1"), reply(b"2"), stream(b"3", b"4"), reply(b"5")) as upstream:
        run(main(upstream))
        assert [request.connection for request in upstream.requests] == [0, 0, 0, 0, 0]
        assert upstream.requests[0].body == b"{}"


def test_concurrent_requests_use_own_connections_and_latest_is_reused(run: Run) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            tasks = [asyncio.create_task(fetch(pool)) for _ in range(3)]
            await result_of(upstream.request(2))
            gate.open()
            await asyncio.gather(*tasks)
            assert len(upstream.connections) == 3
            latest = list(pool._idle)[-1]
            await fetch(pool)
            assert list(pool._idle)[-1] is latest
            assert len(upstream.connections) == 3

    with Upstream([gate, reply(b"x")]) as upstream:
        run(main(upstream))


@pytest.mark.parametrize(
    "script",
    [
        [reply(b"x", headers="connection: close\r\n")],
        [b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx"],
        [reply(b"x") + reply(b"nobody asked for this")],
        [reply(b"x") + b"garbage"],
        [b"HTTP/1.1 200 OK\r\n\r\nx", CLOSE],
    ],
    ids=["close", "HTTP/1.0", "a second response", "garbage after it", "no length"],
)
def test_unsafe_connection_is_not_reused(run: Run, script: Script) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            assert await fetch(pool) == b"x"
            assert await fetch(pool) == b"x"

    with Upstream(script) as upstream:
        run(main(upstream))
        assert [request.connection for request in upstream.requests] == [0, 1]


@pytest.mark.parametrize("ending", [CLOSE, RESET, b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_closed_idle_connection_leaves_pool(run: Run, ending: Step) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            await fetch(pool)
            assert len(pool._idle) == 1
            pool.lost = asyncio.get_running_loop().create_future()
            gate.open()
            await pool.lost
            assert not pool._idle
            assert await fetch(pool) == b"x"

    with Upstream([reply(b"x"), gate, ending], reply(b"x")) as upstream:
        run(main(upstream))
        assert [request.connection for request in upstream.requests] == [0, 1]


@pytest.mark.parametrize("ending", [CLOSE, RESET])
def test_idle_connection_cut_before_first_byte_is_replaced(run: Run, ending: Step) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            assert await fetch(pool) == b"1"
            assert await fetch(pool) == b"2"

    with Upstream(reply(b"1"), ending, reply(b"2")) as upstream:
        run(main(upstream))
        assert [request.connection for request in upstream.requests] == [0, 0, 1]


def test_dead_idle_connection_is_replaced_by_new_one(run: Run) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            tasks = [asyncio.create_task(fetch(pool)) for _ in range(2)]
            await result_of(upstream.request(1))
            gate.open()
            await asyncio.gather(*tasks)
            assert len(pool._idle) == 2
            assert await fetch(pool) == b"x"

    with Upstream([gate, reply(b"x")], [gate, reply(b"x")], CLOSE, reply(b"x")) as upstream:
        run(main(upstream))
        assert upstream.requests[-1].connection == 2


def test_idle_connection_cut_after_first_byte_raises(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            assert await fetch(pool) == b"1"
            with pytest.raises(ConnectionCutError, match="in the middle") as error:
                await fetch(pool)
            assert not error.value.retryable

    with Upstream(reply(b"1"), [b"HTTP/1.1 2", CLOSE]) as upstream:
        run(main(upstream))
        assert len(upstream.requests) == 2


def test_new_connection_cut_before_first_byte_raises(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            with pytest.raises(ConnectionCutError, match="without an answer") as error:
                await fetch(pool)
            assert not error.value.retryable

    with Upstream(CLOSE) as upstream:
        run(main(upstream))
        assert len(upstream.requests) == 1


def test_response_before_request_is_sent_closes_connection(run: Run) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            pool = ConnectionPool(Origin(secure=False, host="127.0.0.1", port=server.getsockname()[1]), read_timeout=30)
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


def test_idle_connections_expire_and_are_limited(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            monkeypatch.setattr(http_pool, "MAX_IDLE", 2)
            tasks = [asyncio.create_task(fetch(pool)) for _ in range(3)]
            await result_of(upstream.request(2))
            gate.open()
            await asyncio.gather(*tasks)
            older, newer = pool._idle
            newer.idle_since += 1000
            older.idle_since -= 1000
            pool._close_expired()
            assert list(pool._idle) == [newer]
            newer.idle_since -= 2000
            pool._close_expired()
            assert not pool._idle
            for connection in upstream.connections:
                await result_of(connection.closed)

    with Upstream([gate, reply(b"x")]) as upstream:
        run(main(upstream))


def test_connection_has_no_reference_cycles(run: Run) -> None:
    async def main(upstream: Upstream) -> weakref.ref[UpstreamConnection]:
        async with pool_for(upstream) as pool:
            await fetch(pool)
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


# Opening and closing


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_refused_connection_raises_with_system_message(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool(Origin(secure=False, host="127.0.0.1", port=free_port()), read_timeout=30)
        with pytest.raises(ConnectError, match="cannot be reached: Connection refused") as error:
            await pool.send(ASK)
        assert error.value.retryable
        assert not pool._all
        await pool.close()

    run(main())


def test_connect_timeout_raises(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_pool, "CONNECT_SECONDS", 0.05)

    async def main() -> None:
        # A listener that never answers the TLS handshake.
        with socket.create_server(("127.0.0.1", 0)) as server:
            pool = ConnectionPool(Origin(secure=True, host="127.0.0.1", port=server.getsockname()[1]), read_timeout=30)
            with pytest.raises(ConnectError, match=r"no connection within 0\.05 seconds") as error:
                await pool.send(ASK)
            assert error.value.retryable
            assert not pool._all
            await pool.close()

    run(main())


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused", True),
        (OSError(errno.EHOSTUNREACH, "x"), os.strerror(errno.EHOSTUNREACH), True),
        (OSError("Multiple exceptions: a, b"), "Multiple exceptions: a, b", True),
        (TimeoutError(errno.ETIMEDOUT, "x"), os.strerror(errno.ETIMEDOUT), True),
        (TimeoutError(), "no connection within 10 seconds", True),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known", False),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "Temporary failure", True),
    ],
)
def test_os_errors_map_to_connect_errors(error: OSError, reason: str, retryable: bool) -> None:  # noqa: FBT001 -- a column of the table
    found = ConnectError.from_os_error(error, timeout=10)
    assert str(found) == f"cannot be reached: {reason}"
    assert found.retryable is retryable


def test_cancellation_while_connecting_leaks_nothing(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            for steps in range(12):
                task = asyncio.create_task(fetch(pool))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert not pool._all

    with Upstream(Gate()) as upstream:
        run(main(upstream))


def test_connection_made_after_abort_is_closed(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            connection = UpstreamConnection(pool)
            connection.abort()
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", upstream.port)
            assert transport.is_closing()
            assert not connection.is_usable

    with Upstream(Gate()) as upstream:
        run(main(upstream))


def test_closed_pool_aborts_open_requests(run: Run) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            task = asyncio.create_task(fetch(pool))
            await result_of(gate.reached)
            await pool.close()
            with pytest.raises(ConnectionCutError):
                await task
            with pytest.raises(ConnectError, match="closing"):
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
def test_authority_omits_default_port(origin: Origin, authority: str, address: str) -> None:
    assert origin.authority == authority
    assert origin.address == address


def test_tcp_nodelay_is_set(run: Run) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream) as pool:
            await fetch(pool)
            (connection,) = pool._idle
            sock = connection._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    with Upstream(reply(b"x")) as upstream:
        run(main(upstream))


def test_tls_streams_and_reuses_connections(run: Run, certificate: Path, server_context: ssl.SSLContext) -> None:
    async def main(upstream: Upstream) -> None:
        async with pool_for(upstream, context=ssl.create_default_context(cafile=certificate)) as pool:
            assert await fetch(pool) == b"ab"
            assert len(await fetch(pool)) == 3 * MEBIBYTE
            with pytest.raises(ConnectionCutError):
                await fetch(pool)

    scripts: list[Script] = [[stream(b"a", b"b")], [reply(bytes(3 * MEBIBYTE))], [stream_head(), chunk(b"x"), CLOSE]]
    with Upstream(*scripts, context=server_context) as upstream:
        run(main(upstream))
        assert {request.connection for request in upstream.requests} == {0}


def test_untrusted_certificate_raises(run: Run, certificate: Path, server_context: ssl.SSLContext) -> None:
    async def main(upstream: Upstream) -> None:
        pool = ConnectionPool(Origin(secure=True, host="127.0.0.1", port=upstream.port), read_timeout=30)
        with pytest.raises(ConnectError, match=r"certificate is not valid: self.signed") as error:
            await pool.send(ASK)
        assert not error.value.retryable
        assert not pool._all
        await pool.close()

    with Upstream(reply(b"x"), context=server_context) as upstream:
        run(main(upstream))


def test_tls_to_plain_port_raises_with_reason(run: Run) -> None:
    async def main() -> UpstreamError:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
            await reader.read(1)
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            pool = ConnectionPool(Origin(secure=True, host="127.0.0.1", port=server.sockets[0].getsockname()[1]), read_timeout=30)
            with pytest.raises(ConnectError) as error:
                await pool.send(ASK)
            await pool.close()
            return error.value

    assert "TLS failed: WRONG_VERSION_NUMBER" in str(run(main()))
