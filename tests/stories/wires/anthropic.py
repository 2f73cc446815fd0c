"""Anthropic Messages as a provider speaks it."""

from __future__ import annotations

import json
from typing import Any

from anthropic.types import Message, RawMessageStreamEvent

from tests.stories.scripts import Called, Entry, Json, ModelAnswer, ProviderRequest, Returned, Said, Style, WireServer, pieces

_HEAD: Json = {"id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant", "model": "m"}


def read(body: Json, _path: str) -> ProviderRequest:
    entries: list[Entry] = []
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], roles
    open_calls: set[str] = set()
    for message in body["messages"]:
        found = [entry for block in _blocks(message["content"]) for entry in _entries(message["role"], block)]
        results = {entry.id for entry in found if isinstance(entry, Returned)}
        assert results == open_calls, "each call has its result in the next message"
        assert all(isinstance(entry, Returned) for entry in found[: len(results)]), "results come first"
        open_calls = {entry.id for entry in found if isinstance(entry, Called)}
        entries += found
    tools = body.get("tools", ())
    assert len({tool["name"] for tool in tools}) == len(tools)
    assert tools or not any(isinstance(entry, Called) for entry in entries), "calls need declared tools"
    return ProviderRequest(
        entries=entries,
        system="".join(block["text"] for block in _blocks(body.get("system") or "")),
        tools={tool["name"]: tool["input_schema"] for tool in tools},
        descriptions={tool["name"]: tool.get("description", "") for tool in tools},
        choice=_choice(body.get("tool_choice", {"type": "auto"})) if tools else "",
        stream=body.get("stream", False),
        schema=((body.get("output_config") or {}).get("format") or {}).get("schema"),
    )


def _blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _entries(role: str, block: Json) -> list[Entry]:
    match block["type"]:
        case "text":
            assert block["text"], "text content blocks must be non-empty"
            return [Said(role, block["text"])]
        case "tool_use":
            assert isinstance(block["input"], dict)
            return [Called(block["id"], block["name"], block["input"])]
        case "tool_result":
            text = "".join(part["text"] for part in _blocks(block["content"]))
            return [Returned(block["tool_use_id"], text, failed=block.get("is_error", False))]
        case kind:
            raise AssertionError(f"a block of type {kind}")


def _choice(value: Json) -> str:
    kind = str(value["type"])
    return str(value["name"]) if kind == "tool" else {"any": "required"}.get(kind, kind)


def _content(answer: ModelAnswer, style: Style) -> list[Json]:
    content: list[Json] = [{"type": "text", "text": answer.text, "citations": None}] if answer.text else []
    template = style.call_id or "toolu_01T1x1fJ34qAmk2tNT{:06d}"
    return content + [
        {"type": "tool_use", "id": template.format(number), "name": call.name, "input": call.arguments}
        for number, call in enumerate(answer.calls)
    ]


def frames(answer: ModelAnswer, style: Style) -> list[bytes]:
    message = {**_HEAD, "content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(1)}
    events: list[Json] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(_content(answer, style)):
        if block["type"] == "text":
            start: Json = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        else:
            start = {**block, "input": {}}
            split = pieces(json.dumps(block["input"], ensure_ascii=False)) if block["input"] else []
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *split]]
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "ping"}] if index == 0 else []
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    events += [{"type": "message_delta", "delta": stop, "usage": {"output_tokens": 17}}, {"type": "message_stop"}]
    return [f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode() for event in events]


def whole(answer: ModelAnswer, style: Style) -> bytes:
    stop = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    return json.dumps({**_HEAD, "content": _content(answer, style), **stop, "usage": _usage(17)}).encode()


def _usage(output: int) -> Json:
    return {"input_tokens": 82, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output}


def _stop_reason(answer: ModelAnswer) -> str:
    return "tool_use" if answer.calls else "end_turn"


SERVER = WireServer(
    sources=(
        "https://docs.anthropic.com/en/api/messages",
        "https://docs.anthropic.com/en/docs/build-with-claude/streaming",
    ),
    read=read,
    frames=frames,
    whole=whole,
    frame_type=RawMessageStreamEvent,
    answer_type=Message,
)
