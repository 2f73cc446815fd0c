"""Failures of an exchange with an upstream.

UpstreamError               the root, and what is wrong with a response that is valid HTTP
├── ConnectError            no connection
├── ConnectionCutError      the connection ended before the response did
├── ReadTimeoutError        the upstream sent nothing for too long
├── InvalidResponseError    not HTTP/1.1
└── ResponseTooLargeError

Each message completes the sentence "The model's server at …".
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import ClassVar


class UpstreamError(Exception):
    status: ClassVar[int] = 502
    code: ClassVar[str] = "upstream_error"
    retryable = False


class ConnectError(UpstreamError):
    code = "upstream_unreachable"

    def __init__(self, reason: str, *, retryable: bool) -> None:
        super().__init__(f"cannot be reached: {reason}")
        self.reason = reason
        self.retryable = retryable

    @classmethod
    def from_os_error(cls, error: OSError, *, timeout: float) -> ConnectError:
        match error:
            case ssl.SSLCertVerificationError():
                return cls(f"its certificate is not valid: {error.verify_message}", retryable=False)
            case ssl.SSLError():
                return cls(f"TLS failed: {error.reason or error.strerror}", retryable=True)
            case socket.gaierror():
                return cls(str(error.strerror), retryable=error.errno == socket.EAI_AGAIN)
            case TimeoutError() if error.errno is None:
                return cls(f"no connection within {timeout:g} seconds", retryable=True)
            case _:
                return cls(os.strerror(error.errno) if error.errno else str(error), retryable=True)


class ConnectionCutError(UpstreamError):
    """Retryable if the request was not sent: an upstream that has read it may be working on it."""

    code = "upstream_cut"

    def __init__(self, *, mid_response: bool, was_sent: bool = True) -> None:
        where = "in the middle of its answer" if mid_response else "without an answer"
        super().__init__(f"closed the connection {where}")
        self.mid_response = mid_response
        self.retryable = not was_sent


class ReadTimeoutError(UpstreamError):
    status = 504
    code = "upstream_timeout"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"sent nothing for {seconds:g} seconds")


class InvalidResponseError(UpstreamError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"did not answer in HTTP/1.1: {reason}")


class ResponseTooLargeError(UpstreamError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"sent an answer of more than {limit} bytes")
