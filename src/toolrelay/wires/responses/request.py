"""Responses, a client's request: bytes into a Request."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

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
    Role,
    Text,
)
from toolrelay.core.request import OpaqueTool, OutputFormat, ReasoningOptions, Request, Sampling
from toolrelay.core.request_checks import find_orphan_result
from toolrelay.errors import invalid
from toolrelay.wires.extra import unknown_members
from toolrelay.wires.json import arguments_text, convert, decode_body
from toolrelay.wires.request import ImageUrl, InputAudio, JsonSchema, RequestBody
from toolrelay.wires.tools import decode_tool_choice, decode_tool_group, decode_tools

NAME = "openai_responses"
APPROVAL_REQUEST = "mcp_approval_request"
APPROVAL_RESPONSE = "mcp_approval_response"
ADDITIONAL_TOOLS = "additional_tools"
_REFERENCES = ("item_reference", "mcp_call", APPROVAL_REQUEST)
ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"


class _TextFormat(JsonSchema, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]


class _TextSettings(Struct):
    format: dict[str, Any] | None = None
    verbosity: str | None = None


class _ReasoningSettings(Struct):
    effort: str | None = None
    summary: str | None = None


class _ResponsesBody(RequestBody, kw_only=True):
    """The members that the gateway understands; the others are `extra`."""

    model: str = ""
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None
    stream_options: dict[str, Any] | None = None
    truncation: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: bool | None = None


_KNOWN = frozenset(_ResponsesBody.__struct_fields__) - {"stream_options"}  # only its type is checked


def decode_request(body: bytes) -> Request:
    return decode_members(decode_body(body))


def decode_members(value: JsonObject, *, needs_input: bool = True) -> Request:
    """Decode the members of a request. Without `needs_input` it may only name what it continues. A template may be all input."""
    if "input" not in value and "messages" in value:
        raise invalid("This is /v1/responses, which takes 'input'. 'messages' belongs to /v1/chat/completions.", "input")
    fields = convert(value, _ResponsesBody, "")
    conversation = _decode_conversation(fields.conversation)
    _check_state(fields, conversation)
    if not fields.model:
        raise invalid("'model' is missing.", "model", code="missing_required_parameter")
    if not fields.input and (not needs_input or value.get("prompt") is not None):
        fields.input = []
    elif fields.input == []:
        raise invalid("'input' must hold at least one item.", "input", code="empty_array")
    elif not fields.input:
        raise invalid("'input' must be the user's words or a list of items.", "input", code="missing_required_parameter")
    if fields.max_tool_calls is not None and fields.max_tool_calls < 0:
        raise invalid("'max_tool_calls' must be at least 0.", "max_tool_calls", code="integer_below_min_value")
    extra = unknown_members(value, _KNOWN) or {}
    include = tuple(fields.include or ())
    output, verbosity = _decode_text(fields.text, extra) if fields.text else (None, None)
    return Request(
        wire=NAME,
        model=fields.model,
        items=_decode_input(fields.input, has_context=bool(fields.previous_response_id or conversation)),
        instructions=fields.instructions,
        tools=decode_tools(fields.tools or [], NAME) + _decode_tool_groups(fields.input),
        tool_choice=None if fields.tool_choice is None else decode_tool_choice(fields.tool_choice),
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
        store=fields.store is not False,
        background=bool(fields.background),
        previous_response_id=fields.previous_response_id,
        conversation=conversation,
        user=fields.user,
        service_tier=fields.service_tier,
        prompt_cache_key=fields.prompt_cache_key,
        safety_identifier=fields.safety_identifier,
        truncation=fields.truncation,
        extra=extra or None,
    )


def _decode_tool_groups(given: str | list[dict[str, Any]]) -> tuple[OpaqueTool, ...]:
    """Decode the tools that items of the conversation declare. The items stay where they are."""
    if isinstance(given, str):
        return ()
    groups = [(number, raw) for number, raw in enumerate(given) if raw.get("type") == ADDITIONAL_TOOLS]
    return tuple([decode_tool_group(raw, NAME, f"input[{number}]") for number, raw in groups])


def _decode_conversation(value: str | dict[str, Any] | None) -> str | None:
    """Return the conversation's id, which may be given as an object."""
    given = value.get("id") if isinstance(value, dict) else value
    if given is None and value is None:
        return None
    if not isinstance(given, str) or not given:
        raise invalid("'conversation' must be the id of a conversation.", "conversation", code="invalid_type")
    return given


