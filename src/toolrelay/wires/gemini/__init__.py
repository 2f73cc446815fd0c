"""Google's Gemini API (generateContent), as client."""

from __future__ import annotations

from toolrelay.wires.base import ProviderWire
from toolrelay.wires.gemini.decoder import GeminiDecoder, decode_answer
from toolrelay.wires.gemini.errors import decode_error
from toolrelay.wires.gemini.outgoing import UNSUPPORTED, encode_request
from toolrelay.wires.gemini.thinking import NAME


def _credentials(api_key: str) -> list[tuple[str, str]]:
    return [("x-goog-api-key", api_key)]


WIRE = ProviderWire(
    name=NAME,
    config_name="gemini",
    unsupported=UNSUPPORTED,
    encode_request=encode_request,
    credentials=_credentials,
    decoder=GeminiDecoder,
    decode_answer=decode_answer,
    decode_error=decode_error,
    version_path="/v1beta",
    models_path="/models?pageSize=1000",  # which lists fifty otherwise
)
