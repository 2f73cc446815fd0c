"""Chat Completions for tests: builders of providers' streams, and helpers for the decoder and the encoder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.core.messages import Call, Message, Text
from toolrelay.core.request import Request
from toolrelay.errors import ToolrelayError
from toolrelay.wires.base import Envelope
from toolrelay.wires.chat import WIRE

DONE = b"data: [DONE]\n\n"


# Providers' streams


def data(value: object) -> bytes:
    """One frame."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0, **members: Any) -> bytes:
    choice = {"index": index, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "provider-model"}
    return data({**head, "choices": [choice], **members})


def call(**members: Any) -> bytes:
    """A chunk with one entry of tool_calls."""
    return chunk({"tool_calls": [members]})


def function(name: str | None = None, arguments: Any = None, **members: Any) -> bytes:
    """A chunk with one entry of tool_calls, without the members that are None."""
    members_of_function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return call(**members, function=members_of_function)


def stream(*frames: bytes, finish: str | None = "stop") -> bytes:
    """A whole stream: role, the frames, the finish, the end mark."""
    return chunk({"role": "assistant", "content": ""}) + b"".join(frames) + chunk({}, finish) + DONE


def completion(message: dict[str, Any], finish: str | None = "stop", **members: Any) -> bytes:
    """A whole answer."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "provider-model"}
    return json.dumps({**head, "choices": [choice], **members}).encode()


TEXT = stream(chunk({"content": "Grüß"}), chunk({"content": " Gott 😀"}))
PARALLEL = stream(
    function("f", "", index=0, id="a", type="function"),
    function(arguments='{"city":', index=0),
    function("g", "", index=1, id="b", type="function"),
    function(arguments='{"n":', index=1),
    function(arguments='"Zürich"}', index=0),
    function(arguments="1}", index=1),
    finish="tool_calls",
)
BOTH = [("f", '{"city":"Zürich"}'), ("g", '{"n":1}')]


# Decoded


def decode(*pieces: bytes) -> list[StreamEvent]:
    decoder = WIRE.decoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.flush()


def fold(events: Iterable[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


def calls(*pieces: bytes) -> list[tuple[str, str]]:
    """The names and arguments of the calls in the stream."""
    return named(fold(decode(*pieces)))


def named(answer: Answer) -> list[tuple[str, str]]:
    return [(made.name, made.arguments) for made in answer.calls]


def without_ids(answer: Answer) -> Answer:
    items = tuple(replace(item, id="") if isinstance(item, Call) else item for item in answer.items)
    return replace(answer, items=items, others=tuple(map(without_ids, answer.others)))


def answer(*pieces: bytes) -> Answer:
    folded = fold(decode(*pieces))
    assert folded.error is None
    return folded


def failure(*pieces: bytes) -> ToolrelayError:
    *_, last = decode(*pieces)
    assert isinstance(last, AnswerFailed)
    return last.error


def text_in(*pieces: bytes) -> str:
    return text_of(answer(*pieces))


def text_of(folded: Answer) -> str:
    return "".join(
        part.text
        for item in folded.items
        if isinstance(item, Message) and isinstance(item.content, tuple)
        for part in item.content
        if isinstance(part, Text)
    )


def complete(message: dict[str, Any], finish: str | None = "stop", **members: Any) -> Answer:
    folded = fold(WIRE.decode_answer(completion(message, finish, **members)))
    assert folded.error is None
    return folded


# Encoded


def envelope(**members: Any) -> Envelope:
    request = Request(wire="openai_chat", model="client-model", items=(), **members)
    return Envelope(token="TOKEN", created=1_760_000_000, model="client-model", request=request)


def encode(events: Sequence[StreamEvent], **members: Any) -> bytes:
    return WIRE.encoder(envelope(**members)).encode(events)


def frames(stream_bytes: bytes) -> list[Any]:
    """The data of every frame, the end mark as a string."""
    out = []
    for frame in stream_bytes.decode().split("\n\n")[:-1]:
        assert frame.startswith("data: "), frame
        out.append("[DONE]" if frame == "data: [DONE]" else json.loads(frame[6:]))
    return out


def deltas(stream_bytes: bytes, choice: int = 0) -> list[Any]:
    """The deltas of one choice, and its finish_reason."""
    out: list[Any] = []
    for frame in frames(stream_bytes):
        if frame != "[DONE]":
            out += [each["finish_reason"] or each["delta"] for each in frame.get("choices", []) if each["index"] == choice]
    return out


def whole(events: Iterable[StreamEvent], **members: Any) -> Any:
    return json.loads(WIRE.encode_answer(fold(events), envelope(**members)))


def folded_by_the_sdk(stream_bytes: bytes) -> Any:
    """The completion that OpenAI's library folds the chunks into, without what only the library adds."""
    state = ChatCompletionStreamState()
    for frame in frames(stream_bytes):
        if frame != "[DONE]":
            list(state.handle_chunk(ChatCompletionChunk.construct(**frame)))
    # Its get_final_completion() would raise on a finish of "length"; the snapshot is what that returns otherwise.
    return without_nulls(state.current_completion_snapshot.to_dict())


def without_nulls(value: Any) -> Any:
    """The JSON without nulls, and without the members that the library puts in."""
    match value:
        case dict():
            return {
                key: without_nulls(member)
                for key, member in value.items()
                if member is not None and key not in ("parsed", "parsed_arguments")
            }
        case list():
            return [without_nulls(element) for element in value]
        case _:
            return value
