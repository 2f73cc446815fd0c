"""What the model was told, computed again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.traces.records import (
    ACCEPTED,
    CALLED,
    FAILED,
    FINISHED,
    OWN,
    PLANNED,
    RAN,
    SAID,
    STARTED,
    STORIES,
    TOKEN,
    record_of,
)
from toolrelay.core.messages import Item, Message
from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Request, Tool
from toolrelay.core.steps import AnswerRejected, StepEvent, TurnAccepted
from toolrelay.dialects.base import discover
from toolrelay.runtime.traces.timeline import make_timeline
from toolrelay.runtime.traces.told import ToldInputs, describe_told
from toolrelay.toolcalls.options import ToolCallOptions

TOOL = Tool(name="own", description="The weather.", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
POLICY = Policy(tools={"own": GatewayTool(tool=TOOL, toolset="mine")}, records_answers=True)
BEFORE = Message(role="user", content="Hello before.")


def told(*steps: StepEvent, seq: int, dialect: str = "", context: tuple[Item, ...] = ()) -> dict[str, Any]:
    options = ToolCallOptions(dialect=discover()[dialect or "hermes"], native=not dialect)
    inputs = ToldInputs(token=TOKEN, policy=POLICY, context=context, options=options)
    found = describe_told(record_of(*steps).steps, seq, inputs)
    assert found is not None
    return found


@pytest.mark.parametrize("dialect", ["", "hermes", "sealed", "llama3_json"])
@pytest.mark.parametrize("steps", STORIES.values(), ids=STORIES)
def test_every_model_call_of_every_story_can_be_computed(steps: tuple[StepEvent, ...], dialect: str) -> None:
    for entry in make_timeline(record_of(*steps)):
        if entry.kind == "model":
            context = (OWN,) if steps is STORIES["taken up"] else ()  # of the turn before
            assert told(*steps, seq=entry.steps[0], dialect=dialect, context=context)["messages"]


def test_native_model_gets_the_tools_of_client_and_gateway() -> None:
    first = told(*STORIES["asked"], seq=1, context=(BEFORE,))
    assert [tool["name"] for tool in first["tools"]] == ["theirs", "own"]
    assert [message["content"] for message in first["messages"]] == ["Hello before.", "Weather?"]
    assert (first["tool_calling"], first["rules"], first["repeats"], first["recomputed"]) == ("native", None, 0, True)


def test_model_that_prints_calls_gets_the_rules() -> None:
    first = told(*STORIES["asked"], seq=1, dialect="hermes")
    assert first["tools"] == []
    assert first["tool_calling"] == "hermes"
    assert "# Tools" in first["rules"]
    assert '"name": "own"' in first["rules"]
    assert first["messages"][0] == {"role": "system", "content": first["rules"]}


@pytest.mark.parametrize("as_instructions", [True, False])
def test_rules_are_told_apart_from_the_clients_system_text(*, as_instructions: bool) -> None:
    system = Message(role="system", content="Be brief.")
    items = (Message(role="user", content="Hi"),)
    request = Request(wire="openai_responses", model="fast", items=items if as_instructions else (system, *items))
    if as_instructions:
        request = Request(wire="openai_responses", model="fast", items=items, instructions="Be brief.")
    first = told(TurnAccepted(request=request), seq=1, dialect="hermes")
    assert "# Tools" in first["rules"]
    assert "Be brief." not in first["rules"]
    assert "Be brief." in (first["instructions"] or first["messages"][0]["content"])


@pytest.mark.parametrize("dialect", ["", "hermes"])
def test_later_call_has_only_what_was_added(dialect: str) -> None:
    later = told(ACCEPTED, CALLED, PLANNED, STARTED, RAN, SAID, FINISHED, seq=5, dialect=dialect)
    assert later["repeats"] == (1 if not dialect else 2)
    assert "18 degrees" in str(later["messages"])
    assert "Weather?" not in str(later["messages"])
    assert "rules" not in later


def test_call_that_runs_or_failed_is_computed_too() -> None:
    assert told(ACCEPTED, seq=1)["messages"]
    assert told(ACCEPTED, CALLED, PLANNED, STARTED, RAN, FAILED, seq=5)["repeats"] == 1


def test_answers_that_were_rejected_are_counted() -> None:
    steps = (ACCEPTED, AnswerRejected(rule="a"), AnswerRejected(rule="b"), SAID, FINISHED)
    assert told(*steps, seq=3)["rejected"] == 2