def _check_state(fields: _ResponsesBody, conversation: str | None) -> None:
    if conversation and fields.previous_response_id:
        message = "'conversation' and 'previous_response_id' exclude each other: both name what the request continues."
        raise invalid(message, "previous_response_id", code="mutually_exclusive_parameters")
    if fields.background and fields.store is False:
        message = "'background' needs 'store': nobody could retrieve the response otherwise."
        raise invalid(message, "background", code="mutually_exclusive_parameters")


def _decode_text(raw: dict[str, Any], extra: JsonObject) -> tuple[OutputFormat | None, str | None]:
    """Decode the format and verbosity. Unknown members of `text` go to `extra`, at their level."""
    text = convert(raw, _TextSettings, "text")
    unknown = unknown_members(raw, _TextSettings.__struct_fields__, {"format": _TextFormat.__struct_fields__})
    output = None
    if text.format:
        wanted = convert(text.format, _TextFormat, "text.format")
        if wanted.type == "json_schema" and wanted.schema is None:
            raise invalid("A format of type json_schema needs 'schema'.", "text.format.schema", code="missing_required_parameter")
        output = wanted.output_format(wanted.type)
    if unknown:
        extra["text"] = unknown
    return output, text.verbosity


def _decode_reasoning(raw: dict[str, Any], *, encrypted: bool) -> ReasoningOptions | None:
    settings = convert(raw, _ReasoningSettings, "reasoning")
    unknown = unknown_members(raw, _ReasoningSettings.__struct_fields__)
    if not (settings.effort or settings.summary or unknown or encrypted):
        return None
    return ReasoningOptions(effort=settings.effort, summary=settings.summary, encrypted=encrypted, extra=unknown)


# Items


class _Typed(Struct, kw_only=True):
    type: Any = None


class _InputMessage(_Typed):
    role: Role
    content: str | list[dict[str, Any]] | None = None
    id: str | None = None
    phase: str | None = None


class _InputCall(_Typed):
    call_id: str
    name: str
    id: str | None = None
    namespace: str | None = None


class _InputFunctionCall(_InputCall):
    arguments: str | dict[str, Any] | None = None


class _InputCustomCall(_InputCall):
    input: str = ""


class _InputResult(_Typed):
    call_id: str
    output: str | list[dict[str, Any]]
    id: str | None = None
    name: str | None = None


class _ReasoningText(Struct):
    text: str


class _InputReasoning(_Typed):
    id: str | None = None
    summary: list[_ReasoningText] | None = None
    content: list[_ReasoningText] | None = None
    encrypted_content: str | None = None


def _decode_input(given: str | list[dict[str, Any]], *, has_context: bool) -> tuple[Item, ...]:
    """Decode `input`, which may be the user's text alone. A result must answer a call before it, or one of the context."""
    if isinstance(given, str):
        return (Message(role="user", content=given),)
    items = tuple([decode_item(raw, f"input[{number}]") for number, raw in enumerate(given)])
    position = None if has_context or any(reference_of(item) for item in items) else find_orphan_result(items)
    if position is not None:
        message = f"The output answers the call {given[position]['call_id']!r}, which is nowhere before it in 'input'."
        raise invalid(message, f"input[{position}].call_id", code="unknown_call")
    return items


def reference_of(item: Item) -> str | None:
    """Return the id of a stored item that the item stands for: a reference, or a gateway call or question that is sent back."""
    if isinstance(item, OpaqueItem) and item.wire == NAME and item.raw.get("type") in _REFERENCES:
        identifier = item.raw.get("id")
        return identifier if isinstance(identifier, str) else ""
    return None


