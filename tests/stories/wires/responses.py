"""Responses as a provider speaks it."""

from __future__ import annotations

import json
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent

from tests.stories.scripts import Called, Entry, Json, ModelAnswer, ProviderRequest, Returned, Said, Style, WireServer, pieces

_USAGE = {
    "input_tokens": 82,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 17,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 99,
}


def read(body: Json, _path: str) -> ProviderRequest:
    entries: list[Entry] = []
    system = [body.get("instructions") or ""]
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        match item.get("type", "message"):
            case "message" if item["role"] in ("system", "developer"):
                system.append(_text(item["content"]))
            case "message":
                entries.append(Said(item["role"], _text(item["content"])))
            case "function_call":
                entries.append(Called(item["call_id"], item["name"], json.loads(item["arguments"])))
            case "custom_tool_call":
                entries.append(Called(item["call_id"], item["name"], {"input": item["input"]}))
            case "function_call_output" | "custom_tool_call_output":
                entries.append(Returned(item["call_id"], _text(item["output"])))
            case "reasoning":
                pass
            case kind:
                raise AssertionError(f"an item of type {kind}")
    tools = [tool for tool in body.get("tools", ()) if tool["type"] == "function"]
    wanted = (body.get("text") or {}).get("format") or {}
    return ProviderRequest(
        entries=entries,
        system="\n".join(system),
        tools={tool["name"]: tool.get("parameters") for tool in tools},
        descriptions={tool["name"]: tool.get("description", "") for tool in tools},
        custom=[tool["name"] for tool in body.get("tools", ()) if tool["type"] == "custom"],
        choice=_choice(body.get("tool_choice", "auto")) if tools else "",
        stream=body.get("stream", False),
        schema=wanted.get("schema"),
    )


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _choice(value: Any) -> str:
    return value if isinstance(value, str) else str(value["name"])


def _items(answer: ModelAnswer, style: Style) -> list[Json]:
    items: list[Json] = []
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        items.append({"id": "msg_67ccf190ca38", "type": "message", "status": "completed", "role": "assistant", "content": [part]})
    for number, call in enumerate(answer.calls):
        call_id = (style.call_id or "call_unDe2kStl3nAvi{:06d}").format(number)
        item: Json = {"id": f"fc_67ccf18f64008190a39b619f4c8455ef{number}", "call_id": call_id, "name": call.name}
        if call.is_custom:
            item |= {"type": "custom_tool_call", "status": "completed", **call.arguments}
        else:
            arguments = json.dumps(call.arguments, ensure_ascii=False) if call.arguments else style.no_arguments
            item |= {"type": "function_call", "status": "completed", "arguments": arguments}
        items.append(item)
    return items


def frames(answer: ModelAnswer, style: Style) -> list[bytes]:
    events: list[Json] = [
        {"type": "response.created", "response": _response([], "in_progress")},
        {"type": "response.in_progress", "response": _response([], "in_progress")},
    ]
    items = _items(answer, style)
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            (part,) = item["content"]
            place = {**at, "content_index": 0}
            events += [
                _item("added", index, {**item, "status": "in_progress", "content": []}),
                {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
                *(
                    {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
                    for piece in pieces(part["text"])
                ),
                {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
                {"type": "response.content_part.done", **place, "part": part},
            ]
        else:
            kind, member = "response.function_call_arguments", "arguments"
            if item["type"] == "custom_tool_call":
                kind, member = "response.custom_tool_call_input", "input"
            events += [
                _item("added", index, {**item, "status": "in_progress", member: ""}),
                *({"type": f"{kind}.delta", **at, "delta": piece} for piece in pieces(item[member])),
                {"type": f"{kind}.done", **at, "name": item["name"], member: item[member]},
            ]
        events.append(_item("done", index, item))
    events.append({"type": "response.completed", "response": _response(items, "completed", _USAGE)})
    return [_frame({**event, "sequence_number": number}) for number, event in enumerate(events)]


def _item(what: str, index: int, item: Json) -> Json:
    return {"type": f"response.output_item.{what}", "output_index": index, "item": item}


def _frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def _response(output: list[Json], status: str, usage: Json | None = None) -> Json:
    return {
        "id": "resp_67ccf18ef5fc8190b16dbee19bc54e5f087bb177ab789d5c",
        "object": "response",
        "created_at": 1_741_484_430,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "m",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }


def whole(answer: ModelAnswer, style: Style) -> bytes:
    return json.dumps(_response(_items(answer, style), "completed", _USAGE)).encode()


SERVER = WireServer(
    sources=(
        "https://platform.openai.com/docs/api-reference/responses/create",
        "https://platform.openai.com/docs/api-reference/responses-streaming",
    ),
    read=read,
    frames=frames,
    whole=whole,
    frame_type=ResponseStreamEvent,
    answer_type=Response,
)
