"""Ends of providers' answers over Chat: with a finish reason, without one, with an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import json_values
from tests.wires.chat.chunks import DONE, TEXT, chunk, completion, data, decode, failure, function, stream
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.wires.chat import WIRE

# Ends


def test_done_mark_is_optional_after_the_finish_reason() -> None:
    assert decode(TEXT.removesuffix(DONE)) == decode(TEXT)


def test_input_after_the_end_is_ignored() -> None:
    decoder = WIRE.decoder()
    decoder.feed(TEXT)
    assert decoder.feed(TEXT) == []
    assert decoder.flush() == []


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        DONE,
        b": comment\n\n",
        chunk({"content": "a"}),
        chunk({"content": "a"}) + DONE,
        stream(function("f", '{"a"', index=0, id="a"), finish=None),
        chunk({"content": "a"}, "stop") + chunk({"content": "b"}, index=1) + DONE,
        chunk({"content": "a"}, "stop") + chunk({"content": "b"}, index=1),
        TEXT[:-120],
    ],
)
def test_stream_without_a_finish_reason_is_a_failure(cut: bytes) -> None:  # bug 38
    error = failure(cut)
    assert (error.status, error.code) == (502, "upstream_cut")
    assert sum(isinstance(event, AnswerFailed | AnswerFinished) for event in decode(cut)) == 1


@pytest.mark.parametrize(
    "bad", [b"data: {nonsense\n\n", b"data: 5\n\n", b"data: null\n\n", b'data: "x"\n\n', b'data: {"choices": 5}\n\n']
)
def test_unreadable_frame_is_a_failure(bad: bytes) -> None:  # bug 18
    events = decode(chunk({"content": "a"}) + bad + TEXT)
    assert events[1] == TextDelta("a")
    assert len(events) == 3
    assert failure(chunk({"content": "a"}) + bad + TEXT).code == "upstream_invalid"


@pytest.mark.parametrize(
    ("frame", "message", "status"),
    [
        ({"error": {"message": "overloaded", "type": "server_error", "code": "x"}}, "overloaded", 502),
        ({"error": {"message": "slow down", "code": 429}}, "slow down", 429),
        ({"error": "plain words"}, "plain words", 502),
        ({"error": {"message": "mid"}, "choices": []}, "mid", 502),
        (  # OpenRouter
            {
                "error": {"message": "gone", "code": 503},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            },
            "gone",
            503,
        ),
        ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "too long", 400),  # vLLM
        ({"type": "error", "message": "odd"}, "odd", 502),
        ({"message": "no such model", "code": 404}, "no such model", 404),
        ({"detail": "Not Found"}, "Not Found", 502),
    ],
)
def test_error_in_the_stream_ends_it(frame: dict[str, Any], message: str, status: int) -> None:  # bug 38, 39
    error = failure(chunk({"content": "a"}) + data(frame) + TEXT)
    assert (error.message, error.status) == (message, status)
    told = WIRE.decode_answer(json.dumps(frame).encode())[-1]
    assert isinstance(told, AnswerFailed)
    assert (told.error.message, told.error.status) == (message, status)


@pytest.mark.parametrize("reason", ["error", "abort", "network_error", "insufficient_system_resource"])
def test_finish_reason_that_names_an_error_is_a_failure(reason: str) -> None:  # bug 38
    assert reason in failure(chunk({"content": "a"}, reason) + DONE).message
    told = WIRE.decode_answer(completion({"content": "a"}, reason))[-1]
    assert isinstance(told, AnswerFailed)


def test_frame_larger_than_the_limit_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.wires.sse.MAX_FRAME", 1000)
    decoder = WIRE.decoder()
    events = [event for _ in range(30) for event in decoder.feed(b"x" * 100)]
    assert [type(event) for event in events] == [AnswerFailed]
    assert decoder.flush() == []


# Malformed streams


_DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": json_values(),
        "reasoning_content": json_values(leaves=1),
        "refusal": json_values(leaves=1),
        "annotations": json_values(),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.integers(0, 2) | st.none() | json_values(leaves=1),
                    "id": st.sampled_from(["a", "b", "", None]),
                    "function": st.fixed_dictionaries(
                        {}, optional={"name": st.sampled_from(["f", "g", "", None]), "arguments": json_values()}
                    ),
                },
            ),
            max_size=3,
        ),
    },
)
_FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.integers(0, 2) | st.none(),
                    "delta": _DELTAS,
                    "message": _DELTAS,
                    "finish_reason": st.sampled_from(["stop", "length", "tool_calls", None]),
                    "logprobs": json_values(),
                },
            ),
            max_size=2,
        ),
        "usage": json_values(),
        "error": st.none() | json_values(leaves=1),
        "model": json_values(leaves=1),
    },
)


@given(st.lists(_FRAMES, max_size=5), st.booleans())
@example([{"choices": [{"index": -1, "delta": {"content": "a"}, "finish_reason": "stop"}]}], True)
def test_any_stream_ends_once_with_well_formed_calls(values: list[Any], marked: bool) -> None:  # noqa: FBT001 -- Hypothesis gives it
    check_grammar(decode(b"".join(map(data, values)) + (DONE if marked else b"")))
    for value in values:
        check_grammar(WIRE.decode_answer(json.dumps(value).encode()))


@given(st.binary(max_size=200))
def test_random_bytes_end_once(raw: bytes) -> None:
    check_grammar(decode(raw))
    check_grammar(decode(b"data: " + raw + b"\n\n"))
    check_grammar(WIRE.decode_answer(raw))


def check_grammar(events: list[StreamEvent]) -> None:
    """See core.events."""
    *before, last = events
    assert isinstance(last, AnswerFinished | AnswerFailed)
    assert not any(isinstance(event, AnswerFinished | AnswerFailed) for event in before)
    assert [isinstance(event, AnswerStarted) for event in before] == [place == 0 for place in range(len(before))]
    opened: dict[int, int] = {}
    closed: set[tuple[int, int]] = set()
    for event in before:
        match event:
            case CallStarted(choice=choice, index=index):
                assert index == opened.get(choice, 0)
                opened[choice] = index + 1
            case ArgumentsDelta(choice=choice, index=index) | CallFinished(choice=choice, index=index):
                assert index < opened.get(choice, 0)
                assert (choice, index) not in closed
                if isinstance(event, CallFinished):
                    closed.add((choice, index))
            case TextDelta(logprobs=None) | RefusalDelta() | ReasoningDelta():
                assert event.text
            case _:
                pass
