"""Assembly of an answer from stream events."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.answers import answers, rechunk
from toolrelay.core.assembly import Answer, Assembly, CallEntry, MessageEntry
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
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
from toolrelay.core.messages import Call, Item, Message, OpaqueItem, Part, Reasoning, Refusal, Text
from toolrelay.errors import BackendError


def fold(events: Iterable[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


def message(*parts: Part) -> Message:
    return Message(role="assistant", content=parts)


@given(answers(), st.data())
def test_chunking_of_deltas_does_not_change_the_answer(events: list[StreamEvent], data: st.DataObject) -> None:  # bug 4
    assert fold(data.draw(rechunk(events))) == fold(events)


@given(answers())
def test_reading_the_answer_early_does_not_change_it(events: list[StreamEvent]) -> None:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
        assembly.answer()
    assert assembly.answer() == fold(events)


def test_items_are_in_the_order_in_which_they_started() -> None:
    items: tuple[Item, ...] = (
        Reasoning(text=("hm",)),
        message(Text(text="one")),
        Call(id="a", name="f", arguments="{}"),
        OpaqueItem(wire="w", raw={"type": "x"}),
        message(Text(text="two")),
        Call(id="b", name="g", arguments="[]"),
    )
    answer = fold(
        [
            ReasoningDelta("hm"),
            TextDelta("one"),
            CallStarted(0, "f", "a"),
            ItemReceived(wire="w", raw={"type": "x"}),
            TextDelta("tw"),
            CallStarted(1, "g", "b"),
            ArgumentsDelta(1, "[]"),
            CallFinished(1),
            ArgumentsDelta(0, "{}"),
            CallFinished(0),
        ]
    )
    assert answer.items[:4] == items[:4]
    assert answer.items[4:] == (message(Text(text="tw")), items[5])
    assert answer.calls == (items[2], items[5])


def test_interleaved_calls_are_kept_apart() -> None:  # bug 8
    answer = fold(
        [
            CallStarted(0, "f", "a"),
            CallStarted(1, "g", "b", "custom", namespace="n", extra={"signature": "s"}),
            ArgumentsDelta(1, "1"),
            ArgumentsDelta(0, "a"),
            ArgumentsDelta(1, "2"),
            ArgumentsDelta(0, "b"),
            CallFinished(1),
            CallFinished(0),
        ]
    )
    assert answer.calls == (
        Call(id="a", name="f", arguments="ab"),
        Call(id="b", name="g", arguments="12", kind="custom", namespace="n", extra={"signature": "s"}),
    )


def test_unfinished_call_is_not_in_the_answer() -> None:  # bug 5
    answer = fold([CallStarted(0, "f"), ArgumentsDelta(0, '{"x'), AnswerFinished(finish="length")])
    assert (answer.items, answer.finish) == ((), "length")


def test_deltas_of_an_unknown_call_are_ignored() -> None:
    assembly = Assembly()
    assert assembly.add(ArgumentsDelta(7, "{}")) is None
    assert assembly.add(CallFinished(7)) is None
    assert assembly.answer() == Answer()


@pytest.mark.parametrize(
    "events",
    [
        [],
        [MessageStarted()],
        [TextDelta("")],
        [TextDelta("", 0, [])],
        [RefusalDelta("")],
        [MessageStarted(), TextDelta(""), RefusalDelta("")],
    ],
)
def test_empty_message_is_not_in_the_answer(events: list[StreamEvent]) -> None:
    assert fold(events).items == ()


def test_empty_delta_does_not_end_the_current_item() -> None:
    answer = fold([ReasoningDelta("a"), TextDelta(""), RefusalDelta(""), ReasoningDelta("b"), TextDelta("c")])
    assert answer.items == (Reasoning(text=("ab",)), message(Text(text="c")))


def test_text_and_refusal_are_parts_of_one_message() -> None:
    answer = fold([TextDelta("a"), RefusalDelta("b"), TextDelta("c"), TextDelta("d")])
    assert answer.items == (message(Text(text="a"), Refusal(text="b"), Text(text="cd")),)


def test_message_started_opens_a_new_message() -> None:
    answer = fold([MessageStarted(phase="commentary"), TextDelta("a"), MessageStarted(), TextDelta("b")])
    assert answer.items == (
        Message(role="assistant", content=(Text(text="a"),), phase="commentary"),
        message(Text(text="b")),
    )


def test_logprobs_and_annotations_stay_with_their_text() -> None:
    answer = fold(
        [
            TextDelta("a", 0, [1]),
            TextDelta("b"),
            AnnotationAdded({"n": 1}),
            TextDelta("c", 0, [2, 3]),
            AnnotationAdded({"n": 2}),
            CallStarted(0, "f"),
            AnnotationAdded({"n": 3}),
        ]
    )
    assert answer.items == (
        message(Text(text="abc", logprobs=(1, 2, 3), annotations=({"n": 1}, {"n": 2}))),
        message(Text(text="", annotations=({"n": 3},))),
    )


def test_logprobs_without_text_are_kept() -> None:
    assert fold([TextDelta("", 0, [1])]).items == (message(Text(text="", logprobs=(1,))),)


def test_reasoning_text_and_summaries_are_separate_parts() -> None:
    answer = fold(
        [
            ReasoningStarted(id="rs_1"),
            ReasoningDelta("a", "summary"),
            ReasoningDelta("b", "summary", 1),
            ReasoningDelta("c", "summary", 1),
            ReasoningDelta("t"),
            ReasoningFinished(encrypted="sealed"),
            ReasoningDelta("next"),
        ]
    )
    assert answer.items == (
        Reasoning(id="rs_1", summary=("a", "bc"), text=("t",), encrypted="sealed"),
        Reasoning(text=("next",)),
    )


def test_large_reasoning_part_number_allocates_nothing() -> None:
    events = [ReasoningDelta(text, "summary", part) for text, part in (("a", 50_000_000), ("b", -1), ("a", 50_000_000), ("c", 0))]
    assert fold(events).items == (Reasoning(summary=("aa", "b", "c")),)


def test_encrypted_reasoning_without_text_is_kept() -> None:  # bug 31
    answer = fold([ReasoningFinished(encrypted="x"), ReasoningStarted(id="rs_2"), ReasoningFinished(encrypted="y")])
    assert answer.items == (Reasoning(encrypted="x"), Reasoning(id="rs_2", encrypted="y"))


def test_other_choices_become_separate_answers() -> None:
    answer = fold(
        [
            TextDelta("two", 2, [1]),
            TextDelta("zero"),
            RefusalDelta("no", 1),
            AnnotationAdded({"n": 1}, 2),
            ReasoningDelta("hm", "summary", 0, 1),
            CallStarted(0, "f", "a", choice=2, kind="custom", namespace="n", extra={"x": 1}),
            ArgumentsDelta(0, "12", 2),
            CallFinished(0, 2),
            ChoiceFinished(2, "calls"),
            ChoiceFinished(1, "length"),
            AnswerFinished(finish="stop", usage=Usage(input=1)),
        ]
    )
    assert answer == Answer(
        items=(message(Text(text="zero")),),
        usage=Usage(input=1),
        others=(
            Answer(items=(message(Refusal(text="no")), Reasoning(summary=("hm",))), finish="length"),
            Answer(
                items=(
                    message(Text(text="two", logprobs=(1,), annotations=({"n": 1},))),
                    Call(id="a", name="f", arguments="12", kind="custom", namespace="n", extra={"x": 1}),
                ),
                finish="calls",
            ),
        ),
    )


def test_start_end_and_error_are_kept() -> None:
    started, error = AnswerStarted(model="m", fingerprint="fp"), BackendError("It died.")
    end = AnswerFinished(finish="content_filter", usage=Usage(output=1), service_tier="flex")
    assert fold([started, end, AnswerFailed(error)]) == Answer(
        started=started, finish="content_filter", usage=Usage(output=1), service_tier="flex", error=error
    )


def test_add_returns_the_entry_of_the_event() -> None:
    assembly = Assembly()
    first = assembly.add(TextDelta("a"))
    assert isinstance(first, MessageEntry)
    assert assembly.add(TextDelta("b")) is first
    assert assembly.add(RefusalDelta("c")) is first
    call = assembly.add(CallStarted(0, "f"))
    assert isinstance(call, CallEntry)
    assert assembly.add(TextDelta("d")) is not first
    assert assembly.add(ArgumentsDelta(0, "{}")) is call
    assert assembly.add(CallFinished(0)) is call
    assert [entry for entry in assembly.entries if isinstance(entry, CallEntry)] == [call]
    assert call.finished
    assert call.arguments == "{}"


@pytest.mark.parametrize("event", [TextDelta("x", 1), ArgumentsDelta(0, "x", 1), ReasoningDelta("x", "text", 0, 1)])
def test_event_of_another_choice_does_not_change_the_first(event: StreamEvent) -> None:
    before: list[StreamEvent] = [TextDelta("a"), CallStarted(0, "f"), CallFinished(0), TextDelta("b")]
    assert fold([*before, event, TextDelta("c")]).items == fold([*before, TextDelta("c")]).items
