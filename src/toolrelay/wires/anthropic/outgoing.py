"""Anthropic Messages, the gateway's request to a provider: a Request into bytes."""

from __future__ import annotations

from typing import Any

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call, Message, Reasoning
from toolrelay.core.profiles import Profile
from toolrelay.core.request import AnyTool, OpaqueTool, Request, Tool, ToolChoice
from toolrelay.wires.anthropic.conversation import ConversationEncoder
from toolrelay.wires.anthropic.thinking import default_max_tokens, own_block, thinking_settings
from toolrelay.wires.base import OutgoingRequest, Unsupported
from toolrelay.wires.extra import merge_extra
from toolrelay.wires.json import encode_repaired, without_nones
from toolrelay.wires.outgoing import CUSTOM_TOOLS, FOREIGN

PATH = "/messages"

# What Messages cannot express of a request from another wire (decision 13). docs/wires.md is generated from it.
UNSUPPORTED: Unsupported = {
    "include": "dropped",
    "max_tool_calls": "dropped",
    "reasoning.summary": "dropped",
    "reasoning effort of a model that has none": "dropped",
    "reasoning that Anthropic did not sign": "dropped",
    "message phase": "dropped",
    "a call's namespace": "dropped",
    "annotations of earlier answers": "dropped",
    "truncation: auto": "dropped",
    "seed": "dropped",
    "presence_penalty": "dropped",
    "frequency_penalty": "dropped",
    "logit_bias": "dropped",
    "logprobs": "dropped",
    "verbosity": "dropped",
    "name": "dropped",
    "metadata": "dropped",
    "prompt_cache_key": "dropped",
    "service_tier": "dropped",
    "user beside safety_identifier": "dropped",
    "name, description and strict of an output format": "dropped",
    "response_format: json_object": "dropped",
    "detail of images": "dropped",
    "n": "refused",
    "audio": "refused",
    "images by file id": "refused",
    "files by id": "refused",
    CUSTOM_TOOLS: "emulated",
    **FOREIGN,
}
_TIERS = {"auto": "auto", "default": "standard_only"}


def encode_request(request: Request, profile: Profile) -> OutgoingRequest:
    encoder = MessagesRequestEncoder(request, profile)
    body: dict[str, Any] = {"model": request.model, **encoder.conversation(), **encoder.tools(), **encoder.settings()}
    return encoder.finish(PATH, body)


