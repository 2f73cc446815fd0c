"""Responses over a WebSocket: a client's messages into request bodies, and an answer into messages.

A message `response.create` is the body of POST /responses with a few members of its own. The connection keeps the latest response
of each lane that is not stored, so that the next one can continue it: its items are put before those of the next request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolrelay.core.json import JsonObject
from toolrelay.errors import ToolrelayError, invalid
from toolrelay.wires.base import KEEP_ALIVE, Envelope
from toolrelay.wires.errors import encode_error
from toolrelay.wires.json import convert, decode, decode_body, encode, encode_repaired
from toolrelay.wires.responses.encoder import ResponsesEncoder
from toolrelay.wires.responses.resource import ResponseStatus
from toolrelay.wires.sse import DONE

MAX_LANE_NAME = 256
CREATE, STEER = "response.create", "response.steer"

_LANE = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_LANE_NAME}}}")
_OWN_MEMBERS = ("type", "stream_id", "generate", "stream", "stream_options", "background")
_NO_INPUT = Raw(b'[{"role":"user","content":""}]')


class _CacheOptions(Struct):
    prewarm: bool | None = None


class _Message(Struct):
    type: str | None = None
    stream_id: str | UnsetType = UNSET
    generate: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    prompt_cache_options: _CacheOptions | None = None


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_head = msgspec.json.Decoder(_Message).decode


class ClientMessage(Struct, frozen=True, kw_only=True):
    """A message of a client. `lane` is its stream_id; `members` are those of a request, as they were sent.

    `generates` is False for a response that is only prepared: the model is not asked.
    """

    type: str
    lane: str | None
    members: dict[str, Raw]
    generates: bool = True
    previous: str | None = None


class KeptResponse(Struct, frozen=True, kw_only=True):
    """A response that the connection keeps: its conversation so far, as JSON without the brackets, and the stored one before."""

    id: str
    items: bytes
    previous: str | None = None


def decode_message(data: bytes) -> ClientMessage:
    """Decode a message, or raise a 400."""
    try:
        members, head = _decode_members(data), _decode_head(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        value = decode_body(data)
        members = {name: Raw(encode_repaired(member)) for name, member in value.items()}
        head = convert(value, _Message, "")
    if head.type not in (CREATE, STEER):
        given = "no type" if head.type is None else f"the type {head.type[:100]!r}"
        raise invalid(f"A message of a client is a '{CREATE}'. This one has {given}.", "type", code="unknown_message_type")
    lane = None if head.stream_id is UNSET else head.stream_id
    if lane is not None and not _LANE.fullmatch(lane):
        message = f"'stream_id' must be 1 to {MAX_LANE_NAME} letters, digits, underscores, hyphens or periods."
        raise invalid(message, "stream_id", code="invalid_stream_id")
    options = head.prompt_cache_options
    return ClientMessage(
        type=head.type,
        lane=lane,
        members=members,
        generates=head.generate is not False and not (options is not None and options.prewarm),
        previous=head.previous_response_id,
    )


def _value(members: Mapping[str, Raw], name: str) -> Any:  # noqa: ANN401 -- any JSON
    try:
        return decode(bytes(members[name]))
    except ValueError as error:
        raise invalid(f"{name!r} is not valid JSON: {error}.", name, code="invalid_json") from None


def encode_body(message: ClientMessage, kept: KeptResponse | None) -> bytes:
    """Return the body of the request. `kept` is the response that it continues, if the connection keeps that."""
    members = message.members
    if "background" in members and _value(members, "background"):
        text = "'background' is not possible over a WebSocket. Send POST /responses to start a background response."
        raise invalid(text, "background", code="unsupported_parameter")
    body = {name: value for name, value in members.items() if name not in _OWN_MEMBERS}
    if kept is not None:
        body["input"] = Raw(b"[%b]" % joined_items(kept.items, items_of(message)))
        del body["previous_response_id"]
        if kept.previous is not None:
            body["previous_response_id"] = Raw(encode(kept.previous))
    elif not message.generates and not items_of(message):
        body["input"] = _NO_INPUT  # a response that is only prepared may have none
    body["stream"] = Raw(b"true")
    return encode(body)


def items_of(message: ClientMessage) -> bytes:
    """Return the message's input items, as JSON without the brackets. What is no input is left to `decode_request`."""
    raw = bytes(message.members.get("input", b"[]"))
    if raw[:1] == b"[":
        return raw[1:-1].strip()
    if raw[:1] == b'"':
        return b'{"role":"user","content":%b}' % raw
    raise invalid("'input' must be the user's words or a list of items.", "input", code="invalid_type")


