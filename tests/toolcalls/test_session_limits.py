"""Models that do not think, do not stop, or do not call although they must: each ends in what a client can use."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.toolcalls.test_session import ASKED, STOP, WEATHER, calls, fold, heard, printed, retry, rules, talk
from toolrelay.core.events import AnswerFailed, ReasoningDelta, StreamEvent, TextDelta
from toolrelay.core.messages import Call
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.dialects.base import discover
from toolrelay.parsing.triggers import ScanOptions
from toolrelay.toolcalls.limits import MAX_BLANKS, MAX_CALLS
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import State, ToolCallSession

MUST = replace(ASKED, tool_choice=ToolChoice(mode="required"))
THINKING = ScanOptions(reasoning=("<think>", "</think>"), begins_in_reasoning=True)
NOON = printed("get_time", "{}")
NAMELESS = '<tool_call>\n{"arguments": {}}\n</tool_call>'
LIMIT = replace(STOP, finish="length")


def text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def thoughts(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


# Thinking models that did not think


@pytest.mark.parametrize("request_", [ASKED, replace(ASKED, stream=False), MUST], ids=["streamed", "folded", "required"])
def test_a_thinking_model_that_did_not_think_still_calls(request_: Request) -> None:
    events = heard(talk(request_, scan=THINKING), "Let me see. " + NOON)
    assert calls(events) == [("get_time", {})]
    assert fold(events).finish == "calls"
    assert text(events) == "Let me see. "


def test_what_follows_the_calls_of_a_thinking_model_that_did_not_think_is_cut() -> None:
    conversation = talk(scan=THINKING)
    events = heard(conversation, NOON + "It is noon.")
    assert conversation.state is State.ENDED
    assert calls(events) == [("get_time", {})]
    assert text(events) == ""
    assert fold(events).usage == STOP.usage


def test_a_bad_call_of_a_thinking_model_that_did_not_think_is_asked_for_again() -> None:
    conversation = talk(scan=THINKING)
    assert rules(heard(conversation, printed("nope", "{}"))) == ["unknown_tool"]
    assert conversation.state in (State.REJECTED, State.RETRY)
    retry(conversation)
    events = heard(conversation, "Sorry.</think>" + NOON)
    assert (thoughts(events), calls(events)) == ("Sorry.", [("get_time", {})])


def test_a_thinking_model_that_must_call_and_did_neither_is_asked_again() -> None:
    conversation = talk(MUST, scan=THINKING)
    events = heard(conversation, "It is sunny.")
    assert (text(events), rules(events), (conversation.state in (State.REJECTED, State.RETRY))) == ("", ["no_call"], True)


def test_a_schema_that_did_not_hold_a_thinking_model_does_not_hide_its_call() -> None:
    assert calls(heard(talk(MUST, scan=THINKING, constrains=True), NOON)) == [("get_time", {})]


def test_without_tools_thoughts_that_had_no_end_are_the_answer_whatever_they_mention() -> None:
    events = heard(talk(replace(ASKED, tools=()), scan=THINKING), "Write <think> first.")
    assert text(events) == "Write <think> first."


@pytest.mark.parametrize("said", ["Hm.</think>", "<think>Hm.", "<think>Hm.</think>"])
def test_thoughts_whose_beginning_or_end_was_printed_are_thoughts(said: str) -> None:
    events = heard(talk(scan=THINKING), said)
    assert (thoughts(events), text(events)) == ("Hm.", "")


# Models that do not stop


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_endless_blanks_after_a_call_are_cut(size: int) -> None:
    conversation = talk()
    said = NOON + " \n" * 3000
    events: list[StreamEvent] = []
    for place in range(0, len(said), size):
        events += conversation.feed([TextDelta(said[place : place + size])])
    assert conversation.state is State.CUT
    events += conversation.finish_with_estimate()
    assert rules(events) == ["blanks_after_calls"]
    assert calls(events) == [("get_time", {})]


def test_a_few_blanks_between_calls_are_not_cut_nor_any_where_nothing_is_to_be() -> None:
    blanks = "\n" * MAX_BLANKS
    assert len(calls(heard(talk(), f"{NOON}{blanks}{NOON}{blanks}{NOON}"))) == 3
    assert len(text(heard(talk(cutoff="off"), NOON + 2 * blanks))) == 2 * MAX_BLANKS


@pytest.mark.parametrize("cutoff", ["burst", "off"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_same_call_without_end_is_cut(cutoff: str, *, stream: bool) -> None:
    conversation = talk(replace(ASKED, stream=stream), cutoff=cutoff)
    events: list[StreamEvent] = []
    for _ in range(2 * MAX_CALLS):
        events += conversation.feed([TextDelta(NOON + "\n")])
    assert conversation.state is State.CUT
    events += conversation.finish_with_estimate()
    assert rules(events) == ["too_many_calls"]
    assert len(calls(events)) == MAX_CALLS
    assert fold(events).finish == "calls"


def test_as_many_calls_as_may_be_are_not_cut() -> None:
    conversation = talk()
    assert len(calls(heard(conversation, NOON * MAX_CALLS))) == MAX_CALLS
    assert conversation.state is not State.CUT


@pytest.mark.parametrize("bad", [printed("nope", "{}"), NAMELESS], ids=["unknown", "nameless"])
def test_bad_calls_without_end_are_cut_and_no_calls(bad: str) -> None:
    conversation = talk(on_bad_call="text")
    events: list[StreamEvent] = []
    for _ in range(2 * MAX_CALLS):
        events += conversation.feed([TextDelta(bad)])
    events += conversation.feed([STOP])
    assert rules(events)[-1] == "too_many_calls"
    assert (calls(events), fold(events).finish) == ([], "stop")


def test_bad_calls_without_end_do_not_meet_a_choice_that_must_be_met() -> None:
    conversation = talk(MUST)
    heard(conversation, printed("nope", "{}"))
    retry(conversation)
    events: list[StreamEvent] = []
    for _ in range(2 * MAX_CALLS):
        events += conversation.feed([TextDelta(printed("nope", "{}"))])
    assert isinstance(events[-1], AnswerFailed)
    assert events[-1].error.code == "tool_choice_unmet"
    assert text(events) == ""


@pytest.mark.parametrize("name", sorted(set(discover()) - {"llama3_json", "xlam", "pythonic"}))  # those read whole answers only
def test_in_every_dialect_blanks_after_a_call_end(name: str) -> None:
    conversation = ToolCallSession(replace(ASKED, tools=(Tool(name="get_time"),)), ToolCallOptions(dialect=discover()[name]))
    whole = conversation._plan.base_dialect.render_calls([Call(id="a", name="get_time", arguments="{}")])
    events = heard(conversation, whole + "\n" * 4 * MAX_BLANKS)
    assert rules(events) == ["blanks_after_calls"]


# Text that is withheld until a call comes


@pytest.mark.parametrize("tool", [WEATHER, replace(WEATHER, strict=True)], ids=["plain", "strict"])
@pytest.mark.parametrize("stream", [False, True])
def test_text_before_a_call_that_had_to_be_made_and_that_the_limit_cut_is_kept(tool: Any, *, stream: bool) -> None:
    half = printed("get_weather", '{"city":"Paris"}')[:-25]
    events = heard(talk(replace(MUST, tools=(tool,), stream=stream)), "Let me see. " + half, LIMIT)
    assert (text(events), calls(events), fold(events).finish) == ("Let me see. ", [], "length")


@pytest.mark.parametrize("bad", [printed("nope", "{}"), NAMELESS], ids=["unknown", "nameless"])
def test_while_a_call_must_be_made_no_bad_one_leaks_ahead_of_the_error(bad: str) -> None:
    conversation = talk(MUST)
    assert text(heard(conversation, "A " + bad)) == ""
    retry(conversation)
    events = heard(conversation, "A " + bad)
    assert isinstance(events[-1], AnswerFailed)
    assert events[-1].error.code == "tool_choice_unmet"
    assert text(events) == ""


def test_a_bad_call_ahead_of_the_one_that_had_to_be_made_comes_out_as_text_in_its_place() -> None:
    bad = printed("nope", "{}")
    conversation = talk(MUST, on_bad_call="text")
    events = heard(conversation, f"A {bad} B {NOON}")
    assert text(events) == f"A {bad} B "
    assert calls(events) == [("get_time", {})]


def test_a_bad_call_that_is_whole_is_not_lost_when_the_limit_comes_right_after_it() -> None:
    events = heard(talk(), "Hi. " + NAMELESS, end=LIMIT)
    assert (text(events), rules(events), fold(events).finish) == ("Hi. " + NAMELESS, ["no_name"], "length")


def test_of_a_bad_call_that_the_limit_cut_no_mark_leaks_and_the_log_says_so() -> None:
    events = heard(talk(), "Hi. " + NAMELESS[:-5], end=LIMIT)
    assert (text(events), rules(events), fold(events).finish) == ("Hi. ", ["no_name"], "length")
