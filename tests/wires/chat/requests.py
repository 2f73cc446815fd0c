"""Chat requests for tests: builders of bodies, and helpers that decode them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolrelay.core.messages import Content, Item, Message
from toolrelay.core.request import Request
from toolrelay.core.request_checks import check_tool_choice
from toolrelay.errors import ClientError
from toolrelay.wires.chat import WIRE

USER: dict[str, Any] = {"role": "user", "content": "hi"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}


def decode(**members: Any) -> Request:
    return WIRE.decode_request(json.dumps({"model": "m", "messages": [USER], **members}).encode())


def items(*messages: dict[str, Any]) -> tuple[Item, ...]:
    return decode(messages=list(messages)).items


def content(value: Any) -> Content:
    (message,) = items({"role": "user", "content": value})
    assert isinstance(message, Message)
    return message.content


def calling(*calls: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **members}


def function(identifier: str, name: str = "f", arguments: Any = "{}", **members: Any) -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}, **members}


def result(identifier: str, value: Any = "ok", **members: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identifier, "content": value, **members}


def refusal(body: object) -> ClientError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(ClientError) as caught:
        check_tool_choice(WIRE.decode_request(raw))
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def refused(**members: Any) -> ClientError:
    body = {"model": "m", "messages": [USER], **members}
    return refusal({key: value for key, value in body.items() if value is not ...})
