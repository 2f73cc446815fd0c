"""Chat Completions, the gateway's request to a provider: a Request into bytes."""

from __future__ import annotations

from typing import Any, assert_never

from msgspec import to_builtins

from toolrelay.core.json import JsonObject
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
from toolrelay.core.request import AnyTool, OpaqueTool, OutputFormat, Request, Tool, ToolChoice
from toolrelay.wires.base import OutgoingRequest, Unsupported
from toolrelay.wires.chat.reasoning_details import REASONING_DETAILS, is_accepted, name_calls, unseal_details
from toolrelay.wires.chat.request import NAME
from toolrelay.wires.extra import merge_extra
from toolrelay.wires.json import encode, without_nones
from toolrelay.wires.outgoing import FOREIGN, RequestEncoder
from toolrelay.wires.tools import nest_format

# What Chat cannot express of a request from another wire (decision 13). docs/wires.md is generated from it.
UNSUPPORTED: Unsupported = {
    "include": "dropped",
    "max_tool_calls": "dropped",
    "reasoning.summary": "dropped",
    "reasoning items that are summarised or sealed": "dropped",
    "message phase": "dropped",
    "a call's namespace": "dropped",
    "annotations of earlier answers": "dropped",
    "truncation: auto": "dropped",
    "images by file id": "refused",
    "files by URL": "refused",
    **FOREIGN,
}


def encode_request(request: Request, profile: Profile) -> OutgoingRequest:
    encoder = _ChatRequestEncoder(request, profile)
    body: dict[str, Any] = {"model": request.model, "messages": encoder.messages()}
    if request.tools:
        body |= encoder.tools()
    body |= encoder.sampling()
    body |= encoder.settings()
    body = encoder.adapt(body)
    return OutgoingRequest(path="/chat/completions", body=encode(body), dropped=tuple(encoder.dropped))


_SAME_NAMES = ("user", "service_tier", "prompt_cache_key", "safety_identifier")


