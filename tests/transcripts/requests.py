"""Requests of the client, for either API."""

from __future__ import annotations

from typing import Any, TypeAlias

from tests.transcripts.printed import WEATHER
from tests.transcripts.scenarios import Combination, Scenario

Json: TypeAlias = dict[str, Any]


def _tools(*, custom: bool) -> list[Json]:
    def function(name: str, number: str, *, strict: bool) -> Json:
        parameters = {
            "type": "object",
            "properties": {"city": {"type": "string"}, number: {"type": "integer"}},
            "required": ["city", number],
            "additionalProperties": False,
        }
        return {"type": "function", "name": name, "description": f"Asks {name}.", "parameters": parameters, "strict": strict}

    tools = [function("get_weather", "days", strict=False), function("book_room", "nights", strict=True)]
    return [*tools, {"type": "custom", "name": "note", "description": "Keeps a note."}] if custom else tools


def request(combination: Combination, scenario: Scenario, model: str, question: str = "How is Paris?") -> Json:
    body: Json = {"model": model, "stream": combination.stream, "parallel_tool_calls": combination.parallel}
    tools = _tools(custom=scenario.custom)
    if combination.wire == "responses":
        body |= {
            "instructions": "Be brief.",
            "input": _responses_items(question, past=scenario.past),
            "tools": tools,
            "store": False,
        }
    else:
        nested = [{"type": tool["type"], tool["type"]: {key: tool[key] for key in tool if key != "type"}} for tool in tools]
        body |= {"messages": _messages(question, past=scenario.past), "tools": nested}
        if combination.stream:
            body["stream_options"] = {"include_usage": True}
    if not scenario.declared:
        for member in ("tools", "parallel_tool_calls"):
            del body[member]
        return _with_taught_blocks(body)
    body["tool_choice"] = combination.choice
    if combination.choice == "named":
        name = {"name": "get_weather"}
        body["tool_choice"] = {"type": "function", **(name if combination.wire == "responses" else {"function": name})}
    return body


def _with_taught_blocks(body: Json) -> Json:
    """Teach the form of blocks in the client's own prompt."""
    prompt = "Be brief. To call a tool, write <use_tool>."
    if "instructions" in body:
        return body | {"instructions": prompt}
    return body | {"messages": [{"role": "system", "content": prompt}, *body["messages"][1:]]}


def _messages(question: str, *, past: bool) -> list[Json]:
    messages: list[Json] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    if past:
        call = {"id": "call_a", "type": "function", "function": {"name": WEATHER[0], "arguments": WEATHER[1]}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "call_a", "content": "18 degrees"})
    return messages


def _responses_items(question: str, *, past: bool) -> list[Json]:
    items: list[Json] = [{"role": "user", "content": question}]
    if past:
        items.append({"type": "function_call", "call_id": "call_a", "name": WEATHER[0], "arguments": WEATHER[1]})
        items.append({"type": "function_call_output", "call_id": "call_a", "output": "18 degrees"})
    return items
