"""What must hold in a conversation with a model, whatever it prints and whatever its server does."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from msgspec.structs import replace

from tests.toolcalls.test_session import ASKED, STOP, WEATHER, calls, fold, heard, native, printed, retry, rules, talk
from toolrelay.core.events import AnswerFailed, ArgumentsDelta, TextDelta
from toolrelay.core.messages import Call, Message, plain_text
from toolrelay.core.request import Tool, ToolChoice
from toolrelay.core.validation import validate
from toolrelay.dialects.base import discover
from toolrelay.errors import BackendError
from toolrelay.parsing.triggers import ScanOptions
from toolrelay.toolcalls.constraint import call_schema
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import State, ToolCallSession

WRITE = Tool(name="write", parameters={"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}})


@pytest.mark.parametrize("name", sorted(set(discover()) - {"llama3_json", "xlam", "pythonic"}))  # those read whole answers only
def test_a_call_that_the_model_itself_leaves_unfinished_is_never_finished(name: str) -> None:  # bug 5
    request, manner = replace(ASKED, tools=(WRITE,)), ToolCallOptions(dialect=discover()[name])
    spoken = ToolCallSession(request, manner)._plan.base_dialect
    whole = spoken.render_calls([Call(id="a", name="write", arguments='{"text": "hello", "n": 12}')])
    for end in range(1, len(whole)):
        for made in fold(heard(ToolCallSession(request, manner), whole[:end])).calls:
            assert json.loads(made.arguments) == {"text": "hello", "n": 12}, whole[:end]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glm45", "<tool_call>write\n<arg_key>text</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3<"),
        ("invoke_xml", '<function_calls>\n<invoke name="write">\n<parameter name="text">Paris</parameter>\n</in'),
        ("lfm2", "<|tool_call_start|>[write(text='Paris', n"),
    ],
)
def test_a_broken_call_that_comes_out_as_text_comes_out_as_it_was_printed(name: str, text: str) -> None:
    conversation = ToolCallSession(
        replace(ASKED, tools=(WRITE,), stream=False), ToolCallOptions(dialect=discover()[name], on_bad_call="text")
    )
    assert "".join(event.text for event in heard(conversation, text) if isinstance(event, TextDelta)) == text


def test_an_answer_that_is_held_to_a_schema_does_not_begin_in_reasoning() -> None:
    quoting = ScanOptions(reasoning=("<think>", "</think>"), begins_in_reasoning=True)
    conversation = talk(replace(ASKED, tool_choice=ToolChoice(mode="required")), constrains=True, scan=quoting)
    assert calls(heard(conversation, '{"name": "get_time", "arguments": {}}')) == [("get_time", {})]


def test_thoughts_without_an_end_were_the_answer() -> None:  # bug 14
    quoting = ScanOptions(reasoning=("<think>", "</think>"), begins_in_reasoning=True)
    answer = fold(heard(talk(scan=quoting), "It is sunny.")).items[-1]
    assert isinstance(answer, Message)
    assert plain_text(answer.content) == "It is sunny."


def test_a_native_model_that_must_call_and_does_not_is_asked_again_in_text() -> None:  # bug 26
    must = replace(ASKED, tool_choice=ToolChoice(mode="required"))
    conversation, events = native([TextDelta("It is sunny."), STOP], must, constrains=True)
    assert rules(events) == ["no_call"]
    assert not any(isinstance(event, TextDelta) for event in events)
    assert conversation.state in (State.REJECTED, State.RETRY)
    assert conversation.request.tools == ()
    assert conversation.request.output is not None
    retry(conversation)
    assert calls(heard(conversation, '{"name": "get_time", "arguments": {}}')) == [("get_time", {})]


def test_a_call_in_the_models_own_dialect_counts_although_it_was_to_be_held_to_a_schema() -> None:
    conversation = talk(replace(ASKED, tool_choice=ToolChoice(mode="required")), constrains=True)
    assert calls(heard(conversation, printed("get_time", "{}"))) == [("get_time", {})]


def test_text_before_a_call_that_had_to_be_made_is_not_lost() -> None:  # bug 12
    events = heard(talk(replace(ASKED, tool_choice=ToolChoice(mode="required"))), "It may rain: " + printed("get_time", "{}"))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["It may rain: "]
    assert calls(events) == [("get_time", {})]


@pytest.mark.parametrize("status", [400, 422, 500, 501])
def test_whatever_the_status_a_schema_that_is_refused_is_taken_back(status: int) -> None:
    conversation = talk(replace(ASKED, tool_choice=ToolChoice(mode="required")), constrains=True)
    conversation.feed([AnswerFailed(BackendError("failed to load grammar", status=status))])
    assert conversation.state in (State.REJECTED, State.RETRY)


def test_definitions_of_two_tools_do_not_mix_in_the_schema_of_a_call() -> None:
    def tool(name: str, item: Any) -> Tool:
        members: Any = {"x": {"$ref": "#/$defs/Item"}, "y": {"$ref": "#/properties/x"}}
        return Tool(name=name, parameters={"type": "object", "properties": members, "required": ["x"], "$defs": {"Item": item}})

    fits = jsonschema_rs.validator_for(call_schema([tool("a", {"type": "string"}), tool("b", {"type": "integer"})])).is_valid
    assert fits({"name": "a", "arguments": {"x": "Paris", "y": "Lima"}})
    assert not fits({"name": "a", "arguments": {"x": 10}})
    assert not fits({"name": "a", "arguments": {"x": "Paris", "y": 10}})
    assert fits({"name": "b", "arguments": {"x": 10}})


def test_a_custom_tools_grammar_is_told_and_another_member_is_a_bad_call() -> None:
    tool = Tool(name="sh", kind="custom", format={"type": "grammar", "syntax": "regex", "definition": "^ls$"})
    conversation = talk(replace(ASKED, tools=(tool,)), validate=validate)
    assert "^ls$" in str(conversation.request.items[0])
    assert rules(heard(conversation, printed("sh", '{"command": "ls"}'))) == ["schema"]


def test_of_a_call_that_must_be_checked_no_more_than_a_mebibyte_is_held() -> None:
    conversation = talk(replace(ASKED, tools=(replace(WEATHER, strict=True),)))
    events = conversation.feed([TextDelta('<tool_call>\n{"name": "get_weather", "arguments": {"city": "')])
    for _ in range(20):
        events += conversation.feed([TextDelta("x" * 65536)])
    assert rules(events) == ["held_too_long"]
    assert conversation.state in (State.REJECTED, State.RETRY)
    assert conversation._plan.input_size() < 20_000, "the model is not sent all of it again"


def test_a_long_call_that_need_not_be_checked_leaves_as_it_forms() -> None:
    conversation = talk(replace(ASKED, stream=False))
    events = conversation.feed([TextDelta('<tool_call>\n{"name": "get_weather", "arguments": {"city": "')])
    for _ in range(20):
        events += conversation.feed([TextDelta("x" * 65536)])
    assert any(isinstance(event, ArgumentsDelta) for event in events)
    events += conversation.feed([TextDelta('"}}\n</tool_call>'), STOP])
    [(_, arguments)] = calls(events)
    assert arguments == {"city": "x" * 20 * 65536}


def test_a_custom_tool_gets_what_was_written_where_it_cannot_be_read() -> None:
    tool = Tool(name="sh", kind="custom")
    for arguments in ('{"n": 1e999}', '{"input": 1}', '{"input": "\\ud800"}'):
        events = heard(talk(replace(ASKED, tools=(tool,)), on_bad_call="pass", validate=validate), printed("sh", arguments))
        assert [call.name for call in fold(events).calls] == ["sh"]
