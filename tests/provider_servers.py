"""Scripted servers of the providers. Each refuses what the real one refuses: backends/providers.py has the sources."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tests.model_server import STREAMED, Json, error, whole
from tests.upstream import ReceivedRequest, Script, reply

Check: TypeAlias = Callable[[Json, ReceivedRequest], Iterator[str]]
"""Yields what is wrong with a request."""

_MISTRAL_FIELDS = {
    "model",
    "messages",
    "temperature",
    "top_p",
    "max_tokens",
    "stream",
    "stop",
    "random_seed",
    "metadata",
    "n",
} | {
    "response_format",
    "tools",
    "tool_choice",
    "presence_penalty",
    "frequency_penalty",
    "prediction",
    "parallel_tool_calls",
    "reasoning_effort",
    "safe_prompt",
}
_MISTRAL_MESSAGE = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "prefix"})


def _messages(body: Json) -> list[Json]:
    return [message for message in body.get("messages", []) if isinstance(message, dict)]


def _format(body: Json) -> str:
    return str((body.get("response_format") or {"type": "text"})["type"])


def groq(body: Json, _: ReceivedRequest) -> Iterator[str]:
    for name in ("logprobs", "logit_bias", "top_logprobs", "store", "reasoning"):
        if name in body:
            yield f"property '{name}' is unsupported"
    for place, message in enumerate(_messages(body)):
        for name in ("name", "reasoning_content", "reasoning_details"):
            if name in message:
                yield f"'messages.{place}' : property '{name}' is unsupported"


def mistral(body: Json, _: ReceivedRequest) -> Iterator[str]:
    for name in sorted(body.keys() - _MISTRAL_FIELDS):
        yield f"extra_forbidden body.{name}"
    for message in _messages(body):
        for name in sorted(message.keys() - _MISTRAL_MESSAGE):
            yield f"extra_forbidden body.messages.{name}"
        if message["role"] == "developer":
            yield "Input tag 'developer' found using 'role'"
        for identifier in [message.get("tool_call_id"), *(call["id"] for call in message.get("tool_calls", ()))]:
            if identifier is not None and not re.fullmatch("[a-zA-Z0-9]{9}", identifier):
                yield f"Tool call id was {identifier} but must be a-z, A-Z, 0-9, with a length of 9."


def deepseek(body: Json, _: ReceivedRequest) -> Iterator[str]:
    if _format(body) == "json_schema":
        yield "This response_format type is unavailable now"
    if _format(body) == "json_object" and "json" not in json.dumps(body["messages"]).lower():
        yield "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'."
    for message in _messages(body):
        if message["role"] not in ("system", "user", "assistant", "tool"):
            yield f"unknown variant `{message['role']}`, expected one of `system`, `user`, `assistant`, `tool`"
        if message.get("tool_calls") and "reasoning_content" not in message:
            yield "Missing `reasoning_content` field in the assistant message"


def xai(body: Json, _: ReceivedRequest) -> Iterator[str]:
    for name in ("presence_penalty", "frequency_penalty", "stop"):
        if name in body:
            yield f"Argument not supported on this model: {name}"


def lmstudio(body: Json, request: ReceivedRequest) -> Iterator[str]:
    if _format(body) == "json_object":
        yield "'response_format.type' must be 'json_schema' or 'text'"
    if isinstance(body.get("tool_choice"), dict) and request.path.endswith("/chat/completions"):
        yield "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
    for place, tool in enumerate(body.get("tools", ())):
        if (tool.get("function") or tool).get("strict", False) is None:
            yield f"Expected boolean, received null: tools.{place}.strict"
    if "text" in body and "format" not in body["text"]:
        yield "Required: text.format"
    for message in _messages(body):
        if message["content"] is None:
            yield "Invalid 'content': 'content' field must be a string or an array of objects."


def azure(_: Json, request: ReceivedRequest) -> Iterator[str]:
    if request.headers.get("api-key") != "sk-of-azure" or "authorization" in request.headers:
        yield "Access denied due to invalid subscription key"


def openai(body: Json, _: ReceivedRequest) -> Iterator[str]:
    if "max_tokens" in body:
        yield "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


CHECKS: dict[str, Check] = {
    "groq": groq,
    "mistral": mistral,
    "deepseek": deepseek,
    "xai": xai,
    "lmstudio": lmstudio,
    "azure": azure,
    "openai": openai,
}


class ProviderServer:
    """Answers as the provider that the first segment of the path names. `refusals` are its errors."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.bodies: list[Json] = []

    def __call__(self, request: ReceivedRequest) -> Script:
        provider, body = request.path.split("/")[1], json.loads(request.body)
        self.bodies.append(body)
        check = CHECKS.get(provider)
        problems = [] if check is None else list(check(body, request))
        self.refusals += problems
        if problems:
            return (error(400, problems[0], type="invalid_request_error"),)
        if request.path.partition("?")[0].endswith("/responses"):
            return (_whole_response(),)
        return (STREAMED if body.get("stream") else whole(),)


def _whole_response() -> bytes:
    content: list[Any] = [{"type": "output_text", "text": "Hello there", "annotations": []}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    body = {"id": "resp_1", "object": "response", "created_at": 0, "status": "completed", "model": "m", "output": [message]}
    return reply(json.dumps(body).encode())
