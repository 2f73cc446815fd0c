"""Hypothesis strategies: texts, JSON, answers as stream events, and Chat requests.

Building a strategy takes longer than drawing from it, so each is built once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from toolrelay.core.events import (
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)

T = TypeVar("T")

# Text that is hard for parsers; U+2028, U+0085 and similar end lines for `str.splitlines`.
_TRICKY = [
    "😀",
    "👩‍👩‍👧",
    "Grüße 漢",
    "a\u2028b\x85c",
    'quote" and \\ and \\u00e9',
    "\n\ndata: x\r\n\r\n",
    "[DONE]",
    "\x00\ufeff",
    "</tool_call>",
    '{"a": [1',
]
_PLAIN = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_.-]{0,11}", fullmatch=True)


@cache
def texts(*, min_size: int = 1) -> SearchStrategy[str]:
    """Generate text without lone surrogates, which UTF-8 cannot represent."""
    return st.sampled_from(_TRICKY if min_size else ["", *_TRICKY]) | _PLAIN


def json_values(*, leaves: int = 5) -> SearchStrategy[Any]:
    """Generate any JSON value that survives encoding and decoding."""
    numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False, width=32)
    scalars = st.none() | st.booleans() | numbers | texts(min_size=0)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=leaves,
    )


@cache
def json_objects() -> SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts(), json_values(), max_size=3)


@st.composite
def pieces(draw: DrawFn, whole: str) -> list[str]:
    """Split the text into pieces that are not empty."""
    cuts = draw(st.lists(st.integers(1, max(1, len(whole) - 1)), unique=True, max_size=4).map(sorted))
    bounds = [0, *(cut for cut in cuts if cut < len(whole)), len(whole)]
    return [whole[start:end] for start, end in pairwise(bounds) if start < end]


@st.composite
def cut_bytes(draw: DrawFn, whole: bytes) -> list[bytes]:
    """Split the bytes anywhere: inside characters, line ends and frames."""
    if draw(st.booleans()):
        size = draw(st.integers(1, 7))
        return [whole[start : start + size] for start in range(0, len(whole), size)]
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    bounds = [0, *cuts, len(whole)]
    return [whole[start:end] for start, end in pairwise(bounds)]


@st.composite
def interleaved(draw: DrawFn, threads: Sequence[Sequence[T]]) -> list[T]:
    """Interleave the threads. Each keeps its order, and they start in the order given."""
    waiting = [list(thread) for thread in threads if thread]
    started: list[list[T]] = []
    out: list[T] = []
    while waiting or started:
        choice = draw(st.integers(0, len(started) if waiting else len(started) - 1))
        if choice == len(started):
            started.append(waiting.pop(0))
        out.append(started[choice].pop(0))
        started = [thread for thread in started if thread]
    return out


@cache
def usages() -> SearchStrategy[Usage]:
    """Generate usage in which what the cache saved and took is a part of the input, and reasoning one of the output."""
    tokens = st.integers(0, 10**6)
    details = st.none() | tokens
    return st.builds(
        _usage,
        tokens,
        tokens,
        cached=details,
        cache_written=details,
        reasoning=details,
        audio_in=details,
        audio_out=details,
        accepted_prediction=details,
        rejected_prediction=details,
    )


def _usage(given: int, made: int, *, cached: int | None, cache_written: int | None, reasoning: int | None, **parts: Any) -> Usage:
    given, made = given + (cached or 0) + (cache_written or 0), made + (reasoning or 0)
    return Usage(
        input=given, output=made, total=given + made, cached=cached, cache_written=cache_written, reasoning=reasoning, **parts
    )


@cache
def arguments() -> SearchStrategy[str]:
    """Generate a JSON object with any spacing and escaping."""
    return st.builds(
        lambda value, ascii_only, separators: json.dumps(value, ensure_ascii=ascii_only, separators=separators),
        json_objects(),
        st.booleans(),
        st.sampled_from([None, (",", ":"), (" , ", " : ")]),
    )


@st.composite
def _call(draw: DrawFn, index: int, choice: int, *, ids: bool, custom: bool, cut: bool) -> list[StreamEvent]:
    kind = "custom" if custom and draw(st.booleans()) else "function"
    whole = draw(arguments() if kind == "function" else texts())
    identifier = f"call_{choice}_{index}" if ids else ""
    events: list[StreamEvent] = [
        CallStarted(index, draw(_NAMES), identifier, "custom" if kind == "custom" else "function", choice)
    ]
    if cut:
        return events + [ArgumentsDelta(index, piece, choice) for piece in draw(pieces(whole[:-1]))]
    events += [ArgumentsDelta(index, piece, choice) for piece in draw(pieces(whole))]
    return [*events, CallFinished(index, choice)]


@st.composite
def _content_events(draw: DrawFn, choice: int, *, reasoning: bool, refusals: bool) -> list[StreamEvent]:
    """Generate reasoning, text and refusals in any order."""
    kinds = ["text", *(["reasoning"] if reasoning else []), *(["refusal"] if refusals else [])]
    events: list[StreamEvent] = []
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=4)):
        for piece in draw(st.lists(texts(), min_size=1, max_size=3)):
            match kind:
                case "text":
                    events.append(TextDelta(piece, choice))
                case "reasoning":
                    events.append(ReasoningDelta(piece, "text", 0, choice))
                case _:
                    events.append(RefusalDelta(piece, choice))
    return events


@st.composite
def _choice(
    draw: DrawFn, choice: int, *, calls: bool, ids: bool, custom: bool, reasoning: bool, refusals: bool, truncated: bool
) -> tuple[list[StreamEvent], Finish]:
    events = draw(_content_events(choice, reasoning=reasoning, refusals=refusals))
    count = draw(st.integers(0, 3)) if calls else 0
    cut = truncated and count > 0 and draw(st.booleans())
    threads = [draw(_call(index, choice, ids=ids, custom=custom, cut=cut and index == count - 1)) for index in range(count)]
    events += draw(interleaved(threads))
    if cut:
        return events, "length"
    if count:
        return events, "calls"
    other: Finish = draw(st.sampled_from(["stop", "length", "content_filter"]))
    return events, other


@st.composite
def answers(
    draw: DrawFn,
    *,
    choices: int = 1,
    calls: bool = True,
    ids: bool = True,
    custom: bool = False,
    reasoning: bool = True,
    refusals: bool = True,
    truncated: bool = False,
    usage: bool = True,
) -> list[StreamEvent]:
    """Generate a well-formed answer (see core.events) with up to `choices` choices.

    `ids`: calls have ids, as a turn emits them. `truncated`: the last call may be unfinished.
    """
    tier = draw(st.sampled_from([None, "default", "flex"]))
    started = AnswerStarted(
        model=draw(st.sampled_from([None, "provider-model"])),
        fingerprint=draw(st.none() | texts()),
        service_tier=tier,
    )
    count = draw(st.integers(1, choices))
    choice_events: list[list[StreamEvent]] = []
    finishes: list[Finish] = []
    for number in range(count):
        events, finish = draw(
            _choice(number, calls=calls, ids=ids, custom=custom, reasoning=reasoning, refusals=refusals, truncated=truncated)
        )
        choice_events.append(events)
        finishes.append(finish)
    body = draw(interleaved(choice_events))
    others = [ChoiceFinished(number, finishes[number]) for number in range(1, count)]
    end = AnswerFinished(finish=finishes[0], usage=draw(st.none() | usages()) if usage else None, service_tier=tier)
    return [started, *body, *others, end]


# Valid Chat requests. `tests/wires/chat/test_request.py` has invalid ones.

_IDS = st.integers(0, 10**9).map("call_{}".format)
_EXTRA: SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"x_vendor": None}, {"cache_control": {"type": "ephemeral"}}, {"vendor-flag": [1, {"a": "😀"}], "x_vendor": 0.5}]
)


@cache
def _with_extra(members: SearchStrategy[dict[str, Any]]) -> SearchStrategy[dict[str, Any]]:
    """Add an unknown member to some."""
    return st.builds(lambda known, extra: {**known, **extra}, members, _EXTRA)


def _optional(**members: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=members)


@cache
def _text_part() -> SearchStrategy[dict[str, Any]]:
    return _with_extra(st.fixed_dictionaries({"type": st.just("text"), "text": texts(min_size=0)}))


@cache
def _user_part() -> SearchStrategy[dict[str, Any]]:
    image = st.fixed_dictionaries(
        {"url": st.just("data:image/png;base64,AAAA") | texts()},
        optional={"detail": st.sampled_from(["low", "high", "auto"]), "x_vendor": json_values(leaves=2)},
    )
    audio = st.fixed_dictionaries({"data": st.just("AAAA"), "format": st.sampled_from(["wav", "mp3"])})
    file = st.fixed_dictionaries({"file_id": st.just("file-1")}) | st.fixed_dictionaries(
        {"file_data": st.just("data:application/pdf;base64,AAAA"), "filename": texts()}
    )
    return (
        _text_part()
        | _with_extra(st.fixed_dictionaries({"type": st.just("image_url"), "image_url": image}))
        | _with_extra(st.fixed_dictionaries({"type": st.just("input_audio"), "input_audio": audio}))
        | _with_extra(st.fixed_dictionaries({"type": st.just("file"), "file": file}))
        | st.fixed_dictionaries({"type": st.just("video_url"), "video_url": json_objects()})
    )


@cache
def _content(part: SearchStrategy[dict[str, Any]]) -> SearchStrategy[Any]:
    return texts(min_size=0) | st.lists(part, min_size=1, max_size=3)


@cache
def _plain_message() -> SearchStrategy[dict[str, Any]]:
    instructing = st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer"]), "content": _content(_text_part())}, optional={"name": _NAMES}
    )
    asking = st.fixed_dictionaries({"role": st.just("user"), "content": _content(_user_part())}, optional={"name": _NAMES})
    return _with_extra(instructing | asking)


def _history_call(identifier: str) -> SearchStrategy[dict[str, Any]]:
    function = st.fixed_dictionaries(
        {"name": _NAMES, "arguments": st.just("{}") | texts()}, optional={"x_inner": json_values(leaves=2)}
    )
    custom = st.fixed_dictionaries({"name": _NAMES, "input": texts(min_size=0)})
    return _with_extra(
        st.fixed_dictionaries({"id": st.just(identifier), "type": st.just("function"), "function": function})
        | st.fixed_dictionaries({"id": st.just(identifier), "type": st.just("custom"), "custom": custom})
    )


@st.composite
def _assistant_exchange(draw: DrawFn) -> list[dict[str, Any]]:
    """Generate an assistant message, the results of its calls, and a user message."""
    message: dict[str, Any] = {"role": "assistant", **draw(_EXTRA)}
    if draw(st.booleans()):
        message["reasoning_content"] = draw(texts(min_size=0))
    identifiers = draw(st.lists(_IDS, unique=True, max_size=3))
    if identifiers:
        message["tool_calls"] = [draw(_history_call(identifier)) for identifier in identifiers]
        message["content"] = draw(st.none() | _content(_text_part()))
    elif draw(st.booleans()):
        message |= {"content": draw(st.none() | texts()), "refusal": draw(texts())}
    else:
        message["content"] = draw(_content(_text_part()))
    if draw(st.booleans()):
        message["name"] = draw(_NAMES)
    results = [
        {
            "role": "tool",
            "tool_call_id": identifier,
            "content": draw(_content(_user_part())),
            **draw(_optional(name=_NAMES)),
            **draw(_EXTRA),
        }
        for identifier in draw(st.permutations(identifiers))
    ]
    return [message, *results, {"role": "user", "content": draw(texts())}]


@st.composite
def _tools(draw: DrawFn) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for name in draw(st.lists(_NAMES, unique=True, min_size=1, max_size=3)):
        if draw(st.booleans()):
            body = {"name": name, **draw(_optional(description=texts(), parameters=json_objects(), strict=st.booleans()))}
            tool = {"type": "function", "function": {**body, **draw(_EXTRA)}}
        else:
            grammar = st.fixed_dictionaries(
                {"type": st.just("grammar"), "grammar": st.fixed_dictionaries({"definition": texts(), "syntax": st.just("lark")})}
            )
            form = grammar | st.just({"type": "text"})
            tool = {"type": "custom", "custom": {"name": name, **draw(_optional(description=texts(), format=form))}}
        out.append({**tool, **draw(_EXTRA)})
    return out


def _tool_choices(tools: list[dict[str, Any]]) -> SearchStrategy[Any]:
    named = [{"type": tool["type"], tool["type"]: {"name": tool[tool["type"]]["name"]}} for tool in tools]
    allowed = st.fixed_dictionaries(
        {"mode": st.sampled_from(["auto", "required"]), "tools": st.lists(st.sampled_from(named), min_size=1, max_size=2)}
    )
    return (
        st.sampled_from(["auto", "none", "required"])
        | st.sampled_from(named)
        | st.fixed_dictionaries({"type": st.just("allowed_tools"), "allowed_tools": allowed})
    )


@cache
def _settings() -> SearchStrategy[dict[str, Any]]:
    number = st.floats(-2, 2, width=16) | st.integers(-2, 2)
    schema = st.fixed_dictionaries(
        {"name": _NAMES},
        optional={"schema": json_objects(), "strict": st.booleans(), "description": texts(), "x_vendor": st.just(1)},
    )
    return _optional(
        temperature=number,
        top_p=number,
        max_tokens=st.integers(1, 10**6),
        stop=texts() | st.lists(texts(), min_size=1, max_size=2),
        seed=st.integers(0, 2**63 - 1),
        presence_penalty=number,
        frequency_penalty=number,
        logit_bias=st.dictionaries(st.integers(0, 10**5).map(str), st.integers(-100, 100), max_size=2),
        logprobs=st.booleans(),
        top_logprobs=st.integers(0, 20),
        n=st.integers(1, 3),
        verbosity=st.sampled_from(["low", "high"]),
        response_format=st.sampled_from([{"type": "text"}, {"type": "json_object"}, {"type": "json_object", "schema": {}}])
        | st.fixed_dictionaries({"type": st.just("json_schema"), "json_schema": schema})
        | st.fixed_dictionaries({"type": st.just("structural_tag"), "structures": json_values(leaves=2)}),
        reasoning_effort=st.sampled_from(["none", "low", "high"]),
        metadata=st.dictionaries(texts(), texts(min_size=0), max_size=2),
        store=st.booleans(),
        user=texts(),
        service_tier=st.sampled_from(["auto", "flex"]),
        prompt_cache_key=texts(),
        safety_identifier=texts(),
        prediction=json_objects(),
        web_search_options=json_objects(),
        modalities=st.just(["text"]),
    )


@st.composite
def chat_bodies(draw: DrawFn) -> dict[str, Any]:
    """Generate a Chat request without redundancy, so that the gateway has no reason to change it."""
    exchanges = draw(st.lists(_plain_message().map(lambda message: [message]) | _assistant_exchange(), min_size=1, max_size=3))
    body: dict[str, Any] = {
        "model": draw(texts()),
        "messages": [message for exchange in exchanges for message in exchange],
        **draw(_settings()),
        **draw(_EXTRA),
    }
    if draw(st.booleans()):
        body["tools"] = draw(_tools())
        if draw(st.booleans()):
            body["tool_choice"] = draw(_tool_choices(body["tools"]))
        if draw(st.booleans()):
            body["parallel_tool_calls"] = draw(st.booleans())
    if draw(st.booleans()):
        options = {"include_usage": True, **draw(_optional(include_obfuscation=st.booleans()))}
        body |= {"stream": True, "stream_options": options}
    return body
