"""Gemini, the gateway's request to a provider: a Request into bytes."""

from __future__ import annotations

from typing import Any

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, Request, Tool, ToolChoice
from toolrelay.wires.base import OutgoingRequest, Unsupported
from toolrelay.wires.gemini.conversation import ContentsEncoder
from toolrelay.wires.gemini.schema import function_schema, output_schema
from toolrelay.wires.gemini.thinking import budget_settings, effort_settings, thinks
from toolrelay.wires.json import encode_repaired, without_nones
from toolrelay.wires.outgoing import CUSTOM_TOOLS, FOREIGN

# What Gemini cannot express of a request from another wire (decision 13). docs/wires.md is generated from it.
UNSUPPORTED: Unsupported = {
    "include": "dropped",
    "max_tool_calls": "dropped",
    "reasoning effort that the model does not have": "dropped",
    "reasoning that Gemini did not sign": "dropped",
    "message phase": "dropped",
    "a call's namespace": "dropped",
    "annotations of earlier answers": "dropped",
    "truncation: auto": "dropped",
    "logit_bias": "dropped",
    "logprobs": "dropped",
    "verbosity": "dropped",
    "name": "dropped",
    "metadata": "dropped",
    "prompt_cache_key": "dropped",
    "service_tier other than auto, default, flex and priority": "dropped",
    "user": "dropped",
    "safety_identifier": "dropped",
    "name, description and strict of an output format": "dropped",
    "keywords of a JSON schema that Gemini does not know": "dropped",
    "detail of images": "dropped",
    "names of files": "dropped",
    "n": "refused",
    "images by file id": "refused",
    "files by id": "refused",
    CUSTOM_TOOLS: "emulated",
    **FOREIGN,
}
_TIERS = {"auto": None, "default": "standard", "flex": "flex", "priority": "priority"}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "named": "ANY"}
_JSON = "application/json"
_ESCAPED = {ord(mark): f"%{ord(mark):02X}" for mark in "%?#"}


def encode_request(request: Request, profile: Profile) -> OutgoingRequest:
    encoder = GeminiRequestEncoder(request, profile)
    body: dict[str, Any] = {**encoder.conversation(), **encoder.tools(), **encoder.settings()}
    encoder.keep_request_extra(encoder.other_members())
    return OutgoingRequest(path=_path(request), body=encode_repaired(body), dropped=tuple(encoder.dropped))


def _path(request: Request) -> str:
    """Return the path, which names the model; tuned models have another one."""
    model = request.model.translate(_ESCAPED)
    name = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
    return f"/{name}:streamGenerateContent?alt=sse" if request.stream else f"/{name}:generateContent"


