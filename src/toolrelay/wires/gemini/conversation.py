"""Gemini, the conversation of a request to a provider: items into contents."""

from __future__ import annotations

from typing import Any, assert_never

from msgspec import Struct

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import (
    Audio,
    Call,
    Content,
    File,
    Image,
    Message,
    OpaqueItem,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.wires.gemini.content import audio_part, file_part, image_part
from toolrelay.wires.gemini.thinking import NAME, NO_SIGNATURE, is_before_3, own_signature, signs_calls, split_extra
from toolrelay.wires.json import arguments_object
from toolrelay.wires.outgoing import RequestEncoder

_SIGNATURE = "thoughtSignature"


class _ContentTurn:
    """Consecutive parts of one side. The results of a turn's calls are a turn of their own, in the order of the calls."""

    __slots__ = ("media", "parts", "places", "role")

    def __init__(self, role: str) -> None:
        self.role = role  # model, user or results
        self.parts: list[JsonObject] = []
        self.places: list[int] = []  # of results: the places of their calls
        self.media: list[JsonObject] = []  # of results, for models that take none inside of them

    def content(self) -> JsonObject:
        parts: list[Json] = [*self.parts]
        if self.places:
            parts = [self.parts[number] for number in sorted(range(len(parts)), key=self.places.__getitem__)]
        return {"role": "model" if self.role == "model" else "user", "parts": [*parts, *self.media]}


class _Caller(Struct, frozen=True):
    """The turn, the place in it, and the name of a call."""

    turn: _ContentTurn | None
    place: int
    name: str


class ContentsEncoder(RequestEncoder):
    """Encodes `systemInstruction` and `contents`."""

    wire = NAME

    def conversation(self) -> JsonObject:
        """Encode items as contents. What one side says in a row is one, and so are the results of one content's calls."""
        system: list[Json] = []
        turns: list[_ContentTurn] = []
        callers: dict[str, _Caller] = {}
        signature = ""
        for item in self.request.items:
            match item:
                case Message(role="assistant"):
                    _next_turn(turns, "model").parts += self._message(item)
                case Message(role="user"):
                    _next_turn(turns, "user").parts += self._message(item)
                    signature = ""
                case Message():
                    system += self._message(item)
                case Result():
                    caller = callers.get(item.call_id) or _Caller(None, 0, item.name or "unknown")
                    turn = _result_turn(turns, caller.turn)
                    turn.parts.append(self._result(item, caller.name, turn))
                    turn.places.append(caller.place)
                case Call():
                    turn = _next_turn(turns, "model")
                    callers[item.id] = _Caller(turn, len(turn.parts), item.name)
                    turn.parts.append(self._call(item, signature))
                    signature = ""
                case Reasoning():
                    signature = self._reasoning(item, turns) or signature
                case OpaqueItem():
                    _next_turn(turns, "model").parts.append(self.opaque(item, "messages", "an item of type"))
                case _:
                    assert_never(item)
        self._sign_calls(turns)
        return self._with_system(system, [turn.content() for turn in turns if turn.parts or turn.media])

    def _with_system(self, system: list[Json], contents: list[Json]) -> JsonObject:
        text = self.request.instructions
        if text:
            system = [{"text": text}, *system]
        if not contents:  # the API wants one, and most APIs take a system text alone
            return {"contents": [{"role": "user", "parts": system or [{"text": " "}]}]}
        return {"systemInstruction": {"parts": system}, "contents": contents} if system else {"contents": contents}

    # Messages

    def _message(self, item: Message) -> list[JsonObject]:
        if item.name is not None:
            self.reject("name")
        if item.phase is not None:
            self.reject("message phase")
        self.keep_extra(item.extra)
        return self._content(item.content)

    def _content(self, content: Content) -> list[JsonObject]:
        """Encode parts. Empty text, which the API refuses, is left out."""
        if isinstance(content, str):
            return [{"text": content}] if content else []
        return [self._part(part) for part in content if not (isinstance(part, Text) and not part.text)]

    def _part(self, part: Part) -> JsonObject:
        self.keep_extra(part.extra)
        match part:
            case Text() | Refusal():
                if isinstance(part, Text) and part.annotations:
                    self.reject("annotations of earlier answers")
                return {"text": part.text}
            case Image():
                if part.url is None:
                    self.reject("images by file id", "messages", "an image by file id")
                if part.detail is not None:
                    self.reject("detail of images")
                return image_part(part)
            case File():
                if part.file_id is not None:
                    self.reject("files by id", "messages", "a file by id")
                if part.filename is not None:
                    self.reject("names of files")
                return file_part(part)
            case Audio():
                return audio_part(part)
            case OpaquePart():
                return self.opaque(part, "messages", "a content part of type")
            case _:
                assert_never(part)

    # Calls and results

    def _call(self, call: Call, before: str) -> JsonObject:
        """Encode a call. Its signature is its own, or that of the reasoning before it."""
        if call.namespace is not None:
            self.reject("a call's namespace")
        signature, extra = split_extra(call.extra)
        self.keep_extra(extra)
        args: Any = arguments_object(call.arguments)
        part: JsonObject = {"functionCall": {"id": self.call_id(call.id), "name": call.name, "args": args}}
        return {**part, _SIGNATURE: signature or before} if signature or before else part

    def _sign_calls(self, turns: list[_ContentTurn]) -> None:
        """Mark the calls of models and clients that gave no signature: of calls in parallel, the first one has it."""
        if not signs_calls(self.request.model):
            return
        for turn in turns:
            first = next((part for part in turn.parts if "functionCall" in part), None)
            if turn.role == "model" and first is not None:
                first.setdefault(_SIGNATURE, NO_SIGNATURE)

    def _result(self, result: Result, name: str, turn: _ContentTurn) -> JsonObject:
        """Encode a result as text, which no model takes for a schema or a reference. Its media go inside of it or after it."""
        extra = dict(result.extra or {})
        key = "error" if extra.pop("is_error", None) is True else "output"
        self.keep_extra(extra)
        parts = self._content(result.output)
        said = "\n".join([str(part["text"]) for part in parts if "text" in part])
        media: list[JsonObject] = [part for part in parts if "text" not in part]
        response: JsonObject = {"id": self.call_id(result.call_id), "name": name, "response": {key: said}}
        if media and is_before_3(self.request.model):
            turn.media += media
        elif media:
            response["parts"] = list[Json](media)
        return {"functionResponse": response}

    # Reasoning

    def _reasoning(self, item: Reasoning, turns: list[_ContentTurn]) -> str:
        """Return the signature of the next call, or add that of a text or a thought to the model's turn."""
        self.keep_extra(item.extra)
        if not (item.encrypted or item.text or item.summary):
            return ""
        kind, signature = (own_signature(item.encrypted) if item.encrypted is not None else None) or (None, "")
        match kind:
            case "call":
                return signature
            case "thought":
                text = "\n\n".join(item.summary or item.text)
                _next_turn(turns, "model").parts.append({"text": text, "thought": True, _SIGNATURE: signature})
            case "text":
                parts = _next_turn(turns, "model").parts
                if parts and "text" in parts[-1] and _SIGNATURE not in parts[-1]:
                    parts[-1][_SIGNATURE] = signature
                else:
                    parts.append({"text": "", _SIGNATURE: signature})
            case None:
                self.reject("reasoning that Gemini did not sign")
            case _:
                assert_never(kind)
        return ""


def _next_turn(turns: list[_ContentTurn], role: str) -> _ContentTurn:
    """Return the last turn if it is this role's, else a new one."""
    if not turns or turns[-1].role != role:
        turns.append(_ContentTurn(role))
    return turns[-1]


def _result_turn(turns: list[_ContentTurn], caller: _ContentTurn | None) -> _ContentTurn:
    """Return the turn with the results of the one that made the call."""
    if caller is None or caller is turns[-1]:
        return _next_turn(turns, "results")
    after = next(place for place in range(len(turns) - 1, -1, -1) if turns[place] is caller) + 1
    if turns[after].role != "results":
        turns.insert(after, _ContentTurn("results"))
    return turns[after]
