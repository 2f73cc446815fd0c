"""Anthropic Messages, the conversation of a request to a provider: items into messages."""

from __future__ import annotations

from typing import Any, assert_never

from toolrelay.core.identity import make_plain_id
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import (
    Audio,
    Call,
    Content,
    File,
    Image,
    Item,
    Message,
    OpaqueItem,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.wires.anthropic.content import citation_of, document_block, image_block
from toolrelay.wires.anthropic.thinking import NAME, own_block
from toolrelay.wires.extra import merge_extra
from toolrelay.wires.json import arguments_object
from toolrelay.wires.outgoing import RequestEncoder


class _Turn:
    """Consecutive blocks of one role. `results` counts the tool results, which come first."""

    __slots__ = ("blocks", "results", "role", "text")

    def __init__(self, role: str) -> None:
        self.role = role
        self.blocks: list[Json] = []
        self.results = 0
        self.text: str | None = None  # the content, if the client gave it as a string

    def message(self) -> JsonObject:
        is_text = self.text is not None and len(self.blocks) == 1
        return {"role": self.role, "content": self.text if is_text else self.blocks}


class ConversationEncoder(RequestEncoder):
    """Encodes `system` and `messages`."""

    wire = NAME

    def call_id(self, identifier: str) -> str:
        return make_plain_id(identifier)

    def conversation(self) -> JsonObject:
        """Encode items as messages. What one side says in a row is one message.

        The API wants the results of a message's calls at the beginning of the next one, so they are moved there.
        """
        system: list[Json] = []
        turns: list[_Turn] = []
        turn_of_call: dict[str, _Turn] = {}
        for item in self.request.items:
            if type(item) is Message and item.role in ("user", "assistant"):  # cheaper than a `match`, and most items are such
                self._add_message(_next_turn(turns, item.role), item)
                continue
            match item:
                case Message() if not turns or not self.is_same_wire:
                    system += self._blocks(item)
                case Message():
                    self._add_message(_next_turn(turns, "system"), item)
                case Result():
                    turn = _result_turn(turns, turn_of_call.get(item.call_id))
                    turn.blocks.insert(turn.results, self._result(item))
                    turn.results += 1
                case _:
                    block = self._item(item)
                    if block is not None:
                        turn = _next_turn(turns, "assistant")
                        turn.blocks.append(block)
                        if isinstance(item, Call):
                            turn_of_call[item.id] = turn
        return self._with_system(system, [turn.message() for turn in turns if turn.blocks])

    def _with_system(self, system: list[Json], messages: list[Json]) -> JsonObject:
        text = self.request.instructions
        if not messages:  # the API wants one, and most APIs take a system text alone
            blocks: list[Json] = [{"type": "text", "text": text}, *system] if text else system
            return {"messages": [{"role": "user", "content": blocks}]}
        if not system:
            return {"system": text, "messages": messages} if text else {"messages": messages}
        return {"system": [{"type": "text", "text": text}, *system] if text else system, "messages": messages}

    def _add_message(self, turn: _Turn, item: Message) -> None:
        blocks = self._blocks(item)
        if isinstance(item.content, str) and item.content and not turn.blocks:
            turn.text = item.content
        turn.blocks += blocks

    def _blocks(self, item: Message) -> list[Json]:
        if item.name is not None:
            self.reject("name")
        if item.phase is not None:
            self.reject("message phase")
        if item.extra:
            self.keep_extra(item.extra)
        return self._content(item.content)

    def _content(self, content: Content) -> list[Json]:
        """Encode parts. Empty text, which the API refuses, is left out."""
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if content else []
        return [self._part(part) for part in content if not (isinstance(part, Text) and not part.text and not part.extra)]

    def _item(self, item: Item) -> JsonObject | None:
        match item:
            case Call():
                return self._call(item)
            case Reasoning():
                return self._reasoning(item)
            case OpaqueItem():
                return self.opaque(item, "messages", "an item of type")
            case _:
                raise AssertionError  # messages and results are encoded elsewhere

    def _call(self, call: Call) -> JsonObject:
        if call.namespace is not None:
            self.reject("a call's namespace")
        arguments: Any = arguments_object(call.arguments)
        block: JsonObject = {"type": "tool_use", "id": self.call_id(call.id), "name": call.name, "input": arguments}
        return merge_extra(block, self.keep_extra(call.extra))

    def _result(self, result: Result) -> JsonObject:
        content: Json = result.output if isinstance(result.output, str) else self._content(result.output)
        block: JsonObject = {"type": "tool_result", "tool_use_id": self.call_id(result.call_id), "content": content}
        return merge_extra(block, self.keep_extra(result.extra))

    def _reasoning(self, item: Reasoning) -> JsonObject | None:
        own = None if item.encrypted is None else own_block(item.encrypted)
        self.keep_extra(item.extra)
        if own is None:
            self.reject("reasoning that Anthropic did not sign")
            return None
        kind, data = own
        if kind == "redacted_thinking":
            return {"type": kind, "data": data}
        return {"type": kind, "thinking": "\n\n".join(item.text or item.summary), "signature": data}

    def _part(self, part: Part) -> JsonObject:
        match part:
            case Text():
                value: JsonObject = {"type": "text", "text": part.text}
                if part.annotations:
                    value |= self._citations(part)
            case Refusal():
                value = {"type": "text", "text": part.text}
            case Image():
                if part.url is None and not self.is_same_wire:
                    self.reject("images by file id", "messages", "an image by file id")
                if part.detail is not None:
                    self.reject("detail of images")
                value = image_block(part)
            case File():
                if part.file_id is not None and not self.is_same_wire:
                    self.reject("files by id", "messages", "a file by id")
                value = document_block(part)
            case Audio():
                self.reject("audio", "messages")
                value = {}
            case OpaquePart():
                return self.opaque(part, "messages", "a content part of type")
            case _:
                assert_never(part)
        return merge_extra(value, self.keep_extra(part.extra))

    def _citations(self, part: Text) -> JsonObject:
        own: list[Json] = [citation for each in part.annotations if (citation := citation_of(each)) is not None]
        if not self.is_same_wire or len(own) < len(part.annotations):
            self.reject("annotations of earlier answers")
            return {}
        return {"citations": own}


def _next_turn(turns: list[_Turn], role: str) -> _Turn:
    """Return the last turn if it is this role's, else a new one."""
    if not turns or turns[-1].role != role:
        turns.append(_Turn(role))
    return turns[-1]


def _result_turn(turns: list[_Turn], caller: _Turn | None) -> _Turn:
    """Return the turn after the one that made the call."""
    if caller is None or caller is turns[-1]:
        return _next_turn(turns, "user")
    after = next(place for place in range(len(turns) - 1, -1, -1) if turns[place] is caller) + 1
    if turns[after].role != "user":
        turns.insert(after, _Turn("user"))
    return turns[after]
