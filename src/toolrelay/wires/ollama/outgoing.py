"""Ollama's chat, the gateway's request: a Request into bytes."""

from __future__ import annotations

from typing import Any, assert_never

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
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.core.profiles import Profile
from toolrelay.core.request import AnyTool, OpaqueTool, OutputFormat, Request, Tool
from toolrelay.wires.base import OutgoingRequest, Unsupported
from toolrelay.wires.json import arguments_object, encode_repaired, without_nones
from toolrelay.wires.outgoing import CUSTOM_TOOLS, FOREIGN, RequestEncoder

NAME = "ollama"

# What Ollama's chat cannot express (decision 13). docs/wires.md is generated from it.
UNSUPPORTED: Unsupported = {
    "include": "dropped",
    "max_tool_calls": "dropped",
    "reasoning.summary": "dropped",
    "reasoning items that are summarised or sealed": "dropped",
    "reasoning effort of another name": "dropped",
    "message phase": "dropped",
    "a call's namespace": "dropped",
    "annotations of earlier answers": "dropped",
    "truncation: auto": "dropped",
    "logit_bias": "dropped",
    "verbosity": "dropped",
    "name": "dropped",
    "metadata": "dropped",
    "user": "dropped",
    "safety_identifier": "dropped",
    "prompt_cache_key": "dropped",
    "service_tier": "dropped",
    "name, description and strict of an output format": "dropped",
    "detail of images": "dropped",
    "tool_choice": "emulated",
    "n": "refused",
    "audio": "refused",
    "images by URL": "refused",
    "images by file id": "refused",
    "files": "refused",
    CUSTOM_TOOLS: "emulated",
    **FOREIGN,
}
_THINK: dict[str, Json] = {"none": False, "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high"}
_PARAGRAPH = "\n\n"


def encode_request(request: Request, profile: Profile) -> OutgoingRequest:
    encoder = _OllamaRequestEncoder(request, profile)
    body: dict[str, Any] = {"model": request.model, "messages": encoder.messages(), **encoder.tools(), **encoder.settings()}
    return OutgoingRequest(path="/api/chat", body=encode_repaired(body), dropped=tuple(encoder.dropped))


