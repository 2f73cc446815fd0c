"""Anthropic Messages, a client's request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolrelay.core.messages import Call, File, Image, Message, OpaqueItem, OpaquePart, Reasoning, Result, Text
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, OutputFormat, Request, Tool, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires.base import discover

WIRE = discover()["anthropic_messages"]
HI = [{"role": "user", "content": "Hi"}]
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def decode(messages: Any = HI, **members: Any) -> Request:
    return WIRE.decode_request(json.dumps({"model": "m", "max_tokens": 9, "messages": messages, **members}).encode())


def sent(messages: Any = HI, **members: Any) -> dict[str, Any]:
    """The body that a provider of the same wire gets."""
    body: dict[str, Any] = json.loads(WIRE.encode_request(decode(messages, **members), Profile()).body)
    return body


CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
MARK = {"cache_control": {"type": "ephemeral"}}
SOURCES: list[dict[str, Any]] = [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}, **MARK},
    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}, "title": "A", **MARK},
    {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "Grüße 👋"},
        "citations": {"enabled": True},
    },
    {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}, "context": "c"},
    {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "t"}]}},
    {"type": "search_result", "source": "s", "title": "t", "content": []},
]
CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "Look.", **MARK}, *SOURCES]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
            {"type": "thinking", "thinking": "", "signature": "omitted"},
            {"type": "redacted_thinking", "data": "data"},
            {"type": "text", "text": "I look."},
            {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
            {**CALL, **MARK},
            {"type": "tool_use", "id": "d", "name": "f", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"}, SOURCES[0]], "is_error": True},
            {"type": "tool_result", "tool_use_id": "d", "content": ""},
            {"type": "text", "text": "Go on."},
        ],
    },
    {"role": "system", "content": "Be brief."},
    {"role": "assistant", "content": "The answer is ("},
]


def test_conversation_reaches_a_provider_of_the_same_wire_unchanged() -> None:
    assert sent(CONVERSATION)["messages"] == CONVERSATION


def test_settings_reach_a_provider_of_the_same_wire_unchanged() -> None:
    members = {
        "system": [{"type": "text", "text": "Be brief.", **MARK}, {"type": "text", "text": "Be kind."}],
        "tools": [{**TOOL, "description": "d", "strict": True, **MARK}, {"type": "web_search_20250305", "name": "web_search"}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "stop_sequences": ["\n"],
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 5,
        "stream": True,
        "metadata": {"user_id": "u"},
        "service_tier": "standard_only",
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}, "later": 1},
        "context_management": {"edits": []},
    }
    assert sent(**members) == {"model": "m", "max_tokens": 9, "messages": HI, **members}


@pytest.mark.parametrize(
    "choice", [{"type": "any"}, {"type": "none"}, {"type": "tool", "name": "f"}, {"type": "tool", "name": "bash"}]
)
def test_tool_choice_reaches_a_provider_of_the_same_wire_unchanged(choice: dict[str, Any]) -> None:
    tools = [TOOL, {"type": "bash_20250124", "name": "bash"}]
    assert sent(tools=tools, tool_choice=choice)["tool_choice"] == choice


def test_blocks_become_items_and_parts() -> None:
    items = decode(CONVERSATION).items
    kinds = [type(item) for item in items]
    assert kinds == [Message, *[Reasoning] * 3, Message, *[OpaqueItem] * 2, *[Call] * 2, *[Result] * 2, *[Message] * 3]
    first = items[0]
    assert isinstance(first, Message)
    assert [type(part) for part in first.content] == [Text, *[Image] * 3, *[File] * 4, *[OpaquePart] * 2]


def test_settings_are_understood() -> None:
    request = decode(
        system="Be brief.",
        tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        output_config={"format": {"type": "json_schema", "schema": {}}, "effort": "high"},
        stop_sequences=["x"],
    )
    assert request.instructions == "Be brief."
    assert [type(tool) for tool in request.tools] == [Tool, OpaqueTool]
    assert request.tool_choice == ToolChoice(mode="required")
    assert request.parallel_tool_calls is False
    assert request.output == OutputFormat(type="json_schema", schema={})
    assert request.reasoning is not None
    assert request.reasoning.effort == "high"
    assert (request.sampling.max_output_tokens, request.sampling.stop) == (9, ("x",))


BAD: dict[str, tuple[Any, str]] = {
    "no messages": ({"messages": []}, "messages"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content"),
    "empty content": ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    "a role of another API": ({"messages": [{"role": "tool", "content": "r"}]}, "messages[0].role"),
    "a block without type": ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
    "a call by the user": ({"messages": [{"role": "user", "content": [CALL]}]}, "messages[0].content[0].type"),
    "a result without call": (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]},
        "messages[0].content[0].tool_use_id",
    ),
    "a call without id": (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}]},
        "messages[0].content[0].id",
    ),
    "max_tokens 0": ({"max_tokens": 0}, "max_tokens"),
    "a tool without schema": ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    "a tool without name": ({"tools": [{**TOOL, "name": ""}]}, "tools[0].name"),
    "a tool twice": ({"tools": [TOOL, TOOL]}, "tools[1]"),
    "tool_choice as on Chat": ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice"),
    "an unknown tool_choice": ({"tools": [TOOL], "tool_choice": {"type": "required"}}, "tool_choice.type"),
    "tool_choice without name": ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    "a format without schema": ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
    "a thread": ({"thread": {"type": "create"}}, "thread"),
}


@pytest.mark.parametrize(("members", "param"), BAD.values(), ids=BAD)
def test_bad_request_names_the_parameter(members: dict[str, Any], param: str) -> None:
    with pytest.raises(ClientError) as refused:
        decode(**{"messages": HI, **members})
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses"])
def test_document_without_title_gets_a_name_on_other_wires(name: str) -> None:
    messages = [{"role": "user", "content": [SOURCES[4], {**SOURCES[3], "title": None}]}]
    body = discover()[name].encode_request(decode(messages), Profile()).body
    assert b'"document.txt"' in body
    assert b'"document.pdf"' in body
