"""Gemini's generateContent as Google speaks it."""

from __future__ import annotations

import json

from google.genai.types import GenerateContentResponse

from tests.stories.scripts import Called, Entry, Json, ModelAnswer, ProviderRequest, Returned, Said, Style, WireServer, pieces

_USAGE = {"promptTokenCount": 82, "candidatesTokenCount": 17, "totalTokenCount": 99}
_NO_PARAMETERS: Json = {"type": "object", "properties": {}}
_MODES = {"AUTO": "auto", "NONE": "none", "ANY": "required"}


def read(body: Json, path: str) -> ProviderRequest:
    entries: list[Entry] = []
    roles = [content["role"] for content in body["contents"]]
    assert set(roles) <= {"user", "model"}, roles
    open_calls: list[tuple[str, str]] = []
    for content in body["contents"]:
        assert content["parts"], "a content needs parts"
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        assert [(given["id"], given["name"]) for given in results] == open_calls, (
            "as many responses as calls, in the next content"
        )
        open_calls = [
            (part["functionCall"]["id"], part["functionCall"]["name"]) for part in content["parts"] if "functionCall" in part
        ]
        entries += [_entry(content["role"], part) for part in content["parts"]]
    declared = [tool for group in body.get("tools", ()) for tool in group["functionDeclarations"]]
    config = body.get("generationConfig") or {}
    return ProviderRequest(
        entries=entries,
        system="".join(part["text"] for part in (body.get("systemInstruction") or {"parts": ()})["parts"]),
        tools={tool["name"]: tool.get("parametersJsonSchema", _NO_PARAMETERS) for tool in declared},
        descriptions={tool["name"]: tool["description"] for tool in declared},
        choice=_choice(body.get("toolConfig")) if declared else "",
        stream=path.endswith(":streamGenerateContent?alt=sse"),
        schema=config.get("responseJsonSchema"),
    )


def _entry(role: str, part: Json) -> Entry:
    if "functionCall" in part:
        made = part["functionCall"]
        assert isinstance(made["args"], dict)
        return Called(made["id"], made["name"], made["args"])
    if "functionResponse" in part:
        given = part["functionResponse"]
        ((key, text),) = given["response"].items()
        return Returned(given["id"], text, failed={"output": False, "error": True}[key])
    assert part["text"], "text must not be empty"
    return Said("assistant" if role == "model" else role, part["text"])


def _choice(config: Json | None) -> str:
    if config is None:
        return "auto"
    calling = config["functionCallingConfig"]
    names = calling.get("allowedFunctionNames", ())
    assert not names or calling["mode"] == "ANY", "names are allowed only with ANY"
    return str(names[0]) if len(names) == 1 else _MODES[calling["mode"]]


def _calls(answer: ModelAnswer) -> list[Json]:
    return [{"functionCall": {"name": call.name, "args": call.arguments}} for call in answer.calls]


def _response(parts: list[Json], finish: str | None) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": _USAGE, "modelVersion": "m", "responseId": "mAitaLmkHPPlz7IPvtfUqQ4"}


def frames(answer: ModelAnswer, _style: Style) -> list[bytes]:
    """Encode each piece of text, and each call, as a frame. The last one has the finish reason."""
    parts = [*({"text": piece} for piece in pieces(answer.text)), *_calls(answer)]
    values = [_response([part], "STOP" if number == len(parts) else None) for number, part in enumerate(parts, 1)]
    return [b"data: %b\r\n\r\n" % json.dumps(value, ensure_ascii=False).encode() for value in values]


def whole(answer: ModelAnswer, _style: Style) -> bytes:
    text: list[Json] = [{"text": answer.text}] if answer.text else []
    return json.dumps(_response([*text, *_calls(answer)], "STOP")).encode()


SERVER = WireServer(
    sources=(
        "https://ai.google.dev/api/generate-content",
        "https://ai.google.dev/gemini-api/docs/function-calling",
    ),
    read=read,
    frames=frames,
    whole=whole,
    frame_type=GenerateContentResponse,
    answer_type=GenerateContentResponse,
)
