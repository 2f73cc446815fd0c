"""Regression tests of results that depended on chunking."""

from __future__ import annotations

import pytest

from toolrelay.core.events import CallStarted
from toolrelay.core.request import Tool
from toolrelay.dialects.base import discover
from toolrelay.parsing.events import CallBroken
from toolrelay.parsing.scanner import Scanner

TOOLS = {"write": Tool(name="write", parameters={"type": "object", "properties": {"rows": {"type": "array"}}})}
DIALECTS = discover()


@pytest.mark.parametrize("blank", ["\u3000", "\u00a0", "\u2028", "\x85", "\x1f"])
@pytest.mark.parametrize(("dialect", "call"), [("pythonic", "[write()]"), ("llama3_json", '{"name": "write", "parameters": {}}')])
def test_start_marker_does_not_count_after_a_wide_blank_and_words(dialect: str, call: str, blank: str) -> None:
    for chunks in ([blank, "You would write ", call], [f"{blank}You would write {call}"]):
        scanner = Scanner(DIALECTS[dialect], TOOLS)
        events = [event for chunk in chunks for event in scanner.feed(chunk)] + scanner.flush()
        assert not any(isinstance(event, CallStarted) for event in events)


def test_word_beyond_the_limit_fails_with_the_delta_that_exceeds_it() -> None:
    scanner = Scanner(DIALECTS["pythonic"], TOOLS)
    scanner.feed("[write(rows=")
    scanner.feed("a" * 200)
    assert any(isinstance(event, CallBroken) for event in scanner.feed("a" * 100))


@pytest.mark.parametrize("given", ["rows of text", "[1]", '{\\"rows\\": oops}'])
@pytest.mark.parametrize(("dialect", "start"), [("mistral", '[TOOL_CALLS][{"name": "write", "arguments": '), ("llama3_json", "")])
def test_string_without_arguments_is_broken_at_its_end(dialect: str, start: str, given: str) -> None:
    text = (start or '{"name": "write", "parameters": ') + f'"{given}": 1'
    for chunks in ([text], text):
        scanner = Scanner(DIALECTS[dialect], TOOLS)
        events = [event for chunk in chunks for event in scanner.feed(chunk)] + scanner.flush()
        assert [event.text.rpartition(given)[2] for event in events if isinstance(event, CallBroken)] == ['"']
