"""Responses, the gateway's request to a provider: a Request into bytes."""

from __future__ import annotations

from itertools import zip_longest
from typing import assert_never

from msgspec.structs import replace

from toolrelay.core.identity import MAX_ITEM_NUMBER, make_item_id
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
from toolrelay.core.request import AnyTool, OpaqueTool, OutputFormat, Request, Tool, ToolChoice, is_input_group
from toolrelay.wires.base import OutgoingRequest, Unsupported
from toolrelay.wires.extra import merge_extra
from toolrelay.wires.json import encode_repaired, without_nones
from toolrelay.wires.outgoing import FOREIGN, RequestEncoder
from toolrelay.wires.responses.request import ENCRYPTED, LOGPROBS, NAME
from toolrelay.wires.sealed_reasoning import unseal

# What Responses cannot express of a request from another wire (decision 13). docs/wires.md is generated from it.
UNSUPPORTED: Unsupported = {
    "seed": "dropped",
    "presence_penalty": "dropped",
    "frequency_penalty": "dropped",
    "logit_bias": "dropped",
    "name": "dropped",
    "summaries of reasoning without the reasoning": "dropped",
    "reasoning that another API encrypted": "dropped",
    "n": "refused",
    "stop": "emulated",
    **FOREIGN,
}


def encode_request(request: Request, profile: Profile) -> OutgoingRequest:
    encoder = ResponsesRequestEncoder(request, profile)
    body = encoder.adapt({"model": request.model, "input": encoder.input(), **encoder.tools(), **encoder.settings()})
    return OutgoingRequest(path="/responses", body=encode_repaired(body), dropped=tuple(encoder.dropped))


def input_items(items: tuple[Item, ...], token: str) -> list[JsonObject]:
    """Return a turn's input as the API lists it, with ids of its own: a client may send an item several times.

    Ids count down from the last possible number; those of the output count up.
    """
    encoder = ResponsesRequestEncoder(Request(wire=NAME, model="", items=items), Profile())
    encoded = [encoder.item(item) for item in items]
    return [_listed(members, token, index) for index, members in enumerate(encoded) if members is not None]


def is_input_id(identifier: str, token: str, index: int) -> bool:
    """Return whether an id is that of the turn's input item at this position, as `input_items` lists it."""
    return identifier.partition("_")[2] == make_item_id("", token, MAX_ITEM_NUMBER - index)[1:]


def _listed(members: JsonObject, token: str, index: int) -> JsonObject:
    kind = members["type"]
    prefix = _ID_PREFIXES.get(str(kind), "item")
    listed: JsonObject = {**members, "id": make_item_id(prefix, token, MAX_ITEM_NUMBER - index)}
    if kind == "message":
        content = members["content"]
        if isinstance(content, str):
            is_answer = members["role"] == "assistant"
            part: JsonObject = {"type": "output_text" if is_answer else "input_text", "text": content}
            listed["content"] = [{**part, "annotations": []} if is_answer else part]
    if kind != "reasoning":
        listed["status"] = "completed"
    return listed


_ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "mcp_call": "mcp",
}


