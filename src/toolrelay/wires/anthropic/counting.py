"""Anthropic Messages, /messages/count_tokens: the input tokens of a request that is not sent."""

from __future__ import annotations

from typing import Any

from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.wires.anthropic.outgoing import PATH, MessagesRequestEncoder
from toolrelay.wires.anthropic.request import decode_request
from toolrelay.wires.anthropic.thinking import default_max_tokens
from toolrelay.wires.base import OutgoingRequest, TokenCounting
from toolrelay.wires.extra import merge_extra
from toolrelay.wires.json import decode, encode

_COUNT_PATH = f"{PATH}/count_tokens"
# Members of a message request that this endpoint refuses.
_NOT_COUNTED = ("metadata", "service_tier", "container", "top_k", "inference_geo")


def _encode_request(request: Request, profile: Profile) -> OutgoingRequest:
    encoder = MessagesRequestEncoder(request, profile)
    limit = request.sampling.max_output_tokens or default_max_tokens(request.model)
    body: dict[str, Any] = {"model": request.model, **encoder.conversation(), **encoder.tools(), **encoder.output_settings(limit)}
    extra = {key: value for key, value in encoder.keep_extra(request.extra).items() if key not in _NOT_COUNTED}
    return encoder.finish(_COUNT_PATH, merge_extra(body, extra))


def _decode_count(body: bytes) -> int | None:
    try:
        value = decode(body)
    except ValueError:
        return None
    count = value.get("input_tokens") if isinstance(value, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


def _encode_count(count: int, *, is_estimate: bool) -> bytes:
    return encode({"input_tokens": count, "estimated": True} if is_estimate else {"input_tokens": count})


COUNTING = TokenCounting(
    path=_COUNT_PATH,
    decode_request=decode_request,
    encode_count=_encode_count,
    encode_request=_encode_request,
    decode_count=_decode_count,
)
