"""Responses, the gateway's request to a provider: a Request into bytes."""

from __future__ import annotations

from typing import Literal, assert_never

from toolrelay.core.identity import shorten_id
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
from toolrelay.core.profiles import Profile
from toolrelay.core.request import AnyTool, OpaqueTool, Request
from toolrelay.errors import ClientError
from toolrelay.wires.base import Outgoing
from toolrelay.wires.extra import unknown_names
from toolrelay.wires.responses.items import NAME
from toolrelay.wires.responses.request import ENCRYPTED, LOGPROBS
from toolrelay.wires.responses.settings import reasoning_members, said, text_members, tool_choice_value, tool_members, written

# What Responses cannot say of a request that came over another wire, and what then happens (decision 13).
UNSUPPORTED: dict[str, Literal["dropped", "refused"]] = {
    "seed": "dropped",
    "presence_penalty": "dropped",
    "frequency_penalty": "dropped",
    "logit_bias": "dropped",
    "name": "dropped",
    "summaries of reasoning without the reasoning": "dropped",
    "n": "refused",
    "stop": "refused",
    "a provider's own tools": "refused",
    "a provider's own items": "refused",
    "content parts of unknown type": "refused",
    "tool_choice that names a provider's own tool": "refused",
    "other fields, at any level": "dropped",
}


def encode_request(request: Request, profile: Profile) -> Outgoing:
    writer = _Writer(request, profile)
    body = {"model": request.model, "input": writer.input(), **writer.tools(), **writer.settings()}
    return Outgoing(path="/responses", body=written(body), dropped=tuple(writer.dropped))


