"""Hypothesis strategies for Responses requests, for what both wires support, and for malformed streams."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from tests.strategies import arguments, json_objects, json_values, texts
from toolrelay.core.messages import Call, Content, Item, Message, Reasoning, Result, Text
from toolrelay.core.request import AnyTool, Request, Tool

Json = dict[str, Any]

_BOOLEANS = st.booleans()
_NAMES = st.sampled_from(["search", "read_note", "f", "a.b-c_d"])
_IDS = st.lists(st.integers(0, 10**6).map("call_{}".format), unique=True, max_size=3)
_TEXT = texts()
_TEXT_OR_EMPTY = texts(min_size=0)
_ARGUMENTS = arguments()


def _optional(**members: SearchStrategy[Any]) -> SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=members)


_INPUT_TEXT = st.fixed_dictionaries({"type": st.just("input_text"), "text": _TEXT_OR_EMPTY})
_INPUT_IMAGE = st.fixed_dictionaries(
    {"type": st.just("input_image"), "image_url": st.just("data:image/png;base64,AAAA") | _TEXT},
    optional={"detail": st.sampled_from(["low", "high", "auto"])},
)
_INPUT_FILE = st.just({"type": "input_file", "file_id": "file-1"}) | st.fixed_dictionaries(
    {"type": st.just("input_file"), "file_data": st.just("data:application/pdf;base64,AAAA"), "filename": _TEXT}
)
_INPUT_AUDIO = st.just({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}})
_INPUT_PARTS = st.lists(_INPUT_TEXT | _INPUT_IMAGE | _INPUT_FILE | _INPUT_AUDIO, min_size=1, max_size=3)
_OUTPUT_PARTS = st.lists(
    st.fixed_dictionaries({"type": st.just("output_text"), "text": _TEXT_OR_EMPTY, "annotations": st.just([])}),
    min_size=1,
    max_size=2,
)
_MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user"]), "content": _TEXT | _INPUT_PARTS},
    optional={"type": st.just("message")},
)
_REFUSED = st.fixed_dictionaries({"type": st.just("refusal"), "refusal": _TEXT}).map(lambda part: [part])
_FORMATS = st.sampled_from([{"type": "text"}, {"type": "json_object"}]) | st.fixed_dictionaries(
    {"type": st.just("json_schema"), "name": _NAMES, "schema": json_objects()},
    optional={"strict": _BOOLEANS, "description": _TEXT},
)
_TOOLS = st.lists(
    st.fixed_dictionaries(
        {"type": st.just("function"), "name": _NAMES, "parameters": json_objects(), "strict": _BOOLEANS},
        optional={"description": _TEXT},
    )
    | st.fixed_dictionaries(
        {"type": st.just("custom"), "name": _NAMES},
        optional={
            "description": _TEXT,
            "format": st.sampled_from([{"type": "text"}, {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}]),
        },
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda tool: tool["name"],
)
_SETTINGS = _optional(
    instructions=_TEXT,
    parallel_tool_calls=_BOOLEANS,
    temperature=st.floats(0, 2, width=16),
    top_p=st.floats(0, 1, width=16),
    max_output_tokens=st.integers(1, 10**6),
    top_logprobs=st.integers(0, 20),
    text=_optional(format=_FORMATS, verbosity=st.sampled_from(["low", "high"])),
    reasoning=st.fixed_dictionaries({"effort": st.sampled_from(["low", "high"])}),
    include=st.just(["message.output_text.logprobs"]),
    metadata=st.dictionaries(_TEXT, _TEXT_OR_EMPTY, max_size=2),
    user=_TEXT,
    service_tier=st.sampled_from(["auto", "flex"]),
    prompt_cache_key=_TEXT,
    safety_identifier=_TEXT,
    stream=_BOOLEANS,
)
# Not supported by Chat, or unknown to the gateway.
_UNSUPPORTED = _optional(
    max_tool_calls=st.integers(1, 9),
    truncation=st.just("auto"),
    store=_BOOLEANS,
    x_vendor=json_values(leaves=2),
)


@st.composite
def _exchange(draw: DrawFn) -> list[Json]:
    """Reasoning, text and calls of the assistant, their results, and a user message. Reasoning never comes alone."""
    items: list[Json] = []
    if draw(_BOOLEANS):
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": draw(_TEXT)}]})
    identifiers = draw(_IDS)
    if not identifiers or draw(_BOOLEANS):
        items.append({"type": "message", "role": "assistant", "content": draw(_TEXT | _OUTPUT_PARTS | _REFUSED)})
    results: list[Json] = []
    for identifier in identifiers:
        output = draw(_TEXT_OR_EMPTY | _INPUT_PARTS)
        if draw(_BOOLEANS):
            call = {"type": "function_call", "arguments": draw(_ARGUMENTS)}
            results.append({"type": "function_call_output", "call_id": identifier, "output": output})
        else:
            call = {"type": "custom_tool_call", "input": draw(_TEXT_OR_EMPTY)}
            results.append({"type": "custom_tool_call_output", "call_id": identifier, "output": output})
        items.append({**call, "call_id": identifier, "name": draw(_NAMES)})
    return [*items, *results, {"role": "user", "content": draw(_TEXT)}]


_EXCHANGES = st.lists(_exchange() | _MESSAGE.map(lambda message: [message]), min_size=1, max_size=2)


@st.composite
def responses_bodies(draw: DrawFn, *, unsupported: bool = True) -> Json:
    """A Responses request. `unsupported`: it may have fields that Chat does not support."""
    given: Any = [item for exchange in draw(_EXCHANGES) for item in exchange] if draw(st.integers(0, 4)) else draw(_TEXT)
    body = {"model": "fast", "input": given, **draw(_SETTINGS), **(draw(_UNSUPPORTED) if unsupported else {})}
    if draw(_BOOLEANS):
        tools = body["tools"] = draw(_TOOLS)
        named = st.sampled_from([{"type": tool["type"], "name": tool["name"]} for tool in tools])
        allowed = st.fixed_dictionaries(
            {
                "type": st.just("allowed_tools"),
                "mode": st.sampled_from(["auto", "required"]),
                "tools": named.map(lambda one: [one]),
            }
        )
        body |= draw(_optional(tool_choice=st.sampled_from(["auto", "none", "required"]) | named | allowed))
    else:
        body.pop("parallel_tool_calls", None)  # has no effect without tools
    return body


# What both wires support


def without_losses(request: Request) -> Request:
    """The request after translation to the other wire and back: docs/wires.md names what is lost."""
    instructions = () if request.instructions is None else (Message(role="developer", content=request.instructions),)
    sampling = request.sampling
    return replace(
        request,
        wire="",
        extra=None,
        instructions=None,
        items=(*instructions, *(_item(item) for item in request.items if not _is_empty(item))),
        tools=tuple(map(_tool, request.tools)),
        sampling=replace(
            sampling,
            max_tokens_field=None,
            stop=None,
            seed=None,
            presence_penalty=None,
            frequency_penalty=None,
            logit_bias=None,
            n=None,
            logprobs=sampling.logprobs or None,
        ),
        include_usage=False,
        include=(),
        max_tool_calls=None,
        store=None,
        truncation=None,
        legacy_functions=False,
    )


def _tool(tool: AnyTool) -> AnyTool:
    """Functions without `strict` are strict on Responses and not on Chat: between them it is made explicit."""
    if isinstance(tool, Tool):
        return replace(tool, extra=None, strict=bool(tool.strict) if tool.kind == "function" else None)
    return tool


def _is_empty(item: Item) -> bool:
    """A Chat message with calls, without content, and with unknown members."""
    return isinstance(item, Message) and item.content == ()


def _item(item: Item) -> Item:
    match item:
        case Message():
            return replace(item, name=None, id=None, phase=None, extra=None, content=_content(item.content))
        case Call():
            return replace(item, item_id=None, extra=None)
        case Result():
            return replace(item, name=None, item_id=None, extra=None, output=_content(item.output))
        case Reasoning():
            return replace(item, id=None, extra=None)
        case _:
            return item


def _content(content: Content) -> Content:
    if isinstance(content, str):
        return content
    bare = tuple(replace(part, extra=None) for part in content)
    return tuple(replace(part, annotations=(), logprobs=()) if isinstance(part, Text) else part for part in bare)


# Malformed streams and values


def altered_stream(stream: bytes, data: st.DataObject) -> bytes:
    """The stream with bytes, frames or members altered."""
    return data.draw(st.sampled_from([_with_other_bytes, _with_other_frames, _with_other_members, _with_other_members]))(
        stream, data
    )


def _with_other_bytes(stream: bytes, data: st.DataObject) -> bytes:
    """Bytes left out, doubled or replaced."""
    places = st.integers(0, len(stream))
    start, end = sorted((data.draw(places), data.draw(places)))
    return stream[:start] + data.draw(st.binary(max_size=8) | st.just(stream[start:end])) + stream[data.draw(places) :]


def _with_other_frames(stream: bytes, data: st.DataObject) -> bytes:
    """Frames left out, doubled or in another order."""
    frames = stream.split(b"\n\n")
    order = data.draw(st.lists(st.sampled_from(range(len(frames))), max_size=2 * len(frames)))
    return b"\n\n".join(frames[place] for place in order)


def _with_other_members(stream: bytes, data: st.DataObject) -> bytes:
    """Frames in which some members have another value or are missing."""
    frames = stream.split(b"\n\n")
    for place in data.draw(st.lists(st.sampled_from(range(len(frames))), min_size=1, max_size=4)):
        head, mark, body = frames[place].partition(b"data: ")
        if body.startswith(b"{"):
            frames[place] = head + mark + json.dumps(altered_value(json.loads(body), data)).encode()
    return b"\n\n".join(frames)


_ODD = json_values(leaves=3) | st.sampled_from(
    ["\ud83d", -1, 10**30, 1e300, [], {}, "", [None], [[]], [{}], {"": None}, "[DONE]", "call", True, 0.5]
)


def altered_value(value: Any, data: st.DataObject) -> Any:
    """The value with one nested value altered."""
    if isinstance(value, dict | list) and value and data.draw(st.integers(0, 9)):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(value, dict) and not data.draw(st.integers(0, 7)):
            return {other: value[other] for other in keys if other != key}
        altered: Any = dict(value) if isinstance(value, dict) else list(value)
        altered[key] = altered_value(value[key], data)
        return altered
    return data.draw(_ODD)
