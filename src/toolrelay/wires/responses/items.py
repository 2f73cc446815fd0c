"""Responses, the items of a conversation: a client's input into items and parts."""

from __future__ import annotations

from typing import Any

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
from toolrelay.core.request_checks import find_orphan_result
from toolrelay.errors import ClientError, invalid
from toolrelay.wires.json import convert, encode

NAME = "openai_responses"


class _Message(Struct):
    role: Role
    content: str | list[dict[str, Any]] | None = None
    id: str | None = None
    phase: str | None = None


class _FunctionCall(Struct):
    call_id: str
    name: str
    arguments: str | dict[str, Any] | None = None
    id: str | None = None
    namespace: str | None = None


class _CustomCall(Struct):
    call_id: str
    name: str
    input: str = ""
    id: str | None = None
    namespace: str | None = None


class _Output(Struct):
    call_id: str
    output: str | list[dict[str, Any]]
    id: str | None = None
    name: str | None = None


class _Piece(Struct):
    text: str


class _Reasoning(Struct):
    id: str | None = None
    summary: list[_Piece] | None = None
    content: list[_Piece] | None = None
    encrypted_content: str | None = None


def decode_items(given: str | list[dict[str, Any]]) -> tuple[Item, ...]:
    """`input`, which may be the user's words alone. A result must answer a call that stands before it."""
    if isinstance(given, str):
        return (Message(role="user", content=given),)
    items = tuple(_decode_item(raw, f"input[{number}]") for number, raw in enumerate(given))
    lost = find_orphan_result(items)
    if lost is not None:
        call_id = given[lost]["call_id"]
        raise invalid(
            f"The output answers the call {call_id!r}, which is nowhere before it in 'input'.",
            f"input[{lost}].call_id",
            code="unknown_call",
        )
    return items


def _decode_item(raw: dict[str, Any], place: str) -> Item:
    match raw.get("type"):
        case "message":
            return _decode_message(raw, place)
        case None if "role" in raw:
            return _decode_message(raw, place)
        case "function_call":
            call = convert(raw, _FunctionCall, place)
            return _call(call, _arguments(call.arguments), raw)
        case "custom_tool_call":
            custom = convert(raw, _CustomCall, place)
            return _call(custom, custom.input, raw)
        case "function_call_output" | "custom_tool_call_output" as kind:
            output = convert(raw, _Output, place)
            return Result(
                call_id=output.call_id,
                output=decode_content(output.output, f"{place}.output"),
                kind="custom" if kind == "custom_tool_call_output" else "function",
                name=output.name,
                item_id=output.id,
                extra=_rest(raw, _Output),
            )
        case "reasoning":
            thought = convert(raw, _Reasoning, place)
            return Reasoning(
                id=thought.id,
                text=tuple(piece.text for piece in thought.content or ()),
                summary=tuple(piece.text for piece in thought.summary or ()),
                encrypted=thought.encrypted_content,
                extra=_rest(raw, _Reasoning),
            )
        case "item_reference":
            raise _without_state(place)
        case None if "id" in raw:  # a reference may leave its type out
            raise _without_state(place)
        case str():
            return OpaqueItem(wire=NAME, raw=raw)
        case _:
            raise invalid(f"The item at {place} needs a 'type', or a 'role' if it is a message.", place, code="invalid_type")


def _without_state(place: str) -> ClientError:
    message = "An item reference cannot be resolved: this gateway keeps no state yet. Send the item itself."
    return invalid(message, place, code="unsupported_parameter")


def _decode_message(raw: dict[str, Any], place: str) -> Message:
    message = convert(raw, _Message, place)
    content = message.content
    if content is None:
        if message.role != "assistant":
            raise invalid(f"A {message.role} message needs content.", f"{place}.content", code="missing_required_parameter")
        content = ""
    return Message(
        role=message.role,
        content=decode_content(content, f"{place}.content"),
        id=message.id,
        phase=message.phase,
        extra=_rest(raw, _Message),
    )


def _call(call: _FunctionCall | _CustomCall, arguments: str, raw: dict[str, Any]) -> Call:
    return Call(
        id=call.call_id,
        name=call.name,
        arguments=arguments,
        kind="custom" if isinstance(call, _CustomCall) else "function",
        item_id=call.id,
        namespace=call.namespace,
        extra=_rest(raw, call.__class__),
    )


def _arguments(arguments: str | dict[str, Any] | None) -> str:
    """Some clients send the arguments as an object."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else encode(arguments).decode()


class _Text(Struct):
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class _Refusal(Struct):
    refusal: str


class _ImageUrl(Struct):
    url: str
    detail: str | None = None


class _Image(Struct):
    image_url: str | _ImageUrl | None = None
    file_id: str | None = None
    detail: str | None = None


class _File(Struct):
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None


class _Sound(Struct):
    data: str
    format: str


class _Audio(Struct):
    input_audio: _Sound


def decode_content(content: str | list[dict[str, Any]], place: str) -> Content:
    if isinstance(content, str):
        return content
    return tuple(_decode_part(raw, f"{place}[{number}]") for number, raw in enumerate(content))


def _decode_part(raw: dict[str, Any], place: str) -> Part:
    match raw.get("type"):
        case "input_text" | "output_text" | "text":
            text = convert(raw, _Text, place)
            return Text(
                text=text.text,
                annotations=tuple(text.annotations or ()),
                logprobs=tuple(text.logprobs or ()),
                extra=_rest(raw, _Text),
            )
        case "refusal":
            return Refusal(text=convert(raw, _Refusal, place).refusal, extra=_rest(raw, _Refusal))
        case "input_image":
            image = convert(raw, _Image, place)
            extra = _rest(raw, _Image)
            match image.image_url:
                case _ImageUrl(url=url, detail=detail):  # as Chat nests it
                    return Image(url=url, file_id=image.file_id, detail=image.detail or detail, extra=extra)
                case url:
                    return Image(url=url, file_id=image.file_id, detail=image.detail, extra=extra)
        case "input_file":
            file = convert(raw, _File, place)
            return File(
                file_id=file.file_id,
                data=file.file_data,
                url=file.file_url,
                filename=file.filename,
                extra=_rest(raw, _File),
            )
        case "input_audio":
            sound = convert(raw, _Audio, place).input_audio
            return Audio(data=sound.data, format=sound.format, extra=_rest(raw, _Audio))
        case str():
            return OpaquePart(wire=NAME, raw=raw)
        case _:
            raise invalid(f"The content part at {place} needs a 'type'.", f"{place}.type", code="invalid_type")


def _rest(raw: dict[str, Any], known: type[Struct]) -> JsonObject | None:
    """The members that nothing here knows."""
    names = known.__struct_fields__
    return {key: value for key, value in raw.items() if key not in names and key != "type"} or None
