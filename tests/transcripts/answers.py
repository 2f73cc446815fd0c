"""Answers of the scripted upstream, encoded for either API, streamed and whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from tests.transcripts.printed import TAG
from tests.upstream import reply, stream

Json: TypeAlias = dict[str, Any]
DELTA_SIZE = 7  # characters


class Answer(Struct, frozen=True, kw_only=True):
    """Text, then native calls as (name, arguments). An answer with a `status` other than 200 is an error with that text."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = "stop"
    usage: bool = True
    status: int = 200


@lru_cache(1024)  # the same answer is given to many requests
def encode(answer: Answer, path: str, tag: str, *, streamed: bool) -> bytes:
    """Return the whole HTTP response to a request at that path."""
    if answer.status != 200:
        return reply(_dump({"error": {"message": answer.text, "type": "invalid_request_error", "code": None}}), answer.status)
    if path.endswith("/responses"):
        events = _responses_events(answer, tag)
        if streamed:
            return stream(b"".join(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _dump(event)) for event in events))
        return reply(_dump(list(events)[-1]["response"]))
    if streamed:
        frames = b"".join(b"data: %b\n\n" % _dump(frame) for frame in _chat_frames(answer, tag))
        return stream(frames + b"data: [DONE]\n\n")
    return reply(_dump(_chat_whole(answer, tag)))


def _dump(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def deltas(text: str, tag: str) -> list[str]:
    """Split the text into deltas. A tag is never split, so that it can be replaced by its placeholder afterwards."""
    out: list[str] = []
    for index, part in enumerate(text.split(TAG)):
        if index:
            out.append(tag)
        out += [part[start : start + DELTA_SIZE] for start in range(0, len(part), DELTA_SIZE)]
    return out


# Chat Completions

_CHAT_USAGE = {"prompt_tokens": 70, "completion_tokens": 30, "total_tokens": 100}


def _chat_finish(answer: Answer) -> str:
    return "tool_calls" if answer.calls and answer.finish == "stop" else answer.finish


def _chat_frames(answer: Answer, tag: str) -> Iterator[Json]:
    def frame(delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [choice]}

    yield frame({"role": "assistant", "content": ""})
    for delta in deltas(answer.reasoning, tag):
        yield frame({"reasoning_content": delta})
    for delta in deltas(answer.text, tag):
        yield frame({"content": delta})
    for index, (name, arguments) in enumerate(answer.calls):
        start = {"index": index, "id": f"up_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        yield frame({"tool_calls": [start]})
        for delta in deltas(arguments, tag):
            yield frame({"tool_calls": [{"index": index, "function": {"arguments": delta}}]})
    yield frame({}, _chat_finish(answer))
    if answer.usage:
        yield {"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [], "usage": _CHAT_USAGE}


def _chat_whole(answer: Answer, tag: str) -> Json:
    message: Json = {"role": "assistant", "content": answer.text.replace(TAG, tag) or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": f"up_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(answer.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": _chat_finish(answer)}
    whole: Json = {"id": "up", "object": "chat.completion", "created": 1, "model": "up", "choices": [choice]}
    return {**whole, "usage": _CHAT_USAGE} if answer.usage else whole


# Responses

_RESPONSES_USAGE = {
    "input_tokens": 70,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 100,
}


def _responses_events(answer: Answer, tag: str) -> Iterator[Json]:
    response: Json = {
        "id": "resp_up",
        "object": "response",
        "created_at": 1,
        "model": "up",
        "status": "in_progress",
        "output": [],
    }
    yield {"type": "response.created", "response": response}
    output: list[Json] = []
    if answer.reasoning:
        yield from _reasoning_events(answer.reasoning, tag, output)
    if answer.text:
        yield from _message_events(answer.text, tag, output)
    for number, (name, arguments) in enumerate(answer.calls):
        yield from _call_events(number, name, arguments, output)
    end: Json = {"status": "completed", "output": output}
    kind = "response.completed"
    if answer.finish == "length":
        end |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        kind = "response.incomplete"
    if answer.usage:
        end["usage"] = _RESPONSES_USAGE
    yield {"type": kind, "response": response | end}


def _reasoning_events(text: str, tag: str, output: list[Json]) -> Iterator[Json]:
    place = {"item_id": "rs_up", "output_index": len(output), "summary_index": 0}
    item: Json = {"type": "reasoning", "id": "rs_up", "summary": []}
    yield {"type": "response.output_item.added", "output_index": len(output), "item": item}
    yield {"type": "response.reasoning_summary_part.added", **place, "part": {"type": "summary_text", "text": ""}}
    for delta in deltas(text, tag):
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": delta}
    item = item | {"summary": [{"type": "summary_text", "text": text}], "encrypted_content": "sealed"}
    yield {"type": "response.output_item.done", "output_index": len(output), "item": item}
    output.append(item)


def _message_events(text: str, tag: str, output: list[Json]) -> Iterator[Json]:
    index = len(output)
    item: Json = {"type": "message", "id": "msg_up", "role": "assistant", "status": "in_progress", "content": []}
    place = {"item_id": "msg_up", "output_index": index, "content_index": 0}
    part: Json = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.output_item.added", "output_index": index, "item": item}
    yield {"type": "response.content_part.added", **place, "part": part}
    for delta in deltas(text, tag):
        yield {"type": "response.output_text.delta", **place, "delta": delta}
    part = part | {"text": text.replace(TAG, tag)}
    yield {"type": "response.output_text.done", **place, "text": part["text"]}
    yield {"type": "response.content_part.done", **place, "part": part}
    item = item | {"status": "completed", "content": [part]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
    output.append(item)


def _call_events(number: int, name: str, arguments: str, output: list[Json]) -> Iterator[Json]:
    index = len(output)
    identity = {"id": f"fc_up{number}", "call_id": f"up_{number}"}
    item: Json = {"type": "function_call", **identity, "name": name, "arguments": "", "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": item}
    for start in range(0, len(arguments), DELTA_SIZE):
        delta = arguments[start : start + DELTA_SIZE]
        yield {"type": "response.function_call_arguments.delta", "item_id": item["id"], "output_index": index, "delta": delta}
    item = item | {"arguments": arguments, "status": "completed"}
    yield {
        "type": "response.function_call_arguments.done",
        "item_id": item["id"],
        "output_index": index,
        "arguments": arguments,
    }
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
    output.append(item)
