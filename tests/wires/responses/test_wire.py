"""The Responses wire as a whole: encoder against decoder, and both against the SDK's types."""

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
    read,
    validated,
    validated_resource,
    whole,
    without_ids,
)
from toolrelay.core.events import AnswerFailed, CallStarted, StreamEvent
from toolrelay.wires.base import discover
from toolrelay.wires.responses import WIRE


def test_wire_is_discovered_by_name() -> None:
    assert discover()["openai_responses"] is WIRE


def test_key_becomes_a_bearer_token() -> None:
    assert WIRE.credentials("k") == [("authorization", "Bearer k")]
    assert WIRE.credentials("") == []


@given(answers())
def test_decoder_reads_what_the_encoder_writes(events: list[StreamEvent]) -> None:  # bug 3  # bug 8  # bug 9
    assert without_ids(fold(read(encoded(events)))) == without_ids(fold(events))


@given(answers())
def test_whole_answer_is_decoded_like_its_stream(events: list[StreamEvent]) -> None:  # bug 4
    resource = json.dumps(whole(events)).encode()
    assert without_ids(fold(WIRE.decode_answer(resource))) == without_ids(fold(events))


@given(answers())
def test_whole_answer_equals_the_last_frame(events: list[StreamEvent]) -> None:  # bug 4  # bug 37
    assert frames(encoded(events))[-1]["response"] == whole(events)


@given(answers() | answers(cut=True) | answers(failed=True))
def test_every_frame_is_valid_for_the_sdk(events: list[StreamEvent]) -> None:
    written = frames(encoded(events))
    validated(written)
    validated_resource(written[-1]["response"])


@given(answers() | answers(cut=True) | answers(failed=True))
def test_frames_are_numbered_without_gaps_from_zero(events: list[StreamEvent]) -> None:  # bug 35
    written = frames(encoded(events))
    assert [frame["sequence_number"] for frame in written] == list(range(len(written)))


@given(answers() | answers(cut=True) | answers(failed=True))
def test_items_keep_id_and_index(events: list[StreamEvent]) -> None:  # bug 7  # bug 36
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
def test_batching_of_events_does_not_change_frames(events: list[StreamEvent], size: int) -> None:
    encoder = WIRE.encoder(envelope())
    batches = [events[start : start + size] for start in range(0, len(events), size)]
    assert b"".join(encoder.encode(batch) for batch in batches) == encoded(events)


@given(answers(cut=True))
def test_truncated_call_is_incomplete_in_the_stream_and_absent_when_folded(
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
def test_failure_is_sent_twice_and_decoded_once(events: list[StreamEvent]) -> None:  # bug 38
    written = frames(encoded(events))
    assert [frame["type"] for frame in written[-2:]] == ["error", "response.failed"]
    again = read(encoded(events))
    assert [event for event in again if isinstance(event, AnswerFailed)] == again[-1:]
    assert without_ids(fold(again)).items == without_ids(fold(events)).items


@given(answers() | answers(cut=True) | answers(failed=True), st.lists(st.integers(1, 40), max_size=200))
def test_chunking_does_not_change_events(events: list[StreamEvent], sizes: list[int]) -> None:  # bug 2  # bug 24
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
