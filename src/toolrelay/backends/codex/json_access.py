"""Codex's JSON read without trust, and what it is told when it asks for what nobody is there to grant: no."""

from __future__ import annotations

import msgspec

from toolrelay.backends.codex.rpc import ServerRequest, encode_fault, encode_result
from toolrelay.core.json import Json, JsonObject

METHOD_NOT_FOUND = -32601

_encode = msgspec.json.Encoder().encode


def failed_call(text: str) -> JsonObject:
    """A tool's result, for Codex. It would not show the model the words of an error."""
    return {"contentItems": [{"type": "inputText", "text": text}], "success": False}


REFUSALS: dict[str, JsonObject] = {
    "item/tool/call": failed_call("This tool is not available."),
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}},
    "item/tool/requestUserInput": {"answers": {}},
    "mcpServer/elicitation/request": {"action": "decline"},
    "applyPatchApproval": {"decision": "abort"},
    "execCommandApproval": {"decision": "abort"},
}


def refusal(request: ServerRequest) -> bytes:
    result = REFUSALS.get(request.method)
    if result is None:
        return encode_fault(request.id, METHOD_NOT_FOUND, f"Toolrelay does not answer {request.method}")
    return encode_result(request.id, result)


def text_of(members: JsonObject, name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def number_of(members: JsonObject, name: str) -> int:
    value = members.get(name)
    return value if isinstance(value, int) else 0


def object_of(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def json_of(value: Json) -> str:
    return _encode(value).decode()
