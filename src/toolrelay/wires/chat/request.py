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
    CallKind,
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
from toolrelay.core.request_checks import check_tool_choice
from toolrelay.errors import invalid
from toolrelay.wires.extra import rest
from toolrelay.wires.json import convert, decode_body, encode, may_be_deep
from toolrelay.wires.tools import decode_tool_choice, decode_tools

NAME = "openai_chat"
_LONGEST = 100


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _JsonSchema(Struct):
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class _ResponseFormat(Struct):
    type: str
    json_schema: _JsonSchema | None = None


class _FunctionCall(Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class _CustomCall(Struct):
    name: str
    input: str | None = None


class _ToolCall(Struct):
    function: _FunctionCall | None = None
    custom: _CustomCall | None = None
    id: str | None = None
    type: str | None = None


class _Message(Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: _FunctionCall | None = None
    refusal: str | None = None
    reasoning_content: str | None = None


_MESSAGE = frozenset(_Message.__struct_fields__)
_CALL = frozenset({"id", "type", "function", "custom", "index"})
_CALL_INNER = {"function": _FunctionCall.__struct_fields__, "custom": _CustomCall.__struct_fields__}


class _Body(Struct):
    """The members that the gateway understands; the rest is `extra`. Numbers keep the form that the client gave them."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
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
    top_logprobs: int | None = None
    n: int | None = None
    verbosity: str | None = None
    response_format: _ResponseFormat | None = None
    reasoning_effort: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    user: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    modalities: list[str] | None = None


_KNOWN = frozenset(_Body.__struct_fields__) - {"modalities"}
_INNER = {"stream_options": _StreamOptions.__struct_fields__}


class _PlainMessage(_Message, forbid_unknown_fields=True):
    pass


class _PlainStreamOptions(_StreamOptions, forbid_unknown_fields=True):
    pass


class _PlainBody(_Body, kw_only=True, forbid_unknown_fields=True):
    """A body in which nothing is unknown, as in nearly every request: it is read in one go."""

    messages: list[_PlainMessage]  # type: ignore[assignment]  # as far as here, not further
    stream_options: _PlainStreamOptions | None = None
    response_format: None = None
    modalities: UnsetType = UNSET  # type: ignore[assignment]  # it is looked at, and then passed on as if it were unknown


_read_plain = msgspec.json.Decoder(_PlainBody).decode


def decode_request(body: bytes) -> Request:
    if not may_be_deep(body):
        try:
            return _request(_read_plain(body), {}, None)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass  # whatever it is, the longer way finds it, and says so where it is wrong
    return _decode_any(body)


def _decode_any(body: bytes) -> Request:
    value = decode_body(body)
    if "messages" not in value and "input" in value:
        raise invalid("This is /v1/chat/completions, which takes 'messages'. 'input' belongs to /v1/responses.", "messages")
    return _request(convert(value, _Body, ""), rest(value, _KNOWN, _INNER) or {}, value.get("response_format"))


def _request(fields: _Body, extra: JsonObject, raw_format: Any) -> Request:  # noqa: ANN401 -- any JSON
    if not fields.messages:
        raise invalid("'messages' must hold at least one message.", "messages", code="empty_array")
    if fields.n is not None and fields.n < 1:
        raise invalid("'n' must be at least 1.", "n")
    if fields.modalities and "audio" in fields.modalities:
        raise invalid("Spoken answers (modalities: audio) are not relayed.", "modalities", code="unsupported_value")
    tools = decode_tools(fields.tools or [], NAME, nests=True)
    request = Request(
        wire=NAME,
        model=fields.model,
        items=_Messages().decode(fields.messages),
        tools=tools + decode_tools(fields.functions or [], NAME, param="functions", nests=True, before=tools),
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
    check_tool_choice(request)
    return request


def _decode_sampling(fields: _Body) -> Sampling:
    return Sampling(
        temperature=fields.temperature,
        top_p=fields.top_p,
        max_output_tokens=fields.max_tokens if fields.max_completion_tokens is None else fields.max_completion_tokens,
        max_tokens_field=(
            "max_completion_tokens"
            if fields.max_completion_tokens is not None
            else "max_tokens"
            if fields.max_tokens is not None
            else None
        ),
        stop=tuple(fields.stop) if isinstance(fields.stop, list) else fields.stop,
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
    """What nothing here knows of it goes to the extra members, in its place; a kind that only some providers know, as a whole."""
    if wanted is None:
        return None
    match wanted.type:
        case "text" | "json_object" | "json_schema" as kind:
            unknown = rest(raw, _ResponseFormat.__struct_fields__, {"json_schema": _JsonSchema.__struct_fields__})
        case _:
            extra["response_format"] = raw
            return None
    if unknown:
        extra["response_format"] = unknown
    if kind == "json_schema" and wanted.json_schema is None:
        raise invalid("A response_format of type json_schema needs 'json_schema'.", "response_format.json_schema")
    schema = wanted.json_schema or _JsonSchema()
    return OutputFormat(type=kind, name=schema.name, description=schema.description, schema=schema.schema, strict=schema.strict)


def _decode_choice(fields: _Body) -> ToolChoice | None:
    if fields.tool_choice is not None:
        return decode_tool_choice(fields.tool_choice)
    match fields.function_call:
        case None:
            return None
        case str() as mode:
            return decode_tool_choice(mode, param="function_call")
        case named:
            return decode_tool_choice({"type": "function", **named}, param="function_call")


class _Messages:
    """Chat messages into items."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._calls: dict[str, Call] = {}
        self._unanswered: dict[str, list[str]] = {}
        self._orphan: tuple[str, str] | None = None  # the first result without a call, and where it is

    def decode(self, messages: Sequence[dict[str, Any] | _PlainMessage]) -> tuple[Item, ...]:
        for number, raw in enumerate(messages):
            place = f"messages[{number}]"
            if isinstance(raw, _PlainMessage):
                self._decode_message(raw, None, place)
            else:
                self._decode_message(convert(raw, _Message, place), rest(raw, _MESSAGE), place)
        if self._orphan is not None:
            call_id, place = self._orphan
            raise invalid(
                f"The tool message answers the call {call_id!r}, which no assistant message before it made.",
                f"{place}.tool_call_id",
                code="unknown_call",
            )
        return tuple(self._items)

    def _decode_message(self, message: _Message, extra: JsonObject | None, place: str) -> None:
        match message.role:
            case "system" | "developer" | "user" as role:
                if message.content is None:
                    raise invalid(f"A {role} message needs content.", f"{place}.content")
                content = _decode_content(message.content, place)
                self._items.append(Message(role=role, content=content, name=message.name, extra=extra))
            case "assistant":
                self._decode_assistant(message, extra, place)
            case "tool" | "function":
                self._decode_result(message, extra, place)
            case _:
                expected = "'system', 'developer', 'user', 'assistant', 'tool' or 'function'"
                got = repr(message.role[:_LONGEST])
                raise invalid(f"Unknown role: expected {expected}, got {got}.", f"{place}.role", code="invalid_value")

    def _decode_assistant(self, message: _Message, extra: JsonObject | None, place: str) -> None:
        if message.reasoning_content is not None:
            self._items.append(Reasoning(text=(message.reasoning_content,)))
        calls = [self._decode_call(raw, place, number) for number, raw in enumerate(message.tool_calls or [])]
        if message.function_call is not None:
            name, arguments = message.function_call.name, _arguments(message.function_call.arguments)
            calls.append(Call(id=self._derived_id(len(calls), name, arguments), name=name, arguments=arguments))
        content: Content = () if message.content is None else _decode_content(message.content, place)
        if message.refusal is not None:
            words = ((Text(text=content),) if content else ()) if isinstance(content, str) else content
            content = (*words, Refusal(text=message.refusal))
        if content == () and not calls:
            content = ""
        if content != () or extra or message.name:
            self._items.append(Message(role="assistant", content=content, name=message.name, extra=extra))
        for call in calls:
            self._unanswered.setdefault(call.name, []).append(call.id)
            self._calls[call.id] = call
            self._items.append(call)

    def _decode_call(self, raw: dict[str, Any], message: str, number: int) -> Call:
        place = f"{message}.tool_calls[{number}]"
        call = convert(raw, _ToolCall, place)
        kind: CallKind = "function" if call.custom is None else "custom"
        if call.custom is not None:
            name, arguments = call.custom.name, call.custom.input or ""
        elif call.function is not None:
            name, arguments = call.function.name, _arguments(call.function.arguments)
        else:
            raise invalid("A tool call needs 'function' or 'custom'.", place)
        identifier = call.id or self._derived_id(number, name, arguments)
        return Call(id=identifier, name=name, arguments=arguments, kind=kind, extra=rest(raw, _CALL, _CALL_INNER))

    def _derived_id(self, number: int, name: str, arguments: str) -> str:
        return derive_call_id(len(self._items) + number, name, arguments)

    def _decode_result(self, message: _Message, extra: JsonObject | None, place: str) -> None:
        identifier = message.tool_call_id
        if message.role == "function":
            waiting = self._unanswered.get(message.name or "")
            if not waiting:
                raise invalid(
                    f"The function message answers {message.name!r}, which no assistant message before it called.",
                    f"{place}.name",
                )
            identifier = waiting[0]
        if not identifier:
            raise invalid("A tool message needs 'tool_call_id'.", f"{place}.tool_call_id")
        call = self._calls.get(identifier)
        if call is None and self._orphan is None:
            self._orphan = identifier, place
        if call is not None and identifier in self._unanswered[call.name]:
            self._unanswered[call.name].remove(identifier)
        content = "" if message.content is None else _decode_content(message.content, place)
        kind = "function" if call is None else call.kind
        self._items.append(Result(call_id=identifier, output=content, kind=kind, name=message.name, extra=extra))


def _arguments(arguments: str | dict[str, Any] | None) -> str:
    """Some clients send the arguments as an object, or leave them out."""
    return (arguments or "{}") if arguments is None or isinstance(arguments, str) else encode(arguments).decode()


class _ImageUrl(Struct):
    url: str
    detail: str | None = None


class _InputAudio(Struct):
    data: str
    format: str


class _FileMembers(Struct):
    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None


class _Part(Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: _ImageUrl | str | None = None
    input_audio: _InputAudio | None = None
    file: _FileMembers | None = None


_PART = frozenset(_Part.__struct_fields__)
_PART_INNER = {
    "image_url": _ImageUrl.__struct_fields__,
    "input_audio": _InputAudio.__struct_fields__,
    "file": _FileMembers.__struct_fields__,
}
_NEEDED = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "image_url": "image_url",
    "input_audio": "input_audio",
    "file": "file",
}


def _decode_content(content: str | list[dict[str, Any]], place: str) -> Content:
    if isinstance(content, str):
        return content
    return tuple(_decode_part(raw, f"{place}.content[{number}]") for number, raw in enumerate(content))


def _decode_part(raw: dict[str, Any], place: str) -> Part:
    kind = raw.get("type")
    if isinstance(kind, str) and kind not in _NEEDED:
        return OpaquePart(wire=NAME, raw=raw)
    part = convert(raw, _Part, place)
    extra = rest(raw, _PART, _PART_INNER)
    match part:
        case _Part(type="text" | "input_text" | "output_text", text=str(text)):
            return Text(text=text, extra=extra)
        case _Part(type="refusal", refusal=str(text)):
            return Refusal(text=text, extra=extra)
        case _Part(type="image_url", image_url=_ImageUrl(url=url, detail=detail)):
            return Image(url=url, detail=detail, extra=extra)
        case _Part(type="image_url", image_url=str(url)):
            return Image(url=url, extra=extra)
        case _Part(type="input_audio", input_audio=_InputAudio(data=data, format=form)):
            return Audio(data=data, format=form, extra=extra)
        case _Part(type="file", file=_FileMembers(file_id=file_id, file_data=data, filename=filename)):
            return File(file_id=file_id, data=data, filename=filename, extra=extra)
        case _:
            needed = _NEEDED[part.type]
            raise invalid(f"A content part of type {part.type!r} needs its member {needed!r}.", f"{place}.{needed}")
