"""What a wire cannot say is dropped by name or refused, never lost in silence."""

from __future__ import annotations

from typing import Any

import pytest

from toolrelay.core.messages import Call, File, Image, Item, Message, OpaqueItem, OpaquePart, Reasoning, Refusal, Result, Text
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires.base import Wire, discover

WIRES = discover()


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
    "reasoning.summary": [elsewhere(reasoning=ReasoningOptions(summary="auto"))],
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
    "other fields, at any level": [elsewhere(extra={"other fields, at any level": 1})],
    "a call's namespace": [elsewhere(Call(id="c", name="f", arguments="{}", namespace="n"))],
    "annotations of earlier answers": [
        elsewhere(Message(role="assistant", content=(Text(text="Hi", annotations=({"type": "url_citation"},)),)))
    ],
    "summaries of reasoning without the reasoning": [elsewhere(Reasoning(summary=("Hm.",)))],
    "stop": [elsewhere(sampling=Sampling(stop="\n")), elsewhere(sampling=Sampling(stop=("a", "b")))],
    "seed": [elsewhere(sampling=Sampling(seed=0))],
    "presence_penalty": [elsewhere(sampling=Sampling(presence_penalty=1.0))],
    "frequency_penalty": [elsewhere(sampling=Sampling(frequency_penalty=1.0))],
    "logit_bias": [elsewhere(sampling=Sampling(logit_bias={"1": 1.0}))],
    "name": [elsewhere(Message(role="user", content="Hi", name="someone"))],
    "n": [elsewhere(sampling=Sampling(n=2))],
}
UNSAYABLE = [(wire, what) for wire in WIRES.values() for what in wire.unsupported]


@pytest.mark.parametrize(("wire", "what"), UNSAYABLE, ids=[f"{wire.name}-{what}" for wire, what in UNSAYABLE])
def test_what_a_wire_cannot_say_is_dropped_by_name_or_refused(wire: Wire, what: str) -> None:
    assert what in WISHES, f"{wire.name} cannot say {what!r}: write here how a request asks for it"
    for request in WISHES[what]:
        if wire.unsupported[what] == "dropped":
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
    "the effort": elsewhere(reasoning=ReasoningOptions(effort=SECRET)),
    "the wish for a summary": elsewhere(reasoning=ReasoningOptions(summary=SECRET)),
    "a wish about reasoning": elsewhere(reasoning=ReasoningOptions(extra={"x": SECRET})),
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
    assert SECRET in outgoing.body.decode() or outgoing.dropped, "lost in silence"
