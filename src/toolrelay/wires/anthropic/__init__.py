"""Anthropic's Messages, as server and as client."""

from __future__ import annotations

from toolrelay.wires.anthropic.answer import encode_answer
from toolrelay.wires.anthropic.counting import COUNTING
from toolrelay.wires.anthropic.decoder import AnthropicDecoder, decode_answer
from toolrelay.wires.anthropic.encoder import AnthropicEncoder
from toolrelay.wires.anthropic.errors import decode_error, encode_error
from toolrelay.wires.anthropic.outgoing import PATH, UNSUPPORTED, encode_request
from toolrelay.wires.anthropic.request import decode_request
from toolrelay.wires.anthropic.thinking import NAME
from toolrelay.wires.base import Wire


def _credentials(api_key: str) -> list[tuple[str, str]]:
    return [("x-api-key", api_key)]


WIRE = Wire(
    name=NAME,
    config_name="anthropic",
    path=PATH,
    decode_request=decode_request,
    encoder=AnthropicEncoder,
    encode_answer=encode_answer,
    encode_error=encode_error,
    request_id_header="request-id",
    passed_headers=("anthropic-beta",),
    unsupported=UNSUPPORTED,
    encode_request=encode_request,
    headers=(("anthropic-version", "2023-06-01"),),
    credentials=_credentials,
    decoder=AnthropicDecoder,
    decode_answer=decode_answer,
    decode_error=decode_error,
    models_path="/models?limit=1000",  # which lists twenty otherwise
    token_counting=COUNTING,
)
