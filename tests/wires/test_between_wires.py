"""From one wire to another and back: what both can say survives, and what one cannot say is never lost in silence."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.exchange import decoded, envelope, fold, gist, turned
from tests.strategies import answers, chat_bodies
from tests.wires.strategies import responses_bodies, without_losses
from tests.wires.test_every_wire import altered, check_one_end, recorded
from toolrelay.core.events import AnswerFailed, CallStarted, StreamEvent
from toolrelay.core.messages import (
    Call,
    File,
    Image,
    Item,
    Message,
    OpaqueItem,
    OpaquePart,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, OutputFormat, ReasoningWish, Request, Sampling, Tool, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires.base import Wire, discover

WIRES = discover()
CHAT, RESPONSES = WIRES["openai_chat"], WIRES["openai_responses"]
OPENAI = Profile(developer_role=True)
Json = dict[str, Any]

some = settings(max_examples=40)


def over(wire: Wire, request: Request) -> Request:
    """As a gateway behind this one would read it."""
    return wire.decode_request(wire.encode_request(request, OPENAI).body)


# Requests


@some
@given(chat_bodies())
def test_a_chat_request_survives_the_way_over_responses(body: Json) -> None:  # bug 21, 30, 31, 33, 34
    first = CHAT.decode_request(json.dumps(_with_known_formats(body)).encode())
    try:
        between = over(RESPONSES, first)
    except ClientError as refused:
        assert refused.code == "unsupported_by_upstream", refused  # noqa: PT017 -- to survive is just as good
        assert _asks_too_much(first)
        return
    assert not _asks_too_much(first)
    assert without_losses(over(CHAT, between)) == without_losses(first)


def _asks_too_much(request: Request) -> bool:
    contents = [
        item.content if isinstance(item, Message) else item.output for item in request.items if isinstance(item, Message | Result)
    ]
    return (request.sampling.n or 1) > 1 or any(isinstance(part, OpaquePart) for content in contents for part in content)


def _with_known_formats(body: Json) -> Json:
    """Formats that only some servers know are extra members, with which this has nothing to do."""
    form = body.get("response_format")
    if form is None or form == {"type": "text"} or form == {"type": "json_object"}:
        return body
    schema = {"name": "answer", "schema": {}, **form.get("json_schema", {})}
    return {**body, "response_format": {"type": "json_schema", "json_schema": schema}}


@some
@given(chat_bodies())
def test_a_chat_request_comes_back_to_the_letter(body: Json) -> None:  # bug 20, 21, 34
    """Where it says only what both wires know."""
    plain = _plain(_with_known_formats(body))
    first = CHAT.decode_request(json.dumps(plain).encode())
    there = RESPONSES.encode_request(first, OPENAI)
    assert there.dropped == ()
    back = CHAT.encode_request(RESPONSES.decode_request(there.body), OPENAI)
    assert back.dropped == ()
    assert json.loads(back.body) == plain


_BOTH = frozenset(
    "model messages tools tool_choice parallel_tool_calls temperature top_p max_tokens logprobs top_logprobs verbosity"
    " response_format reasoning_effort metadata user service_tier prompt_cache_key safety_identifier stream".split()
)


def _plain(body: Json) -> Json:
    """Without the members that Responses does not know; what it takes for granted is spelt out."""
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
def test_a_responses_request_survives_the_way_over_chat(body: Json) -> None:  # bug 21, 30, 31, 33, 34
    first = RESPONSES.decode_request(json.dumps(body).encode())
    assert without_losses(over(RESPONSES, over(CHAT, first))) == without_losses(first)


@some
@given(responses_bodies(lost=False))
def test_nothing_is_dropped_where_both_wires_can_say_everything(body: Json) -> None:
    request = RESPONSES.decode_request(json.dumps(body).encode())
    assert CHAT.encode_request(request, OPENAI).dropped == ()
    again = over(CHAT, request)
    assert RESPONSES.encode_request(again, OPENAI).dropped == ()


def test_legacy_functions_are_tools_to_the_other_wire() -> None:
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


# What cannot be said


def elsewhere(*items: Item, **members: Any) -> Request:
    """A request that came over a wire which can say everything."""
    return Request(wire="elsewhere", model="m", items=(Message(role="user", content="Hi"), *items), **members)


def saying(part: Any) -> Message:
    return Message(role="user", content=(part,))


_OWN_TOOL = OpaqueTool(wire="elsewhere", raw={"type": "web_search"})
_OWN_ITEM = OpaqueItem(wire="elsewhere", raw={"type": "web_search_call", "id": "ws_1"})
_OWN_CHOICE = ToolChoice(raw={"type": "web_search"})
_FUNCTION = Tool(name="f", parameters={})

WISHES: dict[str, list[Request]] = {
    "include": [elsewhere(include=("file_search_call.results",))],
    "max_tool_calls": [elsewhere(max_tool_calls=3)],
    "reasoning.summary": [elsewhere(reasoning=ReasoningWish(summary="auto"))],
    "reasoning items that are summarised or sealed": [
        elsewhere(Reasoning(summary=("Hm.",))),
        elsewhere(Reasoning(encrypted="seal", id="rs_1")),
        elsewhere(Reasoning(text=("I think.",), encrypted="seal")),
        elsewhere(Reasoning(text=("I think.",), summary=("Hm.",))),
    ],
    "message phase": [elsewhere(Message(role="assistant", content="So", phase="commentary"))],
    "truncation: auto": [elsewhere(truncation="auto")],
    "a provider's own tools (web_search, file_search, mcp, …)": [elsewhere(tools=(_OWN_TOOL,))],
    "a provider's own tools": [elsewhere(tools=(_OWN_TOOL,))],
    "a provider's own items (web_search_call, …)": [elsewhere(_OWN_ITEM)],
    "a provider's own items": [elsewhere(_OWN_ITEM)],
    "images by file id": [elsewhere(saying(Image(file_id="file-1")))],
    "files by URL": [elsewhere(saying(File(url="https://example.org/a.pdf")))],
    "content parts of unknown type": [elsewhere(saying(OpaquePart(wire="elsewhere", raw={"type": "video"})))],
    "tool_choice that names a provider's own tool": [elsewhere(tools=(_FUNCTION,), tool_choice=_OWN_CHOICE)],
    "other request fields": [elsewhere(extra={"other request fields": 1})],
    "stop": [elsewhere(sampling=Sampling(stop="\n")), elsewhere(sampling=Sampling(stop=("a", "b")))],
    "seed": [elsewhere(sampling=Sampling(seed=0))],
    "presence_penalty": [elsewhere(sampling=Sampling(presence_penalty=1.0))],
    "frequency_penalty": [elsewhere(sampling=Sampling(frequency_penalty=1.0))],
    "logit_bias": [elsewhere(sampling=Sampling(logit_bias={"1": 1.0}))],
    "name": [elsewhere(Message(role="user", content="Hi", name="someone"))],
    "n": [elsewhere(sampling=Sampling(n=2))],
}
UNSAYABLE = [(wire, what) for wire in WIRES.values() for what in wire.cannot_say]


@pytest.mark.parametrize(("wire", "what"), UNSAYABLE, ids=[f"{wire.name}-{what}" for wire, what in UNSAYABLE])
def test_what_a_wire_cannot_say_is_dropped_by_name_or_refused(wire: Wire, what: str) -> None:
    assert what in WISHES, f"{wire.name} cannot say {what!r}: write here how a request asks for it"
    for request in WISHES[what]:
        if wire.cannot_say[what] == "dropped":
            outgoing = wire.encode_request(request, Profile())
            assert what in outgoing.dropped
            assert len(set(outgoing.dropped)) == len(outgoing.dropped)
        else:
            with pytest.raises(ClientError) as refused:
                wire.encode_request(request, Profile())
            assert refused.value.code == "unsupported_by_upstream"
            assert refused.value.param


def test_nothing_is_dropped_of_a_request_that_asks_for_nothing_special() -> None:
    for wire in WIRES.values():
        assert wire.encode_request(elsewhere(), Profile()).dropped == ()


SECRET = "the words that must not get lost"
_PLACES: dict[str, Request] = {
    "text": elsewhere(saying(Text(text=SECRET))),
    "a refusal": elsewhere(Message(role="assistant", content=(Refusal(text=SECRET),))),
    "an image": elsewhere(saying(Image(url=SECRET))),
    "an image's detail": elsewhere(saying(Image(url="u", detail=SECRET))),
    "a file's id": elsewhere(saying(File(file_id=SECRET))),
    "a file": elsewhere(saying(File(data=SECRET, filename="a.pdf"))),
    "a file's name": elsewhere(saying(File(data="d", filename=SECRET))),
    "the name of a message": elsewhere(Message(role="user", content="Hi", name=SECRET)),
    "a message's own member": elsewhere(Message(role="user", content="Hi", extra={"x": SECRET})),
    "a part's own member": elsewhere(saying(Text(text="Hi", extra={"x": SECRET}))),
    "an annotation": elsewhere(Message(role="assistant", content=(Text(text="Hi", annotations=({"url": SECRET},)),))),
    "a call's arguments": elsewhere(Call(id="c", name="f", arguments=SECRET)),
    "a call's name": elsewhere(Call(id="c", name=SECRET, arguments="{}")),
    "a call's namespace": elsewhere(Call(id="c", name="f", arguments="{}", namespace=SECRET)),
    "a call's own member": elsewhere(Call(id="c", name="f", arguments="{}", extra={"x": SECRET})),
    "a custom call's input": elsewhere(Call(id="c", name="f", arguments=SECRET, kind="custom")),
    "a result": elsewhere(Call(id="c", name="f", arguments="{}"), Result(call_id="c", output=SECRET)),
    "a result's parts": elsewhere(Call(id="c", name="f", arguments="{}"), Result(call_id="c", output=(Text(text=SECRET),))),
    "a result's own member": elsewhere(
        Call(id="c", name="f", arguments="{}"), Result(call_id="c", output="", extra={"x": SECRET})
    ),
    "a thought": elsewhere(Reasoning(text=(SECRET,))),
    "a thought's summary": elsewhere(Reasoning(summary=(SECRET,))),
    "a seal": elsewhere(Reasoning(encrypted=SECRET)),
    "a thought's own member": elsewhere(Reasoning(text=("Hm.",), extra={"x": SECRET})),
    "a tool's description": elsewhere(tools=(Tool(name="f", description=SECRET),)),
    "a tool's parameters": elsewhere(tools=(Tool(name="f", parameters={"$ref": SECRET}),)),
    "a tool's own member": elsewhere(tools=(Tool(name="f", extra={"x": SECRET}),)),
    "a grammar": elsewhere(tools=(Tool(name="f", kind="custom", format={"type": "grammar", "definition": SECRET}),)),
    "a hosted tool": elsewhere(tools=(OpaqueTool(wire="elsewhere", raw={"type": SECRET}),)),
    "the tool choice": elsewhere(tools=(Tool(name=SECRET),), tool_choice=ToolChoice(mode="named", names=(("function", SECRET),))),
    "the instructions": elsewhere(instructions=SECRET),
    "the output's schema": elsewhere(output=OutputFormat(type="json_schema", name="n", schema={"x": SECRET})),
    "the output's description": elsewhere(output=OutputFormat(type="json_schema", name="n", schema={}, description=SECRET)),
    "the effort": elsewhere(reasoning=ReasoningWish(effort=SECRET)),
    "the wish for a summary": elsewhere(reasoning=ReasoningWish(summary=SECRET)),
    "a wish about reasoning": elsewhere(reasoning=ReasoningWish(extra={"x": SECRET})),
    "the verbosity": elsewhere(sampling=Sampling(verbosity=SECRET)),
    "a stop": elsewhere(sampling=Sampling(stop=SECRET)),
    "what to include": elsewhere(include=(SECRET,)),
    "the metadata": elsewhere(metadata={"x": SECRET}),
    "the user": elsewhere(user=SECRET),
    "the tier": elsewhere(service_tier=SECRET),
    "the cache key": elsewhere(prompt_cache_key=SECRET),
    "the safety identifier": elsewhere(safety_identifier=SECRET),
    "the truncation": elsewhere(truncation=SECRET),
    "an unknown field": elsewhere(extra={"x": SECRET}),
}


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("request_", _PLACES.values(), ids=_PLACES)
def test_whatever_a_client_says_goes_on_or_is_named_as_dropped_or_is_refused(wire: Wire, request_: Request) -> None:  # bug 23
    try:
        outgoing = wire.encode_request(request_, Profile())
    except ClientError as refused:
        assert refused.code == "unsupported_by_upstream"  # noqa: PT017 -- one of three good ends
        return
    assert SECRET in outgoing.body.decode() or outgoing.dropped


# Answers


@some
@given(answers(custom=True, ids=False, truncated=True))
def test_all_four_ways_give_the_same_answer(events: list[StreamEvent]) -> None:  # bug 3, 4, 5, 7, 8, 10, 12, 33, 40
    expected = None
    for front, back in itertools.product((CHAT, RESPONSES), repeat=2):
        request = Request(wire=front.name, model="m", items=(), stream=True, include_usage=True)
        upstream = envelope(replace(request, wire=back.name))
        streamed, _ = turned(request, decoded(back, back.encoder(upstream).encode(events)))
        whole, _ = turned(request, back.decode_answer(back.encode_answer(fold(events), upstream)))
        for emitted in (streamed, whole):
            got = gist(fold(decoded(front, front.encoder(envelope(request)).encode(emitted))))
            assert got == gist(fold(front.decode_answer(front.encode_answer(fold(emitted), envelope(request)))))
            expected = expected or got
            assert got == expected, (front.name, back.name)


@pytest.mark.parametrize("back", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("front", WIRES.values(), ids=WIRES)
@settings(max_examples=40)
@given(st.data())
def test_whatever_a_provider_sends_the_client_gets_a_stream_with_an_end(
    front: Wire, back: Wire, data: st.DataObject
) -> None:  # bug 18, 24, 38
    """Odd values that a provider puts into its frames must not break our own."""
    request = Request(wire=front.name, model="m", items=(), stream=True, include_usage=True)
    stream = altered(data.draw(st.sampled_from(recorded(back))), data)
    emitted, _ = turned(request, decoded(back, stream))
    written = front.encoder(envelope(request)).encode(emitted)
    read = decoded(front, written)
    assert isinstance(check_one_end(read), AnswerFailed) == isinstance(emitted[-1], AnswerFailed)
    json.loads(front.encode_answer(fold(emitted), envelope(request)))
    names = [event.name for event in emitted if isinstance(event, CallStarted) and not event.choice]
    assert [event.name for event in read if isinstance(event, CallStarted) and not event.choice] == names
