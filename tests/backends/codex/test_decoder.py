"""Decoder of a Codex turn: messages in, events out. The messages are shaped as the real binary's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.codex.messages import (
    STARTED,
    TURN,
    USAGE,
    decode,
    decoder_for,
    delta,
    error_of,
    failed,
    fold,
    item_started,
    message_completed,
    notification,
    raw,
    raw_call,
    refused_response,
    response_completed,
    token_counts,
    tool_call,
    turn_completed,
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


def test_text_deltas_are_emitted_as_they_arrive() -> None:
    turn = decoder_for()
    assert turn.feed([item_started("agentMessage", "msg_1", text="")]) == []
    assert turn.feed([delta("Hel")]) == [STARTED, TextDelta("Hel")]
    assert turn.feed([delta("lo"), message_completed("Hello")]) == [TextDelta("lo")]
    assert turn.feed([raw("message", role="assistant", id="msg_1"), response_completed()]) == []
    assert not turn.is_finished
    assert turn.feed([turn_completed()]) == [AnswerFinished(finish="stop", usage=USAGE)]
    assert turn.is_finished


def test_message_without_deltas_is_emitted() -> None:  # bug 14
    events = decode(item_started("agentMessage", "msg_1", text="Hi"), message_completed("Hi"), turn_completed())
    assert events[1] == TextDelta("Hi")


def test_messages_stay_separate_and_keep_their_phases() -> None:
    events = decode(
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
        MessageStarted(phase="final_answer", is_separate=True),
        TextDelta("Two"),
        MessageStarted(is_separate=True),
        TextDelta("Three"),
    ]


def test_empty_answer_has_a_start_and_a_finish() -> None:
    assert decode(response_completed(), turn_completed()) == [STARTED, AnswerFinished(finish="stop", usage=USAGE)]


def test_messages_of_other_turns_are_ignored() -> None:
    """Codex echoes every injected item as a raw one, with another turn id: old calls must not be emitted again."""
    echo = Notification("rawResponseItem/completed", {**raw_call("get_weather").params, "turnId": "auto-compact-0"})
    assert (
        decode(echo, turn_completed(turn="another"), notification("item/agentMessage/delta", "another", itemId="x", delta="y"))
        == []
    )
    assert decode(raw("message", role="user", content=[]), raw("function_call_output", call_id="c9", output="x")) == []


def test_messages_after_the_end_are_ignored() -> None:
    turn = decoder_for()
    decode(delta("x"), turn_completed(), turn=turn)
    assert decode(delta("y"), raw_call("get_weather"), tool_call(), failed("late"), turn_completed(), turn=turn) == []
    assert turn.answers == []


def test_citations_are_emitted_after_their_text() -> None:
    citation: JsonObject = {"type": "url_citation", "url": "https://example.com", "start_index": 0, "end_index": 1}
    content = [{"type": "output_text", "text": "x", "annotations": [citation]}]
    events = decode(delta("x"), raw("message", role="assistant", id="msg_1", content=content), turn_completed())
    assert events[1:-1] == [TextDelta("x"), AnnotationAdded(citation)]


# Reasoning


def test_reasoning_has_summaries_and_encrypted_content() -> None:  # bug 31
    events = decode(
        item_started("reasoning", "rs_1", summary=[], content=[]),
        notification("item/reasoning/summaryPartAdded", itemId="rs_1", summaryIndex=0),
        notification("item/reasoning/summaryTextDelta", itemId="rs_1", delta="First", summaryIndex=0),
        notification("item/reasoning/summaryTextDelta", itemId="rs_1", delta="Second", summaryIndex=1),
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


def test_plain_and_empty_reasoning_are_emitted() -> None:
    events = decode(
        notification("item/reasoning/textDelta", itemId="rs_1", delta="Hm", contentIndex=0),
        raw("reasoning", id="rs_1", encrypted_content=None),
        raw("reasoning", id="rs_2", encrypted_content="sealed"),
        turn_completed(),
    )
    thoughts = [item for item in fold(events).items if isinstance(item, Reasoning)]
    assert thoughts == [Reasoning(id="rs_1", text=("Hm",)), Reasoning(id="rs_2", encrypted="sealed")]


# Usage


def test_usage_of_the_thread_is_used_as_a_fallback() -> None:  # bug 40
    usage = notification("thread/tokenUsage/updated", tokenUsage={"last": token_counts(input_=1), "total": token_counts()})
    assert decode(delta("x"), usage, turn_completed())[-1] == AnswerFinished(finish="stop", usage=USAGE)


def test_missing_usage_is_estimated() -> None:
    (*_, last) = decode(delta("x" * 40), turn_completed(), size=400)
    assert last == AnswerFinished(finish="stop", usage=Usage(input=100, output=10, estimated=True))


def test_unfinished_response_adds_an_estimate_to_known_usage() -> None:
    turn = decoder_for(size=400)
    events = decode(*refused_response(0), delta("x"), turn_completed(), turn=turn)
    last = events[-1]
    assert isinstance(last, AnswerFinished)
    assert last.usage == Usage(input=111, output=7, total=118, cached=3, reasoning=2, estimated=True)


# Upstream failures


def test_upstream_retry_before_any_output_is_ignored() -> None:
    events = decode(will_retry("Reconnecting... 1/5"), delta("Hi", "msg_2"), response_completed(), turn_completed())
    assert visible(events) == [STARTED, TextDelta("Hi"), AnswerFinished(finish="stop", usage=USAGE)]
    assert Noticed(event="upstream_retried", rule="nothing_said") in events


@pytest.mark.parametrize("said", [delta("Hel"), raw_call("get_weather")])
def test_upstream_retry_after_output_fails_the_answer(said: Notification) -> None:
    events = decode(said, will_retry("Reconnecting... 1/5"), delta("Hello", "msg_2"), turn_completed())
    assert error_of(events).code == "upstream_cut"
    assert TextDelta("Hello") not in events


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ("Incomplete response returned, reason: max_output_tokens", "length"),
        ("stream disconnected before completion: Incomplete response returned, reason: content_filter", "content_filter"),
    ],
)
def test_truncated_answer_has_a_finish(message: str, finish: Finish) -> None:  # bug 5
    for end in (failed(message), will_retry(message)):
        events = decode(delta("x" * 8), end, size=8)
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
def test_turn_errors_are_mapped(message: str, info: Any, status: int, code: str) -> None:
    error = error_of(decode(failed(message, info)))
    assert (error.status, error.code) == (status, code)
    assert error.message
    assert "sk-1" not in error.message
    assert "http://u" not in error.message


def test_expired_sign_in_says_what_to_do() -> None:
    error = error_of(decode(failed("unexpected status 401", {HTTP: {"httpStatusCode": 401}}), is_account=True))
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
def test_usage_limit_has_retry_after(when: str, seconds: float | None) -> None:
    error = error_of(decode(failed(f"You’ve hit your usage limit. {when}", "usageLimitExceeded")))
    assert error.retry_after == seconds


def test_busy_server_has_retry_after() -> None:
    message = "unexpected status 503 Service Unavailable: Please try again in 5s., url: http://u/v1"
    assert error_of(decode(failed(message, {HTTP: {"httpStatusCode": 503}}))).retry_after == 5


def test_interrupted_turn_fails_the_answer() -> None:
    assert error_of(decode(delta("x"), turn_completed("interrupted"))).code == "upstream_cut"


# Any messages

MEMBERS = st.sampled_from(["type", "id", "usage", "call_id", "name", "arguments", "httpStatusCode"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(MEMBERS, inner, max_size=3),
    max_leaves=5,
)
METHODS = [*CodexDecoder.HANDLERS, "turn/completed", "turn/started", "x"]


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
def test_any_messages_give_exactly_one_end(messages: list[Notification]) -> None:
    events = decode(*messages, turn_completed())
    assert sum(isinstance(event, AnswerFinished | AnswerFailed) for event in events) == 1
    assert isinstance(events[-1], AnswerFinished | AnswerFailed)
