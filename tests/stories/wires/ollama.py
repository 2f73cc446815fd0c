"""Ollama's own chat, as its server speaks it."""

from __future__ import annotations

import json

from tests.stories.scripts import (
    REASONING,
    Called,
    Entry,
    Json,
    ModelAnswer,
    ProviderRequest,
    Returned,
    Said,
    Style,
    WireServer,
    pieces,
)

_HEAD: Json = {"model": "m", "created_at": "2023-08-04T19:22:45.499127Z"}
_END: Json = {"done": True, "done_reason": "stop", "total_duration": 4883583458, "prompt_eval_count": 82, "eval_count": 17}


def read(body: Json, path: str) -> ProviderRequest:
    assert path.endswith("/api/chat")
    assert "/v1/" not in path
    assert "tool_choice" not in body
    entries: list[Entry] = []
    system: list[str] = []
    names: dict[str, str] = {}
    for message in body["messages"]:
        match message["role"]:
            case "system":
                system.append(message["content"])
            case "tool":
                assert message["tool_name"] == names[message["tool_call_id"]]
                entries.append(Returned(message["tool_call_id"], message["content"]))
            case role:
                entries += [Said(role, message["content"])] if message["content"] else []
        for call in message.get("tool_calls", ()):
            made = call["function"]
            assert isinstance(made["arguments"], dict)
            names[call["id"]] = made["name"]
            entries.append(Called(call["id"], made["name"], made["arguments"]))
    declared = [tool["function"] for tool in body.get("tools", ())]
    return ProviderRequest(
        entries=entries,
        system="\n".join(system),
        tools={tool["name"]: tool["parameters"] for tool in declared},
        descriptions={tool["name"]: tool["description"] for tool in declared},
        choice="auto" if declared else "",
        stream=body["stream"],
        schema=body.get("format"),
    )


def _line(message: Json, end: Json | None = None) -> bytes:
    value = {**_HEAD, "message": {"role": "assistant", "content": "", **message}, **({"done": False} if end is None else end)}
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _calls(answer: ModelAnswer) -> list[Json]:
    return [
        {"id": f"call_k2v8rq{number}", "function": {"index": number, "name": call.name, "arguments": call.arguments}}
        for number, call in enumerate(answer.calls)
    ]


def frames(answer: ModelAnswer, style: Style) -> list[bytes]:
    """Encode pieces of text, then each call in a line of its own."""
    thinking = [_line({"thinking": piece}) for piece in pieces(REASONING)] if style.reasons else []
    texts = [_line({"content": piece}) for piece in pieces(answer.text)]
    return [*thinking, *texts, *[_line({"tool_calls": [call]}) for call in _calls(answer)], _line({}, _END)]


def whole(answer: ModelAnswer, style: Style) -> bytes:
    message: Json = {"content": answer.text}
    if style.reasons:
        message["thinking"] = REASONING
    if answer.calls:
        message["tool_calls"] = _calls(answer)
    return _line(message, _END)


SERVER = WireServer(
    sources=(
        "https://docs.ollama.com/api/chat",
        "https://docs.ollama.com/capabilities/tool-calling",
    ),
    read=read,
    frames=frames,
    whole=whole,
    content_type="application/x-ndjson",
)
