"""Gemini's answers. The frames are those of its documentation, checked with the types of Google's SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.exchange import check_one_end, decode_all, fold, gist
from tests.gemini_server import call, frame, sse, text, thought
from tests.golden.transcripts import EXCHANGES
from tests.wires.gemini.oracle import WIRE, checked
from toolrelay.core.assembly import Answer
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ItemReceived,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.indexes import MAX_INDEXES
from toolrelay.core.messages import Call, Message, OpaqueItem, Reasoning, Text
from toolrelay.wires.sealed_reasoning import unseal

Json = dict[str, Any]

SIG = "c2lnbmF0dXJl"
END = frame(finish="STOP", usage={"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10})


def decoded(*frames: Json) -> list[StreamEvent]:
    """Decode frames that the SDK's types allow, as a stream; as one answer they must amount to the same."""
    events = decode_all(WIRE, sse(*checked(*frames)))
    parts = [part for each in frames for part in each["candidates"][0].get("content", {}).get("parts", ())]
    last = frames[-1]
    candidate = {**last["candidates"][0], "content": {"role": "model", "parts": parts}}
    whole = WIRE.decode_answer(json.dumps({**last, "candidates": [candidate]}, indent=2).encode())
    assert gist(fold(whole)) == gist(fold(events))
    return events


def answer(*frames: Json) -> Answer:
    return fold(decoded(*frames, END))


def failure(events: list[StreamEvent]) -> tuple[int, str | None, str]:
    last = check_one_end(events)
    assert isinstance(last, AnswerFailed)
    return last.error.status, last.error.code, last.error.message


@pytest.mark.parametrize("path", sorted(EXCHANGES.glob("*/upstream.gemini.sse")), ids=lambda path: path.parent.name)
def test_recordings_match_the_sdk_types(path: Any) -> None:
    checked(*(json.loads(line[6:]) for line in path.read_text().splitlines() if line))


def test_text_comes_as_it_arrives() -> None:
    events = decoded(frame(text("Hel")), frame(text("lo"), text("!")), END)
    assert events[0] == AnswerStarted(model="gemini-3-flash")
    assert events[1:4] == [TextDelta("Hel"), TextDelta("lo"), TextDelta("!")]
    assert events[4] == AnswerFinished(finish="stop", usage=Usage(input=7, output=3, total=10))


def test_list_of_frames_is_one_answer() -> None:
    """A server that ignores `alt=sse` streams a list."""
    body = json.dumps([frame(text("Hel")), frame(text("lo\ud83d")), END]).encode()
    found = fold(WIRE.decode_answer(body))
    assert (gist(found).text, found.usage) == ("Hello\ufffd", Usage(input=7, output=3, total=10))
    assert failure(WIRE.decode_answer(b"[" + body + b"]"))[1] == "upstream_invalid"


def test_calls_are_whole_and_without_ids() -> None:
    found = answer(frame(text("Let me see."), call("a", {"x": [1, {"y": None}]}, id="their_id")), frame(call("b")))
    assert [(made.id, made.name, made.arguments) for made in found.calls] == [("", "a", '{"x":[1,{"y":null}]}'), ("", "b", "{}")]
    assert found.finish == "calls"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ('{ "a" :\n 1.50, "b": "x  y" }', '{"a":1.50,"b":"x  y"}'),
        ('{"n": 12345678901234567890}', '{"n":12345678901234567890}'),
        ("null", "{}"),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ("[1, 2]", "[1,2]"),
    ],
)
def test_arguments_keep_their_numbers_and_lose_only_spaces(args: str, expected: str) -> None:
    made = b'{"name":"f","args":%b}' % args.encode()
    body = b'{"candidates":[{"content":{"parts":[{"functionCall":%b}]},"finishReason":"STOP"}]}' % made
    for events in (WIRE.decode_answer(body), decode_all(WIRE, b"data: " + body.replace(b"\n", b"") + b"\n\n")):
        assert [each.arguments for each in fold(events).calls] == [expected]


def test_ten_megabytes_of_arguments_are_relayed() -> None:
    long = "x" * 10_000_000
    (made,) = fold(decode_all(WIRE, sse(frame(call("f", {"a": long})), END))).calls
    assert json.loads(made.arguments) == {"a": long}


# Thinking


def items(*frames: Json) -> list[Any]:
    """Return the items, with the seals of reasoning open."""
    return [
        (item.summary, unseal(item.encrypted) if item.encrypted else None)
        if isinstance(item, Reasoning)
        else "".join(part.text for part in item.content if isinstance(part, Text))
        if isinstance(item, Message)
        else (item.name, item.extra)
        if isinstance(item, Call)
        else item
        for item in answer(*frames).items
    ]


