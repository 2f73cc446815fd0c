"""What can be read of a provider's chunk or completion: odd members, nulls, numbers, halves of characters, depth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wires.chat.chunks import (
    DONE,
    answer,
    calls,
    chunk,
    complete,
    data,
    decode,
    failure,
    function,
    stream,
    text_of,
    words,
)
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
)
from toolrelay.core.messages import Message, Reasoning, Refusal
from toolrelay.wires.chat import WIRE

# Members


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 1.0, "completion_tokens": 2.0, "total_tokens": 3.0},
        {"prompt_tokens": 1, "completion_tokens": 2, "x": {}},
    ],
)
def test_usage_is_read_however_the_numbers_are_written(usage: dict[str, Any]) -> None:  # bug 40
    last = decode(chunk({}, "stop", usage=usage) + DONE)[-1]
    assert isinstance(last, AnswerFinished)
    assert last.usage is not None
    assert (last.usage.input, last.usage.output) == (1, 2)


@pytest.mark.parametrize(
    "oddity",
    [
        {"usage": []},
        {"usage": {"prompt_tokens": 1, "prompt_tokens_details": []}},
        {"service_tier": 5},
        {"system_fingerprint": {}},
        {"model": 7},
        {"id": 5, "created": "x", "object": None},
    ],
)
def test_an_odd_member_beside_the_answer_does_not_spoil_it(oddity: dict[str, Any]) -> None:
    assert words(chunk({"content": "a"}, **oddity) + chunk({"content": "b"}, "stop", **oddity) + DONE) == "ab"
    assert text_of(complete({"content": "ab"}, **oddity)) == "ab"


def test_null_stands_for_what_is_not_there_everywhere() -> None:
    nothing = None
    part = {"index": nothing, "id": nothing, "type": nothing, "function": {"name": "f", "arguments": nothing}, "custom": nothing}
    frame = {
        "id": nothing,
        "model": nothing,
        "system_fingerprint": nothing,
        "service_tier": nothing,
        "usage": nothing,
        "error": nothing,
        "choices": [
            {
                "index": nothing,
                "delta": {"content": nothing, "tool_calls": [part], "annotations": nothing, "reasoning": nothing},
                "message": nothing,
                "logprobs": nothing,
                "finish_reason": nothing,
            }
        ],
    }
    more = {"choices": [{"index": nothing, "delta": {"tool_calls": [{"function": {"name": nothing, "arguments": "{}"}}]}}]}
    usage = {
        "prompt_tokens": nothing,
        "prompt_tokens_details": nothing,
        "completion_tokens_details": {"reasoning_tokens": nothing},
    }
    end = {"choices": [{"index": nothing, "delta": nothing, "finish_reason": "tool_calls"}], "usage": usage}
    assert calls(data(frame), data(more), data(end), DONE) == [("f", "{}")]


# Surrogates and bytes that are no text


def torn(*texts: str, member: str = "content") -> bytes:
    return stream(
        *(b'data: {"choices":[{"index":0,"delta":{"%b":"%b"}}]}\n\n' % (member.encode(), text.encode()) for text in texts)
    )


@pytest.mark.parametrize(
    ("pieces", "whole_text"),
    [
        (("a\\ud83d", "\\ude00b"), "a😀b"),
        (("\\ud83d", "\\ude00"), "😀"),
        (("\\ud83d", "x"), "\ufffdx"),
        (("\\ud83d", "\\ud83d", "\\ude00"), "\ufffd😀"),
        (("\\ude00",), "\ufffd"),
        (("a\\ud83d",), "a\ufffd"),
        (("\\ud83d\\ude00",), "😀"),
    ],
)
def test_a_surrogate_pair_over_two_chunks_is_one_character(pieces: tuple[str, ...], whole_text: str) -> None:  # bug 24
    assert words(torn(*pieces)) == whole_text
    thoughts = answer(torn(*pieces, member="reasoning_content")).items
    assert thoughts == (Reasoning(text=(whole_text,)),)
    refused = answer(torn(*pieces, member="refusal")).items
    assert refused == (Message(role="assistant", content=(Refusal(text=whole_text),)),)


def test_a_surrogate_pair_over_two_deltas_of_arguments() -> None:  # bug 24
    frames = [
        function("f", "x", index=0, id="a").replace(b'"x"', b'"%b"' % text) for text in (b'{\\"a\\":\\"\\ud83d', b'\\ude00\\"}')
    ]
    assert calls(stream(*frames)) == [("f", '{"a":"😀"}')]


def test_an_escaped_pair_inside_the_arguments_is_left_to_their_reader() -> None:  # bug 24
    frames = [function("f", '{"a":"\\ud83d', index=0, id="a"), function(arguments='\\ude00"}', index=0)]
    assert calls(stream(*frames)) == [("f", '{"a":"\\ud83d\\ude00"}')]


_TORN_EVERYWHERE = {
    "model": "\ud800",
    "system_fingerprint": "\ud800",
    "service_tier": "\ud800",
    "choices": [
        {
            "index": 0,
            "delta": {
                "content": [{"type": "text", "text": "\ud800"}],
                "annotations": [{"type": "url_citation", "url_citation": {"url": "\ud800"}}],
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "\ud800",
                        "function": {"name": "f\ud800", "arguments": {"a": "\ud800"}},
                        "extra_content": {"x": "\ud800"},
                    },
                    {"index": 1, "id": "b", "custom": {"name": "\ud800", "input": "\ud800"}},
                ],
                "function_call": {"name": "\ud800", "arguments": {"\ud800": 1}},
            },
            "logprobs": {"content": [{"token": "\ud800"}]},
            "finish_reason": "\ud800",
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "frame",
    [_TORN_EVERYWHERE, {"error": {"message": "\ud800", "code": "\ud800"}}, {"object": "error", "message": "\ud800"}],
)
def test_lone_surrogates_anywhere_can_be_written_again(frame: dict[str, Any]) -> None:  # bug 24
    raw = json.dumps(frame).encode()
    for events in (decode(b"data: " + raw + b"\n\n" + DONE), WIRE.decode_answer(raw)):
        for event in events:
            str(event.error.message if isinstance(event, AnswerFailed) else event).encode()


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\xbd", b"\xf0\x9f\x98"])
def test_bytes_that_are_no_utf8_become_the_replacement_character(bad: bytes) -> None:  # bug 24
    frame = b'data: {"choices":[{"index":0,"delta":{"content":"a%bb"}}]}\n\n' % bad
    text = words(stream(frame))
    assert text.strip("\ufffd") == text
    assert (text[0], text[-1]) == ("a", "b")
    assert set(text[1:-1]) == {"\ufffd"}


# Depth


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("member", [b'"error"', b'"usage"', b'"choices"', b'"choices":[],"error"'])
def test_a_frame_nested_too_deeply_is_a_failure(depth: int, member: bytes) -> None:
    deep = b"{%b:%b%b}" % (member, b"[" * depth, b"]" * depth)
    assert failure(b"data: " + deep + b"\n\n").code == "upstream_invalid"
    told = WIRE.decode_answer(deep)[-1]
    assert isinstance(told, AnswerFailed)


def test_what_nobody_reads_may_be_deep() -> None:
    deep = b'{"x":%b%b,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}' % (b"[" * 300, b"]" * 300)
    assert words(b"data: " + deep + b"\n\n") == "a"


def test_a_large_answer_is_not_a_deep_one() -> None:
    logprobs = {"content": [{"token": "a", "top_logprobs": [{"token": "b"}]} for _ in range(1000)]}
    frame = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": logprobs, "finish_reason": "stop"}]}
    assert words(data(frame)) == "a"
