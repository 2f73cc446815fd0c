"""Scripted upstream for Chat Completions and Responses, on one epoll loop, so that it is much cheaper than a gateway.

`python -m bench.upstream PORT` serves until its standard input closes. `GET /bench/state` returns which scripted streams are open
and when the others were disconnected.
"""

import contextlib
import gc
import json
import os
import re
import select
import socket
import sys
from collections.abc import Callable
from functools import cache

from bench import frames, script

_TICK_S = 0.001
_SLOTS = 1 << 16
_READ = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_STREAM = re.compile(rb'"stream":\s*true')
_TOOL = f'"{script.TOOL_NAME}"'.encode()
_RESULT = b'"tool_call_id"'
_BURST_BLOCK = 256
_STRIDE = 7
"""Coprime to every interval in use, so that phases fill it evenly."""


@cache
def _burst(wire: frames.Frames, chunks: int) -> list[bytes]:
    return wire.burst(chunks)


class Connection:
    """A connection from the gateway. `script` is set while a request is being answered."""

    __slots__ = ("chunks_sent", "inbox", "outbox", "script", "sock", "stamps", "upstream", "wire")

    def __init__(self, upstream: "Upstream", sock: socket.socket) -> None:
        self.upstream = upstream
        self.sock = sock
        self.inbox = bytearray()
        self.outbox = b""
        self.script: script.Script | None = None
        self.wire = frames.CHAT
        self.chunks_sent = 0
        self.stamps: list[bytes] = []

    def ready(self, events: int) -> None:
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._read()
        if events & select.EPOLLOUT and self.sock.fileno() >= 0:
            self._flush()

    def _read(self) -> None:
        try:
            received = self.sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self.close()
            return
        self.inbox += received
        while self.script is None and (request := self._take_request()) is not None:
            self._answer(*request)

    def _take_request(self) -> tuple[bytes, bytes] | None:
        end = self.inbox.find(b"\r\n\r\n")
        if end < 0:
            return None
        end += 4
        head = bytes(self.inbox[:end])
        if length := _LENGTH.search(head):
            total = end + int(length[1])
        elif _CHUNKED.search(head):
            last = self.inbox.find(b"0\r\n\r\n", end)
            total = last + 5 if last >= 0 else len(self.inbox) + 1
        else:
            total = end
        if len(self.inbox) < total:
            return None
        body = bytes(self.inbox[end:total])
        del self.inbox[:total]
        return head, body

    def _answer(self, head: bytes, body: bytes) -> None:
        target = head.split(b" ", 2)[1]
        if target == b"/bench/state":
            self.send(frames.response(b"200 OK", self.upstream.state()))
            return
        wire = frames.BY_ENDPOINT.get(target.rpartition(b"/")[2])
        if wire is None:
            self.send(frames.response(b"404 Not Found", b'{"error":{"message":"not served here"}}'))
            return
        self.wire = wire
        if _TOOL in body and _RESULT not in body:
            before, after = frames.CHAT_CALL
            self.send(before + script.stamp(script.now_us()) + after)
            return
        asked = script.decode(body)
        if asked is not None and asked.act == "silent":
            self._begin(asked)
        elif _STREAM.search(body):
            self._begin(asked or script.Script())
            self._play()
        else:
            self.send(self.wire.whole)

    def _begin(self, asked: script.Script) -> None:
        self.script = asked
        self.chunks_sent = 0
        self.stamps = []
        if asked.id:
            self.upstream.open.add(asked.id)

    def _play(self) -> None:
        match self.script:
            case script.Script(every_ms=0, act="endless"):
                self.upstream.watch(self, writable=True)
                self.send(self.wire.opening)
            case script.Script(every_ms=0, chunks=chunks):
                moment = script.stamp(script.now_us())
                burst = moment.join(_burst(self.wire, chunks))
                self._end()
                self.send(self.wire.opening + burst + self.wire.closing(chunks, self._full_text([moment] * chunks)))
            case script.Script(every_ms=every):
                self.send(self.wire.opening)
                self.upstream.arm_first(self, every)

    def step(self) -> None:
        """Send one paced chunk; the last one together with the closing frames, as providers do."""
        playing = self.script
        if playing is None:
            return
        before, after = self.wire.delta(self.chunks_sent)
        self.chunks_sent += 1
        moment = script.stamp(script.now_us())
        if self.wire is frames.RESPONSES:
            self.stamps.append(moment)
        if self.chunks_sent < playing.chunks or playing.act == "endless":
            self.send(before + moment + after)
            self.upstream.arm(self, playing.every_ms)
            return
        self._end()
        self.send(before + moment + after + self.wire.closing(playing.chunks, self._full_text(self.stamps)))

    def _full_text(self, stamps: list[bytes]) -> str:
        """Return the text that a Responses stream repeats at its end."""
        if self.wire is not frames.RESPONSES:
            return ""
        return "".join(moment.decode() + frames.word(n) for n, moment in enumerate(stamps))

    def _end(self) -> None:
        if self.script is not None and self.script.id:
            self.upstream.open.discard(self.script.id)
        self.script = None

    def send(self, block: bytes) -> None:
        if self.outbox:
            self.outbox += block
            return
        try:
            sent = self.sock.send(block)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        if sent < len(block):
            self.outbox = block[sent:]
            self.upstream.watch(self, writable=True)

    def _flush(self) -> None:
        block, self.outbox = self.outbox, b""
        if block:
            self.send(block)
        if self.outbox or self.sock.fileno() < 0:
            return
        if self.script is not None and self.script.act == "endless" and not self.script.every_ms:
            self.send(script.stamp(script.now_us()).join(_burst(self.wire, _BURST_BLOCK)))
        else:
            self.upstream.watch(self, writable=False)

    def close(self) -> None:
        if self.sock.fileno() < 0:
            return
        if self.script is not None and self.script.id:
            self.upstream.cut[self.script.id] = script.now_us()
        self._end()
        self.upstream.forget(self)


