"""The response resource's keys and settings."""

from __future__ import annotations

from tests.wires.responses.frames import TOKEN, encoded, frames, validated_resource, whole
from toolrelay.core.events import (
    AnswerFinished,
    TextDelta,
    Usage,
)
from toolrelay.core.request import OpaqueTool, OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice
from toolrelay.wires.responses import WIRE

END = AnswerFinished(finish="stop", usage=Usage(input=3, output=2))
KEYS = {
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "error",
    "incomplete_details",
    "instructions",
    "model",
    "output",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "top_logprobs",
    "truncation",
    "usage",
    "metadata",
    "background",
    "service_tier",
    "presence_penalty",
    "frequency_penalty",
    "max_output_tokens",
    "max_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "user",
}


def test_resource_has_all_keys_in_every_frame() -> None:
    for frame in frames(encoded([TextDelta("a"), END])):
        if "response" in frame:
            assert frame["response"].keys() == KEYS
            validated_resource(frame["response"])


def test_resource_repeats_the_request_settings() -> None:
    request = Request(
        wire=WIRE.name,
        model="fast",
        items=(),
        instructions="Be brief.",
        tools=(
            Tool(name="f", parameters={"type": "object"}, extra={"defer_loading": True}),
            Tool(name="c", kind="custom"),
            OpaqueTool(wire=WIRE.name, raw={"type": "web_search"}),
        ),
        tool_choice=ToolChoice(mode="named", names=(("function", "f"),)),
        parallel_tool_calls=False,
        max_tool_calls=3,
        sampling=Sampling(temperature=0.5, top_p=0.1, max_output_tokens=7, top_logprobs=2, verbosity="low"),
        output=OutputFormat(type="json_schema", name="n", schema={"type": "object"}),
        reasoning=ReasoningOptions(effort="high"),
        metadata={"a": "b"},
        store=True,
        user="u",
        prompt_cache_key="k",
        safety_identifier="s",
        truncation="auto",
        extra={"presence_penalty": 0.5},
    )
    resource = whole([AnswerFinished(finish="stop", service_tier="flex")], request)
    validated_resource(resource)
    assert resource == {
        "id": f"resp_{TOKEN}",
        "object": "response",
        "created_at": 1_700_000_000,
        "completed_at": 1_700_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "model": "fast",
        "output": [],
        "parallel_tool_calls": False,
        "previous_response_id": None,
        "reasoning": {"effort": "high", "summary": None},
        "store": True,
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
        "tool_choice": {"type": "function", "name": "f"},
        "tools": [
            {
                "type": "function",
                "name": "f",
                "description": None,
                "parameters": {"type": "object"},
                "strict": None,
                "defer_loading": True,
            },
            {"type": "custom", "name": "c", "description": None, "format": {"type": "text"}},
            {"type": "web_search"},
        ],
        "top_p": 0.1,
        "top_logprobs": 2,
        "truncation": "auto",
        "usage": None,
        "metadata": {"a": "b"},
        "background": False,
        "service_tier": "flex",
        "presence_penalty": 0.5,
        "frequency_penalty": 0.0,
        "max_output_tokens": 7,
        "max_tool_calls": 3,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "user": "u",
    }
