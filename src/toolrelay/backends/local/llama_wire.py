"""Chat Completions as llama.cpp speaks it: escaped control tokens, compact output for schemas, its own words for errors."""

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


# Tokens with which chat templates separate messages. llama.cpp reads them in the text of messages, too: a note that contains them
# could begin a message of its own. A blank inside makes them text.
_CONTROL_TOKEN = re.compile(
    r"<(?=\|(?:im_start|im_end|im_sep|eot_id|eom_id|start_header_id|end_header_id|begin_of_text|end_of_text|endoftext"
    r"|start_of_role|end_of_role|end_of_turn|system|user|assistant|end)\|>"
    r"|(?:start_of_turn|end_of_turn|bos|eos|/?s)>)"
)

# Look-around, back-references and word boundaries. llguidance refuses the whole grammar, and llama.cpp then constrains nothing.
_NOT_REGULAR = re.compile(r"\(\?<?[=!]|\(\?P=|\\[1-9bBk]")
_VALUES = frozenset({"const", "enum", "default", "examples"})  # not schemas


def make_wire(*, has_guidance: bool) -> Wire:
    """Return the wire. `has_guidance`: llama.cpp was built with llguidance, so that a grammar may contain a JSON schema."""
    wire = next(wire for wire in discover_wires().values() if wire.config_name == "chat")

    def encode_request(request: Request, profile: Profile) -> OutgoingRequest:
        outgoing = wire.encode_request(request, profile)
        body: dict[str, Any] = msgspec.json.decode(outgoing.body)
        body["messages"] = escape_control_tokens(body["messages"])
        if has_guidance and request.output is not None and request.output.type == "json_schema":
            schema = body.pop("response_format")["json_schema"].get("schema")
            body["grammar"] = make_grammar(schema if isinstance(schema, dict) else {})
        return replace(outgoing, body=msgspec.json.encode(body))

    return replace(wire, encode_request=encode_request, decode_error=_with_code(wire.decode_error))


def escape_control_tokens(value: Any) -> Any:  # noqa: ANN401 -- any JSON
    """Make text of the tokens that separate messages, in every string."""
    match value:
        case str():
            return _CONTROL_TOKEN.sub("< ", value)
        case list():
            return [escape_control_tokens(each) for each in value]
        case dict():
            return {key: escape_control_tokens(each) for key, each in value.items()}
        case _:
            return value


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
