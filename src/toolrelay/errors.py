"""The error hierarchy, by who is at fault.

ToolrelayError
├── ClientError        the request: 400 401 403 404 409 413 422 429
├── ModelError         the output of the model
├── BackendError       the model's server: unreachable, timeout, error response, broken connection
├── ToolError          a tool
├── PolicyError        denied by a rule or a person
├── InternalError      the gateway
├── StoreError         the database: locked, full, read-only, damaged, from a newer version
│   └── StoreConflictError  another writer was first
└── ConfigurationError the configuration, before the start

Each has what the wires encode: status, type and code as in OpenAI's API, and the parameter at fault.
"""

from __future__ import annotations


class ToolrelayError(Exception):
    status: int = 500
    type: str = "server_error"
    code: str | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str | None = None,  # noqa: A002 -- its name in OpenAI's API
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.should_retry: bool | None = None  # None: the client decides
        if status is not None:
            self.status = status
        if type is not None:
            self.type = type
        if code is not None:
            self.code = code


class ClientError(ToolrelayError):
    status = 400
    type = "invalid_request_error"


class ModelError(ToolrelayError):
    status = 502
    code = "model_error"


class BackendError(ToolrelayError):
    status = 502
    code = "upstream_error"


class ToolError(ToolrelayError):
    code = "tool_error"


class PolicyError(ToolrelayError):
    status = 403
    type = "permission_error"
    code = "denied"


class InternalError(ToolrelayError):
    code = "internal_error"


class StoreError(ToolrelayError):
    status = 503
    code = "store_error"


class StoreMissingError(StoreError):
    """Nothing was recorded yet."""


class StoreConflictError(StoreError):
    status = 409
    code = "store_conflict"


class ConfigurationError(ToolrelayError):
    code = "configuration_error"


def invalid(message: str, param: str | None = None, *, code: str | None = None) -> ClientError:
    """Return a 400 that names the parameter."""
    return ClientError(message, param=param, code=code)