class _Writer:
    def __init__(self, request: Request, profile: Profile) -> None:
        self.request = request
        self.profile = profile
        self.same_wire = request.wire == NAME
        self.dropped: list[str] = []

    def _cannot_say(self, what: str, param: str, shown: str | None = None) -> None:
        """Does what the table says; `shown` is the value in question."""
        if UNSUPPORTED[what] == "refused":
            message = f"This model is reached over the Responses API, which cannot say {shown or what}."
            raise ClientError(message, param=param, code="unsupported_by_upstream")
        if what not in self.dropped:
            self.dropped.append(what)

    def _extra(self, extra: JsonObject | None) -> JsonObject:
        """What only the client's wire knows: written where this is that wire, else dropped by name."""
        if not extra or self.same_wire:
            return extra or {}
        self.dropped += [name for name in unknown_names(extra) if name not in self.dropped]
        return {}

    # The conversation

    def input(self) -> list[Json]:
        return [written for item in self.request.items if (written := self._item(item)) is not None]

    def _item(self, item: Item) -> JsonObject | None:
        match item:
            case Message():
                return self._message(item)
            case Call():
                return self._call(item)
            case Result():
                members: JsonObject = {
                    "type": "custom_tool_call_output" if item.kind == "custom" else "function_call_output",
                    "call_id": self._call_id(item.call_id),
                    "output": self._content(item.output, "user"),
                }
                # A result's name repeats that of its call: where this wire's client did not give it, nothing is lost.
                own = said({"id": item.item_id, "name": item.name}) if self.same_wire else {}
                return members | own | self._extra(item.extra)
            case Reasoning():
                return self._reasoning(item)
            case OpaqueItem():
                if item.wire != NAME:
                    self._cannot_say("a provider's own items", "messages", f"an item of type {item.raw.get('type')!r}")
                return item.raw
            case _:
                assert_never(item)

    def _message(self, item: Message) -> JsonObject:
        if item.name is not None:
            self._cannot_say("name", "messages")
        members: JsonObject = {"type": "message", "role": item.role, "content": self._content(item.content, item.role)}
        if item.id is not None and item.id.startswith("msg"):
            members["id"] = item.id
        if item.phase is not None:
            members["phase"] = item.phase
        return members | self._extra(item.extra)

    def _call(self, call: Call) -> JsonObject:
        function = call.kind == "function"
        members: JsonObject = {
            "type": "function_call" if function else "custom_tool_call",
            "call_id": self._call_id(call.id),
            "name": call.name,
        }
        if function:
            members["arguments"] = call.arguments or "{}"
        else:
            members["input"] = call.arguments
        if call.item_id is not None and call.item_id.startswith("fc_" if function else "ctc_"):
            members["id"] = call.item_id
        if call.namespace is not None:
            members["namespace"] = call.namespace
        return members | self._extra(call.extra)

    def _reasoning(self, thought: Reasoning) -> JsonObject | None:
        """Summaries alone, without the thought that they sum up, tell a provider nothing: it refuses them."""
        if not (thought.encrypted or thought.text or thought.id):
            self._cannot_say("summaries of reasoning without the reasoning", "input")
            return None
        members: JsonObject = {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": text} for text in thought.summary],
        }
        if thought.id is not None:
            members["id"] = thought.id
        if thought.text:
            members["content"] = [{"type": "reasoning_text", "text": text} for text in thought.text]
        if thought.encrypted is not None:
            members["encrypted_content"] = thought.encrypted
        return members | self._extra(thought.extra)

    def _call_id(self, identifier: str) -> str:
        return shorten_id(identifier) if self.profile.call_ids == "nine" else identifier

    def _content(self, content: Content, role: str) -> Json:
        if isinstance(content, str):
            return content
        return [self._part(part, role) for part in content]

    def _part(self, part: Part, role: str) -> JsonObject:
        match part:
            case Text() if role == "assistant":
                value: JsonObject = {"type": "output_text", "text": part.text, "annotations": list(part.annotations)}
                if part.logprobs:
                    value["logprobs"] = list(part.logprobs)
            case Text():
                value = {"type": "input_text", "text": part.text}
            case Refusal():
                value = {"type": "refusal", "refusal": part.text}
            case Image():
                members = {"image_url": part.url, "file_id": part.file_id, "detail": part.detail}
                value = {"type": "input_image", **said(members)}
            case Audio():
                value = {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
            case File():
                members = {"file_id": part.file_id, "file_data": part.data, "file_url": part.url, "filename": part.filename}
                value = {"type": "input_file", **said(members)}
            case OpaquePart():
                if part.wire != NAME:
                    shown = f"a content part of type {part.raw.get('type')!r}"
                    self._cannot_say("content parts of unknown type", "messages", shown)
                return part.raw
            case _:
                assert_never(part)
        return value | self._extra(part.extra)

    # Tools

    def tools(self) -> JsonObject:
        request = self.request
        members: JsonObject = {}
        if request.tools:
            members["tools"] = [self._tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            raw = request.tool_choice.raw
            if raw is not None and not self.same_wire:
                shown = f"a tool_choice of type {raw.get('type')!r}"
                self._cannot_say("tool_choice that names a provider's own tool", "tool_choice", shown)
            members["tool_choice"] = tool_choice_value(request.tool_choice)
        return members | said(
            {"parallel_tool_calls": request.parallel_tool_calls, "max_tool_calls": request.max_tool_calls},
        )

    def _tool(self, tool: AnyTool) -> JsonObject:
        """Responses takes a function without `strict` for a strict one, Chat does not: a Chat client's silence is spelt out."""
        if isinstance(tool, OpaqueTool):
            if tool.wire != NAME:
                self._cannot_say("a provider's own tools", "tools", f"the tool {tool.raw.get('type')!r}")
            return tool.raw
        members = said(tool_members(tool))
        if tool.kind == "custom":
            if tool.format is None:
                del members["format"]
        else:
            members["parameters"] = tool.parameters
            if tool.strict is None and not self.same_wire:
                members["strict"] = False
        return members | self._extra(tool.extra)

    # Everything else

    def settings(self) -> JsonObject:
        request, sampling = self.request, self.request.sampling
        self._drop_unsayable()
        members = said(
            {
                "instructions": request.instructions,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_output_tokens": sampling.max_output_tokens,
                "top_logprobs": sampling.top_logprobs,
                "text": text_members(request) or None,
                "reasoning": reasoning_members(request) or None,
                "include": self._include() or None,
                "metadata": request.metadata,
                "store": request.store if self.same_wire else False,
                "user": request.user,
                "service_tier": request.service_tier,
                "prompt_cache_key": request.prompt_cache_key,
                "safety_identifier": request.safety_identifier,
                "truncation": request.truncation,
            }
        )
        if request.stream:
            members["stream"] = True
        return members | {key: value for key, value in self._extra(request.extra).items() if key != "text"}

    def _include(self) -> list[str]:
        """What was asked for in so many words, and what another wire's fields amount to."""
        wanted = list(self.request.include)
        wish = self.request.reasoning
        if wish is not None and wish.encrypted and ENCRYPTED not in wanted:
            wanted.append(ENCRYPTED)
        if self.request.sampling.logprobs and LOGPROBS not in wanted:
            wanted.append(LOGPROBS)
        return wanted

    def _drop_unsayable(self) -> None:
        sampling = self.request.sampling
        if sampling.n is not None and sampling.n > 1:
            self._cannot_say("n", "n", f"n = {sampling.n}")
        if sampling.stop:
            self._cannot_say("stop", "stop")
        for name in ("seed", "presence_penalty", "frequency_penalty", "logit_bias"):
            if getattr(sampling, name) is not None:
                self._cannot_say(name, name)
        if self.request.reasoning is not None:
            self._extra(self.request.reasoning.extra)
