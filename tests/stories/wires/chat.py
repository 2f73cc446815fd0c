"""Chat Completions as a provider speaks it."""

from __future__ import annotations

import json
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.stories.scripts import (
    REASONING,
    Called,
    Entry,
    Json,
    MadeCall,
    ModelAnswer,
    ProviderRequest,
    Returned,
    Said,
    Style,
    WireServer,
    pieces,
)

_HEAD: Json = {"id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG", "created": 1_741_570_283, "model": "m"}
_USAGE = {"prompt_tokens": 82, "completion_tokens": 17, "total_tokens": 99}


def read(body: Json, _path: str) -> ProviderRequest:
    entries: list[Entry] = []
    system: list[str] = []
    for message in body["messages"]:
        text = _text(message.get("content"))
        match message["role"]:
            case "system" | "developer":
                system.append(text)
            case "tool":
                entries.append(Returned(message["tool_call_id"], text))
            case role:
                entries += [Said(role, text)] if text else []
        for call in message.get("tool_calls", ()):
            made = call[call["type"]]
            arguments = {"input": made["input"]} if call["type"] == "custom" else json.loads(made["arguments"])
            entries.append(Called(call["id"], made["name"], arguments))
    tools = [tool["function"] for tool in body.get("tools", ()) if tool["type"] == "function"]
    wanted = body.get("response_format") or {}
    return ProviderRequest(
        entries=entries,
        system="\n".join(system),
        tools={tool["name"]: tool.get("parameters") for tool in tools},
        descriptions={tool["name"]: tool.get("description", "") for tool in tools},
        custom=[tool["custom"]["name"] for tool in body.get("tools", ()) if tool["type"] == "custom"],
        choice=_choice(body.get("tool_choice", "auto")) if body.get("tools") else "",
        stream=body.get("stream", False),
        schema=wanted["json_schema"]["schema"] if wanted.get("type") == "json_schema" else None,
    )


def _text(content: Any) -> str:
    return content or "" if isinstance(content, str | None) else "".join(part["text"] for part in content)


def _choice(value: Any) -> str:
    return value if isinstance(value, str) else str(value[value["type"]]["name"])


def frames(answer: ModelAnswer, style: Style) -> list[bytes]:
    deltas: list[Json] = [{"role": "assistant", "content": "", "refusal": None}]
    if style.reasons:
        deltas += [{"content": None, "reasoning_content": piece} for piece in pieces(REASONING)]
    deltas += [{"content": piece} for piece in pieces(answer.text)]
    for index, call in enumerate(_calls(answer, style)):
        kind, member = ("custom", "input") if call["type"] == "custom" else ("function", "arguments")
        arguments = call[kind][member]
        split = [arguments] if style.whole_calls else ["", *pieces(arguments)]
        deltas.append({"tool_calls": [{"index": index, **call, kind: {**call[kind], member: split[0]}}]})
        deltas += [{"tool_calls": [{"index": index, kind: {member: piece}}]} for piece in split[1:]]
    choices: list[Json] = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": _finish(answer)})
    chunks = [_chunk([choice]) for choice in choices]
    comments = [b": OPENROUTER PROCESSING\n\n"] if style.comments else []
    return [*comments, *chunks, _chunk([], _USAGE), b"data: [DONE]\n\n"]


def _chunk(choices: list[Json], usage: Json | None = None) -> bytes:
    value = {**_HEAD, "object": "chat.completion.chunk", "choices": choices, "usage": usage}
    return b"data: %b\n\n" % json.dumps(value, ensure_ascii=False).encode()


def whole(answer: ModelAnswer, style: Style) -> bytes:
    message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = _calls(answer, style)
    if style.reasons:
        message["reasoning_content"] = REASONING
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
    return json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}).encode()


def _calls(answer: ModelAnswer, style: Style) -> list[Json]:
    template = style.call_id or "call_DdmO9pD3xa9XTPNJ{:06d}"
    return [{"id": template.format(number), **_call(call, style)} for number, call in enumerate(answer.calls)]


def _call(call: MadeCall, style: Style) -> Json:
    if call.is_custom:
        return {"type": "custom", "custom": {"name": call.name, **call.arguments}}
    arguments = json.dumps(call.arguments, ensure_ascii=False) if call.arguments else style.no_arguments
    return {"type": "function", "function": {"name": call.name, "arguments": arguments}}


def _finish(answer: ModelAnswer) -> str:
    return "tool_calls" if answer.calls else "stop"


SERVER = WireServer(
    sources=(
        "https://platform.openai.com/docs/api-reference/chat/create",
        "https://platform.openai.com/docs/api-reference/chat-streaming/streaming",
    ),
    read=read,
    frames=frames,
    whole=whole,
    frame_type=ChatCompletionChunk,
    answer_type=ChatCompletion,
)