class _OllamaRequestEncoder(RequestEncoder):
    wire = NAME
    unsupported = UNSUPPORTED
    refusal = "This model is reached over Ollama's own API, which cannot say:"

    def __init__(self, request: Request, profile: Profile) -> None:
        super().__init__(request, profile)
        self._names = {item.id: item.name for item in request.items if isinstance(item, Call)}

    # The conversation

    def messages(self) -> list[JsonObject]:
        """Encode items as messages. The results of a message's calls stand right behind it, wherever they were."""
        groups: list[list[JsonObject]] = []
        group_of_call: dict[str, list[JsonObject]] = {}
        if self.request.instructions is not None:
            groups.append([{"role": "system", "content": self.request.instructions}])
        current: JsonObject | None = None  # the assistant's message that the next item may belong to
        for item in self.request.items:
            if isinstance(item, Message) and item.role != "assistant":
                current = None
                groups.append([self._message(item)])
            elif isinstance(item, Result):
                current = None
                group = group_of_call.get(item.call_id)
                if group is None:
                    groups.append(group := [])
                group.append(self._result(item))
            else:
                if current is None or not _continues(current, item):
                    current = {"role": "assistant", "content": ""}
                    groups.append([current])
                self._add(current, item)
                if isinstance(item, Call):
                    group_of_call[item.id] = groups[-1]
        return [message for group in groups for message in group if len(message) > 2 or message["content"] or _is_said(message)]

    def _add(self, message: JsonObject, item: Item) -> None:
        """Add an item to the assistant's message."""
        match item:
            case Message():
                message |= self._message(item)
            case Call():
                calls = message.setdefault("tool_calls", [])
                if isinstance(calls, list):
                    calls.append(self._call(item, len(calls)))
            case Reasoning():
                text = item.text or (() if item.encrypted is not None else item.summary)
                if text:
                    message["thinking"] = _PARAGRAPH.join(text)
                if item.encrypted is not None or (item.text and item.summary):
                    self.reject("reasoning items that are summarised or sealed")
                self.keep_extra(item.extra)
            case OpaqueItem():
                self.opaque(item, "input", "an item of type")
            case Result():
                pass

    def _message(self, item: Message) -> JsonObject:
        if item.name is not None:
            self.reject("name")
        if item.phase is not None:
            self.reject("message phase")
        self.keep_extra(item.extra)
        return {"role": "system" if item.role == "developer" else item.role, **self._content(item.content)}

    def _call(self, call: Call, index: int) -> JsonObject:
        if call.namespace is not None:
            self.reject("a call's namespace")
        self.keep_extra(call.extra)
        function: dict[str, Any] = {"index": index, "name": call.name, "arguments": arguments_object(call.arguments)}
        return {"id": call.id, "function": function}

    def _result(self, result: Result) -> JsonObject:
        self.keep_extra(result.extra)
        message: JsonObject = {"role": "tool", **self._content(result.output), "tool_call_id": result.call_id}
        name = result.name or self._names.get(result.call_id)
        return message | ({"tool_name": name} if name else {})

    def _content(self, content: Content) -> JsonObject:
        """Encode text as one string, and images as a list of base64 texts."""
        if isinstance(content, str):
            return {"content": content}
        texts: list[str] = []
        images: list[Json] = []
        for part in content:
            match part:
                case Text():
                    if part.annotations:
                        self.reject("annotations of earlier answers")
                    texts.append(part.text)
                case Refusal():
                    texts.append(part.text)
                case Image():
                    images.append(self._image(part))
                case Audio():
                    self.reject("audio", "messages")
                case File():
                    self.reject("files", "messages", "a file")
                case OpaquePart():
                    self.opaque(part, "messages", "a content part of type")
                case _:
                    assert_never(part)
            self.keep_extra(part.extra)
        return {"content": _PARAGRAPH.join(texts)} | ({"images": images} if images else {})

    def _image(self, image: Image) -> str:
        if image.detail is not None:
            self.reject("detail of images")
        if image.url is None:
            self.reject("images by file id", "messages", "an image by file id")
        head, _, data = (image.url or "").partition(",")
        if not head.startswith("data:") or not head.endswith(";base64"):
            self.reject("images by URL", "messages", "an image by URL; send it as data:image/…;base64,…")
        return data

    # Tools

    def tools(self) -> JsonObject:
        """Encode the tools. The API has no tool_choice: only the allowed ones are declared, or none."""
        choice = self.request.tool_choice
        if choice is not None:
            self.check_tool_choice(choice)
            if choice.mode in ("required", "named"):
                self.reject("tool_choice", "tool_choice", f"tool_choice = {choice.mode!r}")
        tools: list[Json] = [
            self._tool(tool)
            for tool in self.request.tools
            if choice is None or not isinstance(tool, Tool) or choice.allows(tool.kind, tool.name)
        ]
        return {"tools": tools} if tools else {}

    def _tool(self, tool: AnyTool) -> JsonObject:
        if isinstance(tool, OpaqueTool):
            return self.opaque(tool, "tools", "the provider's own tool")
        if tool.kind == "custom":
            self.reject(CUSTOM_TOOLS, "tools", f"the custom tool {tool.name!r}")
        self.keep_extra(tool.extra)
        members: JsonObject = {"name": tool.name, "description": tool.description or ""}
        members["parameters"] = tool.parameters or {"type": "object"}
        return {"type": "function", "function": members}

    # Everything else

    def settings(self) -> JsonObject:
        self._reject_settings()
        self.keep_request_extra(self.request.extra)
        sampling = self.request.sampling
        members: dict[str, Any] = {
            "format": self._format(self.request.output),
            "think": self._think(),
            "logprobs": sampling.logprobs,
            "top_logprobs": sampling.top_logprobs,
            "options": self._options() or None,
            "keep_alive": _duration(self.profile.keep_alive),
            "stream": self.request.stream,  # which is the default
        }
        return without_nones(members)

    def _options(self) -> JsonObject:
        sampling = self.request.sampling
        stop = [sampling.stop] if isinstance(sampling.stop, str) else list(sampling.stop or ())
        return without_nones(
            {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "num_predict": sampling.max_output_tokens,
                "stop": stop or None,
                "seed": sampling.seed,
                "presence_penalty": sampling.presence_penalty,
                "frequency_penalty": sampling.frequency_penalty,
                "num_ctx": self.profile.context_length or None,
            }
        )

    def _format(self, output: OutputFormat | None) -> Json:
        if output is None or output.type == "text":
            return None
        if output.name or output.description or output.strict is not None:
            self.reject("name, description and strict of an output format")
        return "json" if output.schema is None else output.schema

    def _think(self) -> Json:
        effort = None if self.request.reasoning is None else self.request.reasoning.effort
        if effort is not None and effort not in _THINK:
            self.reject("reasoning effort of another name")
        return None if effort is None else _THINK.get(effort)

    def _reject_settings(self) -> None:
        request, sampling, reasoning = self.request, self.request.sampling, self.request.reasoning
        if sampling.n is not None and sampling.n > 1:
            self.reject("n", "n", f"n = {sampling.n}")
        for name, value in (
            ("logit_bias", sampling.logit_bias),
            ("verbosity", sampling.verbosity),
            ("include", set(request.include) - {"message.output_text.logprobs", "reasoning.encrypted_content"}),
            ("max_tool_calls", request.max_tool_calls is not None),
            ("metadata", request.metadata),
            ("user", request.user),
            ("safety_identifier", request.safety_identifier),
            ("prompt_cache_key", request.prompt_cache_key),
            ("service_tier", request.service_tier),
            ("truncation: auto", request.truncation not in (None, "disabled")),
            ("reasoning.summary", reasoning is not None and (reasoning.summary is not None or reasoning.extra is not None)),
        ):
            if value:
                self.reject(name)


def _continues(message: JsonObject, item: Item) -> bool:
    """Return whether the item belongs to the assistant's message, which has thinking, then text, then calls."""
    match item:
        case Call():
            return True
        case Message():
            return not message["content"] and "tool_calls" not in message
        case _:
            return False


def _is_said(message: JsonObject) -> bool:
    """Return whether the message may be empty: only one of the assistant, of which nothing is left, is left out."""
    return message["role"] != "assistant"


def _duration(keep_alive: str) -> Json:
    """Return seconds as a number: the API reads a text without a unit as an error."""
    if not keep_alive:
        return None
    return int(keep_alive) if keep_alive.lstrip("-").isdigit() else keep_alive
