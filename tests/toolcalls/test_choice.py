"""A model that is constrained to a choice between a call and an answer."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.core.events import AnswerFinished, AnswerStarted, ArgumentsDelta, CallStarted, Finish, StreamEvent, TextDelta
from toolrelay.core.messages import Call, Item, Message, Result
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.toolcalls.constraint import CHOICE
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import ToolCallSession

CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
NOTES: Any = {
    "type": "object",
    "properties": {"tag": {"$ref": "#/$defs/tag"}},
    "required": ["tag"],
    "$defs": {"tag": {"enum": ["a", "b"]}},
}
TOOLS = (Tool(name="get_weather", description="Get the weather", parameters=CITY), Tool(name="notes", parameters=NOTES))
CALL = '{"tool": "get_weather", "arguments": {"city": "Paris"}}'
ANSWER = '{"tool": "none", "answer": "Two\\nlines, \\"quoted\\" \\u00e9 \\ud83d\\ude00."}'
TEXT = 'Two\nlines, "quoted" é 😀.'
USER = Message(role="user", content="Well?")


def open_session(*items: Item, choice: ToolChoice | None = None, tools: tuple[Tool, ...] = TOOLS) -> ToolCallSession:
    request = Request(wire="openai_chat", model="m", items=items or (USER,), tools=tools, tool_choice=choice, stream=True)
    return ToolCallSession(request, ToolCallOptions(dialect=CHOICE, constrains_output=True))


def read(session: ToolCallSession, pieces: list[str], finish: Finish = "stop") -> list[StreamEvent]:
    events: list[StreamEvent] = [AnswerStarted(model="m"), *map(TextDelta, pieces), AnswerFinished(finish=finish)]
    out: list[StreamEvent] = []
    for event in events:
        out += session.feed([event])
    return out


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def schema_of(session: ToolCallSession) -> Any:
    output = session.request.output
    assert output is not None
    return output.schema


def accepts(session: ToolCallSession, text: str) -> bool:
    return jsonschema_rs.is_valid(schema_of(session), json.loads(text))


@given(st.lists(st.integers(0, len(ANSWER))))
def test_answer_is_text_however_it_is_chunked(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(ANSWER)]
    events = read(open_session(), [ANSWER[start:end] for start, end in pairwise(places)])
    assert text_of(events) == TEXT
    assert not any(isinstance(event, CallStarted) for event in events)


def test_answer_streams_as_it_arrives() -> None:
    session = open_session()
    session.feed([AnswerStarted(model="m")])
    assert text_of(session.feed([TextDelta('{"tool": "none", "answer": "On')])) == "On"
    assert text_of(session.feed([TextDelta("e tw")])) == "e tw"


@pytest.mark.parametrize("finish", ["length", "stop"])
def test_truncated_answer_is_text_as_far_as_it_came(finish: Finish) -> None:
    session = open_session()
    events = read(session, ['{"tool": "none", "answer": "One two'], finish)
    assert text_of(events) == "One two"
    assert [event.finish for event in events if isinstance(event, AnswerFinished)] == [finish]


def test_call_is_read_from_the_choice() -> None:
    events = read(open_session(), [CALL])
    assert [event.name for event in events if isinstance(event, CallStarted)] == ["get_weather"]
    arguments = "".join(event.text for event in events if isinstance(event, ArgumentsDelta))
    assert json.loads(arguments) == {"city": "Paris"}
    assert text_of(events) == ""


def test_schema_offers_every_tool_and_an_answer() -> None:
    session = open_session()
    assert accepts(session, CALL)
    assert accepts(session, ANSWER)
    assert accepts(session, '{"tool": "notes", "arguments": {"tag": "a"}}')
    assert not accepts(session, '{"tool": "notes", "arguments": {"tag": "c"}}')
    assert not accepts(session, '{"tool": "other", "arguments": {}}')


def test_required_call_excludes_an_answer() -> None:
    session = open_session(choice=ToolChoice(mode="required"))
    assert accepts(session, CALL)
    assert not accepts(session, ANSWER)


def test_tool_that_was_called_since_the_users_message_is_left_out() -> None:
    call = Call(id="c", name="get_weather", arguments='{"city": "Paris"}')
    session = open_session(USER, call, Result(call_id="c", output="Sunny."))
    assert not accepts(session, CALL)
    assert accepts(session, '{"tool": "notes", "arguments": {"tag": "a"}}')
    assert accepts(session, ANSWER)
    assert accepts(open_session(USER, call, Result(call_id="c", output="Sunny."), USER), CALL)


def test_without_tools_nothing_is_constrained() -> None:
    assert open_session(tools=()).request.output is None


def test_tool_with_the_name_of_the_answer_is_called_in_another_dialect() -> None:
    tools = (Tool(name="none", parameters=CITY),)
    session = open_session(tools=tools)
    assert session.request.output is None
    call = '{"name": "none", "arguments": {"city": "Rome"}}'
    assert [event.name for event in read(session, [f"<tool_call>{call}</tool_call>"]) if isinstance(event, CallStarted)] == [
        "none"
    ]
    assert accepts(open_session(tools=tools, choice=ToolChoice(mode="required")), call)
