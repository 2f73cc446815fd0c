"""Translation from one wire to another and back: what both support survives."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.exchange import check_one_end, decode_all, envelope, fold, gist, run_turn
from tests.golden.transcripts import recorded
from tests.served_wires import FRONT_WIRES, SERVED_WIRES
from tests.strategies import answers, chat_bodies
from tests.wires.strategies import altered_stream, responses_bodies, without_losses
from toolrelay.core.assembly import Answer
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import (
    Message,
    OpaquePart,
    Result,
)
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request, Tool
from toolrelay.errors import ClientError
from toolrelay.wires.base import Wire

CHAT, RESPONSES = FRONT_WIRES["openai_chat"], FRONT_WIRES["openai_responses"]
OPENAI = Profile(developer_role=True)
Json = dict[str, Any]

some = settings(max_examples=25)


def over(wire: Wire, request: Request) -> Request:
    """The request as a gateway behind this one would decode it."""
    return wire.decode_request(wire.encode_request(request, OPENAI).body)


# Requests


@some
@given(chat_bodies())
def test_chat_request_survives_translation_to_responses_and_back(body: Json) -> None:  # bug 21, 30, 31, 33, 34
    first = CHAT.decode_request(json.dumps(_with_known_formats(body)).encode())
    try:
        between = over(RESPONSES, first)
    except ClientError as refused:
        assert refused.code == "unsupported_by_upstream", refused  # noqa: PT017 -- to survive is just as good
        assert _has_unsupported_fields(first)
        return
    assert not _has_unsupported_fields(first)
    assert without_losses(over(CHAT, between)) == without_losses(first)


def _has_unsupported_fields(request: Request) -> bool:
    contents = [
        item.content if isinstance(item, Message) else item.output for item in request.items if isinstance(item, Message | Result)
    ]
    opaque = any(isinstance(part, OpaquePart) for content in contents for part in content)
    return (request.sampling.n or 1) > 1 or bool(request.sampling.stop) or opaque


def _with_known_formats(body: Json) -> Json:
    """Formats of unknown type are extra members, which are tested elsewhere."""
    form = body.get("response_format")
    if form is None or form in ({"type": "text"}, {"type": "json_object"}):
        return body
    schema = {"name": "answer", "schema": {}, **form.get("json_schema", {})}
    return {**body, "response_format": {"type": "json_schema", "json_schema": schema}}


@some
@given(chat_bodies())
def test_chat_request_with_shared_members_comes_back_unchanged(body: Json) -> None:  # bug 20, 21, 34
    """If it has only members that both wires support."""
    plain = _plain(_with_known_formats(body))
    first = CHAT.decode_request(json.dumps(plain).encode())
    there = RESPONSES.encode_request(first, OPENAI)
    assert there.dropped == ()
    back = CHAT.encode_request(RESPONSES.decode_request(there.body), OPENAI)
    assert back.dropped == ()
    assert json.loads(back.body) == plain


_OPTIONS = ("stream", "parallel_tool_calls", "temperature", "top_p", "max_tokens", "logprobs", "top_logprobs", "verbosity")
_SETTINGS = ("metadata", "user", "service_tier", "prompt_cache_key", "safety_identifier", "reasoning_effort")
_BOTH = {"model", "messages", "tools", "tool_choice", "response_format", *_OPTIONS, *_SETTINGS}


def _plain(body: Json) -> Json:
    """The message without members that Responses does not know, and with its defaults made explicit."""
    plain = {key: value for key, value in body.items() if key in _BOTH and (key, value) != ("logprobs", False)}
    plain["messages"] = [_plain_message(message) for message in body["messages"]]
    if "tools" in body:
        plain["tools"] = [_plain_tool(tool) for tool in body["tools"]]
    if "response_format" in body:
        form = plain["response_format"]
        schema = _only(form.get("json_schema", {}), "name", "description", "schema", "strict")
        plain["response_format"] = {**form, "json_schema": schema} if schema else form
    if plain.get("stream"):
        plain["stream_options"] = {"include_usage": True}
    return plain


def _plain_message(message: Json) -> Json:
    plain = _only(message, "role", "content", "tool_call_id", "refusal", "reasoning_content")
    if "tool_calls" in message:
        plain["tool_calls"] = [
            {"id": call["id"], "type": call["type"], call["type"]: _only(call[call["type"]], "name", "arguments", "input")}
            for call in message["tool_calls"]
        ]
    if isinstance(message["content"], list):
        plain["content"] = [_plain_part(part) for part in message["content"]]
    return plain


def _plain_part(part: Json) -> Json:
    kind = part["type"]
    if kind == "video_url":
        return {"type": "text", "text": "a video"}
    plain = _only(part, "type", kind)
    return {**plain, kind: _only(plain[kind], "url", "detail")} if kind == "image_url" else plain


def _plain_tool(tool: Json) -> Json:
    kind = tool["type"]
    inner = _only(tool[kind], "name", "description", "parameters", "strict", "format")
    return {"type": kind, kind: {**inner, "strict": bool(inner.get("strict"))} if kind == "function" else inner}


def _only(members: Json, *names: str) -> Json:
    return {key: value for key, value in members.items() if key in names}


@some
@given(responses_bodies())
def test_responses_request_survives_translation_to_chat_and_back(body: Json) -> None:  # bug 21, 30, 31, 33, 34
    first = RESPONSES.decode_request(json.dumps(body).encode())
    assert without_losses(over(RESPONSES, over(CHAT, first))) == without_losses(first)


@some
@given(responses_bodies(unsupported=False))
def test_request_that_both_wires_support_drops_nothing(body: Json) -> None:
    request = RESPONSES.decode_request(json.dumps(body).encode())
    assert CHAT.encode_request(request, OPENAI).dropped == ()
    again = over(CHAT, request)
    assert RESPONSES.encode_request(again, OPENAI).dropped == ()


def test_legacy_functions_become_tools_on_responses() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
            {"role": "function", "name": "f", "content": "rain"},
        ],
        "functions": [{"name": "f", "parameters": {}}],
        "function_call": {"name": "f"},
    }
    first = CHAT.decode_request(json.dumps(body).encode())
    between = over(RESPONSES, first)
    assert without_losses(between) == without_losses(first)
    assert without_losses(over(CHAT, between)) == without_losses(first)


def test_both_endpoints_accept_both_shapes_of_tools_and_choices() -> None:
    flat = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    grammar = {"syntax": "lark", "definition": "start: /x/"}
    flat_custom = {"type": "custom", "name": "g", "format": {"type": "grammar", **grammar}}
    nested = {"type": "function", "function": {key: value for key, value in flat.items() if key != "type"}}
    nested_custom = {"type": "custom", "custom": {"name": "g", "format": {"type": "grammar", "grammar": grammar}}}
    choices = [{"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}]
    read = [
        wire.decode_request(json.dumps({"model": "m", member: [{"role": "user", "content": "Hi"}], **asked}).encode())
        for wire, member in ((CHAT, "messages"), (RESPONSES, "input"))
        for asked in (
            {"tools": tools, "tool_choice": choice}
            for tools in ([flat, flat_custom], [nested, nested_custom])
            for choice in choices
        )
    ]
    assert len({repr((request.tools, request.tool_choice)) for request in read}) == 1


# Answers


@some
@given(answers(custom=True, ids=False) | answers(ids=False, truncated=True))
def test_all_four_wire_pairs_give_the_same_answer(events: list[StreamEvent]) -> None:  # bug 3, 4, 5, 7, 8, 10, 12, 33, 40
    expected = None
    for front, back in itertools.product((CHAT, RESPONSES), repeat=2):
        request = Request(wire=front.name, model="m", items=(), stream=True, include_usage=True)
        upstream = envelope(replace(request, wire=back.name))
        streamed, _ = run_turn(request, decode_all(back, back.encoder(upstream).encode(events)))
        whole, _ = run_turn(request, back.decode_answer(back.encode_answer(fold(events), upstream)))
        for emitted in (streamed, whole):
            got = gist(fold(decode_all(front, front.encoder(envelope(request)).encode(emitted))))
            assert got == gist(fold(front.decode_answer(front.encode_answer(fold(emitted), envelope(request)))))
            expected = expected or got
            assert got == expected, (front.name, back.name)


def relayed(front: Wire, back: Wire, events: list[StreamEvent], **members: Any) -> Answer:
    """The answer as a client of the front wire folds it."""
    request = Request(wire=front.name, model="m", items=(), stream=True, include_usage=True, **members)
    upstream = back.encoder(envelope(replace(request, wire=back.name))).encode(events)
    emitted, _ = run_turn(request, decode_all(back, upstream))
    return fold(decode_all(front, front.encoder(envelope(request)).encode(emitted)))


FOUR_WAYS = pytest.mark.parametrize(
    ("front", "back"),
    list(itertools.product((CHAT, RESPONSES), repeat=2)),
    ids=lambda wire: wire.name.removeprefix("openai_"),
)


@FOUR_WAYS
def test_text_before_between_and_after_calls_is_relayed(front: Wire, back: Wire) -> None:  # bug 12, 13
    events: list[StreamEvent] = [AnswerStarted(model="m")]
    for index, word in enumerate(("before ", "between ")):
        events += [TextDelta(word), CallStarted(index, "f"), ArgumentsDelta(index, "{}"), CallFinished(index)]
    answer = relayed(front, back, [*events, TextDelta("after"), AnswerFinished(finish="calls")])
    assert gist(answer).text == "before between after"
    assert len(answer.calls) == 2


@FOUR_WAYS
@pytest.mark.parametrize(
    "arguments",
    [
        '{"count": "5", "extra": [1,2,], "more": 1e400}',
        '{"a" : 1,  "a": 2}',
        '{"n":12345678901234567890123456789}',
        '{"nested":"{\\"a\\":\\"\\\\u00e9\\"}"}',
        '"a string"',
        "not JSON at all",
    ],
)
def test_arguments_are_neither_coerced_nor_reserialized(front: Wire, back: Wire, arguments: str) -> None:  # bug 6, 21, 23
    """Whatever the schema says: the client validates them itself."""
    schema: JsonObject = {
        "type": "object",
        "properties": {"count": {"anyOf": [{"$ref": "#/$defs/c"}]}},
        "$defs": {"c": {"type": "integer"}},
    }
    events: list[StreamEvent] = [CallStarted(0, "f"), ArgumentsDelta(0, arguments), CallFinished(0)]
    answer = relayed(
        front,
        back,
        [AnswerStarted(model="m"), *events, AnswerFinished(finish="calls")],
        tools=(Tool(name="f", parameters=schema, strict=True),),
    )
    assert [call.arguments for call in answer.calls] == [arguments]


@FOUR_WAYS
def test_tool_names_are_neither_sanitized_nor_truncated(front: Wire, back: Wire) -> None:  # bug 32
    names = ["notes.read", "notes_read", "notes-read", "mcp__server__" + "x" * 80, "größe"]
    request = Request(wire=front.name, model="m", items=(), tools=tuple(Tool(name=name) for name in names))
    asked = json.loads(back.encode_request(request, OPENAI).body)
    assert [tool.get("name") or tool["function"]["name"] for tool in asked["tools"]] == names
    events: list[StreamEvent] = [AnswerStarted(model="m")]
    for index, name in enumerate(names):
        events += [CallStarted(index, name), ArgumentsDelta(index, "{}"), CallFinished(index)]
    answer = relayed(front, back, [*events, AnswerFinished(finish="calls")], tools=request.tools)
    assert [call.name for call in answer.calls] == names


@pytest.mark.parametrize("back", SERVED_WIRES.values(), ids=SERVED_WIRES)
@pytest.mark.parametrize("front", FRONT_WIRES.values(), ids=FRONT_WIRES)
@some
@given(st.data())
def test_malformed_upstream_stream_gives_client_a_finished_stream(
    front: Wire, back: Wire, data: st.DataObject
) -> None:  # bug 18, 24, 38
    """Odd values in a provider's frames must not break ours."""
    request = Request(wire=front.name, model="m", items=(), stream=True, include_usage=True)
    stream = altered_stream(data.draw(st.sampled_from(recorded(back))), data)
    emitted, _ = run_turn(request, decode_all(back, stream))
    written = front.encoder(envelope(request)).encode(emitted)
    read = decode_all(front, written)
    assert isinstance(check_one_end(read), AnswerFailed) == isinstance(emitted[-1], AnswerFailed)
    json.loads(front.encode_answer(fold(emitted), envelope(request)))
    names = [event.name for event in emitted if isinstance(event, CallStarted) and not event.choice]
    assert [event.name for event in read if isinstance(event, CallStarted) and not event.choice] == names
