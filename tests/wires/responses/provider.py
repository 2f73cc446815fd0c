"""Frames of a Responses provider, and helpers that decode them."""

from __future__ import annotations

from typing import Any

from tests.wires.responses.frames import Frame, fold, read, stream
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    StreamEvent,
)
from toolrelay.core.messages import Message, Text
from toolrelay.errors import ToolrelayError

CREATED: Frame = {"type": "response.created", "response": {"id": "resp_1", "model": "gpt-6-mini", "service_tier": "auto"}}
DONE_USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 16,
}


def added(index: int | None, item: Frame) -> Frame:
    return placed("response.output_item.added", index, item=item)


def done(index: int | None, item: Frame) -> Frame:
    return placed("response.output_item.done", index, item=item)


def text(delta: str, index: int | None = 0, item_id: str | None = "msg_1") -> Frame:
    return placed("response.output_text.delta", index, item_id=item_id, content_index=0, delta=delta, logprobs=[])


def args(delta: Any, index: int | None = 0, item_id: str | None = "fc_1") -> Frame:
    return placed("response.function_call_arguments.delta", index, item_id=item_id, delta=delta)


def placed(kind: str, index: int | None, **members: Any) -> Frame:
    place = {} if index is None else {"output_index": index}
    return {"type": kind, **place, **members, "sequence_number": 0}


def message(*texts: str, **members: Any) -> Frame:
    content = [{"type": "output_text", "text": each, "annotations": []} for each in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content, **members}


def function(arguments: Any = "", **members: Any) -> Frame:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_up",
        "name": "f",
        "arguments": arguments,
        "status": "completed",
        **members,
    }


def completed(*output: Frame, **members: Any) -> Frame:
    return {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": output, **members}}


def incomplete(*output: Frame, reason: str = "max_output_tokens") -> Frame:
    details = {"reason": reason}
    response = {"id": "resp_1", "status": "incomplete", "incomplete_details": details, "output": output}
    return {"type": "response.incomplete", "response": response}


def events_between(*given: Frame | bytes) -> list[StreamEvent]:
    """The events between the start and the end, both of which must be there."""
    first, *events, last = read(stream(CREATED, *given))
    assert isinstance(first, AnswerStarted)
    assert isinstance(last, AnswerFinished)
    return events


def message_texts(*given: Frame | bytes) -> list[str]:
    """The text of each message of the answer."""
    items = fold(read(stream(CREATED, *given))).items
    contents = [item.content for item in items if isinstance(item, Message)]
    return ["".join(part.text for part in content if isinstance(part, Text)) for content in contents]


def calls(*given: Frame | bytes) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in fold(read(stream(CREATED, *given))).calls]


def failure(data: bytes) -> ToolrelayError:
    """The failure that the answer ends with."""
    events = read(data)
    ends = [event for event in events if isinstance(event, AnswerFailed | AnswerFinished)]
    assert ends == events[-1:]
    assert isinstance(ends[0], AnswerFailed)
    return ends[0].error
