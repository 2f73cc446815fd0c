"""Responses, the resource that an answer is: its output items and its settings."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec.structs import replace

from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import Usage
from toolrelay.core.identity import make_item_id
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import (
    ApprovalRequest,
    Call,
    GatewayCall,
    Message,
    OpaqueItem,
    OutputItem,
    Part,
    Reasoning,
    Refusal,
    Text,
)
from toolrelay.core.request import AnyTool, OpaqueTool, Request
from toolrelay.errors import ToolrelayError
from toolrelay.wires.base import Envelope
from toolrelay.wires.json import encode_repaired
from toolrelay.wires.responses.outgoing import reasoning_members, text_members, tool_choice_value, tool_members
from toolrelay.wires.responses.request import ENCRYPTED, NAME

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
ReasoningKind: TypeAlias = Literal["text", "summary"]

RAW_PARTS = 1 << 20  # numbers of the parts of plain reasoning that are shown as summaries: none is that of a summary

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
    """Encode the whole resource: exactly what the last event of a stream of the same answer carries."""
    return encode_repaired(answer_resource(answer, envelope))


def answer_resource(answer: Answer, envelope: Envelope, status: ResponseStatus | None = None) -> JsonObject:
    """Return the resource. `status` is for an answer that is not finished, or was cancelled."""
    items = [item for item in answer.items if is_output(item)]
    if wants_summaries(envelope.request):
        items = [show_as_summary(item) if isinstance(item, Reasoning) else item for item in items]
    truncated = answer.finish in ("length", "content_filter") or answer.error is not None
    output = [
        item_members(
            item,
            output_id(item, envelope.token, index, stored=envelope.request.store is True),
            "incomplete" if truncated and isinstance(item, Message) and index == len(items) - 1 else "completed",
            encrypted=shows_encrypted(envelope.request),
        )
        for index, item in enumerate(items)
    ]
    if status is None:
        status = "failed" if answer.error is not None else "incomplete" if truncated else "completed"
    return Resource(envelope).finished(answer, output, status)


class Resource:
    """The resource in its states. What they have in common is put together once."""

    __slots__ = ("_head", "_settings", "_tier")

    def __init__(self, envelope: Envelope) -> None:
        self._tier = envelope.request.service_tier
        self._head: JsonObject = {
            "id": f"resp_{envelope.token}",
            "object": "response",
            "created_at": envelope.created,
            "model": envelope.model,
        }
        self._settings = _settings(envelope.request)
        if envelope.request.conversation is not None:
            self._settings["conversation"] = {"id": envelope.request.conversation}

    def started(self, status: ResponseStatus = "in_progress") -> JsonObject:
        return self._members(status, [], None, self._tier)

    def finished(self, answer: Answer | Assembly, output: list[JsonObject], status: ResponseStatus) -> JsonObject:
        tier = answer.service_tier or answer.started.service_tier or self._tier
        resource = self._members(status, output, answer.usage, tier)
        if status == "completed":
            resource["completed_at"] = self._head["created_at"]
        elif status == "incomplete":
            reason = "content_filter" if answer.finish == "content_filter" else "max_output_tokens"
            resource["incomplete_details"] = {"reason": reason}
        if answer.error is not None and status != "cancelled":
            resource["error"] = {"code": failure_code(answer.error), "message": answer.error.message}
        return resource

    def _members(self, status: ResponseStatus, output: list[JsonObject], usage: Usage | None, tier: str | None) -> JsonObject:
        return {
            **self._head,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "output": [*output],
            "usage": None if usage is None else _usage_members(usage),
            "service_tier": tier or "default",
            **self._settings,
        }


def _settings(request: Request) -> JsonObject:
    """Return the request's settings as the answer repeats them, with the API's defaults."""
    sampling = request.sampling
    return {
        "background": request.background,
        "frequency_penalty": _penalty(request, "frequency_penalty"),
        "instructions": request.instructions,
        "max_output_tokens": sampling.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": {**request.metadata} if request.metadata else {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "presence_penalty": _penalty(request, "presence_penalty"),
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": {"effort": None, "summary": None, **reasoning_members(request)},
        "safety_identifier": request.safety_identifier,
        "store": request.store is True,
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "text": {"format": {"type": "text"}, **text_members(request)},
        "tool_choice": "auto" if request.tool_choice is None else tool_choice_value(request.tool_choice),
        "tools": [_tool(tool) for tool in request.tools if _is_declared(tool)],
        "top_logprobs": sampling.top_logprobs or 0,
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "truncation": request.truncation or "disabled",
        "user": request.user,
    }


def _penalty(request: Request, name: str) -> Json:
    """Return a penalty, which is not a parameter of this API, though some of its servers take one."""
    given = (request.extra or {}).get(name)
    return given if isinstance(given, int | float) else 0.0


def _is_declared(tool: AnyTool) -> bool:
    """Return whether the client's `tools` had it: not what only another wire understands, nor what is in the input."""
    return not isinstance(tool, OpaqueTool) or (tool.wire == NAME and not tool.in_input)


