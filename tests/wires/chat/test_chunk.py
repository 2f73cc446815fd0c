"""Decoding of chunks: odd members, nulls, numbers, surrogates, depth."""

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
    text_in,
    text_of,
)
from toolrelay.core.events import (
    MAX_TOKENS,
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
def test_usage_is_decoded_from_any_form_of_numbers(usage: dict[str, Any]) -> None:  # bug 40
    last = decode(chunk({}, "stop", usage=usage) + DONE)[-1]
    assert isinstance(last, AnswerFinished)
    assert last.usage is not None
    assert (last.usage.input, last.usage.output) == (1, 2)


@pytest.mark.parametrize(("figure", "decoded"), [("9223372036854775808", MAX_TOKENS), ("1e300", MAX_TOKENS), ("-5", 0)])
def test_absurd_usage_is_cut(figure: str, decoded: int) -> None:
    usage = chunk({}, "stop", usage={"prompt_tokens": "FIGURE", "total_tokens": "FIGURE"}).replace(b'"FIGURE"', figure.encode())
    last = decode(usage + DONE)[-1]
    assert isinstance(last, AnswerFinished)
    assert last.usage is not None
    assert (last.usage.input, last.usage.total) == (decoded, decoded)


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
def test_invalid_member_beside_the_choices_is_ignored(oddity: dict[str, Any]) -> None:
    assert text_in(chunk({"content": "a"}, **oddity) + chunk({"content": "b"}, "stop", **oddity) + DONE) == "ab"
    assert text_of(complete({"content": "ab"}, **oddity)) == "ab"


def test_null_members_equal_missing_members() -> None:
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


# Surrogates and invalid UTF-8


def split_pair(*texts: str, member: str = "content") -> bytes:
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
def test_surrogate_pair_over_two_chunks_is_joined(pieces: tuple[str, ...], whole_text: str) -> None:  # bug 24
    assert text_in(split_pair(*pieces)) == whole_text
    thoughts = answer(split_pair(*pieces, member="reasoning_content")).items
    assert thoughts == (Reasoning(text=(whole_text,)),)
    refused = answer(split_pair(*pieces, member="refusal")).items
    assert refused == (Message(role="assistant", content=(Refusal(text=whole_text),)),)


def test_surrogate_pair_over_two_argument_deltas_is_joined() -> None:  # bug 24
    frames = [
        function("f", "x", index=0, id="a").replace(b'"x"', b'"%b"' % text) for text in (b'{\\"a\\":\\"\\ud83d', b'\\ude00\\"}')
    ]
    assert calls(stream(*frames)) == [("f", '{"a":"😀"}')]


def test_escaped_surrogate_pair_inside_arguments_is_unchanged() -> None:  # bug 24
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
def test_lone_surrogates_in_any_member_can_be_encoded(frame: dict[str, Any]) -> None:  # bug 24
    raw = json.dumps(frame).encode()
    for events in (decode(b"data: " + raw + b"\n\n" + DONE), WIRE.decode_answer(raw)):
        for event in events:
            str(event.error.message if isinstance(event, AnswerFailed) else event).encode()


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\xbd", b"\xf0\x9f\x98"])
def test_invalid_utf8_becomes_the_replacement_character(bad: bytes) -> None:  # bug 24
    frame = b'data: {"choices":[{"index":0,"delta":{"content":"a%bb"}}]}\n\n' % bad
    text = text_in(stream(frame))
    assert text.strip("\ufffd") == text
    assert (text[0], text[-1]) == ("a", "b")
    assert set(text[1:-1]) == {"\ufffd"}


# Depth


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("member", [b'"error"', b'"usage"', b'"choices"', b'"choices":[],"error"'])
def test_frame_nested_too_deeply_is_a_failure(depth: int, member: bytes) -> None:
    deep = b"{%b:%b%b}" % (member, b"[" * depth, b"]" * depth)
    assert failure(b"data: " + deep + b"\n\n").code == "upstream_invalid"
    told = WIRE.decode_answer(deep)[-1]
    assert isinstance(told, AnswerFailed)


def test_unknown_member_may_be_nested_deeply() -> None:
    deep = b'{"x":%b%b,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}' % (b"[" * 300, b"]" * 300)
    assert text_in(b"data: " + deep + b"\n\n") == "a"


def test_large_flat_answer_is_not_too_deep() -> None:
    logprobs = {"content": [{"token": "a", "top_logprobs": [{"token": "b"}]} for _ in range(1000)]}
    frame = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": logprobs, "finish_reason": "stop"}]}
    assert text_in(data(frame)) == "a"
