"""Continuation of a stored stream after a crash.

What the stream must show is known from the turn's steps. The stored frames may lack the last of it, because a step is recorded
before it is shown; or they may show more: the beginning of an answer that was never recorded.

    of an item in the steps        stored frames              added
    ----------------------------   ------------------------   --------------------------------------------------
    done in the stored stream      all                        nothing
    begun in the stored stream     all deltas are there       the frames that end its parts, and itself
    not in the stored stream       none                       all
    only in the stored stream      the beginning              its end as `incomplete`; the response has failed
    only in the stored stream      all                        nothing; the response has failed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from toolrelay.core.events import AnswerFailed, AnswerFinished, StreamEvent
from toolrelay.core.json import JsonObject
from toolrelay.wires.base import Envelope
from toolrelay.wires.json import decode
from toolrelay.wires.responses.encoder import ResponsesEncoder
from toolrelay.wires.sse import DONE

END_OF_FRAME = b"\n\n"
_PLACE = ("content_index", "summary_index", "annotation_index")


class Recovery(Struct, frozen=True, kw_only=True):
    """`frames` are to be added to the stored ones. `encoder` goes on after them. `is_cut`: an answer was being received."""

    frames: list[bytes]
    encoder: ResponsesEncoder
    is_cut: bool


def split_frames(data: bytes) -> list[bytes]:
    """Return the frames of a stream without its end mark."""
    return [frame + END_OF_FRAME for frame in data.removesuffix(DONE).split(END_OF_FRAME) if frame]


def recover(stored: Sequence[bytes], events: Sequence[StreamEvent], envelope: Envelope) -> Recovery:
    """Continue a stream. `events` are those of the turn's steps; if they have an end, the stream gets it too."""
    seen = _Seen([_members(frame) for frame in stored])
    encoder = ResponsesEncoder(envelope)
    if stored:
        encoder.start()
    has_end = bool(events) and isinstance(events[-1], AnswerFinished | AnswerFailed)
    wanted = _all_members(encoder.encode(events[:-1] if has_end else events))
    known = {_index(frame) for frame in wanted}
    cut = [frame for index, frame in seen.added.items() if index not in known]
    if cut:
        wanted += _all_members(encoder.settle())
    added = [frame for frame in wanted if not seen.has(frame)]
    for frame in cut:
        ended = seen.done.get(_index(frame))
        if ended is None:
            ended = seen.closing(frame)
            added.append(ended)
        encoder.append_output(_object(ended["item"]))
    if has_end:
        added += [frame for frame in _all_members(encoder.encode(events[-1:])) if not seen.has(frame)]
    encoder.sequence = len(stored)
    return Recovery(frames=[encoder.number(frame) for frame in added], encoder=encoder, is_cut=bool(cut))


class _Seen:
    """What stored frames show."""

    def __init__(self, frames: Sequence[JsonObject]) -> None:
        self.added = {_index(frame): frame for frame in frames if frame["type"] == "response.output_item.added"}
        self.done = {_index(frame): frame for frame in frames if frame["type"] == "response.output_item.done"}
        self._keys = {_key(frame) for frame in frames}
        self._frames = frames

    def has(self, frame: JsonObject) -> bool:
        index = _index(frame)
        if index is not None and index in self.done:
            return True
        is_delta = str(frame["type"]).endswith(".delta")
        return (is_delta and index in self.added) or _key(frame) in self._keys

    def closing(self, added: JsonObject) -> JsonObject:
        """Return the frame that ends an item of which only the beginning was stored."""
        item: dict[str, Any] = dict(_object(added["item"]))
        index = _index(added)
        deltas = [frame for frame in self._frames if _index(frame) == index and "delta" in frame]
        text = "".join(str(frame["delta"]) for frame in deltas)
        match item.get("type"):
            case "message":
                item["content"] = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}] if text else []
            case "function_call" | "mcp_call":
                item["arguments"] = item.get("arguments") or text
            case "custom_tool_call":
                item["input"] = text
        if "status" in item:
            item["status"] = "incomplete"
        return {"type": "response.output_item.done", "output_index": index, "item": item}


def _all_members(data: bytes) -> list[JsonObject]:
    return [_members(frame) for frame in split_frames(data)]


def _members(frame: bytes) -> JsonObject:
    return _object(decode(frame.partition(b"data: ")[2]))


def _object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError("a stored frame is not an object")
    return value


def _index(frame: JsonObject) -> int | None:
    index = frame.get("output_index")
    return index if isinstance(index, int) else None


def _key(frame: JsonObject) -> tuple[object, ...]:
    return (frame["type"], _index(frame), *(frame.get(name) for name in _PLACE))
