"""Codex's requests to run a call, which wait: nobody runs one before the turn is over. Only bad calls are answered."""

from __future__ import annotations

from toolrelay.backends.codex.json_access import failed_call, text_of
from toolrelay.backends.codex.rpc import ServerRequest
from toolrelay.core.json import JsonObject

_WHY = {
    "unknown_tool": "There is no such tool.",
    "invalid_json": "The arguments were not a JSON object. Make the call again, correctly.",
}


class Waiting:
    """`requests` are by call. `answers`: what to answer to which request, once, of whatever kind it is."""

    def __init__(self) -> None:
        self.requests: dict[str, ServerRequest] = {}
        self.answers: list[tuple[ServerRequest, JsonObject]] = []
        self._bad: dict[str, str] = {}

    def add(self, request: ServerRequest) -> None:
        call_id = text_of(request.params, "callId")
        self.requests[call_id] = request
        if call_id in self._bad:
            self.refuse(call_id, self._bad[call_id])

    def refuse(self, call_id: str, rule: str) -> None:
        """Now, or as soon as it is asked for."""
        self._bad[call_id] = rule
        request = self.requests.pop(call_id, None)
        if request is not None:
            self.answers.append((request, failed_call(_WHY[rule])))

    def give_up(self) -> None:
        self.answers += [(request, failed_call("The result will follow later.")) for request in self.requests.values()]
        self.requests.clear()
