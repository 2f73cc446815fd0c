"""Everything that can go wrong, by who is at fault.

ToolrelayError
├── ClientError        the request: 400 401 403 404 409 413 422 429
├── ModelError         the model said something that cannot be used
├── BackendError       the model's server: unreachable, too slow, an error of its own, cut off
├── ToolError          a tool that failed
├── PolicyError        a rule or a person said no
├── InternalError      us
└── ConfigurationError us, before the start

Each carries what every wire needs to say it: a status, a type and a code in OpenAI's words, the parameter that is to blame.
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
        type: str | None = None,  # noqa: A002 -- the word of the wire
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after
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
    type = "server_error"
    code = "model_error"


class BackendError(ToolrelayError):
    status = 502
    type = "server_error"
    code = "upstream_error"


class ToolError(ToolrelayError):
    status = 500
    type = "server_error"
    code = "tool_error"


class PolicyError(ToolrelayError):
    status = 403
    type = "permission_error"
    code = "denied"


class InternalError(ToolrelayError):
    code = "internal_error"


class ConfigurationError(ToolrelayError):
    code = "configuration_error"


def invalid(message: str, param: str | None = None, *, code: str | None = None) -> ClientError:
    """A 400 that names the parameter."""
    return ClientError(message, param=param, code=code)
