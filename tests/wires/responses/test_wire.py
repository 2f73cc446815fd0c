"""The wire as a whole: each half tests the other, and the SDK's types judge both."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.wires.responses.frames import (
    answers,
    encoded,
    envelope,
    fold,
    frames,
    judged,
    judged_resource,
    read,
    whole,
    without_ids,
)
from toolrelay.core.events import AnswerFailed, CallStarted, StreamEvent
from toolrelay.wires.base import discover
from toolrelay.wires.responses import WIRE


def test_the_wire_is_discovered_by_its_name() -> None:
    assert discover()["openai_responses"] is WIRE


def test_credentials_are_a_bearer_token_or_nothing() -> None:
    assert WIRE.credentials("k") == [("authorization", "Bearer k")]
    assert WIRE.credentials("") == []


@given(answers())
def test_what_is_written_is_read_again(events: list[StreamEvent]) -> None:  # bug 3  # bug 8  # bug 9
    assert without_ids(fold(read(encoded(events)))) == without_ids(fold(events))


@given(answers())
def test_a_whole_answer_is_read_as_its_stream_is(events: list[StreamEvent]) -> None:  # bug 4
    resource = json.dumps(whole(events)).encode()
    assert without_ids(fold(WIRE.decode_answer(resource))) == without_ids(fold(events))


@given(answers())
def test_the_whole_equals_the_last_frame_of_the_stream(events: list[StreamEvent]) -> None:  # bug 4  # bug 37
    assert frames(encoded(events))[-1]["response"] == whole(events)


@given(answers() | answers(cut=True) | answers(failed=True))
def test_every_frame_is_one_that_the_sdk_knows(events: list[StreamEvent]) -> None:
    written = frames(encoded(events))
    judged(written)
    judged_resource(written[-1]["response"])


@given(answers() | answers(cut=True) | answers(failed=True))
def test_frames_are_numbered_without_gaps_from_zero(events: list[StreamEvent]) -> None:  # bug 35
    written = frames(encoded(events))
    assert [frame["sequence_number"] for frame in written] == list(range(len(written)))


@given(answers() | answers(cut=True) | answers(failed=True))
def test_items_keep_their_id_and_place(events: list[StreamEvent]) -> None:  # bug 7  # bug 36
    written = frames(encoded(events))
    added = {f["output_index"]: f["item"]["id"] for f in written if f["type"] == "response.output_item.added"}
    done = {f["output_index"]: f["item"]["id"] for f in written if f["type"] == "response.output_item.done"}
    assert list(added) == list(range(len(added)))
    assert done == added
    assert len(set(added.values())) == len(added)
    assert [item["id"] for item in written[-1]["response"]["output"]] == list(added.values())
    for frame in written:
        if "item_id" in frame:
            assert frame["item_id"] == added[frame["output_index"]]


@given(answers(), st.integers(1, 5))
def test_how_events_are_batched_does_not_matter(events: list[StreamEvent], size: int) -> None:
    encoder = WIRE.encoder(envelope())
    batches = [events[start : start + size] for start in range(0, len(events), size)]
    assert b"".join(encoder.encode(batch) for batch in batches) == encoded(events)


@given(answers(cut=True))
def test_a_call_that_was_cut_is_incomplete_in_the_stream_and_absent_from_the_fold(
    events: list[StreamEvent],
) -> None:  # bug 5
    last = frames(encoded(events))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    calls = [item for item in last["response"]["output"] if item["type"] in ("function_call", "custom_tool_call")]
    assert [call["status"] for call in calls].count("incomplete") == 1
    assert len(fold(events).calls) == len(calls) - 1
    again = read(encoded(events))
    assert len(fold(again).calls) == len(calls) - 1
    assert sum(isinstance(event, CallStarted) for event in again) == len(calls)


@given(answers(failed=True))
def test_a_failure_is_written_twice_and_read_once(events: list[StreamEvent]) -> None:  # bug 38
    written = frames(encoded(events))
    assert [frame["type"] for frame in written[-2:]] == ["error", "response.failed"]
    again = read(encoded(events))
    assert [event for event in again if isinstance(event, AnswerFailed)] == again[-1:]
    assert without_ids(fold(again)).items == without_ids(fold(events)).items


@given(answers() | answers(cut=True) | answers(failed=True), st.lists(st.integers(1, 40), max_size=200))
def test_how_the_bytes_are_cut_does_not_matter(events: list[StreamEvent], sizes: list[int]) -> None:  # bug 2  # bug 24
    data = encoded(events)
    decoder = WIRE.decoder()
    got: list[StreamEvent] = []
    for size in sizes:
        got += decoder.feed(data[:size])
        data = data[size:]
    got += decoder.feed(data) + decoder.flush()
    expected = read(encoded(events))
    failure = expected.pop() if isinstance(expected[-1], AnswerFailed) else None
    if failure is not None:
        assert isinstance(got.pop(), AnswerFailed)
    assert got == expected