class GeminiRequestEncoder(ContentsEncoder):
    unsupported = UNSUPPORTED
    refusal = "This model is reached over Google's Gemini API, which cannot say:"

    # Tools

    def tools(self) -> JsonObject:
        request = self.request
        choice = request.tool_choice or ToolChoice()
        self.check_tool_choice(choice)
        allowed = {name for _, name in choice.names}
        # Names are allowed only where a call must happen. Elsewhere only those tools are declared.
        is_narrowed = bool(allowed) and choice.mode in ("auto", "none")
        declarations: list[Json] = []
        for tool in request.tools:
            if isinstance(tool, OpaqueTool):
                self.opaque(tool, "tools", "the provider's own tool")
            elif not is_narrowed or tool.name in allowed:
                declarations.append(self._declaration(tool))
        if not declarations:
            return {}
        members: JsonObject = {"tools": [{"functionDeclarations": declarations}]}
        if request.tool_choice is not None:
            names: list[Json] = [name for _, name in choice.names]
            config: JsonObject = {"mode": _MODES[choice.mode]}
            if names and not is_narrowed:
                config["allowedFunctionNames"] = names
            members["toolConfig"] = {"functionCallingConfig": config}
        return members

    def _declaration(self, tool: Tool) -> JsonObject:
        """Encode a function. The API requires a description."""
        if tool.kind == "custom":
            self.reject(CUSTOM_TOOLS, "tools", f"the custom tool {tool.name!r}, which takes free text")
        self.keep_extra(tool.extra)
        schema, dropped = function_schema(tool.parameters)
        self._drop_keywords(dropped)
        declaration: JsonObject = {"name": tool.name, "description": tool.description or tool.name}
        return {**declaration, "parametersJsonSchema": schema} if schema is not None else declaration

    def _drop_keywords(self, names: list[str]) -> None:
        for name in names:
            self.drop(name)

    # Everything else

    def settings(self) -> JsonObject:
        sampling = self.request.sampling
        self._reject_settings()
        stop: list[Json] = [sampling.stop] if isinstance(sampling.stop, str) else list(sampling.stop or ())
        config = without_nones(
            {
                "temperature": sampling.temperature,
                "topP": sampling.top_p,
                "maxOutputTokens": sampling.max_output_tokens,
                "stopSequences": stop or None,
                "seed": sampling.seed,
                "presencePenalty": sampling.presence_penalty,
                "frequencyPenalty": sampling.frequency_penalty,
                **self._output(),
                "thinkingConfig": self._thinking(),
            }
        )
        members: JsonObject = {"generationConfig": config} if config else {}
        tier = _TIERS.get(self.request.service_tier or "")
        return {**members, "serviceTier": tier} if tier is not None else members

    def _output(self) -> JsonObject:
        output = self.request.output
        if output is None or output.type == "text":
            return {}
        if output.schema is None:
            return {"responseMimeType": _JSON}
        if output.name or output.description or output.strict is not None:
            self.reject("name, description and strict of an output format")
        schema, dropped = output_schema(output.schema)
        self._drop_keywords(dropped)
        return {"responseMimeType": _JSON, "responseJsonSchema": schema}

    def _thinking(self) -> JsonObject | None:
        reasoning, model = self.request.reasoning, self.request.model
        asked = self._asked_thinking()
        if reasoning is not None and reasoning.effort is not None:
            found = effort_settings(model, reasoning.effort)
        elif asked is not None and type(asked.get("budget_tokens")) is int:
            found = budget_settings(model, asked["budget_tokens"])
        elif asked is not None and asked.get("type") == "disabled":
            found = effort_settings(model, "none")
        elif asked is not None or (reasoning is not None and reasoning.summary is not None):
            return {"includeThoughts": True} if thinks(model) else None
        else:
            return None
        if found is None:
            self.reject("reasoning effort that the model does not have")
        return found

    def _asked_thinking(self) -> dict[str, Any] | None:
        """Return the settings of Anthropic's clients, which OpenAI's APIs do not have."""
        asked = (self.request.extra or {}).get("thinking")
        return asked if isinstance(asked, dict) and asked.get("type") in ("enabled", "disabled", "adaptive") else None

    def other_members(self) -> JsonObject:
        """Return the members of the request, and of its reasoning settings, that were not used."""
        extra: JsonObject = dict(self.request.extra or {})
        if self._asked_thinking() is not None:
            del extra["thinking"]
        reasoning = self.request.reasoning
        return extra | (reasoning.extra or {} if reasoning is not None else {})

    def _reject_settings(self) -> None:
        request, sampling = self.request, self.request.sampling
        if sampling.n is not None and sampling.n > 1:
            self.reject("n", "n", f"n = {sampling.n}")
        for name in ("logit_bias", "verbosity"):
            if getattr(sampling, name) is not None:
                self.reject(name)
        if request.reasoning is not None and request.reasoning.summary not in (None, "auto"):
            self.drop("reasoning.summary")
        if sampling.logprobs or sampling.top_logprobs is not None:
            self.reject("logprobs")
        for name, value in (
            ("include", set(request.include) - {"message.output_text.logprobs", "reasoning.encrypted_content"}),
            ("max_tool_calls", request.max_tool_calls is not None),
            ("metadata", request.metadata),
            ("prompt_cache_key", request.prompt_cache_key),
            (
                "service_tier other than auto, default, flex and priority",
                request.service_tier is not None and request.service_tier not in _TIERS,
            ),
            ("truncation: auto", request.truncation not in (None, "disabled")),
            ("user", request.user),
            ("safety_identifier", request.safety_identifier),
        ):
            if value:
                self.reject(name)
