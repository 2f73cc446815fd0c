"""Calls that the gateway ran, as mcp_call items; Chat clients are not shown them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wires.chat.chunks import frames as chat_frames
from tests.wires.responses.frames import TOKEN, encoded, envelope, frames, validated, whole
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    GatewayCallFinished,
    GatewayCallStarted,
    ReasoningFinished,
    ReasoningStarted,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.messages import Message
from toolrelay.core.request import Request
from toolrelay.errors import InternalError
from toolrelay.wires.base import Envelope
from toolrelay.wires.chat import WIRE as CHAT
from toolrelay.wires.responses import WIRE

END = AnswerFinished(finish="stop")
ITEM = f"mcp_{TOKEN}0000"


def started(number: int = 0, name: str = "now") -> GatewayCallStarted:
    return GatewayCallStarted(id=f"call_{number}", name=name, toolset="clock", arguments='{"zone":"UTC"}')


def finished(number: int = 0, *, failed: bool = False) -> GatewayCallFinished:
    return GatewayCallFinished(id=f"call_{number}", output="noon", failed=failed)


def item_frames(*events: StreamEvent) -> list[dict[str, Any]]:
    written = frames(encoded([AnswerStarted(), *events, END]))
    validated(written)
    return written[2:-1]


def test_frames_of_a_gateway_call() -> None:
    written = item_frames(started(), finished())
    assert [frame["type"].removeprefix("response.") for frame in written] == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]
    assert written[0]["item"] == {
        "type": "mcp_call",
        "id": ITEM,
        "status": "in_progress",
        "name": "now",
        "server_label": "clock",
        "arguments": '{"zone":"UTC"}',
        "output": None,
        "error": None,
        "approval_request_id": None,
    }
    assert written[-1]["item"] == {**written[0]["item"], "status": "completed", "output": "noon"}


def test_failed_gateway_call_has_an_error_instead_of_output() -> None:
    written = item_frames(started(), finished(failed=True))
    assert written[-2]["type"] == "response.mcp_call.failed"
    item = written[-1]["item"]
    assert (item["status"], item["output"]) == ("failed", None)
    assert item["error"] == {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "noon"}]}


def test_texts_around_a_gateway_call_are_items_of_their_own() -> None:
    events: list[StreamEvent] = [TextDelta("Let me see."), started(), finished(), TextDelta("It is noon."), END]
    output = whole(events)["output"]
    assert [item["type"] for item in output] == ["message", "mcp_call", "message"]
    assert [item["id"][-4:] for item in output] == ["0000", "0001", "0002"]


def test_parallel_gateway_calls_may_finish_in_any_order() -> None:
    written = item_frames(started(0), started(1, "later"), finished(1), finished(0))
    done = [frame["output_index"] for frame in written if frame["type"] == "response.output_item.done"]
    assert done == [1, 0]


@pytest.mark.parametrize(
    "events",
    [
        [started(), finished(), END],
        [TextDelta("a"), started(), finished(failed=True), TextDelta("b"), END],
        [started(0), started(1), finished(1), finished(0), TextDelta("b"), END],
    ],
)
def test_stream_and_whole_answer_agree(events: list[StreamEvent]) -> None:
    assert frames(encoded([AnswerStarted(), *events]))[-1]["response"] == whole([AnswerStarted(), *events])


def test_call_that_is_open_when_the_turn_fails_is_incomplete() -> None:
    written = frames(encoded([AnswerStarted(), started(), AnswerFailed(InternalError("Stopped."))]))
    validated(written)
    (item,) = written[-1]["response"]["output"]
    assert item["status"] == "incomplete"


def test_second_end_of_a_call_and_one_without_a_start_write_nothing() -> None:
    assert item_frames(started(), finished(), finished()) == item_frames(started(), finished())
    assert item_frames(finished(3)) == []


def test_chat_clients_are_not_shown_gateway_calls() -> None:
    request = Request(wire=CHAT.name, model="fast", items=(Message(role="user", content="Hi"),), stream=True)
    paper = Envelope(token=TOKEN, created=1, model="fast", request=request)
    shown: list[StreamEvent] = [AnswerStarted(), TextDelta("It is noon."), END]
    with_calls: list[StreamEvent] = [AnswerStarted(), started(), finished(), TextDelta("It is noon."), END]
    assert CHAT.encoder(paper).encode(with_calls) == CHAT.encoder(paper).encode(shown)
    assert CHAT.encoder(paper).encode([started(), finished()]) == b""
    assert len(chat_frames(CHAT.encoder(paper).encode(with_calls))) > 1


def test_reasoning_of_a_stored_answer_gets_an_id_of_the_gateway() -> None:
    events: list[StreamEvent] = [AnswerStarted(), ReasoningStarted(id="rs_provider"), ReasoningFinished(encrypted="x"), END]
    for stored, identifier in ((True, f"rs_{TOKEN}0000"), (False, "rs_provider")):
        request = Request(wire=WIRE.name, model="fast", items=(), store=stored)
        assert whole(events, request)["output"][0]["id"] == identifier
        assert frames(WIRE.encoder(envelope(request)).encode(events))[-1]["response"]["output"][0]["id"] == identifier


def test_client_of_a_stored_answer_gets_encrypted_reasoning_only_if_it_asked() -> None:
    events: list[StreamEvent] = [AnswerStarted(), ReasoningStarted(id="rs_1"), ReasoningFinished(encrypted="secret"), END]
    for stored, include, shown in ((True, (), False), (True, ("reasoning.encrypted_content",), True), (False, (), True)):
        request = Request(wire=WIRE.name, model="fast", items=(), store=stored, include=include)
        assert ("encrypted_content" in whole(events, request)["output"][0]) is shown
        assert (b"secret" in WIRE.encoder(envelope(request)).encode(events)) is shown


def test_cancelled_response_ends_with_its_status_and_without_an_error() -> None:
    cancelled = AnswerFailed(InternalError("The turn was cancelled.", status=499, code="cancelled"))
    written = frames(encoded([AnswerStarted(), TextDelta("Hel"), cancelled]))
    validated(written)
    assert written[-1]["type"] == "response.failed"
    assert (written[-1]["response"]["status"], written[-1]["response"]["error"]) == ("cancelled", None)
    assert "error" not in [frame["type"] for frame in written]
