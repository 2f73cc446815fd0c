"""What the app-server is told when it asks for what nobody is there to grant: no, in the shape that each request wants."""

from __future__ import annotations

from toolrelay.backends._codex_rpc import ServerRequest, encode_fault, encode_result
from toolrelay.core.json import JsonObject

METHOD_NOT_FOUND = -32601

REFUSALS: dict[str, JsonObject] = {
    "item/tool/call": {"contentItems": [{"type": "inputText", "text": "This tool is not available."}], "success": False},
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