def decode_item(raw: dict[str, Any], param: str) -> Item:
    kind = raw.get("type")
    if kind is None:
        kind = "message" if "role" in raw else "item_reference" if "id" in raw else None
    match kind:
        case "message":
            return _decode_message(raw, param)
        case "function_call":
            call = convert(raw, _InputFunctionCall, param)
            return _call(call, arguments_text(call.arguments), raw)
        case "custom_tool_call":
            custom = convert(raw, _InputCustomCall, param)
            return _call(custom, custom.input, raw)
        case "function_call_output" | "custom_tool_call_output":
            result = convert(raw, _InputResult, param)
            return Result(
                call_id=result.call_id,
                output=_decode_content(result.output, f"{param}.output"),
                kind="custom" if kind == "custom_tool_call_output" else "function",
                name=result.name,
                item_id=result.id,
                extra=_extra(raw, _InputResult),
            )
        case "reasoning":
            reasoning = convert(raw, _InputReasoning, param)
            return Reasoning(
                id=reasoning.id,
                text=tuple(each.text for each in reasoning.content or ()),
                summary=tuple(each.text for each in reasoning.summary or ()),
                encrypted=reasoning.encrypted_content,
                extra=_extra(raw, _InputReasoning),
            )
        case "item_reference":
            return OpaqueItem(wire=NAME, raw={"type": "item_reference", "id": raw.get("id")})
        case str():
            return OpaqueItem(wire=NAME, raw=raw)
        case _:
            raise invalid(f"The item at {param} needs a 'type', or a 'role' if it is a message.", param, code="invalid_type")


def _decode_message(raw: dict[str, Any], param: str) -> Message:
    message = convert(raw, _InputMessage, param)
    if message.content is None and message.role != "assistant":
        raise invalid(f"A {message.role} message needs content.", f"{param}.content", code="missing_required_parameter")
    return Message(
        role=message.role,
        content="" if message.content is None else _decode_content(message.content, f"{param}.content"),
        id=message.id,
        phase=message.phase,
        extra=_extra(raw, _InputMessage),
    )


def _call(call: _InputCall, arguments: str, raw: dict[str, Any]) -> Call:
    return Call(
        id=call.call_id,
        name=call.name,
        arguments=arguments,
        kind="custom" if isinstance(call, _InputCustomCall) else "function",
        item_id=call.id,
        namespace=call.namespace,
        extra=_extra(raw, call.__class__),
    )


def _extra(raw: dict[str, Any], known: type[Struct]) -> JsonObject | None:
    names = known.__struct_fields__
    return {key: value for key, value in raw.items() if key not in names} or None  # faster than unknown_members


# Content parts


class _InputText(_Typed):
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class _InputRefusal(_Typed):
    refusal: str


class _InputImage(_Typed):
    image_url: str | ImageUrl | None = None
    file_id: str | None = None
    detail: str | None = None


class _InputFile(_Typed):
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None


class _InputAudioPart(_Typed):
    input_audio: InputAudio


def _decode_content(content: str | list[dict[str, Any]], param: str) -> Content:
    if isinstance(content, str):
        return content
    return tuple([_decode_part(raw, f"{param}[{number}]") for number, raw in enumerate(content)])


def _decode_part(raw: dict[str, Any], param: str) -> Part:
    match raw.get("type"):
        case "input_text" | "output_text" | "text":
            text = convert(raw, _InputText, param)
            annotations, logprobs = tuple(text.annotations or ()), tuple(text.logprobs or ())
            return Text(text=text.text, annotations=annotations, logprobs=logprobs, extra=_extra(raw, _InputText))
        case "refusal":
            return Refusal(text=convert(raw, _InputRefusal, param).refusal, extra=_extra(raw, _InputRefusal))
        case "input_image":
            image = convert(raw, _InputImage, param)
            url, detail = image.image_url, image.detail
            if isinstance(url, ImageUrl):  # Chat's shape
                detail = detail or url.detail
                url = url.url
            return Image(url=url, file_id=image.file_id, detail=detail, extra=_extra(raw, _InputImage))
        case "input_file":
            file = convert(raw, _InputFile, param)
            extra = _extra(raw, _InputFile)
            return File(file_id=file.file_id, data=file.file_data, url=file.file_url, filename=file.filename, extra=extra)
        case "input_audio":
            audio = convert(raw, _InputAudioPart, param).input_audio
            return Audio(data=audio.data, format=audio.format, extra=_extra(raw, _InputAudioPart))
        case str():
            return OpaquePart(wire=NAME, raw=raw)
        case _:
            raise invalid(f"The content part at {param} needs a 'type'.", f"{param}.type", code="invalid_type")
