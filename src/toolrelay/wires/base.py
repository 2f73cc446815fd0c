"""What a wire is: one value with a server half, which the front door uses, and a client half, which the HTTP backend uses."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from toolrelay.core.assembly import Answer
from toolrelay.core.events import StreamEvent
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.errors import BackendError, ToolrelayError

KEEP_ALIVE = b": keep-alive\n\n"  # a comment, on every wire that streams by server-sent events


class Envelope(Struct, frozen=True, kw_only=True):
    """What an answer says of itself. `token` is the turn's, `created` seconds since 1970; `model` is the client's name for it."""

    token: str
    created: int
    model: str
    request: Request


class Encoder(Protocol):
    """Writes an answer as a stream of frames. The last event's frames include the wire's own end mark."""

    def encode(self, events: Sequence[StreamEvent]) -> bytes: ...


class Decoder(Protocol):
    """Reads a provider's stream, cut anywhere.

    Never raises: what cannot be read becomes AnswerFailed. Each answer yields exactly one AnswerFinished or AnswerFailed, after
    which nothing more comes.
    """

    def feed(self, data: bytes) -> list[StreamEvent]: ...

    def flush(self) -> list[StreamEvent]:
        """The connection ended. A stream that had not come to its end is an AnswerFailed."""
        ...


class Outgoing(Struct, frozen=True, kw_only=True):
    """A request for a provider. `path` is below the base URL; `dropped` names what this wire could not say."""

    path: str
    body: bytes
    dropped: tuple[str, ...] = ()


class Wire(Struct, frozen=True, kw_only=True):
    """`word` is what a model's `wire` says in the configuration file."""

    name: str
    word: str

    # The server half. `path` is below /v1.
    path: str
    decode_request: Callable[[bytes], Request]
    encoder: Callable[[Envelope], Encoder]
    encode_answer: Callable[[Answer, Envelope], bytes]
    encode_error: Callable[[ToolrelayError], bytes]

    # The client half. The request's model is the provider's own name for it. `unsupported` is what of other wires' requests is
    # dropped or refused; docs/wires.md is made from it.
    unsupported: Mapping[str, Literal["dropped", "refused"]]
    encode_request: Callable[[Request, Profile], Outgoing]
    credentials: Callable[[str], list[tuple[str, str]]]
    decoder: Callable[[], Decoder]
    decode_answer: Callable[[bytes], list[StreamEvent]]
    decode_error: Callable[[int, bytes], BackendError]


def bearer(api_key: str) -> list[tuple[str, str]]:
    """The credentials that most providers want."""
    return [("authorization", f"Bearer {api_key}")] if api_key else []


def discover() -> dict[str, Wire]:
    """Find every wire by its name: each sub-package is one."""
    import toolrelay.wires as package  # noqa: PLC0415 -- this module is part of it

    packages = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    wires: list[Wire] = [importlib.import_module(f"{package.__name__}.{name}").WIRE for name in packages]
    return {wire.name: wire for wire in wires}
