"""Encoding and decoding of step events."""

from __future__ import annotations

import json
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests import strategies
from tests.core.playbook import format_value
from toolrelay.core.events import Usage
from toolrelay.core.messages import (
    Audio,
    Call,
    File,
    Image,
    Item,
    Message,
    OpaqueItem,
    OpaquePart,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.core.request import (
    OpaqueTool,
    OutputFormat,
    ReasoningOptions,
    Request,
    Sampling,
    Tool,
    ToolChoice,
)
from toolrelay.core.steps import (
    AnswerReceived,
    AnswerRejected,
    CallPlanned,
    CallsHandedOver,
    CallsTakenUp,
    QuestionAsked,
    QuestionClosed,
    QuestionLeft,
    StepEvent,
    TakenCall,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    TurnResumed,
    VerdictGiven,
)
from toolrelay.wires.chat.request import decode_request

CALL = Call(id="call_1", name="f", arguments='{"x":1}', kind="custom", namespace="n", item_id="fc_1", extra={"s": [1, None]})
PARTS = (
    Text(text="\u00e9\U0001f600", annotations=({"a": 1},), logprobs=(1.5,)),
    Refusal(text="no"),
    Image(url="data:,"),
    Audio(data="", format="wav"),
    File(file_id="file_1", extra={"x": {"y": True}}),
    OpaquePart(wire="w", raw={"type": "Text", "text": "not a Text"}),
)
ITEMS: tuple[Item, ...] = (
    Message(role="assistant", content="plain", phase="final_answer"),
    Message(role="user", content=PARTS, name="n"),
    CALL,
    Result(call_id="call_1", output=PARTS, kind="custom", name="f"),
    Reasoning(text=("t",), summary=("s",), encrypted="e", id="rs_1"),
    OpaqueItem(wire="w", raw={"type": "Message", "role": "not one"}),
)
USAGE = Usage(input=1, output=2, total=3, cached=0, estimated=True)

STEPS: list[StepEvent] = [
    TurnAccepted(
        request=Request(
            wire="openai_chat",
            model="m",
            items=(Message(role="user", content="Hi"),),
            tools=(Tool(name="f"), OpaqueTool(wire="w", raw={"type": "x"})),
        )
    ),
    AnswerReceived(items=ITEMS, finish="length", usage=USAGE, cut=True),
    AnswerRejected(rule="invalid_json"),
    CallPlanned(call=CALL, owner="gateway"),
    QuestionAsked(call_id="call_1"),
    QuestionAsked(call_id="call_1", kind="share", tool="f", toolset="mine", arguments='{"paths":["a.md"]}'),
    QuestionLeft(call_id="call_1"),
    QuestionClosed(call_id="call_1", status="expired", kind="share"),
    CallsTakenUp(calls=(TakenCall(call=CALL, toolset="mine", arguments="{}", output=PARTS),)),
    VerdictGiven(call_id="call_1", verdict="allow", arguments="{}"),
    VerdictGiven(call_id="call_1", verdict="deny", reason="no", by="anna"),
    VerdictGiven(call_id="call_1", verdict="allow", kind="share", output=PARTS, digest="d"),
    ToolRunStarted(call_id="call_1", arguments="{}"),
    ToolRunFinished(call_id="call_1", output=PARTS, failed=True),
    ToolRunFinished(call_id="call_1", output="done"),
    CallsHandedOver(call_ids=("call_1", "call_2")),
    TurnFinished(finish="calls", usage=USAGE),
    TurnFailed(code=None, message="It died.", detail={"status": 502}),
    TurnResumed(),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_step_survives_encoding_and_decoding(step: StepEvent) -> None:
    assert msgspec.json.decode(msgspec.json.encode(step), type=StepEvent) == step


def test_every_step_class_is_covered() -> None:
    assert {type(step) for step in STEPS} == set(get_args(StepEvent))


def test_every_item_and_part_class_is_covered() -> None:
    assert {type(item) for item in ITEMS} == set(get_args(Item))
    assert {type(part) for part in PARTS} == {Text, Refusal, Image, Audio, File, OpaquePart}


def test_request_survives_encoding_and_decoding() -> None:
    request = Request(
        wire="openai_responses",
        model="m",
        items=ITEMS,
        instructions="be brief",
        tools=(
            Tool(name="f", parameters={"type": "object"}, strict=False),
            Tool(name="s", kind="custom", format={"type": "text"}),
            OpaqueTool(wire="openai_responses", raw={"type": "web_search"}),
        ),
        tool_choice=ToolChoice(mode="required", names=(("function", "f"), ("custom", "s"))),
        sampling=Sampling(temperature=0.5, stop=("a", "b"), logit_bias={"1": -1.0}),
        output=OutputFormat(type="json_schema", schema={"type": "object"}),
        reasoning=ReasoningOptions(effort="low", encrypted=True),
        metadata={"k": "v"},
        extra={"x": [1, {"y": None}]},
    )
    again = msgspec.json.decode(msgspec.json.encode(request), type=Request)
    assert again == request, format_value(again)


@cache
def values_of(annotation: Any) -> SearchStrategy[Any]:
    """Generate any value of a type that a step may contain."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return strategies.json_values()
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        # A type may contain itself: its fields wait until a value is drawn.
        fields = msgspec.structs.fields(annotation)
        return st.deferred(lambda: st.builds(annotation, **{field.name: values_of(field.type) for field in fields}))
    if origin in (Union, UnionType):
        return st.one_of(*(values_of(each) for each in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=2)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values_of(each) for each in arguments))
    plain: dict[Any, SearchStrategy[Any]] = {
        str: strategies.texts(min_size=0),
        int: st.integers(-(2**63), 2**63),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        NoneType: st.none(),
    }
    return plain[annotation]


@pytest.mark.parametrize("kind", get_args(StepEvent), ids=lambda kind: kind.__name__)
@given(st.data())
def test_any_step_survives_encoding_and_decoding(kind: type[StepEvent], data: st.DataObject) -> None:
    step = data.draw(values_of(kind))
    assert msgspec.json.decode(msgspec.json.encode(step), type=StepEvent) == step


@given(strategies.chat_bodies())
def test_any_accepted_request_survives_encoding_and_decoding(body: dict[str, Any]) -> None:
    step = TurnAccepted(request=decode_request(json.dumps(body).encode()))
    assert msgspec.json.decode(msgspec.json.encode(step), type=StepEvent) == step


def test_default_values_are_not_stored() -> None:
    request = Request(wire="openai_chat", model="m", items=(Message(role="user", content="Hi"),), tools=(Tool(name="f"),))
    assert json.loads(msgspec.json.encode(TurnAccepted(request=request))) == {
        "type": "TurnAccepted",
        "request": {
            "wire": "openai_chat",
            "model": "m",
            "items": [{"type": "Message", "role": "user", "content": "Hi"}],
            "tools": [{"type": "Tool", "name": "f"}],
        },
    }
    answer = AnswerReceived(items=(Call(id="call_1", name="f", arguments="{}"),), finish="calls", usage=Usage(input=1))
    assert json.loads(msgspec.json.encode(answer)) == {
        "type": "AnswerReceived",
        "items": [{"type": "Call", "id": "call_1", "name": "f", "arguments": "{}"}],
        "finish": "calls",
        "usage": {"input": 1},
    }


def test_record_with_all_members_is_read() -> None:
    stored = """{"type": "AnswerReceived", "items": [{"type": "Message", "extra": null, "role": "assistant", "content": "Hi",
        "name": null, "id": null, "phase": null}], "finish": "stop", "usage": {"input": 1, "output": 0, "total": null},
        "cut": false, "call_count": 0, "service_tier": null, "raw": null}"""
    message = Message(role="assistant", content="Hi")
    assert msgspec.json.decode(stored, type=StepEvent) == AnswerReceived(items=(message,), finish="stop", usage=Usage(input=1))
