"""Chat Completions, the gateway's request to a provider: a Request into bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, assert_never

from toolrelay.core.identity import shorten_id
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
from toolrelay.core.request import AnyTool, OpaqueTool, OutputFormat, Request, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires.base import Outgoing
from toolrelay.wires.chat.request import NAME
from toolrelay.wires.extra import merged, unknown_names
from toolrelay.wires.json import encode
from toolrelay.wires.tools import nested_format

# What Chat cannot say of a request that came over another wire, and what then happens (decision 13): docs/wires.md says the same.
UNSUPPORTED: dict[str, Literal["dropped", "refused"]] = {
    "include": "dropped",
    "max_tool_calls": "dropped",
    "reasoning.summary": "dropped",
    "reasoning items that are summarised or sealed": "dropped",
    "message phase": "dropped",
    "a call's namespace": "dropped",
    "annotations of earlier answers": "dropped",
    "truncation: auto": "dropped",
    "a provider's own tools (web_search, file_search, mcp, …)": "refused",
    "a provider's own items (web_search_call, …)": "refused",
    "images by file id": "refused",
    "files by URL": "refused",
    "content parts of unknown type": "refused",
    "tool_choice that names a provider's own tool": "refused",
    "other fields, at any level": "dropped",
}


def encode_request(request: Request, profile: Profile) -> Outgoing:
    writer = _Writer(request, profile)
    body: dict[str, Any] = {"model": request.model, "messages": writer.messages()}
    if request.tools:
        body |= writer.tools()
    body |= writer.sampling()
    body |= writer.settings()
    return Outgoing(path="/chat/completions", body=encode(body), dropped=tuple(writer.dropped))


def _refused(what: str, param: str) -> ClientError:
    message = f"This model is reached over Chat Completions, which cannot say: {what}."
    return ClientError(message, param=param, code="unsupported_by_upstream")


class _Writer:
    def __init__(self, request: Request, profile: Profile) -> None:
        self.request = request
        self.profile = profile
        self.same_wire = request.wire == NAME
        self.dropped: list[str] = []

    # The conversation

    def messages(self) -> list[JsonObject]:
        """Items into messages: an assistant's thoughts, words and calls that follow each other are one message.

        The results of a message's calls stand right behind it, as Chat wants them, wherever another wire let them stand.
        """
        groups: list[list[JsonObject]] = []
        made: dict[str, list[JsonObject]] = {}
        if self.request.instructions is not None:
            groups.append([{"role": self._role("developer"), "content": self.request.instructions}])
        speaking: JsonObject | None = None
        for item in self.request.items:
            if type(item) is Message and item.role != "assistant":
                speaking = None
                groups.append([self._message(item)])
            elif type(item) is Result:
                speaking = None
                answered = made.get(item.call_id)
                if answered is None:
                    groups.append(answered := [])
                answered.append(self._result(item))
            else:
                if speaking is None or not _continues(speaking, item):
                    speaking = {"role": "assistant", "content": None}
                    groups.append([speaking])
                self._speak(speaking, item)
                if type(item) is Call:
                    made[item.id] = groups[-1]
        return [message for group in groups for message in group if len(message) > 2 or message["content"] is not None]

    def _speak(self, speaking: JsonObject, item: Item) -> None:
        """Adds an item of the assistant's to its message."""
        match item:
            case Message():
                speaking |= self._message(item)
                if item.phase is not None:
                    self._drop("message phase")
            case Call():
                calls = speaking.setdefault("tool_calls", [])
                if isinstance(calls, list):
                    calls.append(self._call(item))
            case Reasoning():
                if item.text:
                    speaking["reasoning_content"] = "\n\n".join(item.text)
                if item.encrypted is not None or item.summary:
                    self._drop("reasoning items that are summarised or sealed")
                self._extra(item.extra)
            case OpaqueItem():
                raise _refused(f"an item of type {item.raw.get('type')!r}", "input")
            case Result():
                pass

    def _message(self, item: Message) -> JsonObject:
        message: JsonObject = {"role": self._role(item.role), "content": self._content(item.content)}
        if item.role == "assistant" and isinstance(item.content, tuple):
            message |= self._assistant_content(item.content)
        if item.name is not None:
            message["name"] = item.name
        return merged(message, self._extra(item.extra))

    def _assistant_content(self, parts: tuple[Part, ...]) -> JsonObject:
        """A refusal alone has a member of its own."""
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
            self._drop("a call's namespace")
        body: JsonObject = (
            {"name": call.name, "arguments": call.arguments or "{}"}
            if call.kind == "function"
            else {"name": call.name, "input": call.arguments}
        )
        return merged({"id": self._call_id(call.id), "type": call.kind, call.kind: body}, self._extra(call.extra))

    def _result(self, result: Result) -> JsonObject:
        message: JsonObject = {
            "role": "tool",
            "tool_call_id": self._call_id(result.call_id),
            "content": self._content(result.output),
        }
        if result.name is not None:
            message["name"] = result.name
        return merged(message, self._extra(result.extra))

    def _call_id(self, identifier: str) -> str:
        return shorten_id(identifier) if self.profile.call_ids == "nine" else identifier

    def _content(self, content: Content) -> Any:  # noqa: ANN401 -- a string or a list of parts
        return content if isinstance(content, str) else [self._part(part) for part in content]

    def _part(self, part: Part) -> JsonObject:
        match part:
            case Text():
                if part.annotations:
                    self._drop("annotations of earlier answers")
                value: JsonObject = {"type": "text", "text": part.text}
            case Refusal():
                value = {"type": "refusal", "refusal": part.text}
            case Image(url=str(url)):
                detail: JsonObject = {} if part.detail is None else {"detail": part.detail}
                value = {"type": "image_url", "image_url": {"url": url, **detail}}
            case Image():
                raise _refused("an image by file id", "input")
            case Audio():
                value = {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
            case File(url=None):
                members = {"file_id": part.file_id, "file_data": part.data, "filename": part.filename}
                value = {"type": "file", "file": {key: said for key, said in members.items() if said is not None}}
            case File():
                raise _refused("a file by URL", "input")
            case OpaquePart(wire=wire, raw=raw):
                if wire != NAME:
                    raise _refused(f"a content part of type {raw.get('type')!r}", "input")
                return raw
            case _:
                assert_never(part)
        return merged(value, self._extra(part.extra))

    # Tools

    def tools(self) -> JsonObject:
        request = self.request
        out: JsonObject = {"tools": [self._tool(tool) for tool in request.tools]}
        if request.tool_choice is not None:
            out["tool_choice"] = self._tool_choice(request.tool_choice)
        if request.parallel_tool_calls is not None:
            out["parallel_tool_calls"] = request.parallel_tool_calls
        return out

    def _tool(self, tool: AnyTool) -> JsonObject:
        if isinstance(tool, OpaqueTool):
            if tool.wire != NAME:
                raise _refused(f"the provider's own tool {tool.raw.get('type')!r}", "tools")
            return tool.raw
        body: JsonObject = {"name": tool.name}
        if tool.description is not None:
            body["description"] = tool.description
        if tool.kind == "custom":
            if tool.format is not None:
                body["format"] = nested_format(tool.format)
        else:
            if tool.parameters is not None:
                body["parameters"] = tool.parameters
            if tool.strict is not None:
                body["strict"] = tool.strict
        return merged({"type": tool.kind, tool.kind: body}, self._extra(tool.extra))

    def _tool_choice(self, choice: ToolChoice) -> str | JsonObject:
        if choice.raw is not None:
            if not self.same_wire:
                raise _refused(f"a tool_choice of type {choice.raw.get('type')!r}", "tool_choice")
            return choice.raw
        if choice.mode == "named":
            kind, name = choice.names[0]
            return {"type": kind, kind: {"name": name}}
        if choice.names:
            tools: list[Any] = [{"type": kind, kind: {"name": name}} for kind, name in choice.names]
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}}
        return choice.mode

    # Everything else

    def sampling(self) -> JsonObject:
        sampling = self.request.sampling
        limit = self.profile.max_tokens_field or sampling.max_tokens_field or "max_tokens"
        return _said(
            {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                limit: sampling.max_output_tokens,
                "stop": list(sampling.stop) if isinstance(sampling.stop, tuple) else sampling.stop,
                "seed": sampling.seed,
                "presence_penalty": sampling.presence_penalty,
                "frequency_penalty": sampling.frequency_penalty,
                "logit_bias": sampling.logit_bias,
                "logprobs": sampling.logprobs,
                "top_logprobs": sampling.top_logprobs,
                "n": sampling.n,
                "verbosity": sampling.verbosity,
            }
        )

    def settings(self) -> JsonObject:
        request = self.request
        self._drop_unsayable()
        members = _said(
            {
                "response_format": _response_format(request.output),
                "reasoning_effort": request.reasoning.effort if request.reasoning else None,
                "metadata": request.metadata,
                "store": request.store if self.same_wire else None,
                "user": request.user,
                "service_tier": request.service_tier,
                "prompt_cache_key": request.prompt_cache_key,
                "safety_identifier": request.safety_identifier,
            }
        )
        extra = self._extra(request.extra)
        if not request.stream:
            return merged(members, {key: value for key, value in extra.items() if key != "stream_options"})
        members["stream"] = True
        if self.profile.stream_usage:
            members["stream_options"] = {"include_usage": True}
        return merged(members, extra)

    def _drop_unsayable(self) -> None:
        request = self.request
        wish = request.reasoning
        if request.include and set(request.include) - {"message.output_text.logprobs"}:
            self._drop("include")
        if request.max_tool_calls is not None:
            self._drop("max_tool_calls")
        if request.truncation not in (None, "disabled"):
            self._drop("truncation: auto")
        if wish is not None and (wish.summary is not None or wish.extra is not None):
            self._drop("reasoning.summary")

    def _drop(self, name: str) -> None:
        assert UNSUPPORTED[name] == "dropped", name  # noqa: S101 -- the table and the code are one
        if name not in self.dropped:
            self.dropped.append(name)

    def _extra(self, extra: JsonObject | None) -> JsonObject:
        """What only the client's wire knows: written where this is that wire, else dropped by name."""
        if not extra or self.same_wire:
            return extra or {}
        self.dropped += [name for name in unknown_names(extra) if name not in self.dropped]
        return {}


def _continues(speaking: JsonObject, item: Item) -> bool:
    """Whether the item belongs to the message that the assistant is speaking: thoughts, then words, then calls."""
    match item:
        case Call():
            return True
        case Message():
            return speaking["content"] is None and "tool_calls" not in speaking and "refusal" not in speaking
        case _:
            return False


def _said(members: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in members.items() if value is not None}


def _response_format(output: OutputFormat | None) -> JsonObject | None:
    if output is None:
        return None
    if output.type != "json_schema":
        return {"type": output.type}
    schema = {"name": output.name, "description": output.description, "schema": output.schema, "strict": output.strict}
    return {"type": "json_schema", "json_schema": _said(schema)}
