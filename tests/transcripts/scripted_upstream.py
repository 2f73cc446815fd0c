"""An upstream that answers from a script and records the requests, with one thread per connection."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Sequence
from typing import Self

from tests.transcripts.answers import Answer, encode
from tests.transcripts.printed import TAG
from tests.upstream import reply

_TAG = re.compile(rb"<tool_call:([0-9a-f]{12})>")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class ScriptedUpstream:
    """Gives each answer of the script once, and the last one to all further requests.

    Only one exchange runs at a time. Requests since `play` belong to it if they contain `mark`: Codex may send another request
    for a turn that is over. `tag` is the tag of sealed calls in the exchange.
    """

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.tag = TAG
        self._mark = b""
        self._script: Sequence[Answer] = ()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._peers: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            peer.close()

    def play(self, script: Sequence[Answer], mark: str = "") -> None:
        self._script = script
        self._mark = mark.encode()
        self.received = []
        self.tag = TAG

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._peers = [other for other in self._peers if other.fileno() >= 0]
            self._peers.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        buffer = b""
        with peer:
            try:
                while True:
                    while b"\r\n\r\n" not in buffer:
                        buffer += _receive(peer)
                    head, _, buffer = buffer.partition(b"\r\n\r\n")
                    length = _LENGTH.search(head)
                    size = int(length[1]) if length else 0
                    while len(buffer) < size:
                        buffer += _receive(peer)
                    body, buffer = buffer[:size], buffer[size:]
                    peer.sendall(self._answer(head.split(b" ", 2)[1].decode(), body))
            except OSError:
                return

    def _answer(self, path: str, body: bytes) -> bytes:
        tag = _TAG.search(body)
        if tag is not None:
            self.tag = tag[1].decode()
        if not body or self._mark not in body:
            return reply(b'{"error":{"message":"not of this exchange"}}', 404)
        self.received.append((path, body))
        answer = self._script[min(len(self.received), len(self._script)) - 1]
        return encode(answer, path, self.tag, streamed=b'"stream":true' in body)


def _receive(peer: socket.socket) -> bytes:
    data = peer.recv(262144)
    if not data:
        raise ConnectionResetError
    return data
