"""Masking: no content stays, and what was masked can still be parsed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.core.events import CallFinished, CallStarted
from toolrelay.core.messages import Call
from toolrelay.core.request import Request, Tool
from toolrelay.dialects.base import discover
from toolrelay.dialects.use_tool import DIALECTS as USE_TOOL
from toolrelay.parsing.scanner import Scanner
from toolrelay.runtime.recordings.masking import Masker

DIALECTS = discover()
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOL = Tool(name="get_weather", parameters=SCHEMA)
REQUEST = Request(wire="openai_chat", model="m", items=(), tools=(TOOL,))


def masker(name: str = "hermes") -> Masker:
    return Masker(REQUEST, (DIALECTS[name], *USE_TOOL), ("<think>", "</think>"))


def test_letters_and_digits_are_masked_and_markup_stays() -> None:
    text = '<think>Ask Ann</think>\n<tool_call>{"name": "get_weather", "arguments": {"city": "Köln 42"}}</tool_call>'
    expected = '<think>Xxx Xxx</think>\n<tool_call>{"name": "get_weather", "arguments": {"city": "Xxxx 11"}}</tool_call>'
    assert masker().mask(text) == expected


def test_escapes_stay_valid() -> None:
    arguments = json.dumps({"city": 'a "quoted"\nKöln\t\\ 7'})
    assert json.loads(masker().mask(arguments)) == {"city": 'x "xxxxxx"\nXxxx\t\\ 1'}


def test_symbols_that_are_no_markup_are_masked() -> None:
    assert masker().mask("go 🚀 now") == "xx x xxx"


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_masked_call_of_every_dialect_is_still_that_call(name: str) -> None:
    dialect = DIALECTS[name]
    printed = dialect.render_calls([Call(id="c", name="get_weather", arguments='{"city": "Paris", "days": 3}')])
    scanner = Scanner(dialect, {"get_weather": TOOL})
    masked = masker(name).mask(printed)
    assert "Paris" not in masked
    events = [*scanner.feed(masked), *scanner.flush()]
    assert [event.name for event in events if isinstance(event, CallStarted)] == ["get_weather"]
    assert any(isinstance(event, CallFinished) for event in events)


def test_request_keeps_its_structure_and_loses_its_content() -> None:
    body = {
        "model": "fast",
        "messages": [
            {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "Where is Ann?"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,U2VjcmV0"}}]},
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "secret", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "secret", "content": "Sunny"},
        ],
        "tools": [{"type": "function", "function": {"name": "get_weather", "description": "Ann's tool", "parameters": SCHEMA}}],
        "metadata": {"person": "Ann"},
        "user": "ann@example.org",
        "stream": True,
    }
    masked: Any = masker().mask_request(json.loads(json.dumps(body)))
    assert not re.search("Ann|ann|Rome|Sunny|U2Vj|secret", json.dumps(masked))
    assert masked["messages"][2]["tool_calls"][0]["id"] == masked["messages"][3]["tool_call_id"]
    assert masked["messages"][2]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert masked["tools"][0]["function"]["parameters"] == SCHEMA
    assert (masked["model"], masked["stream"], "metadata" in masked, "user" in masked) == ("fast", True, False, False)


@given(st.text() | st.lists(st.sampled_from(["Ann", " ", "tool_call", "\\", "n", "u00e9", "name", "é", "7", "x"])).map("".join))
def test_every_character_outside_of_markup_and_names_is_masked(text: str) -> None:
    masked = masker().mask(text)
    assert len(masked) == len(text)
    names = "tool_call|tool_response|name|arguments|use_tool|Tool|result|think|TAG|true|false|null|True|False|None"
    kept = re.compile(rf"\\u[0-9a-fA-F]{{4}}|\\.|\b(?:{names})\b")
    allowed = {place for found in kept.finditer(text) for place in range(*found.span())}
    for place, (before, after) in enumerate(zip(text, masked, strict=True)):
        if before.isalnum() and place not in allowed:
            assert after in "xX1", (before, after)
