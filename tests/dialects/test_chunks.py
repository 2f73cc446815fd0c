"""What deltas a text comes in never matters: cases that once did."""

from __future__ import annotations

import pytest

from toolrelay.core.events import CallStarted
from toolrelay.core.request import Tool
from toolrelay.dialects._scanner import CallBroken, Scanner
from toolrelay.dialects.base import discover

TOOLS = {"write": Tool(name="write", parameters={"type": "object", "properties": {"rows": {"type": "array"}}})}
DIALECTS = discover()


@pytest.mark.parametrize("blank", ["\u3000", "\u00a0", "\u2028", "\x85", "\x1f"])
@pytest.mark.parametrize(("dialect", "call"), [("pythonic", "[write()]"), ("llama3_json", '{"name": "write", "parameters": {}}')])
def test_what_counts_only_at_the_start_does_not_count_after_a_wide_blank_and_words(dialect: str, call: str, blank: str) -> None:
    for chunks in ([blank, "You would write ", call], [f"{blank}You would write {call}"]):
        scanner = Scanner(DIALECTS[dialect], TOOLS)
        events = [event for chunk in chunks for event in scanner.feed(chunk)] + scanner.flush()
        assert not any(isinstance(event, CallStarted) for event in events)


def test_a_word_that_is_too_long_is_known_to_be_with_the_delta_that_makes_it_so() -> None:
    scanner = Scanner(DIALECTS["pythonic"], TOOLS)
    scanner.feed("[write(rows=")
    scanner.feed("a" * 200)
    assert any(isinstance(event, CallBroken) for event in scanner.feed("a" * 100))
