"""Ollama's own API (/api/chat), as client only: it can set the context's length and how long a model stays loaded."""

from __future__ import annotations

from toolrelay.wires.base import ProviderWire
from toolrelay.wires.ollama.decoder import OllamaDecoder, decode_answer
from toolrelay.wires.ollama.outgoing import NAME, UNSUPPORTED, encode_request

WIRE = ProviderWire(
    name=NAME,
    config_name="ollama",
    unsupported=UNSUPPORTED,
    encode_request=encode_request,
    decoder=OllamaDecoder,
    decode_answer=decode_answer,
    is_beside_v1=True,
    stream_type="application/x-ndjson",
    model_keys=("context_length", "keep_alive"),
)
