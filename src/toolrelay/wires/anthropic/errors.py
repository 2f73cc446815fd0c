"""Errors in Anthropic's shape: encoded for clients, decoded from providers.

The gateway's code and the parameter at fault are there as in OpenAI's shape; the code also in `details`, where SDKs read it.
"""

from __future__ import annotations

from toolrelay.core.json import JsonObject
from toolrelay.core.surrogates import join_surrogates
from toolrelay.errors import BackendError, ToolrelayError
from toolrelay.wires import errors
from toolrelay.wires.json import encode, encode_repaired, without_nones

OVERLOADED = 529
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
_STATUSES = {kind: status for status, kind in _TYPES.items() if status not in (422, 503)}


def encode_error(error: ToolrelayError) -> bytes:
    """Encode the body of an HTTP error, which is also the data of an `error` event."""
    default = "invalid_request_error" if 400 <= error.status < 500 else "api_error"
    members: JsonObject = {"type": _TYPES.get(error.status, default), "message": join_surrogates(error.message)}
    members |= without_nones({"code": error.code, "param": error.param})
    if error.code is not None:
        members["details"] = {"error_code": error.code}
    return encode({"type": "error", "error": members})


def decode_error(status: int, body: bytes) -> BackendError:
    """Decode a provider's error. The code is in its details."""
    error = errors.decode_error(status, body)
    if error.code == "upstream_auth":
        return error
    details = errors.error_members(body).get("details")
    if isinstance(details, dict) and isinstance(details.get("error_code"), str):
        error.code = details["error_code"]
    if error.type == "overloaded_error" or status == OVERLOADED:
        error.code = "overloaded"
    if error.type in ("api_error", "overloaded_error", "timeout_error"):
        error.type = "server_error"
    return error


def decode_stream_error(value: object) -> BackendError:
    """Decode an `error` event, which has a type but no status."""
    error = value if isinstance(value, dict) else {"message": value if isinstance(value, str) else None}
    kind = error.get("type")
    status = _STATUSES.get(kind, 502) if isinstance(kind, str) else 502
    message = error.get("message") or "The provider reported a failure without saying which."
    return decode_error(status, encode_repaired({"type": "error", "error": {**error, "message": message}}))
