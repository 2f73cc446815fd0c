"""Frames for Responses clients: their order and exact members."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wires.responses.frames import TOKEN, encoded, envelope, frames, validated, whole
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finish,
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
from toolrelay.core.json import JsonObject
from toolrelay.errors import BackendError, ClientError, InternalError, ToolrelayError
from toolrelay.wires.responses import WIRE

MSG, FC, CTC, RS = (f"{prefix}_{TOKEN}000" for prefix in ("msg", "fc", "ctc", "rs"))
END = AnswerFinished(finish="stop", usage=Usage(input=3, output=2))


def lines(*events: StreamEvent) -> list[str]:
    """The frames of the items as text, without their sequence numbers."""
    written = frames(encoded([AnswerStarted(), *events, END]))
    validated(written)
    assert [frame["type"] for frame in written[:2]] == ["response.created", "response.in_progress"]
    assert written[-1]["type"] in ("response.completed", "response.incomplete")
    shown = []
    for frame in written[2:-1]:
        del frame["sequence_number"]
        shown.append(f"{frame.pop('type').removeprefix('response.')} {json.dumps(frame)}")
    return shown


def types(*events: StreamEvent) -> list[str]:
    return [line.split(" ")[0] for line in lines(*events)]


def output(*events: StreamEvent) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = frames(encoded([*events, END]))[-1]["response"]["output"]
    return items


def test_text_frames() -> None:
    place = f'"item_id": "{MSG}0", "output_index": 0, "content_index": 0'
    part = '"annotations": [], "logprobs": []'
    item, role = f'"type": "message", "id": "{MSG}0"', '"role": "assistant"'
    content = f'[{{"type": "output_text", "text": "Hello \\"\\u00fc\\"", {part}}}]'
    assert lines(TextDelta("Hel"), TextDelta('lo "ü"')) == [
        f'output_item.added {{"output_index": 0, "item": {{{item}, "status": "in_progress", {role}, "content": []}}}}',
        f'content_part.added {{{place}, "part": {{"type": "output_text", "text": "", {part}}}}}',
        f'output_text.delta {{{place}, "logprobs": [], "delta": "Hel"}}',
        f'output_text.delta {{{place}, "logprobs": [], "delta": "lo \\"\\u00fc\\""}}',
        f'output_text.done {{{place}, "text": "Hello \\"\\u00fc\\"", "logprobs": []}}',
        f'content_part.done {{{place}, "part": {{"type": "output_text", "text": "Hello \\"\\u00fc\\"", {part}}}}}',
        f'output_item.done {{"output_index": 0, "item": {{{item}, "status": "completed", {role}, "content": {content}}}}}',
    ]


def test_parallel_calls_frames() -> None:  # bug 7  # bug 8  # bug 9
    def item(index: int, name: str, arguments: str, status: str) -> str:
        return (
            f'{{"output_index": {index}, "item": {{"type": "function_call", "id": "{FC}{index}", "status": "{status}", '
            f'"call_id": "call_{index}", "name": "{name}", "arguments": {json.dumps(arguments)}}}}}'
        )

    places = [f'"item_id": "{FC}{index}", "output_index": {index}' for index in (0, 1)]
    assert lines(
        CallStarted(0, "f", "call_0"),
        CallStarted(1, "g", "call_1"),
        ArgumentsDelta(1, '{"b":'),
        ArgumentsDelta(0, "{}"),
        ArgumentsDelta(1, "2}"),
        CallFinished(1),
        CallFinished(0),
    ) == [
        f"output_item.added {item(0, 'f', '', 'in_progress')}",
        f"output_item.added {item(1, 'g', '', 'in_progress')}",
        f'function_call_arguments.delta {{{places[1]}, "delta": "{{\\"b\\":"}}',
        f'function_call_arguments.delta {{{places[0]}, "delta": "{{}}"}}',
        f'function_call_arguments.delta {{{places[1]}, "delta": "2}}"}}',
        f'function_call_arguments.done {{{places[1]}, "name": "g", "arguments": "{{\\"b\\":2}}"}}',
        "output_item.done " + item(1, "g", '{"b":2}', "completed"),
        f'function_call_arguments.done {{{places[0]}, "name": "f", "arguments": "{{}}"}}',
        "output_item.done " + item(0, "f", "{}", "completed"),
    ]


def test_custom_call_frames() -> None:  # bug 33
    place = f'"item_id": "{CTC}0", "output_index": 0'
    head = f'"type": "custom_tool_call", "id": "{CTC}0"'
    rest = '"call_id": "call_0", "name": "sql"'
    assert lines(CallStarted(0, "sql", "call_0", "custom"), ArgumentsDelta(0, "SELECT"), CallFinished(0)) == [
        f'output_item.added {{"output_index": 0, "item": {{{head}, "status": "in_progress", {rest}, "input": ""}}}}',
        f'custom_tool_call_input.delta {{{place}, "delta": "SELECT"}}',
        f'custom_tool_call_input.done {{{place}, "input": "SELECT"}}',
        f'output_item.done {{"output_index": 0, "item": {{{head}, "status": "completed", {rest}, "input": "SELECT"}}}}',
    ]


def test_reasoning_keeps_provider_id_and_encrypted_content() -> None:  # bug 31
    place = '"item_id": "rs_own", "output_index": 0'
    head = '"type": "reasoning", "id": "rs_own"'
    done = (
        '"summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}], '
        '"content": [{"type": "reasoning_text", "text": "c"}], "encrypted_content": "sealed"'
    )
    assert lines(
        ReasoningStarted(id="rs_own"),
        ReasoningDelta("a", "summary", 0),
        ReasoningDelta("b", "summary", 1),
        ReasoningDelta("c", "text", 0),
        ReasoningFinished(encrypted="sealed"),
    ) == [
        f'output_item.added {{"output_index": 0, "item": {{{head}, "summary": []}}}}',
        f'reasoning_summary_part.added {{{place}, "summary_index": 0, "part": {{"type": "summary_text", "text": ""}}}}',
        f'reasoning_summary_text.delta {{{place}, "summary_index": 0, "delta": "a"}}',
        f'reasoning_summary_text.done {{{place}, "summary_index": 0, "text": "a"}}',
        f'reasoning_summary_part.done {{{place}, "summary_index": 0, "part": {{"type": "summary_text", "text": "a"}}}}',
        f'reasoning_summary_part.added {{{place}, "summary_index": 1, "part": {{"type": "summary_text", "text": ""}}}}',
        f'reasoning_summary_text.delta {{{place}, "summary_index": 1, "delta": "b"}}',
        f'reasoning_summary_text.done {{{place}, "summary_index": 1, "text": "b"}}',
        f'reasoning_summary_part.done {{{place}, "summary_index": 1, "part": {{"type": "summary_text", "text": "b"}}}}',
        f'content_part.added {{{place}, "content_index": 0, "part": {{"type": "reasoning_text", "text": ""}}}}',
        f'reasoning_text.delta {{{place}, "content_index": 0, "delta": "c"}}',
        f'reasoning_text.done {{{place}, "content_index": 0, "text": "c"}}',
        f'content_part.done {{{place}, "content_index": 0, "part": {{"type": "reasoning_text", "text": "c"}}}}',
        f'output_item.done {{"output_index": 0, "item": {{{head}, {done}}}}}',
    ]


def test_reasoning_without_id_gets_one() -> None:
    assert output(ReasoningDelta("a"))[0]["id"] == f"{RS}0"


def test_refusal_is_a_separate_part() -> None:
    assert types(TextDelta("a"), RefusalDelta("no"), RefusalDelta("pe")) == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "refusal.delta",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
    ]
    refused = output(TextDelta("a"), RefusalDelta("no"), RefusalDelta("pe"))[0]["content"]
    assert [part["type"] for part in refused] == ["output_text", "refusal"]
    assert refused[1] == {"type": "refusal", "refusal": "nope"}


def test_text_before_between_and_after_calls_keeps_its_order() -> None:  # bug 12  # bug 13
    items = output(
        TextDelta("a"),
        CallStarted(0, "f", "call_0"),
        CallFinished(0),
        TextDelta("b"),
        CallStarted(1, "f", "call_1"),
        CallFinished(1),
        TextDelta("c"),
    )
    order = [item["content"][0]["text"] if item["type"] == "message" else item["call_id"] for item in items]
    assert order == ["a", "call_0", "b", "call_1", "c"]


def test_messages_with_phases_are_kept_apart() -> None:
    items = output(
        MessageStarted(phase="commentary"), TextDelta("a"), MessageStarted(), TextDelta("b"), MessageStarted(phase="final_answer")
    )
    assert [(item["content"][0]["text"], item.get("phase")) for item in items] == [("a", "commentary"), ("b", None)]


def test_annotations_and_logprobs_are_in_the_text_part() -> None:
    cite: JsonObject = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    logprob: JsonObject = {"token": "a", "bytes": [97], "logprob": -1.0, "top_logprobs": []}
    events: list[StreamEvent] = [TextDelta("a", 0, [logprob]), AnnotationAdded(cite), AnnotationAdded(cite), TextDelta("b")]
    written = frames(encoded([*events, END]))
    validated(written)
    added = [frame for frame in written if frame["type"] == "response.output_text.annotation.added"]
    assert [(frame["annotation_index"], frame["annotation"]) for frame in added] == [(0, cite), (1, cite)]
    deltas = [frame["logprobs"] for frame in written if frame["type"] == "response.output_text.delta"]
    assert deltas == [[logprob], []]
    part = {"type": "output_text", "text": "ab", "annotations": [cite, cite], "logprobs": [logprob]}
    assert written[-1]["response"]["output"][0]["content"] == [part]


def test_opaque_item_passes_only_on_its_own_wire() -> None:
    raw: JsonObject = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
    foreign = ItemReceived(wire="gemini", raw={"type": "odd"})
    events: list[StreamEvent] = [TextDelta("a"), foreign, ItemReceived(wire=WIRE.name, raw=raw), TextDelta("b")]
    assert [item["type"] for item in output(*events)] == ["message", "web_search_call", "message"]
    assert [line for line in lines(*events) if "ws_1" in line] == [
        f'output_item.{what} {{"output_index": 1, "item": {json.dumps(raw)}}}' for what in ("added", "done")
    ]
    assert frames(encoded([*events, END]))[-1]["response"] == whole([*events, END])


def test_empty_deltas_start_no_items() -> None:
    events: list[StreamEvent] = [
        TextDelta(""),
        RefusalDelta(""),
        CallStarted(0, "f", "call_0"),
        CallFinished(0),
        MessageStarted(),
    ]
    assert [item["type"] for item in output(*events)] == ["function_call"]
    assert frames(encoded([*events, END]))[-1]["response"] == whole([*events, END])


def test_other_choices_are_ignored() -> None:
    events: list[StreamEvent] = [
        TextDelta("a"),
        TextDelta("x", 1),
        CallStarted(0, "f", "call_9", choice=1),
        ArgumentsDelta(0, "{}", 1),
        RefusalDelta("y", 1),
        TextDelta("b"),
    ]
    assert [item["content"][0]["text"] for item in output(*events)] == ["ab"]


def test_summaries_keep_the_order_in_which_they_began() -> None:
    events: list[StreamEvent] = [ReasoningDelta("c", "summary", 2), ReasoningDelta("a", "summary", 0), ReasoningFinished()]
    assert [part["text"] for part in output(*events)[0]["summary"]] == ["c", "a"]
    assert types(*events).count("reasoning_summary_part.added") == 2


def test_late_summary_delta_is_in_the_finished_item() -> None:
    events: list[StreamEvent] = [ReasoningDelta(text, "summary", part) for text, part in (("a", 0), ("b", 1), ("a", 0), ("b", 1))]
    assert [part["text"] for part in output(*events, ReasoningFinished())[0]["summary"]] == ["aa", "bb"]
    assert types(*events).count("reasoning_summary_part.added") == 2


def test_lone_surrogate_is_replaced() -> None:
    events: list[StreamEvent] = [
        TextDelta("a"),
        TextDelta("\ud83d"),
        CallStarted(0, "f", "call_0"),
        ArgumentsDelta(0, "\ude00"),
        CallFinished(0),
    ]
    message, call = output(*events)
    assert message["content"][0]["text"] == "a\ufffd"
    assert call["arguments"] == "\ufffd"


# The end


def last(*events: StreamEvent) -> dict[str, Any]:
    written = frames(encoded(events))
    validated(written)
    return written[-1]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_truncated_answer_is_incomplete(finish: Finish, reason: str) -> None:  # bug 5
    events: list[StreamEvent] = [TextDelta("a"), AnswerFinished(finish=finish)]
    frame = last(*events)
    assert frame["type"] == "response.incomplete"
    assert frame["response"]["status"] == "incomplete"
    assert frame["response"]["incomplete_details"] == {"reason": reason}
    assert frame["response"]["completed_at"] is None
    assert [item["status"] for item in frame["response"]["output"]] == ["incomplete"]
    assert frame["response"] == whole(events)


def test_unfinished_call_makes_the_response_incomplete() -> None:  # bug 5
    frame = last(CallStarted(0, "f", "call_0"), ArgumentsDelta(0, '{"a'), AnswerFinished(finish="stop"))
    assert frame["type"] == "response.incomplete"
    assert [(item["status"], item["arguments"]) for item in frame["response"]["output"]] == [("incomplete", '{"a')]


def test_usage_is_reported_in_full() -> None:  # bug 40
    usage = Usage(input=10, output=5, cached=4, reasoning=3)
    assert last(AnswerFinished(finish="stop", usage=usage))["response"]["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15,
    }


def test_events_after_the_end_are_ignored() -> None:
    encoder = WIRE.encoder(envelope())
    assert encoder.encode([END, TextDelta("late"), END]).count(b"[DONE]") == 1
    assert encoder.encode([TextDelta("later"), END]) == b""


def test_stream_starts_with_created_and_in_progress() -> None:
    encoder = WIRE.encoder(envelope())
    begun = encoder.encode([AnswerStarted(model="theirs")])
    assert begun.count(b"event: ") == 2
    assert b'"model":"fast"' in begun
    assert b"theirs" not in begun


def test_failure_closes_open_items_and_sends_error_and_failed() -> None:  # bug 38
    error = BackendError("broken", code="upstream_cut", param="p")
    events: list[StreamEvent] = [
        AnswerStarted(),
        TextDelta("a"),
        CallStarted(0, "f", "call_0"),
        ArgumentsDelta(0, "{"),
        AnswerFailed(error),
    ]
    written = frames(encoded(events))
    validated(written)
    assert [frame["type"] for frame in written[-3:]] == ["response.output_item.done", "error", "response.failed"]
    sent = written[-2]
    del sent["sequence_number"]
    assert sent == {"type": "error", "code": "upstream_cut", "message": "broken", "param": "p"}
    response = written[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "broken"}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


def test_failure_before_any_text_still_sends_created() -> None:  # bug 38
    written = frames(encoded([AnswerFailed(BackendError("broken"))]))
    assert [frame["type"] for frame in written] == ["response.created", "response.in_progress", "error", "response.failed"]
    validated(written)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackendError("m"), "server_error"),
        (InternalError("m"), "server_error"),
        (BackendError("m", status=429), "rate_limit_exceeded"),
        (ClientError("m"), "invalid_prompt"),
        (BackendError("m", code="image_too_large", status=400), "image_too_large"),
    ],
)
def test_failure_has_an_api_error_code(error: ToolrelayError, code: str) -> None:
    assert last(AnswerFailed(error))["response"]["error"]["code"] == code
