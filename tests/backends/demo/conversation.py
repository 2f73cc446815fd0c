"""Requests to the demo model, the tools that they declare, and its answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from toolrelay.backends.demo import respond
from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import StreamEvent
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Item, Message, plain_text
from toolrelay.core.request import Request, Tool

STRING: JsonObject = {"type": "string"}


def schema(required: Sequence[str] | None = None, /, **properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties if required is None else required)}


WEATHER = Tool(
    name="get_weather",
    description="The weather at a place",
    parameters=schema(
        ["city"],
        city=STRING,
        unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
        days={"type": "integer", "minimum": 1, "maximum": 7},
    ),
)
TIME = Tool(name="getCurrentTime", parameters=schema(timezone=STRING))
SEARCH = Tool(name="vault_search", parameters=schema(["query"], query=STRING, limit={"type": "integer", "maximum": 50}))
PYTHON = Tool(name="run_python", kind="custom")
TOOLS = (WEATHER, TIME, SEARCH, PYTHON)


def request(text: str, *tools: Tool, then: Sequence[Item] = (), **members: Any) -> Request:
    return Request(wire="chat", model="demo", items=(Message(role="user", content=text), *then), tools=tools, **members)


def fold(events: Sequence[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


def message_text(answer: Answer) -> str:
    return "".join(plain_text(item.content) for item in answer.items if isinstance(item, Message))


def calls(asked: Request) -> list[tuple[str, Any]]:
    answer = fold(respond(asked))
    assert answer.finish == ("calls" if answer.calls else "stop")
    return [(call.name, json.loads(call.arguments)) for call in answer.calls]


def text_of(asked: Request) -> str:
    answer = fold(respond(asked))
    assert not answer.calls
    return message_text(answer)
