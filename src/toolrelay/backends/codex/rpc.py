"""The app-server's JSON-RPC without its process: values into lines, bytes into messages.

One JSON object a line, without a `jsonrpc` member. Both sides ask: our ids count from 1, the server's own from 0, so that an id
says nothing by being falsy. What goes out is ASCII, because bytes that are not UTF-8 end the process; a lone surrogate, to which
it never replies, goes out as U+FFFD.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolrelay.core.json import Json, JsonObject
from toolrelay.wires.json import mended_value

MOST_LINE_BYTES = 256 * 1024 * 1024

Id: TypeAlias = int | str

_encode = msgspec.json.Encoder().encode
_NO_JSON = "not valid JSON"


class Notification(Struct, frozen=True):
    method: str
    params: JsonObject


class ServerRequest(Struct, frozen=True):
    """What the server asks of us, and waits for."""

    id: Id
    method: str
    params: JsonObject


class Result(Struct, frozen=True):
    id: Id
    result: JsonObject


class Fault(Struct, frozen=True):
    """A request of ours that was refused."""

    id: Id
    code: int
    message: str


class Malformed(Struct, frozen=True):
    """A line that is no message. Of its content it says nothing: this goes to the log."""

    reason: str
    size: int


Message: TypeAlias = Notification | ServerRequest | Result | Fault | Malformed


def encode_request(id: Id, method: str, params: JsonObject) -> bytes:  # noqa: A002 -- the word of the protocol
    return _line({"id": id, "method": method, "params": params})


def encode_notification(method: str) -> bytes:
    return _line({"method": method})


def encode_result(id: Id, result: JsonObject) -> bytes:  # noqa: A002 -- as above
    return _line({"id": id, "result": result})


def encode_fault(id: Id, code: int, message: str) -> bytes:  # noqa: A002 -- as above
    return _line({"id": id, "error": {"code": code, "message": message}})


def _line(value: JsonObject) -> bytes:
    try:
        data = _encode(value)
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate; a number of more than 64 bits
        return json.dumps(mended_value(value), separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
    if not data.isascii():
        data = json.dumps(msgspec.json.decode(data), separators=(",", ":")).encode("ascii")
    return data + b"\n"


class _Error(Struct):
    code: int
    message: str = ""


class _Envelope(Struct):
    """Every kind of line at once. `id` is checked for presence, never for truth."""

    id: Id | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Any] | None = None
    result: Json | UnsetType = UNSET
    error: _Error | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Envelope).decode


class LineReader:
    """Bytes as they come, into messages. A line costs the same in one piece or in thousands."""

    def __init__(self, most: int = MOST_LINE_BYTES) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Message]:
        *ended, rest = data.split(b"\n")
        messages: list[Message] = []
        for piece in ended:
            self._keep(piece)
            message = self._take()
            if message is not None:
                messages.append(message)
        self._keep(rest)
        return messages

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._most:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _take(self) -> Message | None:
        size, line = self._size, b"".join(self._pieces)
        self._size = 0
        self._pieces.clear()
        if size > self._most:
            return Malformed(f"a line of more than {self._most} bytes", size)
        return decode_line(line) if line.strip() else None


def decode_line(line: bytes) -> Message:
    try:
        found = _decode(line)
    except msgspec.ValidationError as error:
        return Malformed(str(error), len(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Malformed(_NO_JSON, len(line))
    identity = found.id
    if found.method is not UNSET:
        params = found.params or {}
        if identity is UNSET or identity is None:
            return Notification(found.method, params)
        return ServerRequest(identity, found.method, params)
    if identity is UNSET or identity is None:
        return Malformed("neither a method nor an id", len(line))
    if found.error is not UNSET:
        return Fault(identity, found.error.code, found.error.message)
    if found.result is UNSET:
        return Malformed("a reply with neither a result nor an error", len(line))
    return Result(identity, found.result if isinstance(found.result, dict) else {})
