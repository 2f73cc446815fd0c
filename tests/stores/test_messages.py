"""Steps as rows of the table `messages`."""

from __future__ import annotations

import json

import pytest

from tests.stores.rows import ASKED, FINISHED, PLANNED, STARTED
from toolrelay.core.approvals import NOT_ANSWERED, denial_text
from toolrelay.core.messages import (
    Audio,
    Call,
    Content,
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
from toolrelay.core.request import Request
from toolrelay.core.steps import (
    AnswerReceived,
    AnswerRejected,
    QuestionClosed,
    StepEvent,
    ToolRunFinished,
    TurnAccepted,
    VerdictGiven,
)
from toolrelay.stores.messages import message_rows
from toolrelay.stores.turns import MessageRow
from toolrelay.wires.chat.request import decode_request

ROME = Call(id="call_1", name="get_weather", arguments='{"city":"Rome"}')
SHELL = Call(id="call_2", name="shell", arguments="ls -l", kind="custom")
ROME_JSON = '{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\\"city\\":\\"Rome\\"}"}}'
SHELL_JSON = '{"id":"call_2","type":"custom","custom":{"name":"shell","input":"ls -l"}}'


def accepted(*items: Item, legacy: bool = False) -> TurnAccepted:
    request = Request(wire="openai_chat", model="m", items=items, legacy_functions=legacy)
    return TurnAccepted(request=request)


def tool_row(content: str) -> MessageRow:
    return MessageRow(role="tool", content=content, tool_call_id="call_1")


def answered(*items: Item) -> AnswerReceived:
    return AnswerReceived(items=items, finish="stop")


HISTORY = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Weather?"),
    Reasoning(text=("Hm.",)),
    Message(role="assistant", content="I look."),
    ROME,
    SHELL,
    Result(call_id="call_1", output="18 °C"),
    Result(call_id="call_2", output=(Image(url="data:,", detail="low"),)),
    Message(role="assistant", content="18 °C."),
    Message(role="developer", content="Thanks."),
)
HISTORY_ROWS = [
    MessageRow(role="system", content="Be brief."),
    MessageRow(role="user", content="Weather?"),
    MessageRow(role="assistant", content="I look.", tool_calls=f"[{ROME_JSON},{SHELL_JSON}]"),
    MessageRow(role="tool", content="18 °C", tool_call_id="call_1"),
    MessageRow(
        role="tool", content_json='[{"type":"image_url","image_url":{"url":"data:,","detail":"low"}}]', tool_call_id="call_2"
    ),
    MessageRow(role="assistant", content="18 °C."),
    MessageRow(role="developer", content="Thanks."),
]


def test_accepted_request_gives_its_messages() -> None:
    assert message_rows(accepted(*HISTORY)) == HISTORY_ROWS


@pytest.mark.parametrize(("skip", "first"), [(0, 0), (1, 1), (6, 3), (7, 4), (9, 6), (10, 7), (99, 7)])
def test_known_items_are_skipped(skip: int, first: int) -> None:
    assert message_rows(accepted(*HISTORY), skip=skip) == HISTORY_ROWS[first:]


def test_skipping_into_an_assistant_message_leaves_its_calls() -> None:
    assert message_rows(accepted(*HISTORY), skip=5)[0] == MessageRow(role="assistant", tool_calls=f"[{SHELL_JSON}]")


