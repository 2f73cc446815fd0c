"""Slips of models in a session: the stream is as forgiving as the whole answer, and a bad call costs that call only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from msgspec.structs import replace

from tests.dialects.test_every_dialect import split
from tests.dialects.test_examination import BROKEN, FRAMES, MENDED
from tests.toolcalls.test_session import REQUEST, STOP, fold
from toolrelay.core.events import AnswerFailed, ArgumentsDelta, CallFinished, CallStarted, StreamEvent, TextDelta
from toolrelay.core.request import Tool
from toolrelay.core.validation import validate
from toolrelay.dialects.base import discover
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import ToolCallSession

DIALECTS = discover()
TOOL = Tool(name="get_weather", parameters={"type": "object"})
STRICT = replace(TOOL, strict=True, parameters={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


def run(name: str, chunks: list[str], *, stream: bool, tools: tuple[Tool, ...] = (TOOL,), **options: Any) -> list[StreamEvent]:
    request = replace(REQUEST, tools=tools, stream=stream)
    session = ToolCallSession(request, ToolCallOptions(dialect=DIALECTS[name], **{"cutoff": "off", **options}))
    out: list[StreamEvent] = []
    for chunk in chunks:
        out += session.feed([TextDelta(chunk)])
    return out + session.feed([STOP])


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def calls_of(events: list[StreamEvent]) -> list[Any]:
    return [json.loads(call.arguments) for call in fold(events).calls]


def visible_arguments(events: list[StreamEvent]) -> list[str]:
    """Return the arguments of the calls that a client sees as finished."""
    pieces: dict[int, list[str]] = {}
    finished = []
    for event in events:
        match event:
            case CallStarted(index=index):
                pieces[index] = []
            case ArgumentsDelta(index=index):
                pieces[index].append(event.text)
            case CallFinished(index=index):
                finished.append("".join(pieces[index]))
            case _:
                pass
    return finished


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("row", [*MENDED, *BROKEN])
@given(data=st.data())
@settings(max_examples=3)
def test_b1_stream_gives_what_the_whole_answer_gives(name: str, row: str, data: DataObject) -> None:
    """What is streamed is valid JSON or not a call, in any chunks."""
    text = FRAMES[name].replace("…", MENDED[row][0] if row in MENDED else BROKEN[row])
    whole = run(name, [text], stream=False, on_bad_call="text")
    streamed = run(name, split(data, text), stream=True, on_bad_call="text")
    assert calls_of(streamed) == calls_of(whole)
    assert [json.loads(arguments) for arguments in visible_arguments(streamed)] == calls_of(whole)
    if not calls_of(whole):
        assert text_of(whole) == text
        assert text_of(streamed) == text or isinstance(streamed[-1], AnswerFailed)


def kimi(*arguments: str, name: str = "get_weather") -> str:
    written = (
        f"<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{text}<|tool_call_end|>"
        for n, text in enumerate(arguments)
    )
    return f"<|tool_calls_section_begin|>{''.join(written)}<|tool_calls_section_end|>"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("bad", ['{"city": }', '{"city": <oops>', "nothing", "{]", '{"a": {"b": undefined}}'])
def test_b2_bad_call_between_good_ones_costs_only_itself(bad: str, *, stream: bool) -> None:
    text = kimi('{"city": "Paris"}', bad, '{"city": "Rome"}')
    events = run("kimi_k2", list(text), stream=stream, on_bad_call="retry")
    assert calls_of(events) == [{"city": "Paris"}, {"city": "Rome"}]
    start = text.index("<|tool_call_begin|>functions.get_weather:1")
    assert text_of(events) == text[start : text.index("<|tool_call_begin|>functions.get_weather:2")]
    assert fold(events).finish == "calls"


def test_b2_bad_call_of_which_a_part_was_streamed_is_not_finished() -> None:
    text = kimi('{"city": "Paris"}', '{"city": "Berlin", "n": <oops>}', '{"city": "Rome"}')
    events = run("kimi_k2", list(text), stream=True)
    assert calls_of(events) == [{"city": "Paris"}, {"city": "Rome"}]
    assert len([event for event in events if isinstance(event, CallStarted)]) == 3
    assert text_of(events) == ""
    assert fold(events).finish == "calls"


def test_b2_only_call_of_which_a_part_was_streamed_is_an_error() -> None:
    events = run("kimi_k2", list(kimi('{"city": "Berlin", "n": <oops>}')), stream=True)
    assert isinstance(events[-1], AnswerFailed)


@pytest.mark.parametrize("policy", ["text", "retry"])
def test_b2_malformed_call_before_its_first_value_is_handled_as_in_a_whole_answer(policy: str) -> None:
    text = kimi('{"city": <oops>}')
    events = run("kimi_k2", list(text), stream=True, on_bad_call=policy)
    assert not any(isinstance(event, CallStarted) for event in events)
    assert text_of(events) == (text if policy == "text" else "")


PRINTED = {
    "hermes": '<tool_call>  {"name":"nope",\n"arguments": {"a":1 }}\n\n</tool_call>',
    "hermes, a list": '<tool_call>[ {"name":"nope", "arguments": {}} ]</tool_call>',
    "kimi_k2": kimi('{ "a":1}', name="invalid.0"),
    "granite": '<|tool_call|> {"name": "nope", "arguments": {}}',
    "llama3_json": '<|python_tag|>{"name": "nope", "arguments": {"a":1,}}',
    "qwen3_coder": "<tool_call>\n<function=nope>\n<parameter=a>1</parameter>\n</function>\n\n</tool_call>",
    "glm45": "<tool_call>nope\n<arg_key>a</arg_key>\n\n<arg_value>1</arg_value></tool_call>",
    "mistral_v13": '[TOOL_CALLS]nope[ARGS]{"a":1}',
    "lfm2": "<|tool_call_start|>[ nope( a=True ) ]<|tool_call_end|>",
    "gemma4": '<|tool_call>call:nope{ a:<|"|>x<|"|>}<tool_call|>',
    "deepseek_v3": "<｜tool▁call▁begin｜>function<｜tool▁sep｜>nope\n```json\n{}\n```<｜tool▁call▁end｜> <｜tool▁calls▁end｜>",
}


@pytest.mark.parametrize("case", PRINTED)
@pytest.mark.parametrize("stream", [False, True])
@given(data=st.data())
@settings(max_examples=5)
def test_b3_call_of_an_unknown_tool_is_shown_as_printed(case: str, data: DataObject, *, stream: bool) -> None:
    text = f"So: {PRINTED[case]} and on."
    events = run(case.partition(",")[0], split(data, text), stream=stream, on_bad_call="text")
    assert text_of(events) == text
    assert calls_of(events) == []


@pytest.mark.parametrize("stream", [False, True])
def test_b3_call_that_violates_its_schema_is_shown_as_printed(*, stream: bool) -> None:
    text = '<tool_call>{"name":"get_weather" , "arguments":{"n":"x",}}  </tool_call>.'
    events = run("hermes", list(text), stream=stream, tools=(STRICT,), on_bad_call="text", validate=validate)
    assert text_of(events) == text


def test_b3_bad_calls_beside_good_ones_are_shown_as_printed() -> None:
    good = kimi('{"city": "Paris"}')
    bad = kimi("{}", "{ }", name="nope")
    events = run("kimi_k2", list(f"a{bad}b{good}c{bad}d"), stream=True, on_bad_call="text")
    assert text_of(events) == f"a{bad}bc{bad}d"
    assert calls_of(events) == [{"city": "Paris"}]
