"""Responses, a client's request: bytes into a Request."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import OutputFormat, ReasoningOptions, Request, Sampling, ToolChoice
from toolrelay.core.request_checks import check_tool_choice
from toolrelay.errors import invalid
from toolrelay.wires.json import convert, decode_body
from toolrelay.wires.responses.items import NAME, decode_items
from toolrelay.wires.tools import decode_tool_choice, decode_tools

ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"


class _Format(Struct):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class _TextSettings(Struct):
    format: dict[str, Any] | None = None
    verbosity: str | None = None


class _ReasoningSettings(Struct):
    effort: str | None = None
    summary: str | None = None


class _Body(Struct):
    """The members that the gateway understands; the rest is `extra`."""

    model: str = ""
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    user: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    truncation: str | None = None
    previous_response_id: Any = None
    conversation: Any = None
    background: bool | None = None


# Only the shape of `stream_options` is looked at: its members are the provider's.
_KNOWN = frozenset(_Body.__struct_fields__) - {"stream_options"}


def decode_request(body: bytes) -> Request:
    value = decode_body(body)
    if "input" not in value and "messages" in value:
        raise invalid("This is /v1/responses, which takes 'input'. 'messages' belongs to /v1/chat/completions.", "input")
    fields = convert(value, _Body, "")
    _refuse_state(fields)
    if not fields.model:
        raise invalid("'model' is missing.", "model", code="missing_required_parameter")
    if fields.input == []:
        raise invalid("'input' must hold at least one item.", "input", code="empty_array")
    if not fields.input:
        raise invalid("'input' must be the user's words or a list of items.", "input", code="missing_required_parameter")
    extra: dict[str, Json] = {key: member for key, member in value.items() if key not in _KNOWN}
    include = tuple(fields.include or ())
    output, verbosity = _decode_text(fields.text or {}, extra)
    request = Request(
        wire=NAME,
        model=fields.model,
        items=decode_items(fields.input),
        instructions=fields.instructions,
        tools=decode_tools(fields.tools or [], NAME),
        tool_choice=None if fields.tool_choice is None else _decode_choice(fields.tool_choice),
        parallel_tool_calls=fields.parallel_tool_calls,
        max_tool_calls=fields.max_tool_calls,
        sampling=Sampling(
            temperature=fields.temperature,
            top_p=fields.top_p,
            max_output_tokens=fields.max_output_tokens,
            logprobs=True if LOGPROBS in include else None,
            top_logprobs=fields.top_logprobs,
            verbosity=verbosity,
        ),
        output=output,
        reasoning=_decode_reasoning(fields.reasoning or {}, encrypted=ENCRYPTED in include),
        stream=bool(fields.stream),
        include_usage=bool(fields.stream),
        include=include,
        metadata=fields.metadata,
        store=fields.store,
        user=fields.user,
        service_tier=fields.service_tier,
        prompt_cache_key=fields.prompt_cache_key,
        safety_identifier=fields.safety_identifier,
        truncation=fields.truncation,
        extra=extra or None,
    )
    check_tool_choice(request)
    return request


def _refuse_state(fields: _Body) -> None:
    """Never ignored: the model would answer without the conversation that the client believes it has."""
    asked = {
        "previous_response_id": fields.previous_response_id is not None,
        "conversation": fields.conversation is not None,
        "background": bool(fields.background),
    }
    for name, was_asked in asked.items():
        if was_asked:
            message = f"'{name}' is not supported: this gateway keeps no state yet. Send the whole conversation in 'input'."
            raise invalid(message, name, code="unsupported_parameter")


def _decode_text(raw: dict[str, Any], extra: dict[str, Json]) -> tuple[OutputFormat | None, str | None]:
    """What nothing here knows of `text` stays in the extra members, in its place."""
    text = convert(raw, _TextSettings, "text")
    unknown = _rest(raw, _TextSettings)
    output = None
    if text.format:
        wanted = convert(text.format, _Format, "text.format")
        if wanted.type == "json_schema" and wanted.schema is None:
            raise invalid("A format of type json_schema needs 'schema'.", "text.format.schema", code="missing_required_parameter")
        output = OutputFormat(
            type=wanted.type, name=wanted.name, description=wanted.description, schema=wanted.schema, strict=wanted.strict
        )
        unknown_of_format = _rest(text.format, _Format)
        if unknown_of_format:
            unknown["format"] = unknown_of_format
    if unknown:
        extra["text"] = unknown
    return output, text.verbosity


def _decode_reasoning(raw: dict[str, Any], *, encrypted: bool) -> ReasoningOptions | None:
    wish = convert(raw, _ReasoningSettings, "reasoning")
    unknown = _rest(raw, _ReasoningSettings)
    if not (wish.effort or wish.summary or unknown or encrypted):
        return None
    return ReasoningOptions(effort=wish.effort, summary=wish.summary, encrypted=encrypted, extra=unknown or None)


def _decode_choice(raw: str | dict[str, Any]) -> ToolChoice:
    if isinstance(raw, dict) and raw.get("type") == "allowed_tools":
        tools = raw.get("tools")
        if isinstance(tools, list) and not all(_is_own(tool) for tool in tools):
            return ToolChoice(raw=raw)
    return decode_tool_choice(raw)


def _is_own(tool: object) -> bool:
    """Whether it is of a kind that the client runs, rather than the provider."""
    return isinstance(tool, dict) and tool.get("type") in ("function", "custom")


def _rest(raw: dict[str, Any], known: type[Struct]) -> JsonObject:
    return {key: value for key, value in raw.items() if key not in known.__struct_fields__}
