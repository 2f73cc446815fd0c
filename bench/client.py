"""A client connection of the load generator: sends requests and counts marks in the raw bytes of the answers."""

import re
import select
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bench.script import MARK, STAMP_DIGITS, TOOL_NAME, Script, now_us

Api = Literal["chat", "responses", "anthropic", "websocket"]
"""`websocket` is Responses over a WebSocket."""
KEY = "sk-bench"

_SYSTEM = (
    "You are a careful assistant. Answer briefly and correctly, use the tools when they help, and never state as a fact what "
    "neither the context nor a tool has told you."
)
_PROMPT = (
    "Tell me what you know about the quick brown fox and the lazy dog: where the sentence comes from, who printed it first, what "
    "it was used for and what took its place. Five paragraphs of plain English, no lists; give dates where they are known and "
    "say so where they are not."
)
TOOL = (
    f'{{"type":"function","function":{{"name":"{TOOL_NAME}","parameters":{{"type":"object","properties":{{"day":{{"type":"string"}}}},'
    '"required":["day"],"additionalProperties":false}}}'
)
_TARGETS: dict[Api, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "websocket": "/v1/responses",
}
_END_MARKS: dict[Api, bytes] = {
    "chat": b"[DONE]",
    "responses": b"[DONE]",
    "anthropic": b'"message_stop"',
    "websocket": b'"sequence_number":',
}
_FRAMING_EVENTS = 7
"""Events of a text over a WebSocket, beside its deltas and the first."""
_WHOLE_TEXT = b"response.output_text.done"
"""After this event a Responses stream repeats its text: later marks are not chunks."""

_QUOTED_MARK = b'"' + MARK
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_TAIL = 64
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_MAX_PRINTED_ERRORS = 3


def request(
    *, api: Api, model: str, port: int, stream: bool, script: Script | None = None, store: bool = False, tools: bool = False
) -> bytes:
    """`store` is for Responses only, `tools` for Chat: the client declares the tool that the upstream then calls."""
    system, prompt = _SYSTEM, _PROMPT + (f" {script.encode()}" if script else "")
    if api == "chat":
        turns = f'[{{"role":"system","content":"{system}"}},{{"role":"user","content":"{prompt}"}}]'
        declared = f'"tools":[{TOOL}],' if tools else ""
        body = (
            f'{{"model":"{model}","messages":{turns},{declared}"temperature":0.7,"max_tokens":4096,'
            f'"stream":{str(stream).lower()}}}'
        )
    elif api == "anthropic":
        body = (
            f'{{"model":"{model}","system":"{system}","messages":[{{"role":"user","content":"{prompt}"}}],"temperature":0.7,'
            f'"max_tokens":4096,"stream":{str(stream).lower()}}}'
        )
    else:
        body = (
            f'{{"model":"{model}","instructions":"{system}","input":"{prompt}","temperature":0.7,"max_output_tokens":4096,'
            f'"store":{str(store).lower()},"stream":{str(stream).lower()}}}'
        )
    if api == "websocket":
        return _masked_frame(f'{{"type":"response.create",{body[1:]}'.encode())
    accept = "text/event-stream" if stream else "application/json"
    return (
        f"POST {_TARGETS[api]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: bench\r\nAuthorization: Bearer {KEY}\r\n"
        f"Accept: {accept}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def _masked_frame(message: bytes) -> bytes:
    """Return a text frame of a client, with the mask 0, which changes nothing."""
    size = len(message)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2)
    return b"\x81" + length + bytes(4) + message


