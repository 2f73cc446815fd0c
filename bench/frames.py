"""Answers of the upstream on all wires, built once as bytes; only the stamp and the closing text change."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from bench.script import STAMP_DIGITS, TOOL_NAME

_CREATED = 1_760_000_000
_TEXT = "The quick brown fox jumps over the lazy dog, and the dog, who has seen it before, does not get up. " * 4
_STAMP_PLACEHOLDER = "@STAMP@"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


_WORDS = tuple(f" {n}" for n in range(10))


def word(n: int) -> str:
    """Return the text after the nth stamp. It varies, because some gateways stop a model that repeats itself."""
    return _WORDS[n % len(_WORDS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """Bytes of one wire's answers.

    whole     an answer that is not streamed
    opening   the head and first events of a stream
    delta     the bytes before and after the stamp of the nth chunk
    closing   the last events of a stream with so many chunks and this text
    """

    whole: bytes
    opening: bytes
    delta: Callable[[int], tuple[bytes, bytes]]
    closing: Callable[[int, str], bytes]

    def burst(self, chunks: int) -> list[bytes]:
        """Return pieces that, joined by a stamp with `bytes.join`, are all chunks of an answer."""
        pieces = [self.delta(n) for n in range(chunks)]
        return [pieces[0][0], *(pieces[n - 1][1] + pieces[n][0] for n in range(1, chunks)), pieces[-1][1]]


def response(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _http_chunk(event: str, extra_bytes: int = 0) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event) + extra_bytes, event.encode())


def _split_at_stamp(event: str) -> tuple[bytes, bytes]:
    framed = _http_chunk(event, extra_bytes=1 + STAMP_DIGITS - len(_STAMP_PLACEHOLDER))
    before, _, after = framed.partition(_STAMP_PLACEHOLDER.encode())
    return before, after


# --- Chat Completions


def _chat_event(choices: list[dict[str, Any]], **more: object) -> str:
    chunk = {
        "id": "chatcmpl-B1x9",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": "fake-model",
        "choices": choices,
    }
    return f"data: {_dump({**chunk, **more})}\n\n"


def _chat_choice(delta: dict[str, Any], finish: str | None = None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": delta, "finish_reason": finish}]


def _chat_closing(chunks: int, _text: str) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": chunks, "total_tokens": 100 + chunks}
    events = (_chat_event(_chat_choice({}, "stop")), _chat_event([], usage=usage), "data: [DONE]\n\n")
    return b"".join(map(_http_chunk, events)) + LAST_CHUNK


_CHAT_DELTAS = tuple(_split_at_stamp(_chat_event(_chat_choice({"content": _STAMP_PLACEHOLDER + text}))) for text in _WORDS)

CHAT = Frames(
    whole=response(
        b"200 OK",
        _dump(
            {
                "id": "chatcmpl-B1x9",
                "object": "chat.completion",
                "created": _CREATED,
                "model": "fake-model",
                "choices": [
                    {"index": 0, "message": {"role": "assistant", "content": _TEXT}, "logprobs": None, "finish_reason": "stop"}
                ],
                "usage": {"prompt_tokens": 100, "completion_tokens": 80, "total_tokens": 180},
            }
        ).encode(),
    ),
    opening=_STREAM_HEAD,
    delta=lambda n: _CHAT_DELTAS[n % len(_CHAT_DELTAS)],
    closing=cache(_chat_closing),
)


def _chat_call() -> tuple[bytes, bytes]:
    """Return a streamed call, before and after its stamp."""
    function = {"name": TOOL_NAME, "arguments": '{"day":"'}
    rest = {"arguments": _STAMP_PLACEHOLDER + '"}'}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    first = _chat_event(_chat_choice({"tool_calls": [{"index": 0, "id": "call_up", "type": "function", "function": function}]}))
    before, after = _split_at_stamp(_chat_event(_chat_choice({"tool_calls": [{"index": 0, "function": rest}]})))
    events = (_chat_event(_chat_choice({}, "tool_calls")), _chat_event([], usage=usage), "data: [DONE]\n\n")
    return _STREAM_HEAD + _http_chunk(first) + before, after + b"".join(map(_http_chunk, events)) + LAST_CHUNK


CHAT_CALL = _chat_call()


# --- Responses

_ITEM = "msg_0123456789abcdef01234567"
_PLACE = {"item_id": _ITEM, "output_index": 0, "content_index": 0}
_FIRST_DELTA = 4


def _resource(status: str, output: list[dict[str, Any]], usage: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": "resp_0123456789abcdef01234567",
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": "fake-model",
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 0.7,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage,
        "user": None,
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item(status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": _ITEM, "type": "message", "status": status, "role": "assistant", "content": content}


def _usage(chunks: int) -> dict[str, Any]:
    return {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": chunks,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 100 + chunks,
    }


def _responses_event(kind: str, number: int, **more: object) -> str:
    return f"event: {kind}\ndata: {_dump({'type': kind, 'sequence_number': number, **more})}\n\n"


def _responses_opening() -> bytes:
    begun = _resource("in_progress", [], None)
    events = (
        _responses_event("response.created", 0, response=begun),
        _responses_event("response.in_progress", 1, response=begun),
        _responses_event("response.output_item.added", 2, output_index=0, item=_item("in_progress", [])),
        _responses_event("response.content_part.added", 3, **_PLACE, part=_part("")),
    )
    return _STREAM_HEAD + b"".join(map(_http_chunk, events))


@cache
def _responses_delta(n: int) -> tuple[bytes, bytes]:
    event = _responses_event(
        "response.output_text.delta", _FIRST_DELTA + n, **_PLACE, delta=_STAMP_PLACEHOLDER + word(n), logprobs=[]
    )
    return _split_at_stamp(event)


def _responses_closing(chunks: int, text: str) -> bytes:
    number = _FIRST_DELTA + chunks
    item = _item("completed", [_part(text)])
    events = (
        _responses_event("response.output_text.done", number, **_PLACE, text=text, logprobs=[]),
        _responses_event("response.content_part.done", number + 1, **_PLACE, part=_part(text)),
        _responses_event("response.output_item.done", number + 2, output_index=0, item=item),
        _responses_event("response.completed", number + 3, response=_resource("completed", [item], _usage(chunks))),
    )
    return b"".join(map(_http_chunk, events)) + LAST_CHUNK


RESPONSES = Frames(
    whole=response(b"200 OK", _dump(_resource("completed", [_item("completed", [_part(_TEXT)])], _usage(80))).encode()),
    opening=_responses_opening(),
    delta=_responses_delta,
    closing=_responses_closing,
)


# --- Messages


def _messages_event(kind: str, **more: object) -> str:
    return f"event: {kind}\ndata: {_dump({'type': kind, **more})}\n\n"


def _message(content: list[dict[str, Any]], stop: str | None, chunks: int) -> dict[str, Any]:
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": chunks}
    head = {"id": "msg_0123456789abcdef01234567", "type": "message", "role": "assistant", "model": "fake-model"}
    return {**head, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}


def _messages_opening() -> bytes:
    events = (
        _messages_event("message_start", message=_message([], None, 1)),
        _messages_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _messages_event("ping"),
    )
    return _STREAM_HEAD + b"".join(map(_http_chunk, events))


def _messages_closing(chunks: int, _text: str) -> bytes:
    events = (
        _messages_event("content_block_stop", index=0),
        _messages_event(
            "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": chunks}
        ),
        _messages_event("message_stop"),
    )
    return b"".join(map(_http_chunk, events)) + LAST_CHUNK


_MESSAGES_DELTAS = tuple(
    _split_at_stamp(
        _messages_event("content_block_delta", index=0, delta={"type": "text_delta", "text": _STAMP_PLACEHOLDER + text})
    )
    for text in _WORDS
)

MESSAGES = Frames(
    whole=response(b"200 OK", _dump(_message([{"type": "text", "text": _TEXT}], "end_turn", 80)).encode()),
    opening=_messages_opening(),
    delta=lambda n: _MESSAGES_DELTAS[n % len(_MESSAGES_DELTAS)],
    closing=cache(_messages_closing),
)

BY_ENDPOINT = {b"completions": CHAT, b"responses": RESPONSES, b"messages": MESSAGES}
