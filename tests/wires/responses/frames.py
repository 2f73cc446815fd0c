"""Shared by the tests of the Responses wire: frames, validation by the SDK's types, and random answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ItemReceived,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call, CallKind, Message
from toolrelay.core.request import Request
from toolrelay.errors import BackendError
from toolrelay.wires.base import Envelope
from toolrelay.wires.responses import WIRE

TOKEN = "0123456789abcdefghij"
Frame = dict[str, Any]


def envelope(request: Request | None = None) -> Envelope:
    asked = request or Request(wire=WIRE.name, model="fast", items=(Message(role="user", content="Hi"),))
    return Envelope(token=TOKEN, created=1_700_000_000, model="fast", request=asked)


def fold(events: Iterable[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


def whole(events: Iterable[StreamEvent], request: Request | None = None) -> Frame:
    """The same events as one resource."""
    resource: Frame = json.loads(WIRE.encode_answer(fold(events), envelope(request)))
    return resource


def encoded(events: Sequence[StreamEvent], request: Request | None = None) -> bytes:
    return WIRE.encoder(envelope(request)).encode(events)


def frames(data: bytes) -> list[Frame]:
    """The frames of an encoded stream; checks that each has its event name."""
    *blocks, rest = data.split(b"\n\n")
    assert rest == b""
    assert blocks[-1] == b"data: [DONE]"
    out = []
    for block in blocks[:-1]:
        event, body = block.split(b"\n")
        frame = json.loads(body.removeprefix(b"data: "))
        assert event == b"event: " + frame["type"].encode()
        out.append(frame)
    return out


def stream(*given: Frame | bytes, end: bytes = b"data: [DONE]\n\n") -> bytes:
    """A provider's stream."""
    blocks = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in given]
    return b"".join(b"data: " + block + b"\n\n" for block in blocks) + end


def read(data: bytes) -> list[StreamEvent]:
    decoder = WIRE.decoder()
    return decoder.feed(data) + decoder.flush()


# The SDK's types


def _models() -> dict[str, type[BaseModel]]:
    union, *_ = get_args(ResponseStreamEvent)  # an Annotated union
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(union)}


_MODELS = _models()


def validated(given: Sequence[Frame]) -> list[Any]:
    """The frames as the SDK's types, with every required member, and accepted by the SDK's accumulation."""
    state: Any = ResponseStreamState(input_tools=[], text_format=omit)
    events = [_MODELS[frame["type"]].model_validate(frame) for frame in given]
    for event in events:
        state.handle_event(event)
    return events


def validated_resource(resource: Frame) -> Response:
    return Response.model_validate(resource)


# Random answers


def _texts(minimum: int = 1, maximum: int = 3) -> st.SearchStrategy[list[str]]:
    return st.lists(st.text(min_size=1, max_size=6), min_size=minimum, max_size=maximum)


_NAMES = st.sampled_from(["search", "read_note", "f"])
_LOGPROBS: st.SearchStrategy[list[Json]] = st.lists(
    st.builds(lambda token: {"token": token, "bytes": [1], "logprob": -0.5, "top_logprobs": []}, st.text(max_size=3)),
    min_size=1,
    max_size=2,
)
_ANNOTATION = st.builds(
    lambda url: {"type": "url_citation", "url": url, "title": "t", "start_index": 0, "end_index": 1}, st.text(max_size=4)
)


@st.composite
def _message(draw: st.DrawFn, *, is_separate: bool) -> list[StreamEvent]:
    phase = draw(st.sampled_from([None, "commentary", "final_answer"]))
    events: list[StreamEvent] = [MessageStarted(phase=phase, is_separate=is_separate)]
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 4)) == 0:
            events += [RefusalDelta(text) for text in draw(_texts())]
            continue
        events += [TextDelta(text, 0, draw(st.none() | _LOGPROBS)) for text in draw(_texts())]
        events += [AnnotationAdded(each) for each in draw(st.lists(_ANNOTATION, max_size=2))]
    return events


@st.composite
def _reasoning(draw: st.DrawFn, number: int) -> list[StreamEvent]:
    events: list[StreamEvent] = [ReasoningStarted(id=f"rs_{number}")]
    for kind in ("summary", "text"):
        for part in range(draw(st.integers(0, 2))):
            events += [ReasoningDelta(text, kind, part) for text in draw(_texts())]
    return [*events, ReasoningFinished(encrypted=draw(st.none() | st.text(min_size=1, max_size=4)))]


@st.composite
def _calls(draw: st.DrawFn, first: int, *, cut: bool) -> list[StreamEvent]:
    """Parallel calls, their arguments interleaved. `cut`: the last one never finishes."""
    count = draw(st.integers(1, 3))
    events: list[StreamEvent] = []
    growing: list[list[StreamEvent]] = []
    for index in range(first, first + count):
        kind: CallKind = draw(st.sampled_from(["function", "custom"]))
        extra = draw(st.sampled_from([None, _CALLER]))
        namespace = draw(st.sampled_from([None, "notes"]))
        events.append(CallStarted(index, draw(_NAMES), f"call_{index}", kind, 0, namespace, extra))
        pieces: list[StreamEvent] = [ArgumentsDelta(index, text) for text in draw(_texts())]
        if not (cut and index == first + count - 1):
            pieces.append(CallFinished(index))
        growing.append(pieces)
    while any(growing):
        events.append(draw(st.sampled_from([pieces for pieces in growing if pieces])).pop(0))
    return events


@st.composite
def answers(draw: st.DrawFn, *, cut: bool | None = None, failed: bool = False) -> list[StreamEvent]:
    """An answer's events. `cut`: truncated by the length limit, in a call."""
    events: list[StreamEvent] = [AnswerStarted(model="m")]
    calls = 0
    for number in range(draw(st.integers(0, 4))):
        match draw(st.sampled_from(["message", "reasoning", "calls", "item"])):
            case "message":
                has_text = any(isinstance(event, TextDelta) and bool(event.text or event.logprobs) for event in events)
                events += draw(_message(is_separate=has_text))
            case "reasoning":
                events += draw(_reasoning(number))
            case "calls":
                events += draw(_calls(calls, cut=False))
                calls = sum(isinstance(event, CallStarted) for event in events)
            case _:
                raw: JsonObject = {"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": _SEARCH}
                events.append(ItemReceived(wire=WIRE.name, raw=raw))
    if failed:
        return [*events, AnswerFailed(BackendError("broken"))]
    usage = st.builds(Usage, **dict.fromkeys(_COUNTED, st.integers(0, 10**6)))
    tier = draw(st.sampled_from(["default", "flex"]))
    if cut or (cut is None and draw(st.booleans())):
        events += draw(_calls(calls, cut=True)) if cut else []
        return [*events, AnswerFinished(finish="length", usage=draw(usage), service_tier=tier)]
    return [*events, AnswerFinished(finish="calls" if calls else "stop", usage=draw(usage), service_tier=tier)]


_CALLER: JsonObject = {"caller": {"type": "direct"}}
_SEARCH: JsonObject = {"type": "search", "query": "q"}
_COUNTED = ("input", "output", "total", "cached", "cache_written", "reasoning")


def without_ids(answer: Answer) -> Answer:
    """The events without call ids, which the turn makes, and without the provider's model name."""
    items = tuple(msgspec.structs.replace(item, id="") if isinstance(item, Call) else item for item in answer.items)
    return msgspec.structs.replace(answer, items=items, started=AnswerStarted(), error=None)
