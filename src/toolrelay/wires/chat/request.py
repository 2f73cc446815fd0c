"""Chat Completions, a client's request: bytes into a Request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolrelay.core.identity import derive_call_id
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import (
    Audio,
    Call,
    Content,
    File,
    Image,
    Item,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.core.request import OutputFormat, ReasoningOptions, Request, Sampling, ToolChoice
from toolrelay.errors import invalid
from toolrelay.wires.extra import unknown_members
from toolrelay.wires.json import arguments_text, convert, decode_body, may_be_deep
from toolrelay.wires.request import ImageUrl, InputAudio, JsonSchema, RequestBody
from toolrelay.wires.tools import decode_tool_choice, decode_tools

NAME = "openai_chat"
_MAX_SHOWN = 100


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _ResponseFormat(Struct):
    type: str
    json_schema: JsonSchema | None = None


class _ChatFunction(Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class _ChatCustom(Struct):
    name: str
    input: str | None = None


class _ChatCall(Struct):
    function: _ChatFunction | None = None
    custom: _ChatCustom | None = None
    id: str | None = None
    type: str | None = None
    index: Any = None


class _ChatMessage(Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: _ChatFunction | None = None
    refusal: str | None = None
    reasoning_content: str | None = None


_MESSAGE = frozenset(_ChatMessage.__struct_fields__)
_CALL = frozenset(_ChatCall.__struct_fields__)
_CALL_NESTED = {"function": _ChatFunction.__struct_fields__, "custom": _ChatCustom.__struct_fields__}


class _ChatBody(RequestBody, kw_only=True):
    """The members that the gateway understands; the others are `extra`. Numbers keep the form that the client gave them."""

    model: str
    messages: list[dict[str, Any]]
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    temperature: int | float | None = None
    top_p: int | float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: int | float | None = None
    frequency_penalty: int | float | None = None
    logit_bias: dict[str, int | float] | None = None
    logprobs: bool | None = None
    n: int | None = None
    verbosity: str | None = None
    response_format: _ResponseFormat | None = None
    reasoning_effort: str | None = None
    stream_options: _StreamOptions | None = None
    modalities: list[str] | None = None


_KNOWN = frozenset(_ChatBody.__struct_fields__) - {"modalities"}  # which is checked, and passed on as if it were unknown
_NESTED = {"stream_options": _StreamOptions.__struct_fields__}


class _PlainMessage(_ChatMessage, forbid_unknown_fields=True):
    pass


class _PlainStreamOptions(_StreamOptions, forbid_unknown_fields=True):
    pass


class _PlainBody(_ChatBody, kw_only=True, forbid_unknown_fields=True):
    """A body without unknown members, as nearly every one: it is decoded in one step."""

    messages: list[_PlainMessage]  # type: ignore[assignment]  # the general body's are decoded one by one
    stream_options: _PlainStreamOptions | None = None
    response_format: None = None
    modalities: UnsetType = UNSET  # type: ignore[assignment]  # see _KNOWN


_decode_plain = msgspec.json.Decoder(_PlainBody).decode


def decode_request(body: bytes) -> Request:
    if not may_be_deep(body):
        try:
            return _request(_decode_plain(body), {}, None)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass  # the general path finds the unknown members, or the error and its parameter
    return _decode_any(body)


def _decode_any(body: bytes) -> Request:
    value = decode_body(body)
    if "messages" not in value and "input" in value:
        raise invalid("This is /v1/chat/completions, which takes 'messages'. 'input' belongs to /v1/responses.", "messages")
    extra = unknown_members(value, _KNOWN, _NESTED) or {}
    return _request(convert(value, _ChatBody, ""), extra, value.get("response_format"))


def _request(fields: _ChatBody, extra: JsonObject, raw_format: Any) -> Request:  # noqa: ANN401 -- any JSON
    if not fields.messages:
        raise invalid("'messages' must hold at least one message.", "messages", code="empty_array")
    if fields.n is not None and fields.n < 1:
        raise invalid("'n' must be at least 1.", "n")
    if fields.modalities and "audio" in fields.modalities:
        raise invalid("Spoken answers (modalities: audio) are not relayed.", "modalities", code="unsupported_value")
    tools = decode_tools(fields.tools or [], NAME, is_nested=True)
    return Request(
        wire=NAME,
        model=fields.model,
        items=_MessageDecoder().decode(fields.messages),
        tools=tools + decode_tools(fields.functions or [], NAME, param="functions", is_nested=True, before=tools),
        tool_choice=_decode_choice(fields),
        parallel_tool_calls=fields.parallel_tool_calls,
        sampling=_decode_sampling(fields),
        output=_decode_format(fields.response_format, raw_format, extra),
        reasoning=None if fields.reasoning_effort is None else ReasoningOptions(effort=fields.reasoning_effort),
        stream=bool(fields.stream),
        include_usage=bool(fields.stream_options and fields.stream_options.include_usage),
        metadata=fields.metadata,
        store=fields.store,
        user=fields.user,
        service_tier=fields.service_tier,
        prompt_cache_key=fields.prompt_cache_key,
        safety_identifier=fields.safety_identifier,
        legacy_functions=fields.functions is not None and fields.tools is None,
        extra=extra or None,
    )


def _decode_sampling(fields: _ChatBody) -> Sampling:
    has_new_field = fields.max_completion_tokens is not None
    return Sampling(
        max_output_tokens=fields.max_completion_tokens if has_new_field else fields.max_tokens,
        max_tokens_field=("max_completion_tokens" if has_new_field else None if fields.max_tokens is None else "max_tokens"),
        stop=tuple(fields.stop) if isinstance(fields.stop, list) else fields.stop,
        temperature=fields.temperature,
        top_p=fields.top_p,
        seed=fields.seed,
        presence_penalty=fields.presence_penalty,
        frequency_penalty=fields.frequency_penalty,
        logit_bias=fields.logit_bias,
        logprobs=fields.logprobs,
        top_logprobs=fields.top_logprobs,
        n=fields.n,
        verbosity=fields.verbosity,
    )


def _decode_format(wanted: _ResponseFormat | None, raw: Any, extra: JsonObject) -> OutputFormat | None:  # noqa: ANN401 -- any JSON
    """Decode the format. Its unknown members go to `extra`, at their level; a format of unknown type as a whole."""
    if wanted is None:
        return None
    match wanted.type:
        case "text" | "json_object" | "json_schema" as kind:
            unknown = unknown_members(raw, _ResponseFormat.__struct_fields__, {"json_schema": JsonSchema.__struct_fields__})
        case _:
            extra["response_format"] = raw
            return None
    if unknown:
        extra["response_format"] = unknown
    if kind == "json_schema" and wanted.json_schema is None:
        raise invalid("A response_format of type json_schema needs 'json_schema'.", "response_format.json_schema")
    return (wanted.json_schema or JsonSchema()).output_format(kind)


def _decode_choice(fields: _ChatBody) -> ToolChoice | None:
    if fields.tool_choice is not None:
        return decode_tool_choice(fields.tool_choice)
    legacy = fields.function_call
    if legacy is None:
        return None
    return decode_tool_choice(legacy if isinstance(legacy, str) else {"type": "function", **legacy}, param="function_call")


class _MessageDecoder:
    """Decodes Chat messages into items."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._calls: dict[str, Call] = {}
        self._unanswered: dict[str, list[str]] = {}  # the ids of the calls without a result, by the tool's name
        self._orphan: tuple[str, str] | None = None  # the call id and path of the first result without a call

    def decode(self, messages: Sequence[dict[str, Any] | _PlainMessage]) -> tuple[Item, ...]:
        for number, raw in enumerate(messages):
            param = f"messages[{number}]"
            if isinstance(raw, _PlainMessage):
                self._decode_message(raw, None, param)
            else:
                self._decode_message(convert(raw, _ChatMessage, param), unknown_members(raw, _MESSAGE), param)
        if self._orphan is not None:
            call_id, param = self._orphan
            message = f"The tool message answers the call {call_id!r}, which no assistant message before it made."
            raise invalid(message, f"{param}.tool_call_id", code="unknown_call")
        return tuple(self._items)

    def _decode_message(self, message: _ChatMessage, extra: JsonObject | None, param: str) -> None:
        match message.role:
            case "system" | "developer" | "user" as role:
                if message.content is None:
                    raise invalid(f"A {role} message needs content.", f"{param}.content")
                content = _decode_content(message.content, param)
                self._items.append(Message(role=role, content=content, name=message.name, extra=extra))
            case "assistant":
                self._decode_assistant(message, extra, param)
            case "tool" | "function":
                self._decode_result(message, extra, param)
            case _:
                expected = "'system', 'developer', 'user', 'assistant', 'tool' or 'function'"
                got = repr(message.role[:_MAX_SHOWN])
                raise invalid(f"Unknown role: expected {expected}, got {got}.", f"{param}.role", code="invalid_value")

    def _decode_assistant(self, message: _ChatMessage, extra: JsonObject | None, param: str) -> None:
        if message.reasoning_content is not None:
            self._items.append(Reasoning(text=(message.reasoning_content,)))
        calls = [
            self._decode_call(raw, number, f"{param}.tool_calls[{number}]") for number, raw in enumerate(message.tool_calls or ())
        ]
        if message.function_call is not None:
            name, arguments = message.function_call.name, arguments_text(message.function_call.arguments) or "{}"
            calls.append(Call(id=self._derive_id(len(calls), name, arguments), name=name, arguments=arguments))
        content: Content = () if message.content is None else _decode_content(message.content, param)
        if message.refusal is not None:
            parts = ((Text(text=content),) if content else ()) if isinstance(content, str) else content
            content = (*parts, Refusal(text=message.refusal))
        if content == () and not calls:
            content = ""
        if content != () or extra or message.name:
            self._items.append(Message(role="assistant", content=content, name=message.name, extra=extra))
        for call in calls:
            self._unanswered.setdefault(call.name, []).append(call.id)
            self._calls[call.id] = call
            self._items.append(call)

    def _decode_call(self, raw: dict[str, Any], number: int, param: str) -> Call:
        call = convert(raw, _ChatCall, param)
        if call.custom is not None:
            name, arguments = call.custom.name, call.custom.input or ""
        elif call.function is not None:
            name, arguments = call.function.name, arguments_text(call.function.arguments) or "{}"
        else:
            raise invalid("A tool call needs 'function' or 'custom'.", param)
        return Call(
            id=call.id or self._derive_id(number, name, arguments),
            name=name,
            arguments=arguments,
            kind="function" if call.custom is None else "custom",
            extra=unknown_members(raw, _CALL, _CALL_NESTED),
        )

    def _derive_id(self, number: int, name: str, arguments: str) -> str:
        return derive_call_id(len(self._items) + number, name, arguments)

    def _decode_result(self, message: _ChatMessage, extra: JsonObject | None, param: str) -> None:
        call_id = message.tool_call_id
        if message.role == "function":
            unanswered = self._unanswered.get(message.name or "")
            if not unanswered:
                text = f"The function message answers {message.name!r}, which no assistant message before it called."
                raise invalid(text, f"{param}.name")
            call_id = unanswered[0]
        if not call_id:
            raise invalid("A tool message needs 'tool_call_id'.", f"{param}.tool_call_id")
        call = self._calls.get(call_id)
        if call is None and self._orphan is None:
            self._orphan = call_id, param
        if call is not None and call_id in self._unanswered[call.name]:
            self._unanswered[call.name].remove(call_id)
        content = "" if message.content is None else _decode_content(message.content, param)
        kind = "function" if call is None else call.kind
        self._items.append(Result(call_id=call_id, output=content, kind=kind, name=message.name, extra=extra))


