"""Sessions with missing reasoning, endless output, and required calls that do not come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.toolcalls.test_session import REQUEST, STOP, WEATHER, calls, feed_text, fold, make_session, render_call, retry, rules
from toolrelay.core.events import AnswerFailed, ReasoningDelta, StreamEvent, TextDelta
from toolrelay.core.messages import Call
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.dialects.base import discover
from toolrelay.parsing.triggers import ScanOptions
from toolrelay.toolcalls.limits import MAX_BLANKS, MAX_CALLS
from toolrelay.toolcalls.model_request import ModelRequest
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import ToolCallSession
from toolrelay.toolcalls.states import State

MUST = replace(REQUEST, tool_choice=ToolChoice(mode="required"))
REASONING = ScanOptions(reasoning=("<think>", "</think>"), begins_in_reasoning=True)
NOON = render_call("get_time", "{}")
NAMELESS = '<tool_call>\n{"arguments": {}}\n</tool_call>'
LIMIT = replace(STOP, finish="length")


def text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def reasoning(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


# Missing reasoning


@pytest.mark.parametrize("request_", [REQUEST, replace(REQUEST, stream=False), MUST], ids=["streamed", "folded", "required"])
def test_call_without_expected_reasoning_is_found(request_: Request) -> None:
    events = feed_text(make_session(request_, scan=REASONING), "Let me see. " + NOON)
    assert calls(events) == [("get_time", {})]
    assert fold(events).finish == "calls"
    assert (reasoning(events).startswith("Let me see. "), text(events)) == (True, ""), "it is not shown twice"


def test_text_after_a_call_without_expected_reasoning_is_cut() -> None:
    session = make_session(scan=REASONING)
    events = feed_text(session, f"Wait. {NOON}It is noon.")
    assert session.state is State.ENDED
    assert calls(events) == [("get_time", {})]
    assert text(events) == "Wait. "
    assert fold(events).usage == STOP.usage


def test_bad_call_without_expected_reasoning_is_retried() -> None:
    session = make_session(scan=REASONING)
    assert rules(feed_text(session, render_call("nope", "{}"))) == ["unknown_tool"]
    assert session.state in (State.REJECTED, State.RETRY)
    retry(session)
    events = feed_text(session, "Sorry.</think>" + NOON)
    assert (reasoning(events), calls(events)) == ("Sorry.", [("get_time", {})])


def test_missing_call_without_expected_reasoning_is_retried() -> None:
    session = make_session(MUST, scan=REASONING)
    events = feed_text(session, "It is sunny.")
    assert (text(events), rules(events), (session.state in (State.REJECTED, State.RETRY))) == ("", ["no_call"], True)


def test_call_despite_schema_and_expected_reasoning_is_found() -> None:
    assert calls(feed_text(make_session(MUST, scan=REASONING, constrains_output=True), NOON)) == [("get_time", {})]


def test_without_tools_unclosed_expected_reasoning_becomes_text() -> None:
    events = feed_text(make_session(replace(REQUEST, tools=()), scan=REASONING), "Write <think> first.")
    assert text(events) == "Write <think> first."


@pytest.mark.parametrize("output", ["Hm.</think>", "<think>Hm.", "<think>Hm.</think>"])
def test_reasoning_with_one_printed_marker_is_reasoning(output: str) -> None:
    events = feed_text(make_session(scan=REASONING), output)
    assert (reasoning(events), text(events)) == ("Hm.", "")


# Endless output


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_endless_blanks_after_a_call_are_cut(size: int) -> None:
    session = make_session()
    output = NOON + " \n" * 3000
    events: list[StreamEvent] = []
    for place in range(0, len(output), size):
        events += session.feed([TextDelta(output[place : place + size])])
    assert session.state is State.CUT
    events += session.finish_with_estimate()
    assert rules(events) == ["blanks_after_calls"]
    assert calls(events) == [("get_time", {})]


def test_blanks_within_the_limit_or_without_cutoff_are_not_cut() -> None:
    blanks = "\n" * MAX_BLANKS
    assert len(calls(feed_text(make_session(), f"{NOON}{blanks}{NOON}{blanks}{NOON}"))) == 3
    assert len(text(feed_text(make_session(cutoff="off"), NOON + 2 * blanks))) == 2 * MAX_BLANKS


def test_b7_prose_between_calls_costs_the_later_ones_unless_cutoff_is_off() -> None:
    output = f"{NOON}Now again.{NOON}"
    burst = feed_text(make_session(cutoff="burst"), output)
    assert (len(calls(burst)), text(burst)) == (1, "")
    everything = feed_text(make_session(cutoff="off"), output)
    assert (len(calls(everything)), text(everything)) == (2, "Now again.")
    page = (Path(__file__).parents[2] / "docs" / "dialects.md").read_text()
    assert 'For a model that narrates between its calls set `cutoff = "off"`' in page


@pytest.mark.parametrize("cutoff", ["burst", "off"])
@pytest.mark.parametrize("stream", [False, True])
def test_endless_calls_are_cut(cutoff: str, *, stream: bool) -> None:
    session = make_session(replace(REQUEST, stream=stream), cutoff=cutoff)
    events: list[StreamEvent] = []
    for _ in range(2 * MAX_CALLS):
        events += session.feed([TextDelta(NOON + "\n")])
    assert session.state is State.CUT
    events += session.finish_with_estimate()
    assert rules(events) == ["too_many_calls"]
    assert len(calls(events)) == MAX_CALLS
    assert fold(events).finish == "calls"


def test_maximum_number_of_calls_is_not_cut() -> None:
    session = make_session()
    assert len(calls(feed_text(session, NOON * MAX_CALLS))) == MAX_CALLS
    assert session.state is not State.CUT


@pytest.mark.parametrize("bad", [render_call("nope", "{}"), NAMELESS], ids=["unknown", "nameless"])
def test_endless_bad_calls_are_cut(bad: str) -> None:
    session = make_session(on_bad_call="text")
    events: list[StreamEvent] = []
    for _ in range(2 * MAX_CALLS):
        events += session.feed([TextDelta(bad)])
    events += session.feed([STOP])
    assert rules(events)[-1] == "too_many_calls"
    assert (calls(events), fold(events).finish) == ([], "stop")


def test_endless_bad_calls_do_not_satisfy_a_required_call() -> None:
    session = make_session(MUST)
    feed_text(session, render_call("nope", "{}"))
    retry(session)
    events: list[StreamEvent] = []
    for _ in range(2 * MAX_CALLS):
        events += session.feed([TextDelta(render_call("nope", "{}"))])
    assert isinstance(events[-1], AnswerFailed)
    assert events[-1].error.code == "tool_choice_unmet"
    assert text(events) == ""


@pytest.mark.parametrize("name", sorted(set(discover()) - {"llama3_json", "xlam", "pythonic"}))  # these scan whole answers only
def test_endless_blanks_are_cut_in_every_dialect(name: str) -> None:
    request, options = replace(REQUEST, tools=(Tool(name="get_time"),)), ToolCallOptions(dialect=discover()[name])
    whole = ModelRequest(request, options).base_dialect.render_calls([Call(id="a", name="get_time", arguments="{}")])
    events = feed_text(ToolCallSession(request, options), whole + "\n" * 4 * MAX_BLANKS)
    assert rules(events) == ["blanks_after_calls"]


# Withheld text


@pytest.mark.parametrize("tool", [WEATHER, replace(WEATHER, strict=True)], ids=["plain", "strict"])
@pytest.mark.parametrize("stream", [False, True])
def test_text_before_a_truncated_required_call_is_kept(tool: Any, *, stream: bool) -> None:
    half = render_call("get_weather", '{"city":"Paris"}')[:-25]
    events = feed_text(make_session(replace(MUST, tools=(tool,), stream=stream)), "Let me see. " + half, LIMIT)
    assert (text(events), calls(events), fold(events).finish) == ("Let me see. ", [], "length")


@pytest.mark.parametrize("bad", [render_call("nope", "{}"), NAMELESS], ids=["unknown", "nameless"])
def test_bad_call_is_not_emitted_if_a_required_call_is_missing(bad: str) -> None:
    session = make_session(MUST)
    assert text(feed_text(session, "A " + bad)) == ""
    retry(session)
    events = feed_text(session, "A " + bad)
    assert isinstance(events[-1], AnswerFailed)
    assert events[-1].error.code == "tool_choice_unmet"
    assert text(events) == ""


def test_bad_call_before_the_required_one_becomes_text() -> None:
    bad = render_call("nope", "{}")
    session = make_session(MUST, on_bad_call="text")
    events = feed_text(session, f"A {bad} B {NOON}")
    assert text(events) == f"A {bad} B "
    assert calls(events) == [("get_time", {})]


def test_complete_bad_call_before_truncation_becomes_text() -> None:
    events = feed_text(make_session(), "Hi. " + NAMELESS, end=LIMIT)
    assert (text(events), rules(events), fold(events).finish) == ("Hi. " + NAMELESS, ["no_name"], "length")


def test_truncated_bad_call_is_dropped_with_a_notice() -> None:
    events = feed_text(make_session(), "Hi. " + NAMELESS[:-5], end=LIMIT)
    assert (text(events), rules(events), fold(events).finish) == ("Hi. ", ["no_name"], "length")