def joined_items(*parts: bytes) -> bytes:
    return b",".join([part for part in parts if part])


class MessageEncoder(ResponsesEncoder):
    """Writes an answer as messages. `frame_head` returns what precedes one of that size on the connection.

    The event `error` is left out: `response.failed` says the same, and clients take either for the end of the response.
    `continued` is the response that the client named, if the connection keeps it: then the request does not name it.
    """

    def __init__(self, envelope: Envelope, frame_head: Callable[[int], bytes], lane: str | None, continued: str | None) -> None:
        request = envelope.request
        if continued is not None:
            envelope = replace(envelope, request=replace(request, previous_response_id=continued))
        super().__init__(envelope)
        self._frame_head = frame_head
        self._lane: JsonObject = {} if lane is None else {"stream_id": lane}
        self._tail = b"}" if lane is None else b',"stream_id":%b}' % encode(lane)
        self.id = f"resp_{envelope.token}"
        self.is_stored = request.store is True or request.conversation is not None
        self.final_output: list[JsonObject] | None = None  # of a response that did not fail

    def keep_alive(self) -> bytes:
        return super().keep_alive().removeprefix(KEEP_ALIVE)

    def number(self, members: JsonObject) -> bytes:
        body = encode_repaired({**members, "sequence_number": self.sequence, **self._lane})
        self.sequence += 1
        return self._frame_head(len(body)) + body

    def _frame(self, kind: str, members: JsonObject) -> None:
        if kind != "error":
            super()._frame(kind, members)

    def _prefix(self, kind: str, members: JsonObject) -> bytes:
        return encode_repaired({"type": kind, **members})[:-1] + b',"delta":'

    def _delta(self, prefix: bytes, text: str) -> None:
        try:
            body = encode(text)
        except UnicodeEncodeError:
            body = encode_repaired(text)
        message = b'%b%b,"sequence_number":%d%b' % (prefix, body, self.sequence, self._tail)
        out = self._out
        out.append(self._frame_head(len(message)))
        out.append(message)
        self.sequence += 1

    def _end(self, event: ResponseStatus, status: ResponseStatus | None = None) -> None:
        super()._end(event, status)
        self._out.remove(DONE)
        if event != "failed":
            self.final_output = self._output


def keep(message: ClientMessage, before: KeptResponse | None, encoder: MessageEncoder) -> KeptResponse | None:
    """Return what is kept of a response: nothing if it failed, or if it is kept elsewhere."""
    if encoder.final_output is None or encoder.is_stored:
        return None
    output = [encode_repaired(item) for item in encoder.final_output if not _is_cut_off(item)]
    items = joined_items(b"" if before is None else before.items, items_of(message), *output)
    previous = message.previous if before is None else before.previous
    return KeptResponse(id=encoder.id, items=items, previous=previous)


def _is_cut_off(item: JsonObject) -> bool:
    """Return whether the item is a call that was not finished: nobody can answer it."""
    return item.get("status") == "incomplete" and str(item.get("type")).endswith("_call")


def encode_error_message(status: int, body: bytes, lane: str | None, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the message for an error before a response began. `body` is that of the HTTP response."""
    error: JsonObject = decode(body)["error"]
    message: JsonObject = {"type": "error", "status": status, "error": error}
    if headers:
        error["headers"] = message["headers"] = dict(headers)  # OpenAI's SDKs read the one, Codex the other
    return encode(message if lane is None else {**message, "stream_id": lane})


def encode_failure(error: ToolrelayError, lane: str | None) -> bytes:
    """Return the message for a message that is no request."""
    return encode_error_message(error.status, encode_error(error), lane)


def encode_steer_failure(message: ClientMessage, number: int) -> bytes:
    """Return the answer to input for a running response, which is not supported. The client gets its input back."""
    steer = {name: _value(message.members, name) for name in ("input", "previous_response_id") if name in message.members}
    text = "Responses cannot be steered while they run. Send the input with the next response.create."
    error = {"type": "invalid_request_error", "code": "steering_not_supported", "message": text}
    return encode_repaired({"type": "response.steer.failed", "error": error, "steer": steer, "sequence_number": number})