class MessagesRequestEncoder(ConversationEncoder):
    unsupported = UNSUPPORTED
    refusal = "This model is reached over Anthropic's Messages API, which cannot say:"

    def finish(self, path: str, body: dict[str, Any]) -> OutgoingRequest:
        headers = tuple((self.request.headers or {}).items()) if self.is_same_wire else ()
        return OutgoingRequest(path=path, body=encode_repaired(body), dropped=tuple(self.dropped), headers=headers)

    # Tools

    def tools(self) -> JsonObject:
        request = self.request
        choice = request.tool_choice or ToolChoice()
        self.check_tool_choice(choice)
        # The API has no list of allowed tools: only those are declared.
        is_list = choice.mode != "named" and bool(choice.names)
        tools: list[Json] = [
            self._tool(tool) for tool in request.tools if not is_list or not isinstance(tool, Tool) or _is_named(tool, choice)
        ]
        if not tools:
            return self._past_tools()
        members: JsonObject = {"tools": tools}
        value = self._tool_choice(choice)
        if request.parallel_tool_calls is not None and choice.mode != "none":
            value["disable_parallel_tool_use"] = not request.parallel_tool_calls
        if request.tool_choice is not None or request.parallel_tool_calls is False:
            members["tool_choice"] = value
        return members

    def _past_tools(self) -> JsonObject:
        """Declare the tools of earlier calls, without which the API refuses a conversation that has calls."""
        names = dict.fromkeys(item.name for item in self.request.items if isinstance(item, Call))
        if not names:
            return {}
        tools: list[Json] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        return {"tools": tools, "tool_choice": {"type": "none"}}

    def _tool(self, tool: AnyTool) -> JsonObject:
        if isinstance(tool, OpaqueTool):
            return self.opaque(tool, "tools", "the provider's own tool")
        if tool.kind == "custom":
            self.reject(CUSTOM_TOOLS, "tools", f"the custom tool {tool.name!r}, which takes free text")
        schema = tool.parameters or {"type": "object", "properties": {}}
        members: JsonObject = {"name": tool.name, "input_schema": schema if "type" in schema else {"type": "object", **schema}}
        if tool.description is not None:
            members["description"] = tool.description
        if tool.strict is not None:
            members["strict"] = tool.strict
        return merge_extra(members, self.keep_extra(tool.extra)) if tool.extra else members

    def _tool_choice(self, choice: ToolChoice) -> JsonObject:
        if choice.raw is not None:
            return dict(choice.raw)
        match choice.mode:
            case "named":
                return {"type": "tool", "name": choice.names[0][1]}
            case "required":
                return {"type": "any"}
            case mode:
                return {"type": mode}

    # Everything else

    def settings(self) -> JsonObject:
        request, sampling = self.request, self.request.sampling
        self._reject_settings()
        max_tokens = sampling.max_output_tokens or default_max_tokens(request.model)
        stop: list[Json] = [sampling.stop] if isinstance(sampling.stop, str) else list(sampling.stop or ())
        members = without_nones(
            {
                "max_tokens": max_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "stop_sequences": stop or None,
                "metadata": self._user(),
                "service_tier": _TIERS.get(request.service_tier or ""),
                "stream": True if request.stream else None,
            }
        )
        members = merge_extra(members, self.output_settings(max_tokens))
        return merge_extra(members, self.keep_request_extra(self.request.extra))

    def output_settings(self, max_tokens: int) -> JsonObject:
        """Encode the output's format and the effort."""
        output, reasoning = self.request.output, self.request.reasoning
        members: JsonObject = {}
        if output is not None and output.schema is not None:
            members["output_config"] = {"format": {"type": "json_schema", "schema": output.schema}}
            if output.name or output.description or output.strict is not None:
                self.reject("name, description and strict of an output format")
        elif output is not None and output.type == "json_object":
            self.reject("response_format: json_object")
        if reasoning is not None:
            members = merge_extra(members, self._effort(max_tokens))
        return members

    def _effort(self, max_tokens: int) -> JsonObject:
        reasoning, choice = self.request.reasoning, self.request.tool_choice
        if reasoning is None or reasoning.effort is None:
            return {}
        if self.is_same_wire:
            return {"output_config": {"effort": reasoning.effort}}
        settings = thinking_settings(self.request.model, reasoning.effort, max_tokens)
        if settings is None:
            self.reject("reasoning effort of a model that has none")
            return {}
        is_forced = choice is not None and choice.mode in ("required", "named")
        thinking = settings.get("thinking")
        needs_past = isinstance(thinking, dict) and thinking["type"] == "enabled" and self._lacks_thinking()
        if is_forced or needs_past:  # the API refuses to think then
            settings.pop("thinking", None)
        return settings

    def _lacks_thinking(self) -> bool:
        """Return whether the model's last turn has calls without the thinking that led to them."""
        has_calls = False
        for item in reversed(self.request.items):
            match item:
                case Message(role="user"):
                    return has_calls
                case Call():
                    has_calls = True
                case Reasoning(encrypted=str(encrypted)) if own_block(encrypted) is not None:
                    return False
                case _:
                    pass
        return has_calls

    def _user(self) -> JsonObject | None:
        """Return the end user: OpenAI's APIs have two names for one."""
        user, identifier = self.request.user, self.request.safety_identifier
        if user is not None and identifier not in (None, user):
            self.reject("user beside safety_identifier")
        shown = identifier or user
        return None if shown is None else {"user_id": shown}

    def _reject_settings(self) -> None:
        request, sampling, reasoning = self.request, self.request.sampling, self.request.reasoning
        if sampling.n is not None and sampling.n > 1:
            self.reject("n", "n", f"n = {sampling.n}")
        for name in ("seed", "presence_penalty", "frequency_penalty", "logit_bias", "verbosity"):
            if getattr(sampling, name) is not None:
                self.reject(name)
        if sampling.logprobs or sampling.top_logprobs is not None:
            self.reject("logprobs")
        for name, value in (
            ("include", set(request.include) - {"message.output_text.logprobs", "reasoning.encrypted_content"}),
            ("max_tool_calls", request.max_tool_calls is not None),
            ("metadata", request.metadata),
            ("prompt_cache_key", request.prompt_cache_key),
            ("service_tier", request.service_tier is not None and request.service_tier not in _TIERS),
            ("truncation: auto", request.truncation not in (None, "disabled")),
        ):
            if value:
                self.reject(name)
        if reasoning is not None:
            self.keep_extra(reasoning.extra)
            if reasoning.summary is not None and reasoning.effort is None:
                self.reject("reasoning.summary")


def _is_named(tool: Tool, choice: ToolChoice) -> bool:
    return (tool.kind, tool.name) in choice.names
