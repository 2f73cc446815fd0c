"""Responses, the resource that an answer is: its items and everything that it says of itself."""

from __future__ import annotations

from typing import Literal, TypeAlias

from toolrelay.core.assembly import Answer
from toolrelay.core.events import Usage
from toolrelay.core.identity import make_item_id
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call, Item, Message, OpaqueItem, Part, Reasoning, Refusal, Result, Text
from toolrelay.core.request import AnyTool, OpaqueTool, Request
from toolrelay.errors import ToolrelayError
from toolrelay.wires.base import Envelope
from toolrelay.wires.responses.items import NAME
from toolrelay.wires.responses.settings import reasoning_members, text_members, tool_choice_value, tool_members, written

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
ToolResult: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]

FAILURE_CODES = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)


def encode_answer(answer: Answer, envelope: Envelope) -> bytes:
    """The whole resource: what the last event of a stream of the same answer carries, to the letter."""
    shown = [item for item in answer.items if is_shown(item)]
    cut = answer.finish in ("length", "content_filter") or answer.error is not None
    output = [
        item_members(
            item,
            identifier(item, envelope.token, index),
            "incomplete" if cut and isinstance(item, Message) and index == len(shown) - 1 else "completed",
        )
        for index, item in enumerate(shown)
    ]
    outcome: ToolResult = "failed" if answer.error is not None else "incomplete" if cut else "completed"
    return written(Resource(envelope).ended(answer, output, outcome))


class Resource:
    """What does not change from the first event of an answer to its last is put together once."""

    __slots__ = ("_created", "_echo", "_head", "_tier")

    def __init__(self, envelope: Envelope) -> None:
        request = envelope.request
        self._created = envelope.created
        self._tier = request.service_tier
        self._head: JsonObject = {
            "id": f"resp_{envelope.token}",
            "object": "response",
            "created_at": envelope.created,
            "model": envelope.model,
        }
        self._echo = _echo(request)

    def begun(self) -> JsonObject:
        return self._written("in_progress", [], None, self._tier)

    def ended(self, answer: Answer, output: list[JsonObject], outcome: ToolResult) -> JsonObject:
        tier = answer.service_tier or answer.started.service_tier or self._tier
        resource = self._written(outcome, output, answer.usage, tier)
        if outcome == "completed":
            resource["completed_at"] = self._created
        elif outcome == "incomplete":
            reason = "content_filter" if answer.finish == "content_filter" else "max_output_tokens"
            resource["incomplete_details"] = {"reason": reason}
        if answer.error is not None:
            resource["error"] = {"code": failure_code(answer.error), "message": answer.error.message}
        return resource

    def _written(self, outcome: ToolResult, output: list[JsonObject], usage: Usage | None, tier: str | None) -> JsonObject:
        return {
            **self._head,
            "status": outcome,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "output": [*output],
            "usage": None if usage is None else _usage_members(usage),
            "service_tier": tier or "default",
            **self._echo,
        }


def _echo(request: Request) -> JsonObject:
    """The request's settings as the answer repeats them, the API's defaults where it made none."""
    sampling, text = request.sampling, text_members(request)
    return {
        "background": False,
        "frequency_penalty": _number(request, "frequency_penalty"),
        "instructions": request.instructions,
        "max_output_tokens": sampling.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": {**request.metadata} if request.metadata else {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "presence_penalty": _number(request, "presence_penalty"),
        "previous_response_id": None,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": {"effort": None, "summary": None, **reasoning_members(request)},
        "safety_identifier": request.safety_identifier,
        "store": False,  # nothing is stored, whatever was asked
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "text": {"format": {"type": "text"}, **text},
        "tool_choice": "auto" if request.tool_choice is None else tool_choice_value(request.tool_choice),
        "tools": [_tool_echo(tool) for tool in request.tools if not isinstance(tool, OpaqueTool) or tool.wire == NAME],
        "top_logprobs": sampling.top_logprobs or 0,
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "truncation": request.truncation or "disabled",
        "user": request.user,
    }


def _number(request: Request, name: str) -> Json:
    """A penalty is no parameter of this API, but some servers of it take one."""
    given = (request.extra or {}).get(name)
    return given if isinstance(given, int | float) else 0.0


def _tool_echo(tool: AnyTool) -> JsonObject:
    return tool.raw if isinstance(tool, OpaqueTool) else {**tool_members(tool), **(tool.extra or {})}


def _usage_members(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached or 0, "cache_write_tokens": usage.cache_written or 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.input + usage.output if usage.total is None else usage.total,
    }


def failure_code(error: ToolrelayError) -> str:
    """The API's code nearest to what went wrong."""
    if error.code in FAILURE_CODES:
        return error.code
    if error.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if 400 <= error.status < 500 else "server_error"


# Items


def is_shown(item: Item) -> bool:
    """Whether it is part of the output: not what only another wire understands, nor a message that says nothing."""
    match item:
        case Message(content=content):
            return bool(content)
        case OpaqueItem(wire=wire):
            return wire == NAME
        case _:
            return True


def identifier(item: Item, token: str, index: int) -> str:
    """Its id at that place of the output. Reasoning keeps the provider's, which its seal may be bound to."""
    match item:
        case Call(kind=kind):
            return make_item_id("ctc" if kind == "custom" else "fc", token, index)
        case Reasoning(id=str(own)):
            return own
        case Reasoning():
            return make_item_id("rs", token, index)
        case _:
            return make_item_id("msg", token, index)


def item_members(item: Item, own_id: str, status: ItemStatus) -> JsonObject:
    match item:
        case Message():
            parts = (Text(text=item.content),) if isinstance(item.content, str) else item.content
            content: list[Json] = [part_members(part) for part in parts]
            members: JsonObject = {"type": "message", "id": own_id, "status": status, "role": "assistant", "content": content}
            return members if item.phase is None else {**members, "phase": item.phase}
        case Call():
            return _call_members(item, own_id, status)
        case Reasoning():
            members = {"type": "reasoning", "id": own_id, "summary": [summary_members(text) for text in item.summary]}
            if item.text:
                members["content"] = [thought_members(text) for text in item.text]
            if item.encrypted is not None:
                members["encrypted_content"] = item.encrypted
            return members
        case OpaqueItem():
            return item.raw
        case Result():  # the client's to give, never the model's
            return {}


def _call_members(call: Call, own_id: str, status: ItemStatus) -> JsonObject:
    function = call.kind == "function"
    members: JsonObject = {
        "type": "function_call" if function else "custom_tool_call",
        "id": own_id,
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "arguments" if function else "input": call.arguments,
    }
    if call.namespace is not None:
        members["namespace"] = call.namespace
    return {**(call.extra or {}), **members}


def part_members(part: Part) -> JsonObject:
    match part:
        case Text():
            return {
                "type": "output_text",
                "text": part.text,
                "annotations": list(part.annotations),
                "logprobs": list(part.logprobs),
            }
        case Refusal():
            return {"type": "refusal", "refusal": part.text}
        case _:  # a model's own words are nothing else
            return {}


def summary_members(text: str) -> JsonObject:
    return {"type": "summary_text", "text": text}


def thought_members(text: str) -> JsonObject:
    return {"type": "reasoning_text", "text": text}
