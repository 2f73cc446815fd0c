"""The values of wires: a client half, used by the HTTP backend, and a server half, used by the endpoints."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from toolrelay.core.assembly import Answer
from toolrelay.core.events import StreamEvent, Usage
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.errors import BackendError, ToolrelayError
from toolrelay.wires.errors import decode_error, encode_error

KEEP_ALIVE = b": keep-alive\n\n"  # a comment, on every wire that streams server-sent events

Unsupported: TypeAlias = Mapping[str, Literal["dropped", "refused", "emulated"]]


class Envelope(Struct, frozen=True, kw_only=True):
    """Metadata of an answer. `token` is the turn's, `created` a Unix time in seconds, `model` the client's name for the model."""

    token: str
    created: int
    model: str
    request: Request


class Encoder(Protocol):
    """Writes an answer as a stream of frames. The frames of the last event include the wire's end mark."""

    def encode(self, events: Sequence[StreamEvent]) -> bytes: ...

    def keep_alive(self) -> bytes:
        """Return what shows proxies and clients that an answer is still coming. It may begin the stream."""
        ...


class Decoder(Protocol):
    """Reads a provider's stream, split anywhere.

    Never raises: unreadable input becomes AnswerFailed. Each answer yields exactly one AnswerFinished or AnswerFailed, as its
    last event.
    """

    def feed(self, data: bytes) -> list[StreamEvent]: ...

    def flush(self) -> list[StreamEvent]:
        """Handle the end of the connection. An unfinished stream becomes AnswerFailed."""
        ...


class OutgoingRequest(Struct, frozen=True, kw_only=True):
    """A request to a provider. `path` is below the base URL; `dropped` names the fields that this wire cannot express.

    `headers` are sent beside those that every request has.
    """

    path: str
    body: bytes
    dropped: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


def bearer(api_key: str) -> list[tuple[str, str]]:
    """Return the bearer-token header that most providers want."""
    return [("authorization", f"Bearer {api_key}")] if api_key else []


class CountEncoder(Protocol):
    def __call__(self, count: int, *, is_estimate: bool) -> bytes: ...


class TokenCounting(Struct, frozen=True, kw_only=True):
    """An endpoint that counts the input tokens of a request, in both roles. `decode_count` returns None for an invalid answer."""

    path: str
    decode_request: Callable[[bytes], Request]
    encode_count: CountEncoder
    encode_request: Callable[[Request, Profile], OutgoingRequest]
    decode_count: Callable[[bytes], int | None]


class Compaction(Struct, frozen=True, kw_only=True):
    """An endpoint that shortens a conversation, in both roles. The provider's answer goes to the client as it is."""

    path: str
    decode_request: Callable[[bytes], Request]
    encode_request: Callable[[Request, Profile], OutgoingRequest]
    decode_usage: Callable[[bytes], Usage | None]


class ProviderWire(Struct, frozen=True, kw_only=True):
    """The client half. `config_name` is the value of the configuration key `wire`. The defaults are OpenAI's.

    The request's model is the provider's name for it. `unsupported` lists which parts of requests from other wires are dropped,
    refused, or emulated by the gateway; docs/wires.md is generated from it. `headers` are sent with every request. Base URLs
    of the API end with `version_path`; the list of models is at `models_path` below them. `is_beside_v1`: its own paths are
    beside /v1. `stream_type` is the media type of its streams. `model_keys` are keys of a model's table that other wires
    have no word for.
    """

    name: str
    config_name: str

    unsupported: Unsupported
    encode_request: Callable[[Request, Profile], OutgoingRequest]
    headers: tuple[tuple[str, str], ...] = ()
    credentials: Callable[[str], list[tuple[str, str]]] = bearer
    decoder: Callable[[], Decoder]
    decode_answer: Callable[[bytes], list[StreamEvent]]
    decode_error: Callable[[int, bytes], BackendError] = decode_error
    stream_type: str = "text/event-stream"
    version_path: str = "/v1"
    models_path: str = "/models"
    is_beside_v1: bool = False
    model_keys: tuple[str, ...] = ()

    # In both roles.
    token_counting: TokenCounting | None = None
    compaction: Compaction | None = None


class Wire(ProviderWire, frozen=True, kw_only=True):
    """Both halves: clients speak it, too.

    `path` is below /v1. Responses have their id as `x-request-id`, and as `request_id_header` if the API has one.
    `passed_headers` of a request go on to a provider of the same wire.
    """

    path: str
    decode_request: Callable[[bytes], Request]
    encoder: Callable[[Envelope], Encoder]
    encode_answer: Callable[[Answer, Envelope], bytes]
    encode_error: Callable[[ToolrelayError], bytes] = encode_error
    request_id_header: str | None = None
    passed_headers: tuple[str, ...] = ()


def discover() -> dict[str, Wire]:
    """Return the wires that clients speak, by name."""
    return {name: wire for name, wire in discover_provider_wires().items() if isinstance(wire, Wire)}


def discover_provider_wires() -> dict[str, ProviderWire]:
    """Return the wires that providers speak, which is every wire, by name. Each sub-package is one."""
    import toolrelay.wires as package  # noqa: PLC0415 -- this module is part of it

    packages = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    wires: list[ProviderWire] = [importlib.import_module(f"{package.__name__}.{name}").WIRE for name in packages]
    return {wire.name: wire for wire in wires}
