"""Items of a client's input about gateway calls: those that it sends back, and answers to questions."""

from __future__ import annotations

from msgspec import Struct

from toolrelay.core.identity import derive_call_id
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, OpaqueItem, Result
from toolrelay.wires.json import convert, encode
from toolrelay.wires.responses.request import APPROVAL_RESPONSE, NAME

PRIVATE = "private"  # a member of an mcp_call in a conversation: only local models may see the output


class ApprovalResponse(Struct, frozen=True, kw_only=True):
    """An answer to an mcp_approval_request. `arguments` is an extension: JSON text that replaces the model's arguments."""

    approval_request_id: str
    approve: bool
    reason: str | None = None
    arguments: str | None = None


def approval_response(item: OpaqueItem) -> ApprovalResponse | None:
    """Return the answer that an item is, if it is one. Its arguments may be JSON text or an object."""
    if item.wire != NAME or item.raw.get("type") != APPROVAL_RESPONSE:
        return None
    raw = item.raw
    arguments = raw.get("arguments")
    if isinstance(arguments, dict):
        raw = {**raw, "arguments": encode(arguments).decode()}
    return convert(raw, ApprovalResponse, APPROVAL_RESPONSE)


def gateway_call_items(raw: JsonObject) -> list[Item]:
    """Return the call and the result of an mcp_call that is not on record, or nothing if it does not say enough."""
    match raw:
        case {"name": str(name), "arguments": str(arguments)}:
            identifier = raw.get("id")
            call_id = identifier if isinstance(identifier, str) and identifier else derive_call_id(0, name, arguments)
        case _:
            return []
    match raw:
        case {"output": str(output)}:
            pass
        case {"error": str(output)} | {"error": {"message": str(output)}}:
            pass
        case {"error": {"content": list(parts)}}:
            output = "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
        case _:
            output = "The outcome of this call is unknown."
    result = Result(call_id=call_id, output=output, private=raw.get(PRIVATE) is True)
    return [Call(id=call_id, name=name, arguments=arguments), result]