class ResponsesRequestEncoder(RequestEncoder):
    wire = NAME
    unsupported = UNSUPPORTED
    refusal = "This model is reached over the Responses API, which cannot say"

    # The conversation

    def input(self) -> list[Json]:
        items = self.request.items
        if not self.is_same_wire:
            items = tuple([item for item, after in zip_longest(items, items[1:]) if not _is_blank(item, after)])
        return [members for item in items if (members := self.item(self._readable(item))) is not None]

    def _readable(self, item: Item) -> Item:
        """Return reasoning without what only another API can read."""
        if type(item) is not Reasoning or item.encrypted is None or unseal(item.encrypted) is None:
            return item
        self.reject("reasoning that another API encrypted")
        return replace(item, encrypted=None, id=None)

    def item(self, item: Item) -> JsonObject | None:
        match item:
            case Message():
                members = self._message(item)
            case Call():
                members = self._call(item)
            case Result():
                members = {
                    "type": "custom_tool_call_output" if item.kind == "custom" else "function_call_output",
                    "call_id": self.call_id(item.call_id),
                    "output": self._content(item.output, "user"),
                }
                if self.is_same_wire:  # on other wires the name only repeats that of the call
                    members |= without_nones({"id": item.item_id, "name": item.name})
            case Reasoning():
                # Providers refuse summaries alone; OpenAI also an id alone, under which it has stored nothing.
                if not (item.encrypted or item.text or (item.id and not self.profile.encrypts_reasoning)):
                    self.reject("summaries of reasoning without the reasoning")
                    return None
                members = self._reasoning(item)
            case OpaqueItem():
                return self.opaque(item, "messages", "an item of type")
            case _:
                assert_never(item)
        return members | self.keep_extra(item.extra)

    def _message(self, item: Message) -> JsonObject:
        if item.name is not None:
            self.reject("name")
        members: JsonObject = {"type": "message", "role": item.role, "content": self._content(item.content, item.role)}
        if item.id is not None and item.id.startswith("msg"):
            members["id"] = item.id
        if item.phase is not None:
            members["phase"] = item.phase
        return members

    def _call(self, call: Call) -> JsonObject:
        is_function = call.kind == "function"
        members: JsonObject = {
            "type": "function_call" if is_function else "custom_tool_call",
            "call_id": self.call_id(call.id),
            "name": call.name,
            "arguments" if is_function else "input": call.arguments or "{}" if is_function else call.arguments,
        }
        if call.item_id is not None and call.item_id.startswith("fc_" if is_function else "ctc_"):
            members["id"] = call.item_id
        if call.namespace is not None:
            members["namespace"] = call.namespace
        return members

    def _reasoning(self, reasoning: Reasoning) -> JsonObject:
        summary: list[Json] = [{"type": "summary_text", "text": text} for text in reasoning.summary]
        members: JsonObject = {"type": "reasoning", "summary": summary}
        if reasoning.id is not None:
            members["id"] = reasoning.id
        if reasoning.text:
            members["content"] = [{"type": "reasoning_text", "text": text} for text in reasoning.text]
        if reasoning.encrypted is not None:
            members["encrypted_content"] = reasoning.encrypted
        return members

    def _content(self, content: Content, role: str) -> Json:
        return content if isinstance(content, str) else [self._part(part, role) for part in content]

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
                value = {"type": "input_image", **without_nones(members)}
            case Audio():
                value = {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
            case File():
                name = self.file_name(part)
                members = {"file_id": part.file_id, "file_data": part.data, "file_url": part.url, "filename": name}
                value = {"type": "input_file", **without_nones(members)}
            case OpaquePart():
                return self.opaque(part, "messages", "a content part of type")
            case _:
                assert_never(part)
        return value | self.keep_extra(part.extra)

    # Tools

    def tools(self) -> JsonObject:
        request = self.request
        members: JsonObject = {}
        tools: list[Json] = [self._tool(tool) for tool in request.tools if not is_input_group(tool)]
        if tools:
            members["tools"] = tools
        if request.tool_choice is not None:
            self.check_tool_choice(request.tool_choice)
            members["tool_choice"] = tool_choice_value(request.tool_choice)
        limits = {"parallel_tool_calls": request.parallel_tool_calls, "max_tool_calls": request.max_tool_calls}
        return members | without_nones(limits)

    def _tool(self, tool: AnyTool) -> JsonObject:
        """Encode a tool. Functions without `strict` are strict on Responses and not on Chat: Chat's default is made explicit."""
        if isinstance(tool, OpaqueTool):
            return self.opaque(tool, "tools", "the tool")
        members = without_nones(tool_members(tool))
        if tool.kind == "custom":
            if tool.format is None:
                del members["format"]
        else:
            members["parameters"] = tool.parameters
            if tool.strict is None and not self.is_same_wire:
                members["strict"] = False
        return members | self.keep_extra(tool.extra)

    # Everything else

    def settings(self) -> JsonObject:
        request, sampling = self.request, self.request.sampling
        self._reject_settings()
        members = without_nones(
            {
                "instructions": request.instructions,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_output_tokens": sampling.max_output_tokens,
                "top_logprobs": sampling.top_logprobs,
                "text": self._text(),
                "reasoning": reasoning_members(request) or None,
                "include": self._include() or None,
                "metadata": request.metadata,
                "store": False,  # the gateway keeps what is to be kept
                "user": request.user,
                "service_tier": request.service_tier,
                "prompt_cache_key": request.prompt_cache_key,
                "safety_identifier": request.safety_identifier,
                "truncation": request.truncation,
            }
        )
        if request.stream:
            members["stream"] = True
        return members | {key: value for key, value in self.keep_request_extra(self.request.extra).items() if key != "text"}

    def _text(self) -> JsonObject | None:
        members = text_members(self.request)
        if members and self.profile.needs_text_format:
            members.setdefault("format", {"type": "text"})
        return members or None

    def _include(self) -> list[str]:
        """Return what the client included, what fields of other wires amount to, and what the gateway needs to go on later."""
        include = list(self.request.include)
        reasoning = self.request.reasoning
        # Only with reasoning settings: models that do not reason refuse to include it.
        if reasoning is not None and ENCRYPTED not in include:
            is_kept = self.profile.encrypts_reasoning and self.request.store is True
            if reasoning.encrypted or is_kept:
                include.append(ENCRYPTED)
        if self.request.sampling.logprobs and LOGPROBS not in include:
            include.append(LOGPROBS)
        return include

    def _reject_settings(self) -> None:
        sampling = self.request.sampling
        if sampling.n is not None and sampling.n > 1:
            self.reject("n", "n", f"n = {sampling.n}")
        if sampling.stop:
            self.reject("stop", "stop")
        for name in ("seed", "presence_penalty", "frequency_penalty", "logit_bias"):
            if getattr(sampling, name) is not None:
                self.reject(name)
        if self.request.reasoning is not None:
            self.keep_extra(self.request.reasoning.extra)


# Settings of a request, which the answer repeats


def tool_members(tool: Tool) -> JsonObject:
    """Encode a tool with all its members, nulls included."""
    members: JsonObject = {"type": tool.kind, "name": tool.name, "description": tool.description}
    if tool.kind == "custom":
        return members | {"format": tool.format if tool.format is not None else {"type": "text"}}
    return members | {"parameters": tool.parameters, "strict": tool.strict}


def tool_choice_value(choice: ToolChoice) -> Json:
    if choice.raw is not None:
        return choice.raw
    named: list[Json] = [{"type": kind, "name": name} for kind, name in choice.names]
    if choice.mode == "named":
        return named[0]
    if named and choice.mode != "none":
        return {"type": "allowed_tools", "mode": choice.mode, "tools": named}
    return choice.mode


def _format_members(output: OutputFormat) -> JsonObject:
    if output.type != "json_schema":
        return {"type": output.type}
    members = {"description": output.description, "schema": output.schema, "strict": output.strict}
    return {"type": "json_schema", "name": output.name or "answer", **without_nones(members)}


def text_members(request: Request) -> JsonObject:
    """Encode `text`, with the members that only this wire's client knows."""
    members: JsonObject = {}
    if request.output is not None:
        members["format"] = _format_members(request.output)
    if request.sampling.verbosity is not None:
        members["verbosity"] = request.sampling.verbosity
    unknown = (request.extra or {}).get("text")
    return merge_extra(members, unknown) if isinstance(unknown, dict) and request.wire == NAME else members


def reasoning_members(request: Request) -> JsonObject:
    reasoning = request.reasoning
    if reasoning is None:
        return {}
    extra = reasoning.extra if reasoning.extra and request.wire == NAME else {}
    return without_nones({"effort": reasoning.effort, "summary": reasoning.summary}) | extra


def _is_blank(item: Item, after: Item | None) -> bool:
    """Return whether the item is the empty text of a Chat message that has calls."""
    return type(item) is Message and item.role == "assistant" and item.content in ("", ()) and type(after) is Call
