"""Sessions with broken, unfinished and oversized calls, and with servers that refuse or ignore what they are sent."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from msgspec.structs import replace

from tests.toolcalls.test_session import (
    REQUEST,
    STOP,
    WEATHER,
    calls,
    feed_native,
    feed_text,
    fold,
    make_session,
    render_call,
    retry,
    rules,
)
from toolrelay.core.events import AnswerFailed, ArgumentsDelta, CallFinished, CallStarted, StreamEvent, TextDelta
from toolrelay.core.messages import Call, Message, plain_text
from toolrelay.core.request import Tool, ToolChoice
from toolrelay.core.validation import validate
from toolrelay.dialects.base import discover
from toolrelay.errors import BackendError
from toolrelay.parsing.triggers import ScanOptions
from toolrelay.toolcalls.constraint import build_call_schema
from toolrelay.toolcalls.model_request import ModelRequest
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import ToolCallSession
from toolrelay.toolcalls.states import State

WRITE = Tool(name="write", parameters={"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}})


@pytest.mark.parametrize("name", sorted(set(discover()) - {"llama3_json", "xlam", "pythonic"}))  # these scan whole answers only
def test_unfinished_printed_call_is_never_completed(name: str) -> None:  # bug 5
    request, options = replace(REQUEST, tools=(WRITE,)), ToolCallOptions(dialect=discover()[name])
    dialect = ModelRequest(request, options).base_dialect
    whole = dialect.render_calls([Call(id="a", name="write", arguments='{"text": "hello", "n": 12}')])
    for end in range(1, len(whole)):
        for made in fold(feed_text(ToolCallSession(request, options), whole[:end])).calls:
            assert json.loads(made.arguments) == {"text": "hello", "n": 12}, whole[:end]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glm45", "<tool_call>write\n<arg_key>text</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3<"),
        ("invoke_xml", '<function_calls>\n<invoke name="write">\n<parameter name="text">Paris</parameter>\n</in'),
        ("lfm2", "<|tool_call_start|>[write(text='Paris', n"),
    ],
)
def test_broken_call_becomes_the_text_as_printed(name: str, text: str) -> None:
    session = ToolCallSession(
        replace(REQUEST, tools=(WRITE,), stream=False), ToolCallOptions(dialect=discover()[name], on_bad_call="text")
    )
    assert "".join(event.text for event in feed_text(session, text) if isinstance(event, TextDelta)) == text


def kimi(*arguments: str) -> str:
    calls = (
        f"<|tool_call_begin|>functions.write:{n}<|tool_call_argument_begin|>{text}<|tool_call_end|>"
        for n, text in enumerate(arguments)
    )
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>"


def test_b3_malformed_call_after_a_good_one_is_shown_as_printed() -> None:
    options = ToolCallOptions(dialect=discover()["kimi_k2"], on_bad_call="retry", cutoff="off")
    printed = kimi('{"text": "a"}', '{"text": <oops>')
    events = feed_text(ToolCallSession(replace(REQUEST, tools=(WRITE,), stream=False), options), printed)
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert said == printed[printed.index("<|tool_call_begin|>functions.write:1") :]


def test_b4_text_of_a_rejected_whole_answer_is_not_shown() -> None:
    request, options = replace(REQUEST, tools=(WRITE,), stream=False), ToolCallOptions(dialect=discover()["hermes"])
    session = ToolCallSession(request, options)
    rejected = feed_text(session, 'Sure. <tool_call>{"name": "write", "arguments": {"text": <oops>}}</tool_call>')
    assert not any(isinstance(event, TextDelta) for event in rejected)
    retry(session)
    events = feed_text(session, 'Sure. <tool_call>{"name": "write", "arguments": {"text": "a"}}</tool_call>')
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Sure. "
    assert [made.arguments for made in fold(events).calls] == ['{"text": "a"}']


def test_b4_whole_answer_without_a_call_is_shown() -> None:
    request, options = replace(REQUEST, tools=(WRITE,), stream=False), ToolCallOptions(dialect=discover()["hermes"])
    events = feed_text(ToolCallSession(request, options), "It is sunny.")
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "It is sunny."


def test_constrained_answer_does_not_begin_in_reasoning() -> None:
    scan = ScanOptions(reasoning=("<think>", "</think>"), begins_in_reasoning=True)
    session = make_session(replace(REQUEST, tool_choice=ToolChoice(mode="required")), constrains_output=True, scan=scan)
    assert calls(feed_text(session, '{"name": "get_time", "arguments": {}}')) == [("get_time", {})]


def test_unclosed_expected_reasoning_becomes_text() -> None:  # bug 14
    scan = ScanOptions(reasoning=("<think>", "</think>"), begins_in_reasoning=True)
    answer = fold(feed_text(make_session(scan=scan), "It is sunny.")).items[-1]
    assert isinstance(answer, Message)
    assert plain_text(answer.content) == "It is sunny."


def test_missing_required_native_call_is_retried_in_text() -> None:  # bug 26
    must = replace(REQUEST, tool_choice=ToolChoice(mode="required"))
    session, events = feed_native([TextDelta("It is sunny."), STOP], must, constrains_output=True)
    assert rules(events) == ["no_call"]
    assert not any(isinstance(event, TextDelta) for event in events)
    assert session.state in (State.REJECTED, State.RETRY)
    assert session.request.tools == ()
    assert session.request.output is not None
    retry(session)
    assert calls(feed_text(session, '{"name": "get_time", "arguments": {}}')) == [("get_time", {})]


NAMED = ToolChoice(mode="named", names=(("function", "get.weather"),))
ONE_ALLOWED = replace(NAMED, mode="required")


@pytest.mark.parametrize("choice", [NAMED, ONE_ALLOWED], ids=["named", "allowed"])
@pytest.mark.parametrize("single", [False, True])
def test_native_call_of_another_tool_does_not_meet_tool_choice(choice: ToolChoice, *, single: bool) -> None:  # bug 26
    must = replace(REQUEST, tool_choice=choice, parallel_tool_calls=False if single else None)
    other: list[StreamEvent] = [CallStarted(0, "get_time"), ArgumentsDelta(0, "{}"), CallFinished(0)]
    session, events = feed_native([TextDelta("The time: "), *other, replace(STOP, finish="calls")], must)
    assert rules(events)[1:] == ["no_call"]
    assert fold(events).items == ()
    retry(session)
    (failed,) = [event for event in feed_text(session, "No.") if isinstance(event, AnswerFailed)]
    assert failed.error.code == "tool_choice_unmet"
    session, _ = feed_native([*other, STOP], must)
    retry(session)
    assert calls(feed_text(session, render_call("get_weather", '{"city":"Rome"}'))) == [("get.weather", {"city": "Rome"})]


@pytest.mark.parametrize("single", [False, True])
def test_named_tool_after_another_one_meets_tool_choice(*, single: bool) -> None:
    must = replace(REQUEST, tool_choice=NAMED, parallel_tool_calls=False if single else None)
    both: list[StreamEvent] = [CallStarted(0, "get_time"), CallFinished(0), CallStarted(1, "get.weather"), CallFinished(1), STOP]
    _, events = feed_native(both, must)
    assert [event.name for event in events if isinstance(event, CallStarted)] == ["get.weather"]
    assert fold(events).finish == "calls"


@pytest.mark.parametrize("cutoff", ["off", "first", "burst"])
@pytest.mark.parametrize(
    "options", [{"on_bad_call": "pass"}, {"is_gateway_call": lambda name: name == "get_time"}], ids=["pass", "gateway"]
)
def test_printed_call_of_another_tool_does_not_meet_tool_choice(options: dict[str, Any], cutoff: str) -> None:  # bug 26
    session = make_session(replace(REQUEST, tool_choice=NAMED), cutoff=cutoff, **options)
    events = feed_text(session, "The time: " + render_call("get_time", "{}") + " It is late.")
    assert rules(events)[-1] == "no_call"
    assert fold(events).items == ()
    retry(session)
    (failed,) = [event for event in feed_text(session, render_call("get_time", "{}")) if isinstance(event, AnswerFailed)]
    assert failed.error.code == "tool_choice_unmet"


def test_call_in_the_dialect_counts_despite_a_schema() -> None:
    session = make_session(replace(REQUEST, tool_choice=ToolChoice(mode="required")), constrains_output=True)
    assert calls(feed_text(session, render_call("get_time", "{}"))) == [("get_time", {})]


def test_text_before_a_required_call_is_kept() -> None:  # bug 12
    events = feed_text(
        make_session(replace(REQUEST, tool_choice=ToolChoice(mode="required"))), "It may rain: " + render_call("get_time", "{}")
    )
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["It may rain: "]
    assert calls(events) == [("get_time", {})]


@pytest.mark.parametrize("status", [400, 422, 500, 501])
def test_schema_refused_with_any_of_these_statuses_is_dropped(status: int) -> None:
    session = make_session(replace(REQUEST, tool_choice=ToolChoice(mode="required")), constrains_output=True)
    session.feed([AnswerFailed(BackendError("failed to load grammar", status=status))])
    assert session.state in (State.REJECTED, State.RETRY)


def test_definitions_of_two_tools_stay_separate_in_the_call_schema() -> None:
    def tool(name: str, item: Any) -> Tool:
        members: Any = {"x": {"$ref": "#/$defs/Item"}, "y": {"$ref": "#/properties/x"}}
        return Tool(name=name, parameters={"type": "object", "properties": members, "required": ["x"], "$defs": {"Item": item}})

    fits = jsonschema_rs.validator_for(
        build_call_schema([tool("a", {"type": "string"}), tool("b", {"type": "integer"})])
    ).is_valid
    assert fits({"name": "a", "arguments": {"x": "Paris", "y": "Lima"}})
    assert not fits({"name": "a", "arguments": {"x": 10}})
    assert not fits({"name": "a", "arguments": {"x": "Paris", "y": 10}})
    assert fits({"name": "b", "arguments": {"x": 10}})


def test_custom_tool_grammar_is_described_and_its_arguments_checked() -> None:
    tool = Tool(name="sh", kind="custom", format={"type": "grammar", "syntax": "regex", "definition": "^ls$"})
    session = make_session(replace(REQUEST, tools=(tool,)), validate=validate)
    assert "^ls$" in str(session.request.items[0])
    assert rules(feed_text(session, render_call("sh", '{"command": "ls"}'))) == ["schema"]


def test_checked_call_over_one_mebibyte_is_rejected() -> None:
    session = make_session(replace(REQUEST, tools=(replace(WEATHER, strict=True),)))
    events = session.feed([TextDelta('<tool_call>\n{"name": "get_weather", "arguments": {"city": "')])
    for _ in range(20):
        events += session.feed([TextDelta("x" * 65536)])
    assert rules(events) == ["held_too_long"]
    assert session.state in (State.REJECTED, State.RETRY)
    assert len(str(session.request.items)) < 20_000, "the model is not sent all of it again"


def test_long_unchecked_call_is_emitted_as_it_arrives() -> None:
    session = make_session(replace(REQUEST, stream=False))
    events = session.feed([TextDelta('<tool_call>\n{"name": "get_weather", "arguments": {"city": "')])
    for _ in range(20):
        events += session.feed([TextDelta("x" * 65536)])
    assert any(isinstance(event, ArgumentsDelta) for event in events)
    events += session.feed([TextDelta('"}}\n</tool_call>'), STOP])
    [(_, arguments)] = calls(events)
    assert arguments == {"city": "x" * 20 * 65536}


def test_undecodable_input_of_a_custom_tool_is_passed_on() -> None:
    tool = Tool(name="sh", kind="custom")
    for arguments in ('{"n": 1e999}', '{"input": 1}', '{"input": "\\ud800"}'):
        events = feed_text(
            make_session(replace(REQUEST, tools=(tool,)), on_bad_call="pass", validate=validate), render_call("sh", arguments)
        )
        assert [call.name for call in fold(events).calls] == ["sh"]
