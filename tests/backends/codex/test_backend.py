"""Codex as a backend: the real binary against a scripted upstream."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.backends.codex.app_server import binary_path
from tests.backends.codex.harness import (
    DONE,
    SETTINGS,
    STARTED,
    WEATHER,
    CodexHarness,
    client_events,
    error_of,
    finish_of,
    fold,
    request,
    text,
)
from tests.backends.codex.upstream import completed, head, message, reasoning, says, unfinished_message
from tests.upstream import CLOSE, Gate
from toolrelay.backends.base import discover as discover_backends
from toolrelay.backends.codex import BACKEND, CodexBackend
from toolrelay.backends.codex.settings import location_for
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.events import TextDelta, Usage
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call as PastCall
from toolrelay.core.messages import Image, Item, Message, Reasoning, Result, Text
from toolrelay.core.request import OutputFormat, ReasoningOptions, Sampling
from toolrelay.errors import ConfigurationError, ToolrelayError
from toolrelay.settings import Environment

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


# Turns


def test_text_is_streamed(codex: CodexHarness) -> None:
    events = codex.ask(request(instructions="Be brief."), says("Hel", "lo"))
    assert client_events(events) == [STARTED, TextDelta("Hello"), DONE]
    assert TextDelta("Hel") in events
    (sent,) = codex.requests
    said = [(item["role"], item["content"][0]["text"]) for item in sent["input"]]
    assert said == [("developer", "Be brief."), ("user", "hi")]
    assert (sent["tools"], sent["model"], sent["store"]) == ([], "scripted", False)
    assert "instructions" not in sent


def test_history_reaches_the_model_unchanged(codex: CodexHarness) -> None:  # bugs 30, 31, 34
    items: list[Item] = [
        Message(role="system", content="One."),
        Message(role="user", content=(Text(text="See:"), Image(url=PIXEL, detail="low"))),
        Reasoning(id="rs_9", summary=("Hm",), encrypted="sealed"),
        Message(role="assistant", content="A moment.", phase="commentary"),
        PastCall(id="call_a", name="get_weather", arguments='{"city":\n"Rome"}'),
        PastCall(id="call_b", name="get_weather", arguments="{}"),
        Result(call_id="call_b", output="rain"),
        Result(call_id="call_a", output=(Text(text="sun"), Image(url=PIXEL))),
        Message(role="system", content="Two."),
    ]
    codex.ask(request(*items, tools=(WEATHER,)), says("ok"))
    sent = [
        {key: value for key, value in item.items() if key != "id" and value is not None} for item in codex.requests[0]["input"]
    ]
    image = {"type": "input_image", "image_url": PIXEL}
    assert sent == [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "One."}]},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "See:"}, {**image, "detail": "auto"}],
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "sealed"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "A moment."}],
            "phase": "commentary",
        },
        {"type": "function_call", "name": "get_weather", "arguments": '{"city":\n"Rome"}', "call_id": "call_a"},
        {"type": "function_call", "name": "get_weather", "arguments": "{}", "call_id": "call_b"},
        {"type": "function_call_output", "call_id": "call_b", "output": "rain"},
        {"type": "function_call_output", "call_id": "call_a", "output": [{"type": "input_text", "text": "sun"}, image]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Two."}]},
    ]


def test_reasoning_has_summary_and_encrypted_content(codex: CodexHarness) -> None:  # bugs 31, 40
    script = (head() + reasoning("Let me ", "think") + message("Hi") + completed(11, 7, cached=3, reasoned=2),)
    events = codex.ask(request(reasoning=ReasoningOptions(effort="high", summary="auto")), script)
    thought, said = fold(events).items
    assert isinstance(thought, Reasoning)
    assert (thought.summary, thought.encrypted) == (("Let me think",), "sealed")
    assert isinstance(said, Message)
    assert finish_of(events).usage == Usage(input=11, output=7, total=18, cached=3, reasoning=2)
    assert codex.requests[0]["reasoning"] == {"effort": "high", "summary": "auto"}


def test_summary_is_not_requested_by_default(codex: CodexHarness) -> None:
    codex.ask(request(), says("x"))
    assert "summary" not in codex.requests[0]["reasoning"]


def test_verbosity_and_flex_tier_reach_the_provider(codex: CodexHarness) -> None:
    codex.ask(request(sampling=Sampling(verbosity="low"), service_tier="flex"), says("x"))
    assert (codex.requests[0]["text"], codex.requests[0]["service_tier"]) == ({"verbosity": "low"}, "flex")


def test_strict_schema_reaches_the_provider(codex: CodexHarness) -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = OutputFormat(type="json_schema", name="it", schema=schema, strict=True)
    assert text(codex.ask(request(output=form), says('{"a":', "1}"))) == '{"a":1}'
    sent = codex.requests[0]["text"]["format"]
    assert (sent["type"], sent["strict"], sent["schema"]) == ("json_schema", True, schema)


def test_answer_of_five_megabytes_is_complete(codex: CodexHarness) -> None:
    long = "0123456789" * 500_000
    assert text(codex.ask(request(), (head() + message(long) + completed(),))) == long


def test_message_longer_than_a_turn_input_is_sent(codex: CodexHarness) -> None:
    long = "x" * 1_200_000
    codex.ask(request(Message(role="user", content=long)), says("ok"))
    assert codex.requests[0]["input"][0]["content"][0]["text"] == long


def test_tool_result_of_maximum_size_is_not_truncated(codex: CodexHarness) -> None:
    largest = "é" * (codex.settings.max_tool_result_bytes // 2)
    past = (PastCall(id="a", name="get_weather", arguments="{}"), Result(call_id="a", output=largest))
    codex.ask(request(Message(role="user", content="hi"), *past, tools=(WEATHER,)), says("ok"))
    assert codex.requests[0]["input"][-1]["output"] == largest


def test_unusual_characters_survive_both_ways(codex: CodexHarness) -> None:  # bug 24
    odd = "ü 👩‍👩‍👧 \u2028\x00\x7f \ud800 $skill @file /init <tool_call>"
    events = codex.ask(request(Message(role="user", content=odd)), says("ü 👩‍👩‍👧 ", "\u2028\x7f"))
    assert text(events) == "ü 👩‍👩‍👧 \u2028\x7f"
    assert codex.requests[0]["input"][0]["content"][0]["text"] == odd.replace("\ud800", "\ufffd")


def test_stop_sequence_ends_the_answer(codex: CodexHarness) -> None:
    gate = Gate()
    script = (head() + unfinished_message("one tw", "o th", "ree"), gate, CLOSE)
    events = codex.ask(request(sampling=Sampling(stop="two")), script, backend=codex.layered())
    assert text(events) == "one "
    assert finish_of(events).finish == "stop"


# Unsupported requests


def test_unsupported_request_is_refused_without_an_upstream_request(codex: CodexHarness) -> None:
    error: ToolrelayError = error_of(codex.ask(request(sampling=Sampling(n=2)), says("never")))
    assert (error.status, error.param) == (400, "n")
    assert codex.requests == []


# Opening


def test_provider_codex_is_found_and_opened(tmp_path: Path) -> None:
    assert discover_backends()["codex"] is BACKEND
    backend = BACKEND.open(SETTINGS, Environment(data_dir=tmp_path, environ={"TOOLRELAY_CODEX": binary_path()}))
    assert isinstance(backend, CodexBackend)
    asyncio.run(backend.close())
    profile = PROVIDERS["codex"].profile
    assert (profile.takes_tools, profile.enforces_tool_choice, profile.constrains_output) == (True, False, True)


def test_missing_binary_is_refused_on_open(tmp_path: Path) -> None:
    environment = Environment(data_dir=tmp_path, environ={"TOOLRELAY_CODEX": str(tmp_path / "codex")})
    with pytest.raises(ConfigurationError, match="TOOLRELAY_CODEX"):
        BACKEND.open(SETTINGS, environment)


def test_rail_without_its_directory_is_refused_on_open(tmp_path: Path) -> None:
    environment = Environment(data_dir=tmp_path, environ={"TOOLRELAY_CODEX": binary_path()})
    with pytest.raises(ConfigurationError, match=r"models\.mine\.rails"):
        BACKEND.open(replace(SETTINGS, rails=("apply_patch",)), environment)


def test_location_allows_patches_only_with_the_rail(tmp_path: Path) -> None:
    environment = Environment(data_dir=tmp_path, environ={"TOOLRELAY_CODEX": binary_path()})
    assert not location_for(SETTINGS, environment).allows_patches
    assert location_for(replace(SETTINGS, rails=("apply_patch",)), environment).allows_patches
