"""The server half of Ollama's own API, which only the tests need: answers as lines of JSON, and requests as the gateway's own.

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
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.errors import ToolrelayError, invalid
from toolrelay.wires.base import Envelope, Wire, discover_provider_wires
from toolrelay.wires.json import decode_body

Json = dict[str, Any]

WIRE = discover_provider_wires()["ollama"]


# Answers


def line(model: str, message: Json | None = None, **members: Any) -> bytes:
    said = {"role": "assistant", "content": "", **(message or {})}
    return msgspec.json.encode({"model": model, "message": said, "done": False, **members}) + b"\n"


def _end(finish: str, usage: Usage | None) -> Json:
    counts = {} if usage is None else {"prompt_eval_count": usage.input, "eval_count": usage.output}
    return {"done": True, "done_reason": "length" if finish == "length" else "stop", **counts}


def _call(name: str, arguments: str) -> Json:
    return {"function": {"name": name, "arguments": arguments}}  # a string keeps the text as it was written


class OllamaEncoder:
    """See wires.base.Encoder. The API has no calls in pieces: each is sent when it and those before it are finished."""

    def __init__(self, envelope: Envelope) -> None:
        self._model = envelope.model
        self._calls: dict[int, tuple[CallStarted, list[str]]] = {}
        self._finished: set[int] = set()

    def keep_alive(self) -> bytes:
        return b"\n"

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        return b"".join(each for event in events for each in self._lines(event))

    def _lines(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case AnswerStarted():
                self._model = event.model or self._model
            case TextDelta():
                yield line(self._model, {"content": event.text})
            case ReasoningDelta():
                yield line(self._model, {"thinking": event.text})
            case CallStarted():
                self._calls[event.index] = event, []
            case ArgumentsDelta():
                self._calls[event.index][1].append(event.text)
            case CallFinished():
                self._finished.add(event.index)
                while self._calls and next(iter(self._calls)) in self._finished:
                    yield line(self._model, {"tool_calls": [self._take(next(iter(self._calls)))]})
            case AnswerFinished():
                made = [self._take(index) for index in list(self._calls) if index in self._finished]
                yield line(self._model, {"tool_calls": made} if made else None, **_end(event.finish, event.usage))
            case AnswerFailed():
                yield encode_error(event.error) + b"\n"
            case _:
                pass

    def _take(self, index: int) -> Json:
        started, pieces = self._calls.pop(index)
        return _call(started.name, "".join(pieces))


def encode_answer(answer: Answer, envelope: Envelope) -> bytes:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    for item in answer.items:
        match item:
            case Message():
                texts += [part.text for part in item.content if isinstance(part, Text)]
            case Reasoning():
                thoughts += [*item.summary, *item.text]
            case Call():
                calls.append(_call(item.name, item.arguments))
            case _:
                pass
    message: Json = {"content": "".join(texts), "thinking": "".join(thoughts), "tool_calls": calls}
    return line(answer.started.model or envelope.model, message, **_end(answer.finish, answer.usage))


def encode_error(error: ToolrelayError) -> bytes:
    return json.dumps({"error": error.message}).encode()


# Requests


def decode_request(body: bytes) -> Request:
    value: Json = decode_body(body)
    if not isinstance(value.get("messages"), list):
        raise invalid("Missing messages.", "messages")
    items = [item for message in value["messages"] for item in _items(message)]
    tools = [tool["function"] for tool in value.get("tools", ())]
    choice = None if tools else ToolChoice(mode="none")  # which the API can say in no other way
    return Request(
        wire=WIRE.name,
        model=value["model"],
        items=tuple(items),
        tools=tuple([Tool(name=tool["name"], description=tool["description"], parameters=tool["parameters"]) for tool in tools]),
        tool_choice=choice,
        stream=value["stream"],
    )


def _items(message: Json) -> Iterator[Item]:
    if message["role"] == "tool":
        yield Result(call_id=message["tool_call_id"], name=message.get("tool_name"), output=message["content"])
        return
    if message.get("thinking"):
        yield Reasoning(text=(message["thinking"],))
    if message["content"] or message["role"] != "assistant":
        yield Message(role=message["role"], content=message["content"])
    for call in message.get("tool_calls", ()):
        made = call["function"]
        yield Call(id=call["id"], name=made["name"], arguments=json.dumps(made["arguments"]))


SERVED = Wire(
    **{name: getattr(WIRE, name) for name in WIRE.__struct_fields__},
    path="/api/chat",
    decode_request=decode_request,
    encoder=OllamaEncoder,
    encode_answer=encode_answer,
    encode_error=encode_error,
)
