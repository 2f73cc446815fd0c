"""Answers of a Responses provider to the real Codex: scripts for tests.upstream, which plays them and records the requests.

    with Upstream(says("Hello"), calls(Call("add", {"a": 1}))) as upstream: …
    asked(upstream.requests[0])["input"]

A script is a sequence of steps, so a Gate or a Disconnect may be inserted between the results of these functions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tests.upstream import CLOSE, LAST_CHUNK, Gate, ReceivedRequest, Script, Step, chunk, reply, stream_head

_numbers = itertools.count(1)


class Call(Struct, frozen=True):
    """A call of the model. Built-in tools of Codex may have another `kind`."""

    name: str
    arguments: dict[str, Any] = {}
    call_id: str = ""
    kind: str = "function_call"


def frame(event: dict[str, Any]) -> bytes:
    """Encode one event as one chunk."""
    return chunk(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event)))


def head() -> bytes:
    """Return the beginning of every stream."""
    return stream_head() + frame({"type": "response.created", "response": {"id": f"resp_{next(_numbers)}"}})


def message(*deltas: str, item_id: str = "") -> bytes:
    """Return a complete message, one frame per delta."""
    item_id = item_id or f"msg_{next(_numbers)}"
    text = "".join(deltas)
    return unfinished_message(*deltas, item_id=item_id) + _done(
        {"type": "message", "id": item_id, "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    )


def unfinished_message(*deltas: str, item_id: str = "") -> bytes:
    """Return a message without its end."""
    item_id = item_id or f"msg_{next(_numbers)}"
    item = {"type": "message", "id": item_id, "role": "assistant", "content": []}
    return frame({"type": "response.output_item.added", "output_index": 0, "item": item}) + b"".join(
        frame(
            {
                "type": "response.output_text.delta",
                "item_id": item_id,
                "output_index": 0,
                "content_index": 0,
                "delta": delta,
            }
        )
        for delta in deltas
    )


def reasoning(*summary: str, encrypted: str = "sealed") -> bytes:
    """Return a reasoning item with its summary as deltas."""
    item_id = f"rs_{next(_numbers)}"
    position = {"item_id": item_id, "output_index": 0, "summary_index": 0}
    return (
        frame(
            {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": item_id, "summary": []}}
        )
        + frame({"type": "response.reasoning_summary_part.added", **position})
        + b"".join(frame({"type": "response.reasoning_summary_text.delta", **position, "delta": delta}) for delta in summary)
        + _done(
            {
                "type": "reasoning",
                "id": item_id,
                "summary": [{"type": "summary_text", "text": "".join(summary)}],
                "encrypted_content": encrypted,
            }
        )
    )


def call_frames(made: Call) -> bytes:
    """Return a complete call. `custom_tool_call` takes its input from `arguments["input"]`; other kinds send all arguments."""
    number = next(_numbers)
    item: dict[str, Any] = {"type": made.kind, "id": f"fc_{number}", "call_id": made.call_id or f"call_{number}"}
    match made.kind:
        case "function_call":
            item |= {"name": made.name, "arguments": msgspec.json.encode(made.arguments).decode()}
        case "custom_tool_call":
            item |= {"name": made.name, "input": made.arguments["input"]}
        case _:
            item |= made.arguments
    return frame({"type": "response.output_item.added", "output_index": 0, "item": item}) + _done(item)


def completed(input_tokens: int = 7, output_tokens: int = 3, cached: int = 0, reasoned: int = 0) -> bytes:
    """Return the end of a response and of the stream."""
    usage = {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoned},
        "total_tokens": input_tokens + output_tokens,
    }
    return frame({"type": "response.completed", "response": {"id": f"resp_{next(_numbers)}", "usage": usage}}) + LAST_CHUNK


def incomplete(reason: str = "max_output_tokens") -> bytes:
    response = {"id": f"resp_{next(_numbers)}", "incomplete_details": {"reason": reason}}
    return frame({"type": "response.incomplete", "response": response}) + LAST_CHUNK


def failed(code: str, text: str) -> bytes:
    response = {"id": f"resp_{next(_numbers)}", "error": {"code": code, "message": text}}
    return frame({"type": "response.failed", "response": response}) + LAST_CHUNK


def says(*deltas: str) -> Script:
    """Script a complete answer of text."""
    return (head() + message(*deltas) + completed(),)


def calls(*made: Call, before: str = "") -> Script:
    """Script a complete answer of parallel calls, after some text if given."""
    text = message(before) if before else b""
    return (head() + text + b"".join(map(call_frames, made)) + completed(),)


def holds(gate: Gate, *deltas: str) -> Script:
    """Script text whose first delta is sent before the gate and the rest after it."""
    item_id = f"msg_{next(_numbers)}"
    whole = message(*deltas, item_id=item_id)
    start = unfinished_message(deltas[0], item_id=item_id)
    assert whole.startswith(start)
    return (head() + start, gate, whole[len(start) :] + completed())


def disconnects(*deltas: str) -> Script:
    """Script text and then a disconnect."""
    return (head() + unfinished_message(*deltas), CLOSE)


def truncates(*deltas: str) -> Script:
    """Script text that reached the limit of output tokens."""
    return (head() + message(*deltas) + incomplete(),)


def refuses(status: int, text: str = "No.", code: str = "", headers: str = "") -> Step:
    """Script an HTTP error. `headers` are further lines, each with its CR LF."""
    return reply(
        msgspec.json.encode({"error": {"message": text, "code": code or None, "type": code or "error"}}), status, headers=headers
    )


def body_of(received: ReceivedRequest) -> dict[str, Any]:
    """Return the decoded body of a request."""
    found = msgspec.json.decode(received.body)
    assert isinstance(found, dict)
    return found


def texts(received: ReceivedRequest, role: str = "user") -> list[str]:
    """Return the texts of one role in a request."""
    return [
        part["text"]
        for item in body_of(received)["input"]
        if item.get("role") == role
        for part in _parts(item["content"])
        if "text" in part
    ]


def _parts(content: str | Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    return [{"text": content}] if isinstance(content, str) else content


def _done(item: dict[str, Any]) -> bytes:
    return frame({"type": "response.output_item.done", "output_index": 0, "item": item})
