"""Chat Completions as llama.cpp speaks it: compact output for schemas, and its own words for two errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.errors import BackendError
from toolrelay.wires.base import OutgoingRequest, Wire
from toolrelay.wires.base import discover as discover_wires

# By default a model may put any blanks between the tokens of JSON, and a small one fills its answer with them. What of a schema
# cannot be expressed is left out, instead of the whole constraint; the gateway checks arguments again.
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}


# Look-around, back-references and word boundaries. llguidance refuses the whole grammar, and llama.cpp then constrains nothing.
_NOT_REGULAR = re.compile(r"\(\?<?[=!]|\(\?P=|\\[1-9bBk]")
_VALUES = frozenset({"const", "enum", "default", "examples"})  # not schemas


def make_wire(*, has_guidance: bool) -> Wire:
    """Return the wire. `has_guidance`: llama.cpp was built with llguidance, so that a grammar may contain a JSON schema."""
    wire = next(wire for wire in discover_wires().values() if wire.config_name == "chat")
    encode = _with_grammar(wire.encode_request) if has_guidance else wire.encode_request
    return replace(wire, encode_request=encode, decode_error=_with_code(wire.decode_error))


def _with_grammar(encode: Callable[[Request, Profile], OutgoingRequest]) -> Callable[[Request, Profile], OutgoingRequest]:
    def encode_request(request: Request, profile: Profile) -> OutgoingRequest:
        outgoing = encode(request, profile)
        if request.output is None or request.output.type != "json_schema":
            return outgoing
        body: dict[str, Any] = msgspec.json.decode(outgoing.body)
        schema = body.pop("response_format")["json_schema"].get("schema")
        body["grammar"] = make_grammar(schema if isinstance(schema, dict) else {})
        return replace(outgoing, body=msgspec.json.encode(body))

    return encode_request


def make_grammar(schema: dict[str, Any]) -> str:
    """Return a grammar for one JSON value that fits the schema."""
    usable = _without_patterns(schema) | {"x-guidance": _COMPACT}
    return f"%llguidance {{}}\nstart: %json {msgspec.json.encode(usable).decode()}"


def _without_patterns(schema: Any) -> Any:  # noqa: ANN401 -- any JSON
    """Leave out the patterns that are no regular languages."""
    if isinstance(schema, list):
        return [_without_patterns(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        match key, value:
            case "pattern", str() if _NOT_REGULAR.search(value):
                pass
            case "patternProperties", dict():
                kept[key] = {name: _without_patterns(each) for name, each in value.items() if not _NOT_REGULAR.search(name)}
            case _:
                kept[key] = value if key in _VALUES else _without_patterns(value)
    return kept


def _with_code(decode: Callable[[int, bytes], BackendError]) -> Callable[[int, bytes], BackendError]:
    def decode_error(status: int, body: bytes) -> BackendError:
        if b"image input is not supported" in body or b"audio input is not supported" in body:
            message = "This model reads text only: no images, no audio."
            return BackendError(message, status=400, type="invalid_request_error", code="unsupported_by_upstream")
        error = decode(status, body)
        if b"exceed_context_size_error" in body:
            error.code, error.type = "context_length_exceeded", "invalid_request_error"
        return error

    return decode_error
