"""Indexes in an upstream's answer: they are only keys, and their number is limited."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.exchange import check_one_end, decode_all, envelope, fold, gist, run_turn
from tests.golden.transcripts import recorded
from tests.served_wires import FRONT_WIRES, SERVED_WIRES
from tests.wires.chat import chunks as chat
from tests.wires.responses import frames as responses_frames
from tests.wires.responses import provider as responses_provider
from toolrelay.core.assembly import Answer
from toolrelay.core.events import AnswerFailed, AnswerFinished, ReasoningDelta, StreamEvent, TextDelta
from toolrelay.core.indexes import MAX_INDEXES
from toolrelay.core.messages import Message, Reasoning
from toolrelay.core.request import Request, Sampling
from toolrelay.errors import BackendError
from toolrelay.wires.base import Wire

Json = dict[str, Any]

CHAT, RESPONSES = FRONT_WIRES["openai_chat"], FRONT_WIRES["openai_responses"]
every_wire = pytest.mark.parametrize("wire", SERVED_WIRES.values(), ids=SERVED_WIRES)
HUGE = 50_000_000
MAX_BYTES = 8_000_000  # of any encoded answer below; an index used as a length would give gigabytes


def relayed(events: list[StreamEvent]) -> None:
    """Relay an answer to the clients of every wire, streamed and whole."""
    for wire in FRONT_WIRES.values():
        message = Message(role="user", content="Hi")
        request = Request(wire=wire.name, model="fast", items=(message,), stream=True, sampling=Sampling(n=10**12))
        shown, _ = run_turn(request, events)
        assert len(wire.encoder(envelope(request)).encode(shown)) < MAX_BYTES
        assert len(wire.encode_answer(fold(shown), envelope(request))) < MAX_BYTES


def check_clean(events: list[StreamEvent]) -> None:
    """Check that the answer ends once, and reaches every client."""
    end = check_one_end(events)
    assert isinstance(end, AnswerFinished) or isinstance(end.error, BackendError)
    relayed(events)


# Every wire's streams, with other indexes


def changed(value: Any, number: Callable[[str, Any], Any], within: str = "") -> Any:
    """The JSON with other values for `index`, `output_index` and so on; `number` gets the name of the enclosing list."""
    match value:
        case dict():
            return {
                key: number(within, member) if key == "index" or key.endswith("_index") else changed(member, number, key)
                for key, member in value.items()
            }
        case list():
            return [changed(element, number, within) for element in value]
        case _:
            return value


def frames(stream: bytes) -> Iterator[tuple[bytes, Json | None]]:
    """Each frame: what precedes its data, and its data if that is an object."""
    for frame in stream.split(b"\n\n"):
        head, mark, body = frame.partition(b"data: ")
        yield (head + mark, json.loads(body)) if body.startswith(b"{") else (frame, None)


def with_indexes(stream: bytes, number: Callable[[str, Any], Any]) -> bytes:
    return b"\n\n".join(
        head if value is None else head + json.dumps(changed(value, number)).encode() for head, value in frames(stream)
    )


ODD: st.SearchStrategy[Any] = st.sampled_from([True, 1.5, "0", None, [], {}])
INDEXES = st.integers(0, 3) | st.integers(-3, 10**12) | st.sampled_from([HUGE, -1, 2**31, 2**63, 2**64, 10**30]) | ODD


@every_wire
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_indexes_in_a_stream_end_the_answer_once(wire: Wire, data: st.DataObject) -> None:
    stream = data.draw(st.sampled_from(recorded(wire)))
    rarely = data.draw(st.sampled_from([0, 5, 20]))

    def number(_within: str, value: Any) -> Any:
        return value if data.draw(st.integers(0, rarely)) else data.draw(INDEXES)

    check_clean(decode_all(wire, with_indexes(stream, number)))


@every_wire
@given(st.data())
@settings(max_examples=5, deadline=None)
def test_frame_repeated_with_new_indexes_ends_the_answer_once(wire: Wire, data: st.DataObject) -> None:
    stream = data.draw(st.sampled_from(recorded(wire)))
    start, step = data.draw(st.sampled_from([(0, 1), (1, 1), (HUGE, 7), (2 * HUGE, -1)]))
    repeated = []
    for head, value in frames(stream):
        for number in count(start, step):
            other = changed(value, partial(_always, number))
            repeated.append(head if value is None else head + json.dumps(other).encode())
            if other == value or len(repeated) > 3 * MAX_INDEXES:
                break
    check_clean(decode_all(wire, b"\n\n".join(repeated)))


def _always(number: int, _within: str, _value: Any) -> int:
    return number


@every_wire
@pytest.mark.parametrize("renumber", [lambda n: n + 1, lambda n: 7 * n, lambda n: HUGE + n], ids=["from 1", "skipping", "huge"])
def test_sparse_indexes_give_the_same_answer(wire: Wire, renumber: Callable[[int], int]) -> None:
    """Except for choices, whose numbers the client sees."""
    for stream in recorded(wire):
        altered = with_indexes(stream, lambda within, value: value if within == "choices" else renumber(value))
        assert gist(fold(decode_all(wire, altered))) == gist(fold(decode_all(wire, stream)))


@every_wire
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_indexes_in_a_whole_answer_end_it_once(wire: Wire, data: st.DataObject) -> None:
    folded = fold(decode_all(wire, data.draw(st.sampled_from(recorded(wire)))))
    request = Request(wire=wire.name, model="fast", items=())
    body = json.loads(wire.encode_answer(folded, envelope(request)))
    for outermost in lists_in(body):
        if data.draw(st.integers(0, 3)) == 0:
            outermost[:] = outermost * data.draw(st.sampled_from([0, 2, MAX_INDEXES + 1]))
    altered = changed(body, lambda _within, value: value if data.draw(st.booleans()) else data.draw(INDEXES))
    check_clean(wire.decode_answer(json.dumps(altered).encode()))


def lists_in(value: Any) -> Iterator[list[Any]]:
    """The outermost lists only: the lengths of nested lists would multiply."""
    if isinstance(value, list):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from lists_in(member)


# The limit on each kind of index, by wire


def chat_choices(indexes: list[int]) -> bytes:
    rest = b"".join(chat.chunk({"content": "x"}, "stop", index) for index in indexes)
    return chat.chunk({"content": "x"}, "stop") + rest + chat.DONE


def chat_calls(indexes: list[int]) -> bytes:
    return chat.stream(*(chat.function("f", "{}", index=index, id=f"id{index}") for index in indexes))


def chat_call_aliases(indexes: list[int]) -> bytes:
    return chat.stream(chat.function("f", "{", id="a"), *(chat.function(None, " ", index=index, id="a") for index in indexes))


def responses_stream(kind: str, member: str, **others: Any) -> Callable[[list[int]], bytes]:
    def stream(indexes: list[int]) -> bytes:
        given = [{"type": kind, "delta": "x", **others, member: index} for index in indexes]
        return responses_frames.stream(responses_provider.CREATED, *given, responses_provider.completed())

    return stream


def responses_items(indexes: list[int]) -> bytes:
    given = [responses_provider.added(index, responses_provider.function(id=f"fc_{index}")) for index in indexes]
    return responses_frames.stream(responses_provider.CREATED, *given, responses_provider.completed())


STREAMS: dict[str, tuple[Wire, Callable[[list[int]], bytes]]] = {
    "choices": (CHAT, chat_choices),
    "calls": (CHAT, chat_calls),
    "call aliases": (CHAT, chat_call_aliases),
    "items": (RESPONSES, responses_items),
    "messages": (RESPONSES, responses_stream("response.output_text.delta", "output_index")),
    "arguments": (RESPONSES, responses_stream("response.function_call_arguments.delta", "output_index")),
    "texts": (RESPONSES, responses_stream("response.output_text.delta", "content_index", output_index=0)),
    "refusals": (RESPONSES, responses_stream("response.refusal.delta", "content_index", output_index=0)),
    "reasoning_deltas": (RESPONSES, responses_stream("response.reasoning_text.delta", "content_index", output_index=0)),
    "summaries": (RESPONSES, responses_stream("response.reasoning_summary_text.delta", "summary_index", output_index=0)),
}
every_stream = pytest.mark.parametrize(("wire", "stream"), STREAMS.values(), ids=STREAMS)


@every_stream
@pytest.mark.parametrize("indexes", [[HUGE], [10**30], [HUGE, 1, HUGE], [3, 2, 1]])
def test_huge_index_costs_no_memory(wire: Wire, stream: Callable[[list[int]], bytes], indexes: list[int]) -> None:
    events = decode_all(wire, stream(indexes))
    assert isinstance(check_one_end(events), AnswerFinished)
    relayed(events)


@every_stream
def test_negative_index_is_an_upstream_error(wire: Wire, stream: Callable[[list[int]], bytes]) -> None:
    check_breach(decode_all(wire, stream([0, 1, -1, 2])))


@every_stream
@pytest.mark.parametrize("step", [1, -1, 1_000_003])
def test_more_indexes_than_the_limit_are_an_upstream_error(wire: Wire, stream: Callable[[list[int]], bytes], step: int) -> None:
    most = list(range(1, MAX_INDEXES))[::-1] if step < 0 else list(range(step, MAX_INDEXES * step, step))
    events = decode_all(wire, stream(most))
    assert isinstance(check_one_end(events), AnswerFinished)
    relayed(events)
    check_breach(decode_all(wire, stream([*most, 10**9, 10**9 + 1])))


def check_breach(events: list[StreamEvent]) -> None:
    end = check_one_end(events)
    assert isinstance(end, AnswerFailed)
    assert (end.error.status, end.error.code) == (502, "upstream_invalid")
    assert str(MAX_INDEXES) in end.error.message or "negative" in end.error.message
    relayed(events)


CALL: Json = {"type": "function", "function": {"name": "f", "arguments": "{}"}}


def chat_body(choices: list[Json]) -> bytes:
    return json.dumps({"object": "chat.completion", "choices": choices}).encode()


def responses_body(*output: Json) -> bytes:
    return json.dumps({"object": "response", "status": "completed", "output": output}).encode()


WHOLE: dict[str, tuple[Wire, Callable[[int], bytes]]] = {
    "choices": (CHAT, lambda n: chat_body([{"message": {"content": "x"}, "finish_reason": "stop"}] * n)),
    "calls": (CHAT, lambda n: chat_body([{"message": {"tool_calls": [CALL] * n}}])),
    "calls with an index": (CHAT, lambda n: chat_body([{"message": {"tool_calls": [{**CALL, "index": 0}] * n}}])),
    "items": (RESPONSES, lambda n: responses_body(*[responses_provider.message("x")] * n)),
    "texts": (RESPONSES, lambda n: responses_body(responses_provider.message(*["x"] * n))),
    "summaries": (
        RESPONSES,
        lambda n: responses_body({"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}] * n}),
    ),
    "reasoning_deltas": (
        RESPONSES,
        lambda n: responses_body({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "x"}] * n}),
    ),
}


@pytest.mark.parametrize(("wire", "body"), WHOLE.values(), ids=WHOLE)
def test_whole_answer_with_too_many_parts_is_an_upstream_error(wire: Wire, body: Callable[[int], bytes]) -> None:
    events = wire.decode_answer(body(MAX_INDEXES))
    assert isinstance(check_one_end(events), AnswerFinished)
    relayed(events)
    for size in (MAX_INDEXES + 1, 20 * MAX_INDEXES):
        check_breach(wire.decode_answer(body(size)))


def test_final_response_with_too_many_items_is_an_upstream_error() -> None:
    given = [responses_provider.added(index, responses_provider.function(id=f"fc_{index}")) for index in range(MAX_INDEXES)]
    final = responses_provider.completed(*[responses_provider.function("{}", id="other", call_id="other")] * 20_000)
    check_breach(decode_all(RESPONSES, responses_frames.stream(responses_provider.CREATED, *given, final)))


# Order


def reasoning_deltas(events: list[StreamEvent]) -> list[Reasoning]:
    return [item for item in fold(events).items if isinstance(item, Reasoning)]


def summary(text: str, index: int, item: int = 0) -> Json:
    kind = "response.reasoning_summary_text.delta"
    return responses_provider.placed(kind, item, summary_index=index, delta=text)


def test_reasoning_parts_keep_the_order_in_which_they_began() -> None:
    events = responses_provider.events_between(
        summary("a", 1), summary("b", HUGE), summary("a", 1), summary("c", 3), responses_provider.completed()
    )
    assert [event.part for event in events if isinstance(event, ReasoningDelta)] == [0, 1, 0, 2]
    assert reasoning_deltas(events) == [Reasoning(summary=("aa", "b", "c"))]


def test_reasoning_resumed_after_another_item_numbers_parts_from_zero() -> None:
    events = responses_provider.events_between(
        summary("a", 0), responses_provider.text("x", 1), summary("b", 1), responses_provider.completed()
    )
    assert [each.summary for each in reasoning_deltas(events)] == [("a",), ("b",)]


def test_choices_are_numbered_as_they_appear() -> None:
    stream = chat.chunk({"content": "five"}, "stop", 5) + chat.chunk({"content": "zero"}, "stop")
    events = decode_all(CHAT, stream + chat.chunk({"content": "two"}, "stop", 2) + chat.DONE)
    assert [event.choice for event in events if isinstance(event, TextDelta)] == [0, 1, 2]

    def text(answer: Answer) -> str:
        return gist(replace(answer, others=())).text

    folded = fold(events)
    assert [text(answer) for answer in (folded, *folded.others)] == ["five", "zero", "two"]


@pytest.mark.parametrize("index", [1, 7, HUGE])
def test_only_choice_may_have_any_index(index: int) -> None:
    streamed = decode_all(CHAT, chat.chunk({"content": "a"}, None, index) + chat.chunk({}, "stop", index) + chat.DONE)
    whole = CHAT.decode_answer(json.dumps({"choices": [{"index": index, "message": {"content": "a"}}]}).encode())
    for events in (streamed, whole):
        assert gist(fold(events)).text == "a"
        check_clean(events)
