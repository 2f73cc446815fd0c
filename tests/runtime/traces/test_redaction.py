"""Bug reports have no content."""

from __future__ import annotations

import json
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.traces.records import STORIES, record_of
from toolrelay.core.events import Usage
from toolrelay.core.messages import Call, Image, Message, OpaqueItem, Reasoning, Result, Text
from toolrelay.core.request import Request, Tool
from toolrelay.core.steps import (
    AnswerReceived,
    AnswerRejected,
    CallPlanned,
    CallsHandedOver,
    CallsTakenUp,
    QuestionAsked,
    StepEvent,
    TakenCall,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    VerdictGiven,
)
from toolrelay.runtime.traces.report import ReportContext, make_report
from toolrelay.stores.turn_lists import UnreadableStep

CONTEXT = ReportContext(
    versions="Toolrelay 1, Python 3",
    provider="demo",
    tool_calling="hermes",
    tools=frozenset({"own"}),
    parameters=frozenset({"city"}),
)
# No report has these letters but for content. Quotes and control characters are for JSON texts in texts.
CONTENT = st.text(alphabet="αβγδεζηθικλμ \"'\\\n`|{}[]", min_size=8, max_size=60).filter(
    lambda text: any(c in "αβγδεζηθικλμ" for c in text)
)


def report(*steps: StepEvent, unreadable: tuple[UnreadableStep, ...] = (), **row: Any) -> str:
    return make_report(record_of(*steps, unreadable=unreadable, **row), CONTEXT)


def entries(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text.partition("```json\n")[2].partition("\n```")[0])
    return found


def content_steps(texts: list[str]) -> list[StepEvent]:
    """Return steps with content in every member that can have some."""
    following = cycle(texts)

    def text() -> str:
        return next(following)

    arguments = json.dumps({"city": text(), text(): [text(), {text(): text()}]}, ensure_ascii=False)
    call = Call(id="call_1", name=text(), arguments=arguments, extra={text(): text()})
    known = Call(id="call_2", name="own", arguments=arguments)
    request = Request(
        wire="openai_chat",
        model="fast",
        items=(
            Message(role="user", content=text(), name=text()),
            Message(role="user", content=(Text(text=text()), Image(url=text()))),
            call,
            Result(call_id="call_1", output=text()),
            Reasoning(text=(text(),), summary=(text(),), encrypted=text()),
            OpaqueItem(wire="openai_chat", raw={text(): text()}),
        ),
        instructions=text(),
        tools=(Tool(name=text(), description=text(), parameters={"type": "object", "properties": {text(): {"enum": [text()]}}}),),
        metadata={text(): text()},
        user=text(),
        safety_identifier=text(),
        extra={text(): text()},
    )
    return [
        TurnAccepted(request=request),
        CallsTakenUp(calls=(TakenCall(call=call, toolset=text(), arguments=text(), output=text()),)),
        AnswerRejected(rule=text(), raw=text()),
        AnswerReceived(
            items=(Message(role="assistant", content=text()), call, known), finish="calls", raw=text(), retries=(text(),)
        ),
        CallPlanned(call=call, owner="gateway", toolset=text()),
        CallPlanned(call=known, owner="gateway", toolset=text()),
        QuestionAsked(call_id="call_2", tool="own", toolset=text(), arguments=arguments),
        VerdictGiven(call_id="call_2", verdict="allow", arguments=text(), reason=text(), by=text(), output=text()),
        ToolRunStarted(call_id="call_2", arguments=arguments),
        ToolRunFinished(call_id="call_2", output=(Text(text=text()),), private=True),
        ToolRunFinished(call_id="call_1", output=text(), failed=True),
        CallsHandedOver(call_ids=("call_1",)),
        TurnFailed(code=text(), message=f"It broke at {text()} and {text()}.", param=text(), detail={text(): text()}),
    ]


@given(texts=st.lists(CONTENT, min_size=1, max_size=8))
def test_no_run_of_content_survives(texts: list[str]) -> None:
    text = report(*content_steps(texts), unreadable=(UnreadableStep(seq=20, at=1020.0, kind=texts[0], reason=texts[0]),))
    runs = {each[start : start + 8] for each in texts for start in range(len(each) - 7)}
    assert [run for run in runs if run in text and any(c in "αβγδεζηθικλμ" for c in run)] == []


@given(secret=st.text(alphabet="abcdefghij ", min_size=12, max_size=40).filter(lambda text: len(set(text)) > 5))
def test_error_message_that_quotes_content_is_cleaned(secret: str) -> None:
    steps = [*STORIES["asked"][:4], ToolRunFinished(call_id="call_1", output=f"before {secret} after")]
    text = report(*steps, TurnFailed(code="upstream_error", message=f"Invalid input: {secret}"))
    failed = entries(text)[-1]
    assert not any(secret[start : start + 8] in failed["message"] for start in range(len(secret) - 7))


def test_error_message_keeps_what_is_no_content() -> None:
    text = report(*STORIES["asked"][:3], TurnFailed(code="timeout", message="The server sent nothing for 30 s.", status=504))
    assert entries(text)[-1]["message"] == "The server sent nothing for 30 s."
    assert (entries(text)[-1]["code"], entries(text)[-1]["http_status"]) == ("timeout", 504)


def test_error_message_of_a_very_large_turn_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.runtime.traces.redaction.MAX_CONTENT", 10)
    text = report(*STORIES["asked"][:3], TurnFailed(code="timeout", message="The server sent nothing."))
    assert entries(text)[-1]["message"] == "[text, 24 characters]"


def test_paths_urls_and_long_tokens_leave_error_messages() -> None:
    message = "Cannot read /home/ann/Notes/My.md of https://user:pw@host/x with sk-0123456789abcdef0123456789, nor Diary.md"
    failed = entries(report(STORIES["asked"][0], TurnFailed(code="x", message=message)))[-1]
    assert failed["message"] == "Cannot read […] of […] with […] nor […]"


def test_report_keeps_times_sizes_names_and_reasons() -> None:
    text = report(*STORIES["asked"])
    found = {entry["kind"]: entry for entry in entries(text)}
    assert "Toolrelay 1, Python 3" in text
    assert "provider demo" in text
    assert "Tool calling: hermes" in text
    assert "16 in, 5 out" in text
    assert "| 5000.0 | 1000.0 | run `own` | done |" in text
    assert found["accepted"]["tools"] == ["theirs"]
    assert found["call"]["arguments"] == {"characters": 15, "value": {"city": "[text, 4 characters]"}}
    assert found["run"]["output_characters"] == len("18 degrees")
    assert found["finished"]["finish"] == "stop"
    assert found["question"]["answer"]["by"] == "person"


def test_values_become_their_types() -> None:
    arguments = json.dumps({"city": [1, True, None, 1.5, "Rome"], "phone": 5551234567})
    call = Call(id="call_1", name="own", arguments=arguments)
    answer = AnswerReceived(items=(call,), finish="calls", usage=Usage(input=1, output=1), retries=("status_503",))
    found = entries(report(STORIES["asked"][0], answer, CallPlanned(call=call, owner="client")))
    value = {"city": ["[number]", "[boolean]", None, "[number]", "[text, 4 characters]"], "[other members]": 1}
    assert found[-1]["arguments"]["value"] == value
    assert found[1]["retries"] == ["status_503"]


def test_hostile_depth_and_length_are_bounded() -> None:
    nested = "[" * 900 + "]" * 900
    long = json.dumps([1] * 10_000)
    steps = [QuestionAsked(call_id="call_1", tool="own", arguments=each) for each in (nested, long)]
    assert len(report(STORIES["asked"][0], *steps)) < 10_000
