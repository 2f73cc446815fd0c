"""A turn of Codex, heard: its messages in, events out. The messages are shaped as the real binary's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.codex.messages import (
    STARTED,
    TURN,
    USAGE,
    breakdown,
    delta,
    error_of,
    failed,
    fold,
    hear,
    item_started,
    message_completed,
    raw,
    raw_call,
    refused_response,
    response_completed,
    told,
    tool_call,
    turn_completed,
    turn_for,
    visible,
    will_retry,
)
from toolrelay.backends.codex.decoder import CodexDecoder
from toolrelay.backends.codex.rpc import Notification
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    Finish,
    MessageStarted,
    Noticed,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    TextDelta,
    Usage,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Reasoning

# Text


def test_text_goes_out_as_it_comes() -> None:
    turn = turn_for()
    assert turn.feed([item_started("agentMessage", "msg_1", text="")]) == []
    assert turn.feed([delta("Hel")]) == [STARTED, TextDelta("Hel")]
    assert turn.feed([delta("lo"), message_completed("Hello")]) == [TextDelta("lo")]
    assert turn.feed([raw("message", role="assistant", id="msg_1"), response_completed()]) == []
    assert not turn.over
    assert turn.feed([turn_completed()]) == [AnswerFinished(finish="stop", usage=USAGE)]
    assert turn.over


def test_a_message_that_comes_whole_is_not_lost() -> None:  # bug 14
    events = hear(item_started("agentMessage", "msg_1", text="Hi"), message_completed("Hi"), turn_completed())
    assert events[1] == TextDelta("Hi")


def test_several_messages_stay_apart_and_keep_their_phases() -> None:
    events = hear(
        item_started("agentMessage", "msg_1", phase="commentary"),
        delta("One"),
        item_started("agentMessage", "msg_2", phase="final_answer"),
        delta("Two", "msg_2"),
        item_started("agentMessage", "msg_3"),
        delta("Three", "msg_3"),
        turn_completed(),
    )
    assert events[1:-1] == [
        MessageStarted(phase="commentary"),
        TextDelta("One"),
        MessageStarted(phase="final_answer"),
        TextDelta("Two"),
        MessageStarted(),
        TextDelta("Three"),
    ]


def test_an_answer_without_a_word_still_begins_and_ends() -> None:
    assert hear(response_completed(), turn_completed()) == [STARTED, AnswerFinished(finish="stop", usage=USAGE)]


def test_what_is_said_of_other_turns_is_not_heard() -> None:
    """Codex repeats every injected item as a raw one, under a turn of its own making: old calls must not be made again."""
    echo = Notification("rawResponseItem/completed", {**raw_call("get_weather").params, "turnId": "auto-compact-0"})
    assert hear(echo, turn_completed(turn="another"), told("item/agentMessage/delta", "another", itemId="x", delta="y")) == []
    assert hear(raw("message", role="user", content=[]), raw("function_call_output", call_id="c9", output="x")) == []


def test_after_the_end_nothing_is_heard() -> None:
    turn = turn_for()
    hear(delta("x"), turn_completed(), turn=turn)
    assert hear(delta("y"), raw_call("get_weather"), tool_call(), failed("late"), turn_completed(), turn=turn) == []
    assert turn.answers == []


def test_citations_belong_to_the_text_before_them() -> None:
    citation: JsonObject = {"type": "url_citation", "url": "https://example.com", "start_index": 0, "end_index": 1}
    content = [{"type": "output_text", "text": "x", "annotations": [citation]}]
    events = hear(delta("x"), raw("message", role="assistant", id="msg_1", content=content), turn_completed())
    assert events[1:-1] == [TextDelta("x"), AnnotationAdded(citation)]


# Reasoning


def test_reasoning_comes_with_its_summaries_and_its_seal() -> None:  # bug 31
    events = hear(
        item_started("reasoning", "rs_1", summary=[], content=[]),
        told("item/reasoning/summaryPartAdded", itemId="rs_1", summaryIndex=0),
        told("item/reasoning/summaryTextDelta", itemId="rs_1", delta="First", summaryIndex=0),
        told("item/reasoning/summaryTextDelta", itemId="rs_1", delta="Second", summaryIndex=1),
        raw("reasoning", id="rs_1", summary=[], encrypted_content="sealed"),
        delta("Hi"),
        turn_completed(),
    )
    assert events[1:-1] == [
        ReasoningStarted(id="rs_1"),
        ReasoningDelta("First", "summary", 0),
        ReasoningDelta("Second", "summary", 1),
        ReasoningFinished(encrypted="sealed"),
        TextDelta("Hi"),
    ]
    assert fold(events).items[0] == Reasoning(id="rs_1", summary=("First", "Second"), encrypted="sealed")


def test_reasoning_as_text_and_reasoning_without_a_word() -> None:
    events = hear(
        told("item/reasoning/textDelta", itemId="rs_1", delta="Hm", contentIndex=0),
        raw("reasoning", id="rs_1", encrypted_content=None),
        raw("reasoning", id="rs_2", encrypted_content="sealed"),
        turn_completed(),
    )
    thoughts = [item for item in fold(events).items if isinstance(item, Reasoning)]
    assert thoughts == [Reasoning(id="rs_1", text=("Hm",)), Reasoning(id="rs_2", encrypted="sealed")]


# Usage


def test_usage_may_come_by_another_way() -> None:  # bug 40
    usage = told("thread/tokenUsage/updated", tokenUsage={"last": breakdown(input_=1), "total": breakdown()})
    assert hear(delta("x"), usage, turn_completed())[-1] == AnswerFinished(finish="stop", usage=USAGE)


def test_usage_that_does_not_come_is_estimated_and_marked() -> None:
    (*_, last) = hear(delta("x" * 40), turn_completed(), size=400)
    assert last == AnswerFinished(finish="stop", usage=Usage(input=100, output=10, estimated=True))


def test_usage_of_an_unfinished_response_is_estimated_beside_what_is_known() -> None:
    turn = turn_for(size=400)
    events = hear(*refused_response(0), delta("x"), turn_completed(), turn=turn)
    last = events[-1]
    assert isinstance(last, AnswerFinished)
    assert last.usage == Usage(input=111, output=7, total=118, cached=3, reasoning=2, estimated=True)


# An upstream that breaks


def test_an_upstream_that_is_asked_again_before_it_said_anything_is_no_matter() -> None:
    events = hear(will_retry("Reconnecting... 1/5"), delta("Hi", "msg_2"), response_completed(), turn_completed())
    assert visible(events) == [STARTED, TextDelta("Hi"), AnswerFinished(finish="stop", usage=USAGE)]
    assert Noticed(event="upstream_retried", rule="nothing_said") in events


@pytest.mark.parametrize("said", [delta("Hel"), raw_call("get_weather")])
def test_what_was_said_cannot_be_taken_back_so_a_second_beginning_is_a_failure(said: Notification) -> None:
    events = hear(said, will_retry("Reconnecting... 1/5"), delta("Hello", "msg_2"), turn_completed())
    assert error_of(events).code == "upstream_cut"
    assert TextDelta("Hello") not in events


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ("Incomplete response returned, reason: max_output_tokens", "length"),
        ("stream disconnected before completion: Incomplete response returned, reason: content_filter", "content_filter"),
    ],
)
def test_an_answer_that_was_cut_short_has_an_end(message: str, finish: Finish) -> None:  # bug 5
    for end in (failed(message), will_retry(message)):
        events = hear(delta("x" * 8), end, size=8)
        assert events == [
            STARTED,
            TextDelta("x" * 8),
            AnswerFinished(finish=finish, usage=Usage(input=2, output=2, estimated=True)),
        ]


HTTP = "httpConnectionFailed"


@pytest.mark.parametrize(
    ("message", "info", "status", "code"),
    [
        (
            "unexpected status 401 Unauthorized: bad key sk-1, url: http://u/v1",
            {HTTP: {"httpStatusCode": 401}},
            502,
            "upstream_auth",
        ),
        ("unexpected status 403 Forbidden: boo, url: http://u/v1", {HTTP: {"httpStatusCode": 403}}, 403, "upstream_error"),
        ("unexpected status 404 Not Found: boo, url: http://u/v1", {HTTP: {"httpStatusCode": 404}}, 404, "upstream_error"),
        ("unexpected status 503 Service Unavailable: boo", {HTTP: {"httpStatusCode": 503}}, 503, "upstream_error"),
        ("last status: 429", {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, 429, "rate_limit_exceeded"),
        ("error sending request", {HTTP: {"httpStatusCode": None}}, 502, "upstream_unreachable"),
        ("We’re currently experiencing high demand", "internalServerError", 500, "upstream_error"),
        ('{"error": {"message": "too long", "code": "context_length_exceeded"}}', "other", 400, "context_length_exceeded"),
        ("Codex ran out of room in the model's context window.", "contextWindowExceeded", 400, "context_length_exceeded"),
        ("rate limit exceeded", "rateLimitExceeded", 429, "rate_limit_exceeded"),
        ("You’ve hit your usage limit.", "usageLimitExceeded", 429, "insufficient_quota"),
        ("busy", "serverOverloaded", 503, "server_overloaded"),
        ("token expired", "unauthorized", 502, "upstream_auth"),
        ("stream disconnected before completion: sorry", "other", 502, "upstream_cut"),
        ("bad prompt", "other", 502, "upstream_error"),
        ("", None, 502, "upstream_error"),
    ],
)
def test_failures_are_told_in_words_of_the_wire(message: str, info: Any, status: int, code: str) -> None:
    error = error_of(hear(failed(message, info)))
    assert (error.status, error.code) == (status, code)
    assert error.message
    assert "sk-1" not in error.message
    assert "http://u" not in error.message


def test_a_sign_in_that_has_run_out_says_what_to_do() -> None:
    error = error_of(hear(failed("unexpected status 401", {HTTP: {"httpStatusCode": 401}}), is_account=True))
    assert error.code == "upstream_auth"
    assert "codex login" in error.message


@pytest.mark.parametrize(
    ("when", "seconds"),
    [
        ("Please try again in 1.5s.", 1.5),
        ("Please try again in 250ms.", 0.25),
        ("Please try again in 2 hours and 5 minutes.", 7500),
        ("try again at 3:33 AM.", 5580),
        ("try again at 1:00 AM.", 82800),
        ("try again at 12:30 PM.", 37800),
        ("try again at Nov 17th, 2026 2:00 AM.", 86400),
        ("try again at Nov 15th, 2026 2:00 AM.", 0),
        ("try again at Foo 99th, 2026 2:00 AM.", None),
        ("try again later", None),
    ],
)
def test_a_limit_says_when_it_is_lifted(when: str, seconds: float | None) -> None:
    error = error_of(hear(failed(f"You’ve hit your usage limit. {when}", "usageLimitExceeded")))
    assert error.retry_after == seconds


def test_a_server_that_is_busy_may_say_how_long() -> None:
    message = "unexpected status 503 Service Unavailable: Please try again in 5s., url: http://u/v1"
    assert error_of(hear(failed(message, {HTTP: {"httpStatusCode": 503}}))).retry_after == 5


def test_a_turn_that_somebody_else_interrupted_is_a_failure() -> None:
    assert error_of(hear(delta("x"), turn_completed("interrupted"))).code == "upstream_cut"


# Whatever comes

MEMBERS = st.sampled_from(["type", "id", "usage", "call_id", "name", "arguments", "httpStatusCode"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(MEMBERS, inner, max_size=3),
    max_leaves=5,
)
METHODS = [*CodexDecoder._READS, "turn/completed", "turn/started", "x"]


@given(
    st.lists(
        st.builds(
            Notification,
            st.sampled_from(METHODS),
            st.dictionaries(
                st.sampled_from(["item", "delta", "itemId", "error", "turn", "usage", "tokenUsage", "willRetry"]),
                JUNK,
                max_size=4,
            ).map(lambda params: {"turnId": TURN, **params}),
        ),
        max_size=6,
    )
)
def test_odd_messages_never_raise_and_an_answer_has_one_end(messages: list[Notification]) -> None:
    events = hear(*messages, turn_completed())
    assert sum(isinstance(event, AnswerFinished | AnswerFailed) for event in events) == 1
    assert isinstance(events[-1], AnswerFinished | AnswerFailed)
