"""OpenAI's Chat Completions, as server and as client."""

from __future__ import annotations

from toolrelay.wires.base import Wire
from toolrelay.wires.chat.decoder import ChatDecoder, decode_answer
from toolrelay.wires.chat.encoder import ChatEncoder, encode_answer
from toolrelay.wires.chat.outgoing import UNSUPPORTED, encode_request
from toolrelay.wires.chat.request import NAME, decode_request

WIRE = Wire(
    name=NAME,
    config_name="chat",
    path="/chat/completions",
    decode_request=decode_request,
    encoder=ChatEncoder,
    encode_answer=encode_answer,
    unsupported=UNSUPPORTED,
    encode_request=encode_request,
    decoder=ChatDecoder,
    decode_answer=decode_answer,
)
