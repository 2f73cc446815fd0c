"""Errors in OpenAI's shape: encoded for clients, decoded from providers."""

from __future__ import annotations

from typing import Any

from toolrelay.core.surrogates import join_surrogates
from toolrelay.errors import BackendError, ToolrelayError
from toolrelay.wires.json import decode_repaired, encode

MAX_MESSAGE = 500


def encode_error(error: ToolrelayError) -> bytes:
    """Encode the body of an HTTP error."""
    members = {"message": join_surrogates(error.message), "type": error.type, "param": error.param, "code": error.code}
    return encode({"error": members})


def decode_error(status: int, body: bytes) -> BackendError:
    """Decode a provider's error.

    A provider's 401 is about the gateway's key, so it must not look like the client's fault. Its message is not passed on: it
    tends to quote the key.
    """
    if status == 401:
        return BackendError("The provider refused the gateway's own key; the client's key is not at fault.", code="upstream_auth")
    members = error_members(body)
    message, kind, code, param = (members.get(name) for name in ("message", "type", "code", "param"))
    return BackendError(
        message if isinstance(message, str) and message else f"The provider answered with status {status}.",
        status=status if 400 <= status <= 599 else 502,
        type=kind if isinstance(kind, str) and kind else _default_type(status),
        code=None if code is None or isinstance(code, bool | dict | list) else str(code),
        param=param if isinstance(param, str) else None,
    )


def _default_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if 400 <= status < 500 else "server_error"


def error_members(body: bytes) -> dict[str, Any]:
    """Return the error's members, from any of the shapes that providers use."""
    try:
        value = decode_repaired(body)
    except ValueError:
        value = None
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return {"message": _shorten(body.decode(errors="replace"))}
    match value:
        case {"error": dict(error)}:
            return error
        case {"error": str(message)}:
            return {**value, "message": message}
        case {"message": str()}:
            return value
        case {"detail": str(detail)}:
            return {"message": detail}
        case {"detail": detail} if detail is not None:
            return {"message": _shorten(encode(detail).decode())}
        case _:
            return {}


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "…"