@pytest.mark.parametrize(
    ("step", "rows"),
    [
        (answered(Message(role="assistant", content="Hi.")), [MessageRow(role="assistant", content="Hi.")]),
        (answered(ROME), [MessageRow(role="assistant", tool_calls=f"[{ROME_JSON}]")]),
        (
            answered(Reasoning(text=("Hm.",)), Message(role="assistant", content="I look."), ROME),
            [MessageRow(role="assistant", content="I look.", tool_calls=f"[{ROME_JSON}]")],
        ),
        (
            answered(Message(role="assistant", content="One."), Message(role="assistant", content="Two."), ROME),
            [
                MessageRow(role="assistant", content="One."),
                MessageRow(role="assistant", content="Two.", tool_calls=f"[{ROME_JSON}]"),
            ],
        ),
        (answered(), []),
        (answered(OpaqueItem(wire="openai_responses", raw={"type": "web_search_call"})), []),
        (ToolRunFinished(call_id="call_1", output="[]", withheld=True), []),
        (VerdictGiven(call_id="call_1", verdict="allow"), []),
        (VerdictGiven(call_id="call_1", verdict="deny", reason="no"), [tool_row(denial_text("run", "no"))]),
        (VerdictGiven(call_id="call_1", verdict="deny", kind="share"), [tool_row(denial_text("share", None))]),
        (VerdictGiven(call_id="call_1", verdict="allow", kind="share", output="[1]"), [tool_row("[1]")]),
        (QuestionClosed(call_id="call_1", status="expired"), [tool_row(NOT_ANSWERED)]),
        (QuestionClosed(call_id="call_1", status="withdrawn"), []),
        (ToolRunFinished(call_id="call_1", output="18 °C"), [MessageRow(role="tool", content="18 °C", tool_call_id="call_1")]),
        (
            ToolRunFinished(call_id="call_1", output="No such city.", failed=True),
            [MessageRow(role="tool", content="No such city.", tool_call_id="call_1")],
        ),
    ],
)
def test_answers_and_results_give_messages(step: StepEvent, rows: list[MessageRow]) -> None:
    assert message_rows(step) == rows


@pytest.mark.parametrize(
    ("content", "text", "parts"),
    [
        ("", "", None),
        ((), None, None),
        ((Text(text="a"), Text(text="b")), "ab", None),
        (
            (Text(text="a"), Refusal(text="no")),
            None,
            '[{"type":"text","text":"a"},{"type":"refusal","refusal":"no"}]',
        ),
        ((Audio(data="AA", format="wav"),), None, '[{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}]'),
        ((File(file_id="f", filename="n"),), None, '[{"type":"file","file":{"file_id":"f","filename":"n"}}]'),
        ((File(data="data:,", url="u"),), None, '[{"type":"file","file":{"file_data":"data:,","file_url":"u"}}]'),
        ((Image(file_id="f"),), None, '[{"type":"image_url","image_url":{"file_id":"f"}}]'),
        ((OpaquePart(wire="w", raw={"type": "video_url", "é": 1}),), None, '[{"type":"video_url","é":1}]'),
    ],
)
def test_content_is_text_or_json(content: Content, text: str | None, parts: str | None) -> None:
    assert message_rows(accepted(Message(role="user", content=content))) == [
        MessageRow(role="user", content=text, content_json=parts)
    ]


@pytest.mark.parametrize("step", [ASKED, FINISHED, PLANNED, STARTED, AnswerRejected(rule="unknown_tool")])
def test_other_steps_give_no_messages(step: StepEvent) -> None:
    assert message_rows(step) == []


def test_legacy_call_is_also_a_function_call() -> None:
    body = {
        "model": "m",
        "functions": [{"name": "f"}],
        "messages": [
            {"role": "user", "content": "Call f."},
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"x":1}'}},
            {"role": "function", "name": "f", "content": "done"},
        ],
    }
    request = decode_request(json.dumps(body).encode())
    user, assistant, result = message_rows(TurnAccepted(request=request))
    assert user == MessageRow(role="user", content="Call f.")
    assert json.loads(assistant.function_call or "") == {"name": "f", "arguments": '{"x":1}'}
    (call,) = json.loads(assistant.tool_calls or "")
    assert result == MessageRow(role="tool", content="done", tool_call_id=call["id"])


def test_legacy_answer_with_several_calls_has_no_function_call() -> None:
    assert message_rows(answered(ROME), legacy=True)[0].function_call == (
        '{"name":"get_weather","arguments":"{\\"city\\":\\"Rome\\"}"}'
    )
    assert message_rows(answered(ROME, SHELL), legacy=True)[0].function_call is None
    assert message_rows(answered(SHELL), legacy=True)[0].function_call is None
    assert message_rows(answered(ROME))[0].function_call is None
