"""OpenAI's Chat Completions, in both roles."""

from __future__ import annotations

from toolrelay.wires._chat_answer import ChatEncoder, encode_answer
from toolrelay.wires._chat_decoder import ChatDecoder, decode_answer
from toolrelay.wires._chat_outgoing import CANNOT_SAY, encode_request
from toolrelay.wires._chat_request import NAME, decode_request
from toolrelay.wires._errors import decode_error, encode_error
from toolrelay.wires.base import Wire, bearer

WIRE = Wire(
    name=NAME,
    word="chat",
    path="/chat/completions",
    decode_request=decode_request,
    encoder=ChatEncoder,
    encode_answer=encode_answer,
    encode_error=encode_error,
    cannot_say=CANNOT_SAY,
    encode_request=encode_request,
    credentials=bearer,
    decoder=ChatDecoder,
    decode_answer=decode_answer,
    decode_error=decode_error,
)