class _ChatFile(Struct):
    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None


class _ChatPart(Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None
    input_audio: InputAudio | None = None
    file: _ChatFile | None = None


_PART_NESTED = {
    "image_url": ImageUrl.__struct_fields__,
    "input_audio": InputAudio.__struct_fields__,
    "file": _ChatFile.__struct_fields__,
}
_REQUIRED_MEMBER = {
    **{name: name for name in ("text", "refusal", "image_url", "input_audio", "file")},
    **dict.fromkeys(("input_text", "output_text"), "text"),
}


def _decode_content(content: str | list[dict[str, Any]], param: str) -> Content:
    if isinstance(content, str):
        return content
    return tuple(_decode_part(raw, f"{param}.content[{number}]") for number, raw in enumerate(content))


def _decode_part(raw: dict[str, Any], param: str) -> Part:
    kind = raw.get("type")
    if isinstance(kind, str) and kind not in _REQUIRED_MEMBER:
        return OpaquePart(wire=NAME, raw=raw)
    part = convert(raw, _ChatPart, param)
    extra = unknown_members(raw, _ChatPart.__struct_fields__, _PART_NESTED)
    match part:
        case _ChatPart(type="text" | "input_text" | "output_text", text=str(text)):
            return Text(text=text, extra=extra)
        case _ChatPart(type="refusal", refusal=str(text)):
            return Refusal(text=text, extra=extra)
        case _ChatPart(type="image_url", image_url=ImageUrl(url=url, detail=detail)):
            return Image(url=url, detail=detail, extra=extra)
        case _ChatPart(type="image_url", image_url=str(url)):
            return Image(url=url, extra=extra)
        case _ChatPart(type="input_audio", input_audio=InputAudio(data=data, format=form)):
            return Audio(data=data, format=form, extra=extra)
        case _ChatPart(type="file", file=_ChatFile(file_id=file_id, file_data=data, filename=filename)):
            return File(file_id=file_id, data=data, filename=filename, extra=extra)
        case _:
            member = _REQUIRED_MEMBER[part.type]
            raise invalid(f"A content part of type {part.type!r} needs its member {member!r}.", f"{param}.{member}")