def handshake(port: int) -> bytes:
    return (
        f"GET {_TARGETS['websocket']} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {KEY}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


@dataclass(slots=True)
class Tally:
    """Counts over all connections of a run; latencies in µs."""

    done: int = 0
    chunks: int = 0
    errors: int = 0
    bad: int = 0
    latencies: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)

    def fail(self, reason: str) -> None:
        self.errors += 1
        if self.errors <= _MAX_PRINTED_ERRORS:
            print(f"load: {reason}", file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The request of every connection of a run.

    expected   chunks per answer; 0: not streamed, -1: endless
    sampled    latencies are recorded
    """

    port: int
    request: bytes
    api: Api = "chat"
    expected: int = 0
    sampled: bool = False


class Loop:
    """The epoll and the read buffer that all clients of a run share."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.clients: dict[int, Client] = {}
        self.buffer = bytearray(1 << 18)

    def poll(self, seconds: float) -> None:
        clients = self.clients
        for fd, events in self.epoll.poll(seconds, 512):
            if (client := clients.get(fd)) is not None:
                client.ready(events)


class Client:
    def __init__(self, loop: Loop, plan: Plan, tally: Tally, finished: "Callable[[Client], None]") -> None:
        self._loop = loop
        self._plan = plan
        self._tally = tally
        self._finished = finished
        self._expected = plan.expected
        self._repeats = plan.api in ("responses", "websocket")
        self._last_mark = b'"sequence_number":%d}' % (plan.expected + _FRAMING_EVENTS)
        self._is_upgraded = False
        self._sampled = plan.sampled
        self.sock: socket.socket | None = None

    @property
    def count(self) -> int:
        return self._count

    def start(self) -> None:
        """Send the request, on a new connection if the last one was closed."""
        self._head = b""
        self._in_body = self._is_upgraded
        self._count = 0
        self._deltas_ended = False
        self._tail = b"\r\n"
        self._began = now_us()
        if self.sock is not None:
            self._send()
            return
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect_ex(("127.0.0.1", self._plan.port))
        self._connected = False
        self._loop.clients[self.sock.fileno()] = self
        self._loop.epoll.register(self.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def close(self) -> None:
        if self.sock is not None:
            del self._loop.clients[self.sock.fileno()]
            self.sock.close()
            self.sock = None
            self._is_upgraded = False

    def ready(self, events: int) -> None:
        assert self.sock is not None
        if not self._connected:
            if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or events & select.EPOLLHUP:
                self._fail("no connection")
                return
            self._connected = True
            self._loop.epoll.modify(self.sock.fileno(), select.EPOLLIN)
            self._send()
            return
        try:
            size = self.sock.recv_into(self._loop.buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(f"reading failed: {error}")
            return
        if size == 0:
            self._ended_by_close()
        elif self._in_body:
            self._read_body(0, size)
        else:
            self._read_head(size)

    def _send(self) -> None:
        assert self.sock is not None
        try:
            needs_handshake = self._plan.api == "websocket" and not self._is_upgraded
            self.sock.send(handshake(self._plan.port) if needs_handshake else self._plan.request)
        except OSError as error:
            self._fail(f"sending failed: {error}")

    def _read_head(self, size: int) -> None:
        before = len(self._head)
        self._head += bytes(self._loop.buffer[:size])
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._head[: end + 2]
        if head.startswith(b"HTTP/1.1 101"):
            self._is_upgraded = self._in_body = self._keep_alive = True
            self._framing = "websocket"
            self._send()
            return
        if not head.startswith(b"HTTP/1.1 200"):
            status, _, _ = head.decode(errors="replace").partition("\r\n")
            body = self._head[end + 4 :][:300].decode(errors="replace")
            self._fail(f"answered {status}: {' '.join(body.split())}")
            return
        length = _LENGTH.search(head)
        self._bytes_left = int(length[1]) if length else -1
        self._framing = "chunked" if _CHUNKED.search(head) else "length" if length else "close"
        self._keep_alive = self._framing != "close" and _CLOSE.search(head) is None
        self._in_body = True
        self._read_body(end + 4 - before, size)

    def _read_body(self, start: int, size: int) -> None:
        """Count the marks. Must be fast: a client that is slow to sleep again spares the gateway the wake-up."""
        buffer = self._loop.buffer
        if self._expected:
            end = self._end_of_deltas(buffer, start, size) if self._repeats else size
            if found := self._count_marks(buffer, start, end):
                if self._sampled:
                    self._sample(buffer, start, end)
                self._count += found
                self._tally.chunks += found
        if self._framing == "length":
            self._bytes_left -= size - start
            whole = self._bytes_left <= 0
        else:
            tail = bytes(buffer[max(start, size - _TAIL) : size])
            self._tail = tail if len(tail) == _TAIL else (self._tail + tail)[-_TAIL:]
            whole = self._tail.endswith(_LAST_CHUNK if self._framing == "chunked" else self._last_mark)
        if whole:
            self._complete()

    def _count_marks(self, buffer: bytearray, start: int, end: int) -> int:
        """Count the marks. In the head of a WebSocket frame the same byte stands for a length: there a quote must precede it."""
        if not self._is_upgraded:
            return buffer.count(MARK, start, end)
        is_split = start < end and buffer[start : start + 1] == MARK and self._tail.endswith(b'"')
        return buffer.count(_QUOTED_MARK, start, end) + is_split

    def _sample(self, buffer: bytearray, start: int, end: int) -> None:
        """Record latencies. A stamp that is split between reads or HTTP chunks is skipped."""
        now = now_us()
        first = self._count == 0
        at = buffer.find(MARK, start, end)
        while at >= 0:
            digits = buffer[at + 1 : min(end, at + 1 + STAMP_DIGITS)]
            if len(digits) == STAMP_DIGITS and digits.isdigit():
                self._tally.latencies.append(now - int(digits))
                if first:
                    self._tally.first.append(now - int(digits))
                    first = False
            at = buffer.find(MARK, at + 1, end)

    def _end_of_deltas(self, buffer: bytearray, start: int, size: int) -> int:
        if self._deltas_ended:
            return start
        at = buffer.find(_WHOLE_TEXT, start, size)
        if at < 0 and _WHOLE_TEXT in self._tail + buffer[start : min(size, start + len(_WHOLE_TEXT))]:
            at = start
        self._deltas_ended = at >= 0
        return at if self._deltas_ended else size

    def _ended_by_close(self) -> None:
        if self._in_body and self._framing == "close":
            self._complete()
        else:
            self._fail("the connection closed in mid-answer")

    def _complete(self) -> None:
        tally, plan = self._tally, self._plan
        if plan.expected and (self._count != plan.expected or _END_MARKS[plan.api] not in self._tail):
            tally.bad += 1
            if tally.bad <= _MAX_PRINTED_ERRORS:
                print(f"load: {self._count} chunks instead of {plan.expected}, ending in {self._tail!r}", file=sys.stderr)
        elif not plan.expected:
            tally.latencies.append(now_us() - self._began)
        tally.done += 1
        if not self._keep_alive:
            self.close()
        self._finished(self)

    def _fail(self, reason: str) -> None:
        self._tally.fail(reason)
        self.close()
        self._finished(self)
