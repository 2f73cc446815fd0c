"""Encoder of requests: instructions, tools, items, and unsupported parts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolrelay.backends.codex.input_checks import MAX_JSON_DEPTH
from toolrelay.backends.codex.request import UNSUPPORTED, plan_turn
from toolrelay.backends.codex.tools import decode_arguments
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import (
    Audio,
    Call,
    File,
    Image,
    Item,
    Message,
    OpaqueItem,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.core.request import OpaqueTool, OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice
from toolrelay.errors import ClientError

PNG = "data:image/png;base64,iVBORw0KGgo="
USER = Message(role="user", content="hi")
SCHEMA: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool(name="get_weather", description="The weather", parameters=SCHEMA)
TIME = Tool(name="get_time")


def request(*items: Item, wire: str = "openai_chat", **members: Any) -> Request:
    return Request(wire=wire, model="m", items=items or (USER,), **members)


def refused(asked: Request) -> ClientError:
    with pytest.raises(ClientError) as caught:
        plan_turn(asked)
    return caught.value


def text(role: str, *texts: str) -> JsonObject:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": each} for each in texts]}


# The conversation


def test_messages_are_injected_and_the_turn_input_is_empty() -> None:
    plan = plan_turn(request(USER, Message(role="assistant", content="Hello"), Message(role="user", content="bye")))
    assert plan.items == [text("user", "hi"), text("assistant", "Hello"), text("user", "bye")]
    assert plan.turn["input"] == []
    assert plan.thread == {}


def test_base_instructions_are_never_sent() -> None:
    asked = request(instructions="Be brief.", tools=(WEATHER,))
    assert "baseInstructions" not in plan_turn(asked).thread


def test_instructions_and_leading_system_messages_are_developer_instructions() -> None:
    asked = request(
        Message(role="system", content="One."),
        Message(role="developer", content=(Text(text="Two"), Text(text=" three."))),
        USER,
        instructions="Zero.",
    )
    plan = plan_turn(asked)
    assert plan.thread["developerInstructions"] == "Zero.\n\nOne.\n\nTwo three."
    assert plan.items == [text("user", "hi")]


def test_later_system_message_becomes_a_developer_message() -> None:
    plan = plan_turn(request(USER, Message(role="system", content="Now in French.")))
    assert plan.items == [text("user", "hi"), text("developer", "Now in French.")]
    assert "system" not in json.dumps(plan.items)


def test_calls_and_results_keep_ids_and_order() -> None:  # bugs 20, 21, 30
    asked = request(
        USER,
        Message(role="assistant", content=""),
        Call(id="a", name="get_weather", arguments='{"city":\n"Rome"}'),
        Call(id="b", name="get_time", arguments=""),
        Result(call_id="b", output="noon"),
        Result(call_id="a", output=(Text(text="18"), Image(url=PNG))),
        tools=(WEATHER, TIME),
    )
    assert plan_turn(asked).items == [
        text("user", "hi"),
        {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": '{"city":\n"Rome"}'},
        {"type": "function_call", "call_id": "b", "name": "get_time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "noon"},
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_text", "text": "18"}, {"type": "input_image", "image_url": PNG}],
        },
    ]


def test_call_without_a_result_is_refused() -> None:
    error = refused(request(USER, Call(id="a", name="get_weather", arguments="{}"), tools=(WEATHER,)))
    assert (error.status, error.code, error.param) == (400, "missing_result", "messages")
    assert "'a'" in error.message


def test_encrypted_reasoning_is_sent_back() -> None:  # bug 31
    thought = Reasoning(id="rs_1", summary=("I think",), encrypted="sealed", text=("secret",))
    assert plan_turn(request(USER, thought)).items[1] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "I think"}],
        "encrypted_content": "sealed",
    }


def test_plain_reasoning_is_sent_only_if_accepted() -> None:
    asked = request(USER, Reasoning(text=("I think",)), Reasoning(summary=("In short",)))
    plan = plan_turn(asked)
    assert (plan.items, plan.dropped) == ([text("user", "hi")], ("reasoning that is not sealed",))
    kept = plan_turn(asked, is_other_provider=True).items[1]
    assert kept == {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "I think"}]}


def test_refusal_is_sent_as_text() -> None:
    said = Message(role="assistant", content=(Refusal(text="I will not."),))
    assert plan_turn(request(USER, said)).items[1] == text("assistant", "I will not.")


def test_empty_user_message_is_kept() -> None:
    assert plan_turn(request(Message(role="user", content=""))).items == [text("user", "")]


def test_known_phase_is_kept() -> None:
    said = [Message(role="assistant", content="x", phase=phase) for phase in ("commentary", "dusk")]
    assert [item.get("phase") for item in plan_turn(request(USER, *said)).items[1:] if isinstance(item, dict)] == [
        "commentary",
        None,
    ]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image(url=PNG), {"image_url": PNG}),
        (Image(url=PNG, detail="high"), {"image_url": PNG, "detail": "high"}),
        (Image(url=PNG, detail="low"), {"image_url": PNG, "detail": "auto"}),
        (Image(url=PNG, detail="sharp"), {"image_url": PNG}),
        (Image(file_id="file_1"), {"file_id": "file_1"}),
    ],
)
def test_image_detail_is_mapped(image: Image, expected: JsonObject) -> None:
    (item,) = plan_turn(request(Message(role="user", content=(image,)))).items
    assert isinstance(item, dict)
    assert item["content"] == [{"type": "input_image", **expected}]


@pytest.mark.parametrize(
    "part",
    [
        Image(url="https://example.com/cat.png"),
        Image(url="data:text/plain;base64,AAAA"),
        Image(url="data:image/svg+xml,<svg/>"),
        Audio(data="AAAA", format="wav"),
        File(file_id="1"),
        OpaquePart(wire="openai_chat", raw={"type": "hologram"}),
    ],
)
def test_unsupported_content_is_refused(part: Part) -> None:
    error = refused(request(Message(role="user", content=(Text(text="See:"), part))))
    assert (error.status, error.code, error.param) == (400, "unsupported_by_upstream", "messages")


def test_long_text_is_injected() -> None:
    long = "x" * 2_000_000
    plan = plan_turn(request(Message(role="user", content=long)))
    assert plan.items == [text("user", long)]
    assert plan.size >= len(long)


def test_hosted_items_are_passed_on_if_codex_does() -> None:
    search: JsonObject = {"type": "web_search_call", "id": "ws_1"}
    assert plan_turn(request(USER, OpaqueItem(wire="openai_responses", raw=search))).items[1] == search
    error = refused(request(USER, OpaqueItem(wire="openai_responses", raw={"type": "mcp_call"}), wire="openai_responses"))
    assert (error.param, "mcp_call" in error.message) == ("input", True)


# Tools


def test_tool_declarations_are_complete() -> None:
    assert plan_turn(request(tools=(WEATHER, TIME))).thread["dynamicTools"] == [
        {"type": "function", "name": "get_weather", "description": "The weather", "inputSchema": SCHEMA},
        {"type": "function", "name": "get_time", "description": "", "inputSchema": {"type": "object", "properties": {}}},
    ]


@pytest.mark.parametrize(
    "name", ["mcp", "mcp__github__search", "exec_command", "shell_command", "vault.search", "ü" * 9, "x" * 200, "functions"]
)
def test_unusable_names_are_mapped(name: str) -> None:  # bug 32
    called = (Call(id="a", name=name, arguments="{}"), Result(call_id="a", output="x"))
    plan = plan_turn(request(USER, *called, tools=(Tool(name=name), TIME)))
    (model_name, tool), *_ = plan.offered.items()
    assert tool.name == name
    assert model_name != name
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", model_name)
    assert not model_name.startswith("mcp__")
    assert isinstance(plan.items[1], dict)
    assert plan.items[1]["name"] == model_name


@given(
    st.lists(
        st.sampled_from(
            ["mcp__a", "client_mcp__a", "client.mcp__a", "client\0mcp__a", "a.b", "a_b", "exec_command", "client_exec_command"]
        )
    )
)
def test_mapped_names_never_collide(names: list[str]) -> None:
    plan = plan_turn(request(tools=tuple(Tool(name=name) for name in names)))
    assert sorted(tool.name for tool in plan.offered.values()) == sorted(set(names))


def test_custom_tool_is_a_function_with_one_text() -> None:  # bug 33
    python = Tool(name="python_run", kind="custom", format={"type": "text"})
    called = (
        Call(id="a", name="python_run", arguments='print("x")', kind="custom"),
        Result(call_id="a", output="x", kind="custom"),
    )
    plan = plan_turn(request(USER, *called, tools=(python,)))
    declared = plan.thread["dynamicTools"]
    assert isinstance(declared, list)
    assert isinstance(declared[0], dict)
    assert declared[0]["inputSchema"] == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
    item = plan.items[1]
    assert isinstance(item, dict)
    assert item["type"] == "function_call"
    arguments = item["arguments"]
    assert isinstance(arguments, str)
    assert decode_arguments(python, arguments) == ("custom", 'print("x")')


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        (None, ["get_weather", "get_time"]),
        (ToolChoice(mode="auto"), ["get_weather", "get_time"]),
        (ToolChoice(mode="none"), []),
        (ToolChoice(mode="required"), ["get_weather", "get_time"]),
        (ToolChoice(mode="named", names=(("function", "get_time"),)), ["get_time"]),
        (ToolChoice(mode="auto", names=(("function", "get_time"),)), ["get_time"]),
        (ToolChoice(mode="required", names=(("function", "get_time"),)), ["get_time"]),
    ],
)
def test_tool_choice_limits_offered_tools(choice: ToolChoice | None, offered: list[str]) -> None:  # bug 26
    plan = plan_turn(request(tools=(WEATHER, TIME), tool_choice=choice))
    assert list(plan.offered) == offered
    assert ("dynamicTools" in plan.thread) is bool(offered)


def nested(levels: int) -> JsonObject:
    """Return a schema of 2 * levels + 1 levels of JSON."""
    schema: JsonObject = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_too_deep_json_is_refused() -> None:
    deep = nested(MAX_JSON_DEPTH // 2)
    form = OutputFormat(type="json_schema", name="it", schema=deep, strict=True)
    item = OpaqueItem(wire="openai_responses", raw={"type": "compaction", "held": deep})
    for asked, param in (
        (request(tools=(Tool(name="f", parameters=deep),)), "tools"),
        (request(output=form), "response_format"),
        (request(output=form, wire="openai_responses"), "text.format"),
        (request(item, wire="openai_responses"), "input"),
    ):
        error = refused(asked)
        assert (error.status, error.code, error.param) == (400, "too_deep", param)
    plan_turn(request(tools=(Tool(name="f", parameters=nested(MAX_JSON_DEPTH // 2 - 1)),)))


def test_hosted_tool_is_refused() -> None:
    hosted = OpaqueTool(wire="openai_responses", raw={"type": "web_search"})
    assert refused(request(tools=(hosted,))).param == "tools"
    choice = ToolChoice(raw={"type": "web_search"})
    assert refused(request(tools=(TIME,), tool_choice=choice)).param == "tool_choice"


# Settings


def turn(asked: Request) -> JsonObject:
    return plan_turn(asked).turn


def test_reasoning_options_are_encoded() -> None:
    assert turn(request()) == {"input": [], "summary": "none"}
    wish = ReasoningOptions(effort="high", summary="detailed")
    assert turn(request(reasoning=wish)) == {"input": [], "effort": "high", "summary": "detailed"}
    assert refused(request(reasoning=ReasoningOptions(summary="rhymed"))).param == "reasoning.summary"


def test_verbosity_and_flex_tier_are_thread_params() -> None:
    asked = request(sampling=Sampling(verbosity="low"), service_tier="flex")
    assert plan_turn(asked).thread == {"config": {"model_verbosity": "low"}, "serviceTier": "flex"}
    assert plan_turn(asked).dropped == ()
    assert refused(request(sampling=Sampling(verbosity="chatty"))).param == "verbosity"


CLOSED: JsonObject = {**SCHEMA, "additionalProperties": False}


@pytest.mark.parametrize(
    ("form", "goes"),
    [
        (OutputFormat(type="json_schema", schema=SCHEMA, strict=True), CLOSED),
        (OutputFormat(type="json_schema", schema=CLOSED), CLOSED),
        (OutputFormat(type="json_schema", schema=SCHEMA), None),
        (OutputFormat(type="json_schema", schema={**CLOSED, "required": []}), None),
        (OutputFormat(type="json_schema", schema={"type": "object", "properties": {"a": SCHEMA}}, strict=False), None),
        (OutputFormat(type="json_object"), None),
    ],
)
def test_only_a_strict_schema_is_an_output_schema(form: OutputFormat, goes: JsonObject | None) -> None:
    plan = plan_turn(request(output=form, instructions="Be brief."))
    assert plan.turn.get("outputSchema") == goes
    told = plan.thread["developerInstructions"]
    assert isinstance(told, str)
    assert told.startswith("Be brief.")
    assert ("JSON" in told) is (goes is None)
    assert ("a response format that is not strict" in plan.dropped) is (goes is None)


def test_text_format_changes_nothing() -> None:
    assert plan_turn(request(output=OutputFormat(type="text"))) == plan_turn(request())


_SAMPLING: dict[str, Any] = {
    "temperature": 0.1,
    "top_p": 0.1,
    "max_output_tokens": 5,
    "seed": 1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "logit_bias": {"1": 1},
    "logprobs": True,
    "top_logprobs": 2,
}
SETTINGS: list[dict[str, Any]] = [
    *({"sampling": Sampling(**{name: value})} for name, value in _SAMPLING.items()),
    {"max_tool_calls": 1},
    {"service_tier": "priority"},
    {"truncation": "auto"},
    {"metadata": {"a": "b"}},
    {"user": "me"},
    {"prompt_cache_key": "k"},
    {"safety_identifier": "s"},
]


@pytest.mark.parametrize("members", SETTINGS, ids=lambda members: str(next(iter(members.values()))))
def test_unsupported_settings_are_dropped_by_name(members: dict[str, Any]) -> None:
    plain = plan_turn(request())
    plan = plan_turn(request(**members))
    (name,) = plan.dropped
    assert UNSUPPORTED[name] == "dropped"
    assert replace(plan, dropped=()) == plain


def test_dropped_token_limit_has_the_clients_name() -> None:
    sampling = Sampling(max_output_tokens=5, max_tokens_field="max_tokens")
    assert plan_turn(request(sampling=sampling)).dropped == ("max_tokens",)


@pytest.mark.parametrize(
    "members",
    [{"service_tier": "auto"}, {"truncation": "disabled"}, {"sampling": Sampling(logprobs=False, n=1)}, {"store": True}],
)
def test_default_values_are_not_reported_as_dropped(members: dict[str, Any]) -> None:
    assert plan_turn(request(**members)).dropped == ()


def test_unknown_fields_are_dropped_by_name_at_any_level() -> None:
    asked = request(
        Message(role="user", content=(Text(text="x", extra={"cache_control": {}}),), name="Ann", extra={"mood": "good"}),
        tools=(replace(TIME, extra={"colour": "red"}, strict=True),),
        extra={"top_k": 5, "mood": "bad"},
    )
    assert set(plan_turn(asked).dropped) == {"name", "cache_control", "mood", "colour", "top_k", "strict of a tool"}


def test_several_choices_are_refused() -> None:
    error = refused(request(sampling=Sampling(n=2)))
    assert (error.param, UNSUPPORTED["n"]) == ("n", "refused")


def test_stop_sequences_are_not_reported_as_dropped() -> None:
    assert plan_turn(request(sampling=Sampling(stop="END"))).dropped == ()