class Upstream:
    def __init__(self, port: int) -> None:
        self.open: set[int] = set()
        self.cut: dict[int, int] = {}
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self._wheel: list[list[Connection]] = [[] for _ in range(_SLOTS)]
        self._armed = 0
        self._paced = 0
        self._now_ms = script.now_us() // 1000
        self._running = True
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self._register(self._listener.fileno(), self._accept)
        self._register(sys.stdin.fileno(), self._stop)

    def _register(self, fd: int, ready: Callable[[int], None]) -> None:
        self._ready[fd] = ready
        self._epoll.register(fd, select.EPOLLIN)

    def _stop(self, _events: int) -> None:
        self._running = bool(os.read(sys.stdin.fileno(), 1))

    def _accept(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._register(sock.fileno(), Connection(self, sock).ready)

    def watch(self, connection: Connection, *, writable: bool) -> None:
        self._epoll.modify(connection.sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if writable else 0))

    def forget(self, connection: Connection) -> None:
        fd = connection.sock.fileno()
        self._epoll.unregister(fd)
        del self._ready[fd]
        connection.sock.close()

    def arm(self, connection: Connection, after_ms: int) -> None:
        self._wheel[(self._now_ms + after_ms) % _SLOTS].append(connection)
        self._armed += 1

    def arm_first(self, connection: Connection, every_ms: int) -> None:
        """Schedule a stream's first chunk so that all streams are spread evenly over the interval.

        Streams that start together would send together to their end, and batches cost a gateway far less.
        """
        if not self._armed:
            self._now_ms = script.now_us() // 1000
        self._paced += 1
        phase = self._paced * _STRIDE % every_ms
        first = self._now_ms + every_ms
        self.arm(connection, every_ms + (phase - first) % every_ms)

    def state(self) -> bytes:
        return json.dumps({"open": sorted(self.open), "cut": self.cut}).encode()

    def run(self) -> None:
        ready = self._ready
        while self._running:
            # Sleep when nothing is paced: a thousand wake-ups a second would cost the load generator its core.
            for fd, events in self._epoll.poll(_TICK_S if self._armed else -1, 512):
                if fd in ready:
                    ready[fd](events)
            self._turn_wheel()

    def _turn_wheel(self) -> None:
        now = script.now_us() // 1000
        while self._armed and self._now_ms < now:
            self._now_ms += 1
            slot = self._now_ms % _SLOTS
            if due := self._wheel[slot]:
                self._wheel[slot] = []
                self._armed -= len(due)
                for connection in due:
                    connection.step()


def main() -> None:
    gc.disable()
    Upstream(int(sys.argv[1])).run()


if __name__ == "__main__":
    main()
