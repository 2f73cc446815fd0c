"""Requests of the app-server: refusals for all that nobody here can grant, and tool calls that wait for the end of the turn."""

from __future__ import annotations

from toolrelay.backends.codex.rpc import ServerRequest, encode_line, text_of
from toolrelay.core.json import JsonObject

METHOD_NOT_FOUND = -32601


def failed_call(text: str) -> JsonObject:
    """Return a failed tool result. Codex would not show the model the text of a JSON-RPC error."""
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

_INVALID_CALL_TEXTS = {
    "unknown_tool": "There is no such tool.",
    "invalid_json": "The arguments were not a JSON object. Make the call again, correctly.",
}


def encode_refusal(request: ServerRequest) -> bytes:
    if request.method in REFUSALS:
        return encode_line({"id": request.id, "result": REFUSALS[request.method]})
    error: JsonObject = {"code": METHOD_NOT_FOUND, "message": f"Toolrelay does not answer {request.method}"}
    return encode_line({"id": request.id, "error": error})


class PendingRequests:
    """Codex's requests to run a call, by call id. They stay unanswered until the turn is over, except for invalid calls.

    `answers` are results to send, each with its request. The decoder adds its own.
    """

    def __init__(self) -> None:
        self.requests: dict[str, ServerRequest] = {}
        self.answers: list[tuple[ServerRequest, JsonObject]] = []
        self._invalid: dict[str, str] = {}

    def add(self, request: ServerRequest) -> None:
        call_id = text_of(request.params, "callId")
        self.requests[call_id] = request
        if call_id in self._invalid:
            self.refuse(call_id, self._invalid[call_id])

    def refuse(self, call_id: str, rule: str) -> None:
        """Answer the call with an error: now, or as soon as Codex requests it."""
        self._invalid[call_id] = rule
        request = self.requests.pop(call_id, None)
        if request is not None:
            self.answers.append((request, failed_call(_INVALID_CALL_TEXTS[rule])))

    def abandon(self) -> None:
        self.answers += [(request, failed_call("The result will follow later.")) for request in self.requests.values()]
        self.requests.clear()