class _ChatRequestEncoder(RequestEncoder):
    wire = NAME
    unsupported = UNSUPPORTED
    refusal = "This model is reached over Chat Completions, which cannot say:"

    # The conversation

    def messages(self) -> list[JsonObject]:
        """Encode items as messages. Consecutive reasoning, text and calls of the assistant become one message.

        Chat wants the results of a message's calls right behind it, so they are moved there from wherever they were.
        """
        groups: list[list[JsonObject]] = []
        group_of_call: dict[str, list[JsonObject]] = {}
        if self.request.instructions is not None:
            groups.append([{"role": self._role("developer"), "content": self.request.instructions}])
        current: JsonObject | None = None  # the assistant's message that the next item may belong to
        for item in self.request.items:
            if type(item) is Message and item.role != "assistant":
                current = None
                groups.append([self._message(item)])
            elif type(item) is Result:
                current = None
                group = group_of_call.get(item.call_id)
                if group is None:
                    groups.append(group := [])
                group.append(self._result(item))
            else:
                if current is None or not _continues(current, item):
                    current = {"role": "assistant", "content": None}
                    groups.append([current])
                self._add(current, item)
                if type(item) is Call:
                    group_of_call[item.id] = groups[-1]
        messages = [message for group in groups for message in group if len(message) > 2 or message["content"] is not None]
        if self.profile.reasoning_details:
            for message in messages:
                _name_details(message)
        if not self.profile.takes_null_content:
            for message in messages:
                message["content"] = "" if message["content"] is None else message["content"]
        for name in self.profile.refused_message_fields:
            for message in messages:
                if message.pop(name, None) is not None:
                    self.drop(f"messages[].{name}")
        output = self.request.output
        if output is not None and output.type == "json_schema" and self._output_format(output.type) != output.type:
            self.drop("response_format.json_schema")
            wanted = f"Answer with one JSON object that follows this JSON schema: {encode(output.schema).decode()}"
            messages.insert(0, {"role": "system", "content": wanted})
        return messages

    def _add(self, message: JsonObject, item: Item) -> None:
        """Add an item to the assistant's message."""
        match item:
            case Message():
                message |= self._message(item)
                if item.phase is not None:
                    self.reject("message phase")
            case Call():
                calls = message.setdefault("tool_calls", [])
                if isinstance(calls, list):
                    calls.append(self._call(item))
            case Reasoning() if self.profile.reasoning_details and (details := unseal_details(item.encrypted)):
                self.keep_extra(item.extra)
                known = message.setdefault(REASONING_DETAILS, [])
                if isinstance(known, list):
                    known += [detail for detail in details if is_accepted(detail) and detail not in known]
            case Reasoning():
                # A summary alone may be such a model's plain reasoning, as it was shown to a client that asked for summaries.
                text = item.text or (() if item.encrypted is not None else item.summary)
                if text:
                    message |= dict.fromkeys(self.profile.reasoning_fields, "\n\n".join(text))
                if item.encrypted is not None or (item.text and item.summary):
                    self.reject("reasoning items that are summarised or sealed")
                self.keep_extra(item.extra)
            case OpaqueItem():
                self.opaque(item, "input", "an item of type")
            case Result():
                pass

    def _message(self, item: Message) -> JsonObject:
        message: JsonObject = {"role": self._role(item.role), "content": self._content(item.content)}
        if item.role == "assistant" and isinstance(item.content, tuple):
            message |= self._assistant_content(item.content)
        if item.name is not None:
            message["name"] = item.name
        return merge_extra(message, self.keep_extra(item.extra))

    def _assistant_content(self, parts: tuple[Part, ...]) -> JsonObject:
        """Move a single refusal to the message's own member for it."""
        match parts:
            case ():
                return {"content": None}
            case (Refusal(text=text, extra=None),):
                return {"content": None, "refusal": text}
            case (Text(text=said, extra=None), Refusal(text=text, extra=None)):
                return {"content": said, "refusal": text}
            case _:
                return {}

    def _role(self, role: str) -> str:
        return "system" if role == "developer" and not self.profile.developer_role else role

    def _call(self, call: Call) -> JsonObject:
        if call.namespace is not None:
            self.reject("a call's namespace")
        body: JsonObject = {"name": call.name, "arguments": call.arguments or "{}"}
        if call.kind == "custom":
            body = {"name": call.name, "input": call.arguments}
        return merge_extra({"id": self.call_id(call.id), "type": call.kind, call.kind: body}, self.keep_extra(call.extra))

    def _result(self, result: Result) -> JsonObject:
        content = self._content(result.output)
        message: JsonObject = {"role": "tool", "tool_call_id": self.call_id(result.call_id), "content": content}
        if result.name is not None:
            message["name"] = result.name
        return merge_extra(message, self.keep_extra(result.extra))

    def _content(self, content: Content) -> Any:  # noqa: ANN401 -- a string or a list of parts
        return content if isinstance(content, str) else [self._part(part) for part in content]

    def _part(self, part: Part) -> JsonObject:
        match part:
            case Text():
                if part.annotations:
                    self.reject("annotations of earlier answers")
                value: JsonObject = {"type": "text", "text": part.text}
            case Refusal():
                value = {"type": "refusal", "refusal": part.text}
            case Image():
                if part.url is None:
                    self.reject("images by file id", "input", "an image by file id")
                value = {"type": "image_url", "image_url": without_nones({"url": part.url, "detail": part.detail})}
            case Audio():
                value = {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
            case File():
                if part.url is not None:
                    self.reject("files by URL", "input", "a file by URL")
                members = {"file_id": part.file_id, "file_data": part.data, "filename": self.file_name(part)}
                value = {"type": "file", "file": without_nones(members)}
            case OpaquePart():
                return self.opaque(part, "input", "a content part of type")
            case _:
                assert_never(part)
        return merge_extra(value, self.keep_extra(part.extra))

    # Tools

    def tools(self) -> JsonObject:
        request = self.request
        choice, tools = request.tool_choice, request.tools
        if choice is not None and choice.is_list and choice.raw is None and not self.profile.takes_allowed_tools:
            tools = tuple(tool for tool in tools if not isinstance(tool, Tool) or (tool.kind, tool.name) in choice.names)
            choice = ToolChoice(mode="required" if choice.mode == "named" else choice.mode)
        members: JsonObject = {"tools": [self._tool(tool) for tool in tools]}
        if choice is not None:
            members["tool_choice"] = self._tool_choice(choice)
        if request.parallel_tool_calls is not None:
            members["parallel_tool_calls"] = request.parallel_tool_calls
        return members

    def _tool(self, tool: AnyTool) -> JsonObject:
        if isinstance(tool, OpaqueTool):
            return self.opaque(tool, "tools", "the provider's own tool")
        members: JsonObject = {"name": tool.name}
        if tool.description is not None:
            members["description"] = tool.description
        if tool.kind == "custom":
            members |= {} if tool.format is None else {"format": nest_format(tool.format)}
        else:
            if tool.parameters is not None:
                members["parameters"] = tool.parameters
            if tool.strict is not None:
                members["strict"] = tool.strict
        return merge_extra({"type": tool.kind, tool.kind: members}, self.keep_extra(tool.extra))

    def _tool_choice(self, choice: ToolChoice) -> str | JsonObject:
        self.check_tool_choice(choice)
        if choice.raw is not None:
            return choice.raw
        named: list[JsonObject] = [{"type": kind, kind: {"name": name}} for kind, name in choice.names]
        if choice.mode == "named":
            return named[0]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": [*named]}} if named else choice.mode

    # Everything else

    def sampling(self) -> JsonObject:
        """Encode the sampling settings. The core names them as Chat does, but for the limit."""
        sampling = self.request.sampling
        limit = self.profile.max_tokens_field or sampling.max_tokens_field or "max_tokens"
        return {
            limit if name == "max_output_tokens" else name: value
            for name, value in to_builtins(sampling).items()
            if name != "max_tokens_field"
        }

    def settings(self) -> JsonObject:
        request = self.request
        self._reject_settings()
        members: dict[str, Any] = {}
        if request.output is not None:
            members["response_format"] = self._response_format(request.output)
        if request.reasoning is not None and request.reasoning.effort is not None:
            members["reasoning_effort"] = request.reasoning.effort
        if request.metadata is not None:
            members["metadata"] = request.metadata
        if request.store is not None and self.is_same_wire:
            members["store"] = request.store
        for name in _SAME_NAMES:
            value = getattr(request, name)
            if value is not None:
                members[name] = value
        extra = self.keep_request_extra(self.request.extra)
        if not request.stream:
            return merge_extra(members, {key: value for key, value in extra.items() if key != "stream_options"})
        members["stream"] = True
        if self.profile.stream_usage:
            members["stream_options"] = {"include_usage": True}
        return merge_extra(members, extra)

    def _response_format(self, output: OutputFormat) -> JsonObject:
        kind = self._output_format(output.type)
        if kind != "json_schema":
            return {"type": kind}
        if output.type != kind:
            return {"type": kind, "json_schema": {"name": "answer", "schema": {"type": "object"}}}
        schema = {"name": output.name, "description": output.description, "schema": output.schema, "strict": output.strict}
        return {"type": kind, "json_schema": without_nones(schema)}

    def _output_format(self, kind: str) -> str:
        """Return the nearest format that the server accepts."""
        accepted = self.profile.output_formats
        return kind if kind == "text" or kind in accepted or not accepted else accepted[0]

    def _reject_settings(self) -> None:
        request, reasoning = self.request, self.request.reasoning
        if request.include and set(request.include) - {"message.output_text.logprobs"}:
            self.reject("include")
        if request.max_tool_calls is not None:
            self.reject("max_tool_calls")
        if request.truncation not in (None, "disabled"):
            self.reject("truncation: auto")
        if reasoning is not None and (reasoning.summary is not None or reasoning.extra is not None):
            self.reject("reasoning.summary")


def _continues(message: JsonObject, item: Item) -> bool:
    """Return whether the item belongs to the assistant's message, which has reasoning, then text, then calls."""
    match item:
        case Call():
            return True
        case Message():
            return message["content"] is None and "tool_calls" not in message and "refusal" not in message
        case Reasoning(text=(), summary=(), encrypted=str(encrypted)):  # details may come after the calls
            return (message["content"] is not None or "tool_calls" in message) and bool(unseal_details(encrypted))
        case _:
            return False


def _name_details(message: JsonObject) -> None:
    """Give the reasoning details of a message the ids of its calls. They have the text of the reasoning, too."""
    details, calls = message.get(REASONING_DETAILS), message.get("tool_calls")
    if not isinstance(details, list):
        return
    message.pop("reasoning_content", None)
    made = enumerate(calls if isinstance(calls, list) else ())
    ids = {number: str(call["id"]) for number, call in made if isinstance(call, dict)}
    message[REASONING_DETAILS] = name_calls([detail for detail in details if isinstance(detail, dict)], ids)
