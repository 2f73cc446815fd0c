"""A scripted upstream: sends exact bytes over real sockets, closes connections where the script says, and records requests.

It runs in its own thread, so that tests with and without an event loop can use it. Tests wait for futures of concurrent.futures:
`.result(30)`, or in a coroutine `await result_of(…)`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Self, TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")

LAST_CHUNK = b"0\r\n\r\n"
_NO_LINGER = struct.pack("ii", 1, 0)  # closing resets the connection


def reply(body: bytes, status: int = 200, content_type: str = "application/json", headers: str = "") -> bytes:
    """Return a whole response. `headers` are further lines, each with its CR LF."""
    return (
        f"HTTP/1.1 {status} Whatever\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode()
        + body
    )


def stream_head(content_type: str = "text/event-stream") -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(*pieces: bytes) -> bytes:
    """Return a whole chunked response, one chunk per piece."""
    return stream_head() + b"".join(map(chunk, pieces)) + LAST_CHUNK


async def result_of(future: Future[T]) -> T:
    return await asyncio.wrap_future(future)


class Disconnect(Enum):
    """CLOSE closes the connection, RESET resets it."""

    CLOSE = "close"
    RESET = "reset"


CLOSE = Disconnect.CLOSE
RESET = Disconnect.RESET


class Gate:
    """A step that waits until the test opens it. `reached` resolves once everything before it has been sent."""

    def __init__(self) -> None:
        self.reached: Future[None] = Future()
        self._opened: Future[None] = Future()

    def open(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    async def wait(self) -> None:
        if not self.reached.done():
            self.reached.set_result(None)
        # Cancelling one connection must not cancel the gate.
        await asyncio.shield(asyncio.wrap_future(self._opened))


Step: TypeAlias = bytes | Gate | Disconnect
Script: TypeAlias = Sequence[Step]


class ReceivedRequest(Struct, frozen=True, kw_only=True):
    """Header names are in lower case; `connection` is the number of the connection, from 0."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


Player: TypeAlias = Callable[[ReceivedRequest], Script]
"""Makes a script from a request."""


class Connection:
    """`closed` resolves with the monotonic time at which either side closed it."""

    def __init__(self) -> None:
        self.sent = 0
        self.closed: Future[float] = Future()


class AwaitableList(list[T]):
    """A list with a future for its nth element."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._awaited: dict[int, Future[T]] = {}

    def add(self, element: T) -> int:
        with self._lock:
            self.append(element)
            place = len(self) - 1
            waiting = self._awaited.setdefault(place, Future())
        waiting.set_result(element)
        return place

    def future(self, place: int) -> Future[T]:
        with self._lock:
            return self._awaited.setdefault(place, Future())


class Upstream:
    """Plays one script per request, in order of arrival over all connections; the last one repeats.

    A bare step is a script of one step. A function makes its script from the request.
    """

    def __init__(self, *scripts: Script | Step | Player, context: ssl.SSLContext | None = None) -> None:
        self._scripts = [as_script(script) for script in scripts]
        self._context = context
        self.requests: AwaitableList[ReceivedRequest] = AwaitableList()
        self.connections: AwaitableList[Connection] = AwaitableList()
        self._address: Future[tuple[str, int]] = Future()
        self._stop: Future[None] = Future()
        self._tasks: dict[asyncio.Task[None], socket.socket] = {}
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._address.result(30)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set_result(None)
        self._thread.join(30)

    @property
    def port(self) -> int:
        return self._address.result(30)[1]

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"

    def request(self, place: int) -> Future[ReceivedRequest]:
        """Return a future of the request with this number, from 0."""
        return self.requests.future(place)

    def reset(self, *scripts: Script | Step | Player) -> None:
        """Forget the requests, and play these scripts from now on."""
        self._scripts = [as_script(script) for script in scripts]
        self.requests = AwaitableList()

    async def _main(self) -> None:
        # Not asyncio's own server: closing it while a connection comes in leaks the connection's socket.
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
            listener.setblocking(False)
            loop.add_reader(listener, self._accept, listener)
            self._address.set_result(listener.getsockname()[:2])
            await asyncio.wrap_future(self._stop)
            loop.remove_reader(listener)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close in the loop's next iteration
        for peer in self._tasks.values():
            peer.close()

    def _accept(self, listener: socket.socket) -> None:
        peer, _ = listener.accept()
        self._tasks[asyncio.get_running_loop().create_task(self._serve(peer))] = peer

    async def _serve(self, peer: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=1 << 24)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, peer, ssl=self._context)
        except OSError:  # the handshake failed
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        transport.set_write_buffer_limits(1)  # with 0 a TLS transport never drains
        connection = Connection()
        number = self.connections.add(connection)
        scripts: asyncio.Queue[Script] = asyncio.Queue()
        player = loop.create_task(_play(scripts, writer, connection))
        try:
            while True:
                received = await _receive(reader, number)
                script = self._scripts[min(len(self.requests), len(self._scripts) - 1)]
                scripts.put_nowait(script(received) if callable(script) else script)
                self.requests.add(received)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            connection.closed.set_result(time.monotonic())
            player.cancel()
            transport.abort()


async def _receive(reader: asyncio.StreamReader, connection: int) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method=method, path=path, headers=headers, body=body, connection=connection)


async def _play(scripts: asyncio.Queue[Script], writer: asyncio.StreamWriter, connection: Connection) -> None:
    while True:
        for step in await scripts.get():
            match step:
                case Gate():
                    await step.wait()
                case Disconnect():
                    if step is RESET:
                        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                    writer.transport.abort()
                    return
                case _:
                    for piece in _pieces(step):
                        writer.write(piece)
                        await writer.drain()
                        connection.sent += len(piece)


def _pieces(data: bytes, size: int = 65536) -> Iterable[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def as_script(script: Script | Step | Player) -> Script | Player:
    """Return a bare step as a script of one step."""
    return (script,) if isinstance(script, bytes | Gate | Disconnect) else script