SIGNED = {"extra_content": {"google": {"thought_signature": f"toolrelay:gemini:call:{SIG}"}}}


def test_thoughts_are_summaries_of_reasoning() -> None:
    assert items(frame(thought("First, ")), frame(thought("I look.")), frame(text("Yes."))) == [
        (("First, I look.",), None),
        "Yes.",
    ]


def test_signature_of_a_call_is_the_seal_of_the_reasoning_before_it() -> None:
    found = items(frame(thought("Hm.")), frame(call("a", signature=SIG), call("b")))
    assert found == [(("Hm.",), ("gemini", f"call:{SIG}")), ("a", SIGNED), ("b", None)]
    assert items(frame(call("a", signature=SIG))) == [((), ("gemini", f"call:{SIG}")), ("a", SIGNED)]


@pytest.mark.parametrize(
    "frames",
    [
        (frame(text("Hello")), frame(text("", SIG))),
        (frame(text("Hel", SIG)), frame(text("lo"))),
        (frame(text("Hello", SIG)),),
    ],
)
def test_signature_of_a_text_follows_it_and_does_not_divide_it(frames: tuple[Json, ...]) -> None:
    assert items(*frames) == ["Hello", ((), ("gemini", f"text:{SIG}"))]


def test_signature_of_a_text_precedes_the_next_call() -> None:
    found = items(frame(text("Hello", SIG), call("a", signature="bW9yZQ==")))
    assert found[:3] == ["Hello", ((), ("gemini", f"text:{SIG}")), ((), ("gemini", "call:bW9yZQ=="))]


def test_signature_of_a_thought_is_its_own() -> None:
    signed = {**thought("Hm."), "thoughtSignature": SIG}
    assert items(frame(signed, text("Yes."))) == [(("Hm.",), ("gemini", f"thought:{SIG}")), "Yes."]


def test_part_of_another_kind_is_kept_as_it_is() -> None:
    code: Json = {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": SIG}
    events = decoded(frame(text("So:"), code, {"thoughtSignature": SIG}), END)
    assert ItemReceived(wire="gemini", raw=code) in events
    assert OpaqueItem(wire="gemini", raw=code) in fold(events).items


# The end


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        *(
            (reason, "content_filter")
            for reason in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE")
        ),
        ("OTHER", "stop"),
        ("FINISH_REASON_UNSPECIFIED", "stop"),
    ],
)
def test_finish_reasons_are_translated(reason: str, finish: str) -> None:
    assert fold(decoded(frame(text("Hm")), frame(finish=reason))).finish == finish


@pytest.mark.parametrize("reason", ["SAFETY", "MAX_TOKENS", "STOP"])
def test_answer_without_content_ends_as_it_says(reason: str) -> None:
    found = fold(decoded({"candidates": [{"finishReason": reason, "index": 0}], "modelVersion": "m"}))
    assert (found.items, found.error) == ((), None)


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER"])
def test_answer_that_came_to_nothing_is_an_error(reason: str) -> None:
    last = frame(finish=reason)
    last["candidates"][0]["finishMessage"] = "Malformed function call:\n print(x)" + "x" * 10_000
    status, code, message = failure(decode_all(WIRE, sse(*checked(last))))
    assert (status, code) == (502, "upstream_invalid")
    assert message.startswith(f"The model ended its answer with {reason}: Malformed function call: print(x)")
    assert len(message) < 1000


def test_malformed_call_after_text_is_an_error_and_after_a_call_is_none() -> None:
    assert failure(decode_all(WIRE, sse(frame(text("I look.")), frame(finish="MALFORMED_FUNCTION_CALL"))))[0] == 502
    found = fold(decode_all(WIRE, sse(frame(call("f")), frame(finish="MALFORMED_FUNCTION_CALL"))))
    assert (found.finish, len(found.calls)) == ("calls", 1)


@pytest.mark.parametrize("streamed", [True, False])
def test_blocked_prompt_is_filtered_content(*, streamed: bool) -> None:
    usage = {"promptTokenCount": 9, "totalTokenCount": 9}
    (blocked,) = checked({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage, "modelVersion": "m"})
    events = decode_all(WIRE, sse(blocked)) if streamed else WIRE.decode_answer(json.dumps(blocked).encode())
    assert events[1:] == [AnswerFinished(finish="content_filter", usage=Usage(input=9, output=0, total=9))]


