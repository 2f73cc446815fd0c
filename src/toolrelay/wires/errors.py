"""Errors in OpenAI's shape: ours for the client, and a provider's for us."""

from __future__ import annotations

from typing import Any

from toolrelay.core.surrogates import join_surrogates
from toolrelay.errors import BackendError, ToolrelayError
from toolrelay.wires.json import decode, encode, mended_value

_LONGEST = 500


def encode_error(error: ToolrelayError) -> bytes:
    """The error object that an HTTP error carries."""
    members = {"message": join_surrogates(error.message), "type": error.type, "param": error.param, "code": error.code}
    return encode({"error": members})


def decode_error(status: int, body: bytes) -> BackendError:
    """What a provider's error means to the client.

    A provider's 401 is about the gateway's key, never about the client's, so it must not look like the client's fault. What a
    provider says beside it stays here: it tends to quote the key.
    """
    members = _members(body)
    said = members.get("message")
    message = said if isinstance(said, str) and said else f"The provider answered with status {status}."
    if status == 401:
        return BackendError("The provider refused the gateway's own key; the client's key is not at fault.", code="upstream_auth")
    kind, code, param = members.get("type"), members.get("code"), members.get("param")
    return BackendError(
        message,
        status=status if 400 <= status <= 599 else 502,
        type=kind if isinstance(kind, str) and kind else _type(status),
        code=None if code is None or isinstance(code, bool | dict | list) else str(code),
        param=param if isinstance(param, str) else None,
    )


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if 400 <= status < 500 else "server_error"


def _members(body: bytes) -> dict[str, Any]:
    """The error's members, from any of the shapes that providers give it."""
    try:
        value = mended_value(decode(body))
    except (ValueError, RecursionError):
        return {"message": _short(body.decode(errors="replace"))}
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return {"message": _short(body.decode(errors="replace"))}
    match value.get("error"):
        case dict() as error:
            return error
        case str() as message:
            return {**value, "message": message}
    if isinstance(value.get("message"), str):
        return value
    detail = value.get("detail")
    if detail is None:
        return {}
    return {"message": detail if isinstance(detail, str) else _short(encode(detail).decode())}


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
