"""Responses, requests beside a response: /responses/input_tokens counts its input, /responses/compact shortens a conversation."""

from __future__ import annotations

from toolrelay.core.events import Usage
from toolrelay.core.json import JsonObject
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.wires.base import Compaction, OutgoingRequest, TokenCounting
from toolrelay.wires.json import decode, decode_body, encode, encode_repaired
from toolrelay.wires.responses.outgoing import ResponsesRequestEncoder
from toolrelay.wires.responses.request import decode_members

_COUNT_PATH, _COMPACT_PATH = "/responses/input_tokens", "/responses/compact"
# The members of a response request that each endpoint takes, beside those that only the client knows.
_COUNTED = ("instructions", "parallel_tool_calls", "reasoning", "text", "tool_choice", "tools", "truncation")
_COMPACTED = ("instructions", "prompt_cache_key", "service_tier")


def _decode_request(body: bytes) -> Request:
    return decode_members(decode_body(body), needs_input=False)


def _encode(request: Request, profile: Profile, path: str, names: tuple[str, ...]) -> OutgoingRequest:
    encoder = ResponsesRequestEncoder(request, profile)
    extra = {key: value for key, value in (request.extra or {}).items() if key != "text"} if encoder.is_same_wire else {}
    members = {**encoder.tools(), **encoder.settings()}
    own = {name: members[name] for name in names if name in members}
    body = encoder.adapt({"model": request.model, "input": encoder.input(), **own, **extra})
    return OutgoingRequest(path=path, body=encode_repaired(body), dropped=tuple(encoder.dropped))


# Counting


def _encode_count_request(request: Request, profile: Profile) -> OutgoingRequest:
    return _encode(request, profile, _COUNT_PATH, _COUNTED)


def _decode_count(body: bytes) -> int | None:
    return _count(_members(body), "input_tokens")


def _encode_count(count: int, *, is_estimate: bool) -> bytes:
    members = {"object": "response.input_tokens", "input_tokens": count}
    return encode({**members, "estimated": True} if is_estimate else members)


COUNTING = TokenCounting(
    path=_COUNT_PATH,
    decode_request=_decode_request,
    encode_count=_encode_count,
    encode_request=_encode_count_request,
    decode_count=_decode_count,
)


# Compaction


def _encode_compact_request(request: Request, profile: Profile) -> OutgoingRequest:
    return _encode(request, profile, _COMPACT_PATH, _COMPACTED)


def _decode_usage(body: bytes) -> Usage | None:
    usage = _members(body).get("usage")
    if not isinstance(usage, dict):
        return None
    return Usage(input=_count(usage, "input_tokens") or 0, output=_count(usage, "output_tokens") or 0)


COMPACTION = Compaction(
    path=_COMPACT_PATH, decode_request=_decode_request, encode_request=_encode_compact_request, decode_usage=_decode_usage
)


def _members(body: bytes) -> JsonObject:
    try:
        value = decode(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _count(members: JsonObject, name: str) -> int | None:
    count = members.get(name)
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None