def test_finish_in_every_frame_ends_nothing() -> None:
    found = fold(decoded(frame(text("a"), finish="STOP"), frame(text("b"), finish="STOP"), frame(text("c"), finish="MAX_TOKENS")))
    assert (gist(found).text, found.finish) == ("abc", "length")


def test_stream_without_a_finish_was_cut() -> None:
    assert failure(decode_all(WIRE, sse(frame(text("a")))))[:2] == (502, "upstream_cut")


def test_usage_counts_thoughts_and_tools() -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 40,
        "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
        "totalTokenCount": 155,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}],
    }
    first = frame(text("a"), usage={"promptTokenCount": 100, "totalTokenCount": 100})
    found = fold(decoded(first, frame(finish="STOP", usage=usage)))
    assert found.usage == Usage(input=105, output=50, total=155, cached=40, reasoning=30)


# Errors and nonsense


def test_error_inside_a_stream_has_its_status() -> None:
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    for broken in ({"error": error}, [{"error": error}]):
        events = decode_all(WIRE, sse(frame(text("a")), broken))  # type: ignore[arg-type]  # a list is what some proxies send
        assert failure(events) == (503, "overloaded", "The model is overloaded.")
        assert failure(WIRE.decode_answer(json.dumps(broken).encode())) == (503, "overloaded", "The model is overloaded.")


CANDIDATES: list[Any] = [
    [],
    None,
    [{}],
    [{"content": None}],
    [{"content": {}}],
    [{"content": {"parts": None}}],
    [{"content": {"parts": []}}],
    [{"content": {"parts": [{}]}}],
    [{"content": {"parts": [{"text": None}]}}],
]


@pytest.mark.parametrize("candidates", CANDIDATES)
def test_frame_without_content_is_skipped(candidates: Any) -> None:
    usage = {"promptTokenCount": 1}
    found = fold(decode_all(WIRE, sse({"candidates": candidates, "usageMetadata": usage}, frame(text("a")), END)))
    assert (gist(found).text, found.error) == ("a", None)


@pytest.mark.parametrize(
    "candidates",
    [
        "x",
        5,
        {},
        [5],
        [None],
        [{"content": "x"}],
        [{"content": {"parts": "x"}}],
        [{"content": {"parts": [5]}}],
        [{"content": {"parts": [None]}}],
        [{"content": {"parts": [{"text": 5}]}}],
        [{"content": {"parts": [{"functionCall": "f"}]}}],
        [{"content": {"parts": [{"functionCall": {"name": 5}}]}}],
        [{"content": {"parts": [{"functionCall": {"args": {}}}]}}],
        [{"content": {"parts": [{"text": "a", "thoughtSignature": 5}]}}],
        [{"finishReason": 5}],
    ],
)
def test_member_of_the_wrong_type_is_an_upstream_error(candidates: Any) -> None:
    wrong = {"candidates": candidates}
    assert failure(decode_all(WIRE, sse(wrong, END)))[:2] == (502, "upstream_invalid")
    assert failure(WIRE.decode_answer(json.dumps(wrong).encode()))[:2] == (502, "upstream_invalid")


def test_index_is_ignored_and_other_candidates_are_not_read() -> None:
    first, second = frame(text("a"))["candidates"][0], frame(text("b"))["candidates"][0]
    for index in (-1, 10**30, "x", None, 1.5):
        stream = sse({"candidates": [{**first, "index": index}, second]}, END)
        assert gist(fold(decode_all(WIRE, stream))).text == "a"


@pytest.mark.parametrize("part", [call("f"), text("a", SIG), {"inlineData": {"mimeType": "image/png", "data": ""}}])
def test_too_many_calls_signatures_or_items_are_an_upstream_error(part: Json) -> None:
    few, many = (sse(*([frame(part)] * count), END) for count in (MAX_INDEXES, MAX_INDEXES + 1))
    assert isinstance(check_one_end(decode_all(WIRE, few)), AnswerFinished)
    assert str(MAX_INDEXES) in failure(decode_all(WIRE, many))[2]


def test_deep_nesting_is_an_upstream_error() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    raw = b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":%b}}}]}}]}' % json.dumps(deep).encode()
    assert failure(decode_all(WIRE, b"data: " + raw + b"\n\n"))[:2] == (502, "upstream_invalid")
    assert failure(WIRE.decode_answer(b"[" * 100_000))[:2] == (502, "upstream_invalid")


def test_lone_surrogates_are_replaced() -> None:
    raw = b'data: {"candidates":[{"content":{"parts":[{"text":"a\\ud83d"}]},"finishReason":"STOP"}]}\n\n'
    assert gist(fold(decode_all(WIRE, raw))).text == "a\ufffd"
