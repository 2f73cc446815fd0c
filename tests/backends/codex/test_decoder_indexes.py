"""Limits on the indexes of reasoning parts, which are only keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.codex.messages import decode, decoder_for, error_of, fold, notification, turn_completed
from tests.exchange import check_one_end
from toolrelay.backends.codex.rpc import Notification
from toolrelay.core.events import AnswerFailed, AnswerFinished, ReasoningDelta
from toolrelay.core.indexes import MAX_INDEXES
from toolrelay.core.messages import Reasoning
from toolrelay.errors import BackendError

HUGE = 50_000_000


def summary(text: str, index: Any, item: str = "rs_1") -> Notification:
    return notification("item/reasoning/summaryTextDelta", itemId=item, delta=text, summaryIndex=index)


def thought(text: str, index: Any, item: str = "rs_1") -> Notification:
    return notification("item/reasoning/textDelta", itemId=item, delta=text, contentIndex=index)


def test_reasoning_parts_are_numbered_by_first_delta() -> None:
    messages = [summary("a", 1), summary("b", HUGE), summary("a", 1), thought("c", HUGE), summary("d", 0)]
    events = decode(*messages, turn_completed())
    assert [event.part for event in events if isinstance(event, ReasoningDelta)] == [0, 1, 0, 0, 2]
    assert fold(events).items == (Reasoning(id="rs_1", summary=("aa", "b", "d"), text=("c",)),)


def test_each_reasoning_item_numbers_its_own_parts() -> None:
    events = decode(summary("a", 3), summary("b", 7, "rs_2"), turn_completed())
    assert fold(events).items == (Reasoning(id="rs_1", summary=("a",)), Reasoning(id="rs_2", summary=("b",)))


@pytest.mark.parametrize("message", [summary("x", -1), thought("x", -1)])
def test_negative_index_is_an_upstream_error(message: Notification) -> None:
    turn = decoder_for()
    error = error_of(decode(summary("a", 0), message, summary("b", 1), turn_completed(), turn=turn))
    assert (type(error), error.status, error.code) == (BackendError, 502, "upstream_invalid")
    assert turn.is_finished


@pytest.mark.parametrize("part", [summary, thought])
def test_more_indexes_than_the_limit_are_an_upstream_error(part: Any) -> None:
    most = [part("x", 1_000_003 * number) for number in range(MAX_INDEXES)]
    assert isinstance(decode(*most, most[0], turn_completed())[-1], AnswerFinished)
    error = error_of(decode(*most, part("x", 1), turn_completed()))
    assert (error.status, error.code) == (502, "upstream_invalid")
    assert str(MAX_INDEXES) in error.message


ODD: st.SearchStrategy[Any] = st.sampled_from([10**30, True, 1.5, "0", None, [], {}])
INDEXES = st.integers(0, 3) | st.integers(-1, 10**12) | ODD


@given(st.lists(st.tuples(st.sampled_from([summary, thought]), INDEXES, st.sampled_from(["rs_1", "rs_2"])), max_size=20))
@settings(deadline=None)
def test_any_indexes_give_exactly_one_end(given_parts: list[Any]) -> None:
    messages = [part("x", index, item) for part, index, item in given_parts]
    events = decode(*messages, turn_completed())
    end = check_one_end(events)
    negative = any(index == -1 for _, index, _ in given_parts)
    assert isinstance(end, AnswerFailed if negative else AnswerFinished)
    if not negative:
        items = [item for item in fold(events).items if isinstance(item, Reasoning)]
        assert sum(len("".join((*item.summary, *item.text))) for item in items) == len(given_parts)
