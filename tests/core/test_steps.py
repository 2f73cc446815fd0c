"""Encoding and decoding of step events."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

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
    QuestionAsked,
    StepEvent,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    VerdictGiven,
)

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
    VerdictGiven(call_id="call_1", verdict="allow", arguments="{}"),
    VerdictGiven(call_id="call_1", verdict="deny", reason="no"),
    ToolRunStarted(call_id="call_1", arguments="{}"),
    ToolRunFinished(call_id="call_1", output=PARTS, failed=True),
    ToolRunFinished(call_id="call_1", output="done"),
    CallsHandedOver(call_ids=("call_1", "call_2")),
    TurnFinished(finish="calls", usage=USAGE),
    TurnFailed(code=None, message="It died.", detail={"status": 502}),
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
