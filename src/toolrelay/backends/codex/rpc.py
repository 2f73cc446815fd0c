"""JSON-RPC of the Codex app-server, without its process: encoded lines, decoded messages, and access to untrusted members.

Each line is one JSON object without a `jsonrpc` member. Both sides send requests: our ids count from 1, the server's from 0, so
an id must never be tested for truth. Lines are sent as ASCII, because bytes that are not UTF-8 end the process. A lone surrogate
is sent as U+FFFD, because the process never replies to one.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolrelay.core.json import Json, JsonObject
from toolrelay.wires.json import repair_surrogates

MAX_LINE_BYTES = 256 * 1024 * 1024

RpcId: TypeAlias = int | str

_encode = msgspec.json.Encoder().encode


class Notification(Struct, frozen=True):
    method: str
    params: JsonObject


class ServerRequest(Struct, frozen=True):
    """A request of the server, which waits for our result."""

    id: RpcId
    method: str
    params: JsonObject


class RpcError(Struct, frozen=True):
    code: int
    message: str = ""


class RpcReply(Struct, frozen=True):
    """The reply to a request of ours."""

    id: RpcId
    result: JsonObject = {}
    error: RpcError | None = None


class MalformedLine(Struct, frozen=True):
    """A line that is not a message. It is logged, so it quotes nothing of the line."""

    reason: str
    size: int


RpcMessage: TypeAlias = Notification | ServerRequest | RpcReply | MalformedLine


def encode_line(message: JsonObject) -> bytes:
    try:
        data = _encode(message)
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate; a number of more than 64 bits
        return json.dumps(repair_surrogates(message), separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
    if not data.isascii():
        data = json.dumps(msgspec.json.decode(data), separators=(",", ":")).encode("ascii")
    return data + b"\n"


class _RpcEnvelope(Struct):
    """The members of every kind of line."""

    id: RpcId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Any] | None = None
    result: Json | UnsetType = UNSET
    error: RpcError | UnsetType = UNSET


_decode = msgspec.json.Decoder(_RpcEnvelope).decode


class LineReader:
    """Split a byte stream into lines and decode them. The cost of a line does not depend on the number of its chunks."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._chunks: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[RpcMessage]:
        *ends, rest = data.split(b"\n")
        messages = [message for end in ends if (message := self._end_line(end)) is not None]
        self._buffer(rest)
        return messages

    def _buffer(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._max_bytes:
            self._chunks.clear()
        elif chunk:
            self._chunks.append(chunk)

    def _end_line(self, chunk: bytes) -> RpcMessage | None:
        self._buffer(chunk)
        size, line = self._size, b"".join(self._chunks)
        self._size = 0
        self._chunks.clear()
        if size > self._max_bytes:
            return MalformedLine(f"a line of more than {self._max_bytes} bytes", size)
        return decode_line(line) if line.strip() else None


def decode_line(line: bytes) -> RpcMessage:
    try:
        envelope = _decode(line)
    except msgspec.ValidationError as error:
        return MalformedLine(str(error), len(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MalformedLine("not valid JSON", len(line))
    rpc_id = envelope.id
    if envelope.method is not UNSET:
        params = envelope.params or {}
        if rpc_id is UNSET or rpc_id is None:
            return Notification(envelope.method, params)
        return ServerRequest(rpc_id, envelope.method, params)
    if rpc_id is UNSET or rpc_id is None:
        return MalformedLine("neither a method nor an id", len(line))
    if envelope.error is not UNSET:
        return RpcReply(rpc_id, error=envelope.error)
    if envelope.result is UNSET:
        return MalformedLine("a reply with neither a result nor an error", len(line))
    return RpcReply(rpc_id, object_of(envelope.result))


def text_of(members: JsonObject, name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def number_of(members: JsonObject, name: str) -> int:
    value = members.get(name)
    return value if isinstance(value, int) else 0


def object_of(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}