def _tool(tool: AnyTool) -> JsonObject:
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
    """Return the API's code nearest to the error."""
    if error.code in FAILURE_CODES:
        return error.code
    if error.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if 400 <= error.status < 499 else "server_error"


# Items


def is_output(item: OutputItem) -> bool:
    """Return whether the item is shown: not an empty message, nor what only another wire understands."""
    match item:
        case Message(content=content):
            return bool(content)
        case OpaqueItem(wire=wire):
            return wire == NAME
        case _:
            return True


def output_id(item: OutputItem, token: str, index: int, *, stored: bool = False) -> str:
    """Return the item's id.

    Reasoning keeps the provider's, which its encrypted content may be bound to. If the answer is stored it gets an id by which
    the gateway finds the item again; the provider's is on record.
    """
    match item:
        case Reasoning() if stored:
            return make_item_id("rs", token, index)
        case Call(kind=kind):
            return make_item_id("ctc" if kind == "custom" else "fc", token, index)
        case Reasoning(id=str(own)):
            return own
        case Reasoning():
            return make_item_id("rs", token, index)
        case GatewayCall():
            return make_item_id("mcp", token, index)
        case ApprovalRequest(id=own):
            return own
        case _:
            return make_item_id("msg", token, index)


def wants_summaries(request: Request) -> bool:
    """Return whether the client asked for summaries. Such clients show nothing else; many models reason in plain text."""
    return request.reasoning is not None and request.reasoning.summary is not None


def show_as_summary(item: Reasoning) -> Reasoning:
    """Return the reasoning with its plain text among the summaries."""
    return replace(item, text=(), summary=(*item.text, *item.summary)) if item.text else item


def shows_encrypted(request: Request) -> bool:
    """Return whether the client gets encrypted reasoning: of a stored answer, which the gateway has, only if it asked for it."""
    return request.store is not True or ENCRYPTED in request.include


def item_members(item: OutputItem, own_id: str, status: ItemStatus, *, encrypted: bool = True) -> JsonObject:
    match item:
        case Message():
            parts = (Text(text=item.content),) if isinstance(item.content, str) else item.content
            content: list[Json] = [part_members(part) for part in parts]
            members: JsonObject = {"type": "message", "id": own_id, "status": status, "role": "assistant", "content": content}
            return members if item.phase is None else {**members, "phase": item.phase}
        case Call():
            return _call_members(item, own_id, status)
        case Reasoning():
            summary: list[Json] = [reasoning_part("summary", text) for text in item.summary]
            members = {"type": "reasoning", "id": own_id, "summary": summary}
            if item.text:
                members["content"] = [reasoning_part("text", text) for text in item.text]
            if item.encrypted is not None and encrypted:
                members["encrypted_content"] = item.encrypted
            return members
        case OpaqueItem():
            return item.raw
        case GatewayCall():
            return _gateway_call_members(item, own_id, status)
        case ApprovalRequest():
            label = item.toolset or "gateway"
            return {
                "type": "mcp_approval_request",
                "id": own_id,
                "name": item.name,
                "server_label": label,
                "arguments": item.arguments,
            }
        case _:  # a result, which a model never gives
            return {}


def _call_members(call: Call, own_id: str, status: ItemStatus) -> JsonObject:
    is_function = call.kind == "function"
    members: JsonObject = {
        "type": "function_call" if is_function else "custom_tool_call",
        "id": own_id,
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "arguments" if is_function else "input": call.arguments,
    }
    if call.namespace is not None:
        members["namespace"] = call.namespace
    return {**(call.extra or {}), **members}


def _gateway_call_members(call: GatewayCall, own_id: str, status: ItemStatus) -> JsonObject:
    error: Json = None
    if call.failed:
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": call.output or ""}]}
    return {
        "type": "mcp_call",
        "id": own_id,
        "status": "failed" if call.failed else status,
        "name": call.name,
        "server_label": call.toolset or "gateway",
        "arguments": call.arguments,
        "output": None if call.failed else call.output,
        "error": error,
        "approval_request_id": call.approval,
    }


def part_members(part: Part) -> JsonObject:
    match part:
        case Text():
            annotations, logprobs = list(part.annotations), list(part.logprobs)
            return {"type": "output_text", "text": part.text, "annotations": annotations, "logprobs": logprobs}
        case Refusal():
            return {"type": "refusal", "refusal": part.text}
        case _:  # models give no other parts
            return {}


def reasoning_part(kind: ReasoningKind, text: str) -> JsonObject:
    return {"type": "reasoning_text" if kind == "text" else "summary_text", "text": text}
