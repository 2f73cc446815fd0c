"""OpenAI's Responses, as server and as client."""

from __future__ import annotations

from toolrelay.wires.base import Wire
from toolrelay.wires.responses.decoder import ResponsesDecoder, decode_answer
from toolrelay.wires.responses.encoder import ResponsesEncoder
from toolrelay.wires.responses.outgoing import UNSUPPORTED, encode_request
from toolrelay.wires.responses.request import NAME, decode_request
from toolrelay.wires.responses.resource import encode_answer
from toolrelay.wires.responses.side_requests import COMPACTION, COUNTING

WIRE = Wire(
    name=NAME,
    config_name="responses",
    path="/responses",
    decode_request=decode_request,
    encoder=ResponsesEncoder,
    encode_answer=encode_answer,
    unsupported=UNSUPPORTED,
    encode_request=encode_request,
    decoder=ResponsesDecoder,
    decode_answer=decode_answer,
    token_counting=COUNTING,
    compaction=COMPACTION,
)
