"""Anthropic Messages, requests from other wires to a provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from toolrelay.core.messages import Call, Item, Message, Reasoning, Result
from toolrelay.core.profiles import Profile
from toolrelay.core.request import ReasoningOptions, Request, Sampling, Tool, ToolChoice
from toolrelay.wires.anthropic.thinking import seal_block
from toolrelay.wires.base import discover

WIRE = discover()["anthropic_messages"]
USER = Message(role="user", content="Hi")
TOOLS = (Tool(name="f"), Tool(name="g", parameters={"properties": {}}))


def sent(*items: Item, model: str = "claude-opus-5-5", **members: Any) -> dict[str, Any]:
    request = Request(wire="openai_chat", model=model, items=items, **members)
    body: dict[str, Any] = json.loads(WIRE.encode_request(request, Profile()).body)
    return body


def call(identifier: str, arguments: str = "{}") -> Call:
    return Call(id=identifier, name="f", arguments=arguments)


def result(identifier: str) -> Result:
    return Result(call_id=identifier, output="r")


def shape(body: dict[str, Any]) -> list[Any]:
    """Each message as its role and the types of its blocks."""
    return [
        (
            message["role"],
            message["content"] if isinstance(message["content"], str) else [block["type"] for block in message["content"]],
        )
        for message in body["messages"]
    ]


def test_results_stand_at_the_beginning_of_the_message_after_their_calls() -> None:
    items = (USER, call("a"), call("b"), result("b"), USER, result("a"), Message(role="assistant", content="So."), USER)
    assert shape(sent(*items, tools=TOOLS)) == [
        ("user", "Hi"),
        ("assistant", ["tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result", "text"]),
        ("assistant", "So."),
        ("user", "Hi"),
    ]


def test_results_that_come_late_are_moved_before_what_the_model_said_next() -> None:
    items = (USER, call("a"), Message(role="system", content="S"), Message(role="assistant", content="So."), USER, result("a"))
    assert shape(sent(*items, tools=TOOLS))[1:] == [("assistant", ["tool_use", "text"]), ("user", ["tool_result", "text"])]


def test_system_messages_become_the_system_text() -> None:
    body = sent(Message(role="system", content="A"), USER, Message(role="developer", content="B"), instructions="I")
    assert [block["text"] for block in body["system"]] == ["I", "A", "B"]
    assert sent(USER, instructions="I")["system"] == "I"


def test_system_text_alone_is_a_message_of_the_user() -> None:
    assert shape(sent(Message(role="system", content="A"), instructions="I")) == [("user", ["text", "text"])]


def test_empty_text_is_left_out() -> None:
    assert shape(sent(USER, Message(role="assistant", content=""), call("a"), result("a"), tools=TOOLS))[1] == (
        "assistant",
        ["tool_use"],
    )


def test_arguments_are_sent_as_the_model_wrote_them() -> None:
    text = '{"b":  1.0, "a":"\\u00e9"}'
    request = Request(wire="openai_chat", model="m", items=(USER, call("a", text)), tools=TOOLS)
    assert text.encode() in WIRE.encode_request(request, Profile()).body


@pytest.mark.parametrize("text", ['{"a":', "[1]", "words", '"x"'])
def test_arguments_that_are_no_object_are_wrapped(text: str) -> None:
    assert sent(USER, call("a", text), tools=TOOLS)["messages"][1]["content"][0]["input"] == {"invalid_arguments": text}


def test_ids_that_the_api_refuses_are_replaced_by_the_same_one() -> None:
    body = sent(USER, call("functions.f:0"), result("functions.f:0"), tools=TOOLS)
    (made,), (answered,) = (message["content"] for message in body["messages"][1:])
    assert made["id"] == answered["tool_use_id"]
    assert made["id"].replace("_", "").isalnum()


def test_conversation_with_calls_declares_their_tools_if_the_request_has_none() -> None:
    body = sent(USER, call("a"), result("a"))
    assert [tool["name"] for tool in body["tools"]] == ["f"]
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, None),
        ({"tool_choice": ToolChoice(mode="required")}, {"type": "any"}),
        ({"tool_choice": ToolChoice(mode="none")}, {"type": "none"}),
        ({"tool_choice": ToolChoice(mode="named", names=(("function", "g"),))}, {"type": "tool", "name": "g"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"tool_choice": ToolChoice(mode="none"), "parallel_tool_calls": False}, {"type": "none"}),
    ],
)
def test_tool_choice_is_translated(members: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert sent(USER, tools=TOOLS, **members).get("tool_choice") == expected


def test_only_allowed_tools_are_declared() -> None:
    body = sent(USER, tools=TOOLS, tool_choice=ToolChoice(mode="required", names=(("function", "g"),)))
    assert [tool["name"] for tool in body["tools"]] == ["g"]
    assert body["tool_choice"] == {"type": "any"}


def test_schema_of_a_tool_is_an_object() -> None:
    assert [tool["input_schema"]["type"] for tool in sent(USER, tools=TOOLS)["tools"]] == ["object", "object"]


@pytest.mark.parametrize(
    ("model", "limit"),
    [("claude-opus-5-5", 32_000), ("claude-3-haiku-20240307", 4096), ("claude-3-5-sonnet-latest", 8192), ("glm-5", 32_000)],
)
def test_max_tokens_has_a_default(model: str, limit: int) -> None:
    assert sent(USER, model=model)["max_tokens"] == limit
    assert sent(USER, model=model, sampling=Sampling(max_output_tokens=7))["max_tokens"] == 7


ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "config"),
    [
        ("claude-opus-4-6", "high", ADAPTIVE, {"effort": "high"}),
        ("claude-sonnet-5-20260203", "minimal", ADAPTIVE, {"effort": "low"}),
        ("claude-opus-4-20250514", "medium", {"type": "enabled", "budget_tokens": 8192}, None),
        ("anthropic/claude-haiku-4.5", "low", {"type": "enabled", "budget_tokens": 2048}, None),
        ("claude-sonnet-4-5-20250929", "high", {"type": "enabled", "budget_tokens": 16384}, None),
        ("glm-5", "xhigh", {"type": "enabled", "budget_tokens": 24576}, None),
        ("claude-opus-4-6", "none", {"type": "disabled"}, None),
        ("claude-3-5-haiku-latest", "high", None, None),
    ],
)
def test_reasoning_effort_becomes_thinking(model: str, effort: str, thinking: Any, config: Any) -> None:
    body = sent(USER, model=model, reasoning=ReasoningOptions(effort=effort))
    assert (body.get("thinking"), body.get("output_config")) == (thinking, config)


def test_budget_leaves_room_for_the_answer() -> None:
    members: dict[str, Any] = {"model": "claude-opus-4-5", "reasoning": ReasoningOptions(effort="high")}
    assert sent(USER, sampling=Sampling(max_output_tokens=4096), **members)["thinking"]["budget_tokens"] == 3072
    assert "thinking" not in sent(USER, sampling=Sampling(max_output_tokens=2000), **members)


def test_there_is_no_thinking_where_the_api_refuses_it() -> None:
    effort = ReasoningOptions(effort="low")
    forced = sent(USER, tools=TOOLS, tool_choice=ToolChoice(mode="required"), reasoning=effort)
    assert "thinking" not in forced
    asked = (USER, call("a"), result("a"))
    signed = Reasoning(text=("Hm.",), encrypted=seal_block("thinking", "sig"))
    assert "thinking" not in sent(*asked, model="claude-opus-4-5", tools=TOOLS, reasoning=effort)
    assert "thinking" in sent(USER, signed, *asked[1:], model="claude-opus-4-5", tools=TOOLS, reasoning=effort)
    assert "thinking" in sent(*asked, tools=TOOLS, reasoning=effort), "adaptive thinking has no such rule"


def test_user_of_either_name_is_sent() -> None:
    assert sent(USER, user="u")["metadata"] == {"user_id": "u"}
    assert sent(USER, safety_identifier="s")["metadata"] == {"user_id": "s"}


def test_headers_go_to_a_provider_of_the_same_wire_only() -> None:
    request = Request(wire=WIRE.name, model="m", items=(USER,), headers={"anthropic-beta": "x"})
    assert WIRE.encode_request(request, Profile()).headers == (("anthropic-beta", "x"),)
    assert WIRE.encode_request(replace(request, wire="openai_chat"), Profile()).headers == ()
