"""Two tools in the formats of both APIs, and questions that need them."""

from __future__ import annotations

from typing import Any

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
TIME: dict[str, Any] = {
    "name": "get_time",
    "description": "The time in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CHAT_TOOLS: list[Any] = [{"type": "function", "function": tool} for tool in (WEATHER, TIME)]
RESPONSES_TOOLS: list[Any] = [{"type": "function", **tool, "strict": False} for tool in (WEATHER, TIME)]

ONE = "What is the weather in Paris?"
BOTH = "What is the weather and the time in Paris?"
