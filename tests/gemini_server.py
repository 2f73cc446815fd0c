"""The server half of Gemini's API, which only the tests need: answers as frames, and requests as the gateway's own.

`SERVED` is the wire in both roles, so that the suites that run over every wire cover it, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from toolrelay.core.assembly import Answer
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.messages import Call, Item, Message, Reasoning, Result, Text
from toolrelay.core.request import AnyTool, Request, Tool, ToolChoice
from toolrelay.errors import ToolrelayError, invalid
from toolrelay.wires.base import KEEP_ALIVE, Envelope, Wire, discover_provider_wires
from toolrelay.wires.json import decode_body, is_object

Json = dict[str, Any]

WIRE = discover_provider_wires()["gemini"]
FINISHES = {"stop": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
STATUSES = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}


# Answers


def frame(*parts: Json, finish: str | None = None, usage: Json | None = None, model: str | None = "gemini-3-flash") -> Json:
    """Return a GenerateContentResponse, as one frame of a stream or as a whole answer."""
    candidate: Json = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    members = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": "r1"}
    return {key: value for key, value in members.items() if value is not None}


def text(said: str, signature: str = "") -> Json:
    return {"text": said, **({"thoughtSignature": signature} if signature else {})}


def thought(said: str) -> Json:
    return {"text": said, "thought": True}


def call(name: str, args: Any = None, *, id: str = "", signature: str = "") -> Json:  # noqa: A002 -- the API's word
    made = {"name": name, "args": {} if args is None else args, **({"id": id} if id else {})}
    return {"functionCall": made, **({"thoughtSignature": signature} if signature else {})}


def sse(*frames: Json) -> bytes:
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(each) for each in frames)


def usage_metadata(usage: Usage) -> Json:
    members = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - (usage.reasoning or 0),
        "thoughtsTokenCount": usage.reasoning,
        "cachedContentTokenCount": usage.cached,
        "totalTokenCount": usage.input + usage.output if usage.total is None else usage.total,
    }
    return {key: value for key, value in members.items() if value is not None}


def _arguments(given: str) -> Any:
    """Return arguments as they were written. The gateway removes spaces, so those with spaces are sent as a string."""
    is_plain = is_object(given) and msgspec.json.format(given, indent=-1) == given
    return msgspec.Raw(given.encode()) if is_plain else given


class GeminiEncoder:
    """See wires.base.Encoder. The API has no calls in pieces: each is sent when it and those before it are finished."""

    def __init__(self, envelope: Envelope) -> None:
        self._model = envelope.model
        self._calls: dict[int, tuple[CallStarted, list[str]]] = {}
        self._finished: set[int] = set()

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        return b"".join(b"data: %b\n\n" % msgspec.json.encode(each) for event in events for each in self._frames(event))

    def _frames(self, event: StreamEvent) -> Iterator[Json]:
        match event:
            case AnswerStarted():
                self._model = event.model or self._model
            case TextDelta():
                yield self._frame(text(event.text))
            case ReasoningDelta():
                yield self._frame(thought(event.text))
            case CallStarted():
                self._calls[event.index] = event, []
            case ArgumentsDelta():
                self._calls[event.index][1].append(event.text)
            case CallFinished():
                self._finished.add(event.index)
                while self._calls and next(iter(self._calls)) in self._finished:
                    yield self._frame(self._take(next(iter(self._calls))))
            case AnswerFinished():
                made = [self._take(index) for index in list(self._calls) if index in self._finished]
                usage = None if event.usage is None else usage_metadata(event.usage)
                yield self._frame(*made, finish=FINISHES[event.finish], usage=usage)
            case AnswerFailed():
                yield json.loads(encode_error(event.error))
            case _:
                pass

    def _frame(self, *parts: Json, **members: Any) -> Json:
        return frame(*parts, model=self._model, **members)

    def _take(self, index: int) -> Json:
        started, pieces = self._calls.pop(index)
        return call(started.name, _arguments("".join(pieces)), id=started.id)


def encode_answer(answer: Answer, envelope: Envelope) -> bytes:
    parts: list[Json] = []
    for item in answer.items:
        match item:
            case Message():
                parts += [text(part.text) for part in item.content if isinstance(part, Text)]
            case Reasoning():
                parts += [thought(said) for said in (*item.summary, *item.text)]
            case Call():
                parts.append(call(item.name, _arguments(item.arguments), id=item.id))
            case _:
                pass
    usage = None if answer.usage is None else usage_metadata(answer.usage)
    model = answer.started.model or envelope.model
    return msgspec.json.encode(frame(*parts, finish=FINISHES[answer.finish], usage=usage, model=model))


def encode_error(error: ToolrelayError) -> bytes:
    status = STATUSES.get(error.status, "INTERNAL")
    return json.dumps({"error": {"code": error.status, "message": error.message, "status": status}}).encode()


# Requests


def decode_request(body: bytes) -> Request:
    """Decode what the gateway sends. The model and whether to stream are in the path."""
    value: Json = decode_body(body)
    if not isinstance(value.get("contents"), list):
        raise invalid("Missing contents.", "contents")
    system = value.get("systemInstruction") or {"parts": []}
    items: list[Item] = [Message(role="system", content=part["text"]) for part in system["parts"]]
    for content in value["contents"]:
        items += [_item(part, content["role"]) for part in content["parts"]]
    return Request(
        wire=WIRE.name,
        model="m",
        items=tuple(items),
        tools=tuple(_tools(value)),
        tool_choice=_tool_choice(value.get("toolConfig")),
    )


def _item(part: Json, role: str) -> Item:
    if "functionCall" in part:
        made = part["functionCall"]
        return Call(id=made["id"], name=made["name"], arguments=json.dumps(made["args"]))
    if "functionResponse" in part:
        given = part["functionResponse"]
        return Result(call_id=given["id"], name=given["name"], output=next(iter(given["response"].values())))
    return Message(role="user" if role == "user" else "assistant", content=part.get("text", ""))


def _tools(value: Json) -> Iterator[AnyTool]:
    for group in value.get("tools", ()):
        for tool in group["functionDeclarations"]:
            yield Tool(name=tool["name"], description=tool["description"], parameters=tool.get("parametersJsonSchema"))


def _tool_choice(config: Json | None) -> ToolChoice | None:
    if config is None:
        return None
    calling = config["functionCallingConfig"]
    names = calling.get("allowedFunctionNames", [])
    match calling["mode"]:
        case "ANY" if len(names) == 1:
            return ToolChoice(mode="named", names=(("function", names[0]),))
        case "ANY":
            return ToolChoice(mode="required", names=tuple(("function", name) for name in names))
        case "NONE":
            return ToolChoice(mode="none")
        case _:
            return ToolChoice()


SERVED = Wire(
    **{name: getattr(WIRE, name) for name in WIRE.__struct_fields__},
    path="/models/m:streamGenerateContent?alt=sse",
    decode_request=decode_request,
    encoder=GeminiEncoder,
    encode_answer=encode_answer,
    encode_error=encode_error,
)
