"""The backend interface: a backend answers a request with stream events."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from enum import Enum, auto
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct

from toolrelay.core.events import StreamEvent
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, Request
from toolrelay.settings import Environment, ModelSettings


class Wanted(Enum):
    """How much of an answer is still wanted."""

    ALL = auto()
    USAGE = auto()  # only the final event, for its usage, if it comes soon
    NOTHING = auto()


Deliver: TypeAlias = Callable[[list[StreamEvent]], Awaitable[Wanted | None] | Wanted | None]
"""Consumes a batch. Returns what is still wanted (None: all), or an awaitable of it to wait for before the next batch."""


class Backend(Protocol):
    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        """Deliver the model's answer in batches: events that arrive together are delivered together.

        Return after AnswerFinished or AnswerFailed, or as soon as nothing more is wanted, and stop the model then. Raise
        nothing but cancellation and what `deliver` raises. `request.stream` says whether the client asked for a stream.
        """
        ...

    async def close(self) -> None: ...


class RelayedResponse(Protocol):
    """A provider's response that is passed on as it is. It must be released."""

    is_stream: bool

    async def read(self) -> bytes:
        """Return what has arrived, as soon as there is something; b"" at the end."""
        ...

    async def read_all(self) -> bytes: ...

    def release(self) -> None: ...


@runtime_checkable
class RelayingBackend(Protocol):
    """A backend whose server also has endpoints that the gateway does not know."""

    model: str

    async def relay(self, path: str, body: bytes, deliver: Deliver, *, stream: bool) -> RelayedResponse:
        """Send a request, and return the response once its head has arrived. Only notices are delivered."""
        ...


@runtime_checkable
class CountingBackend(Protocol):
    """A backend whose server may count the input tokens of a request."""

    async def count_tokens(self, request: Request) -> int | None:
        """Return the count, or None if the server cannot count. Raise BackendError if it fails."""
        ...


@runtime_checkable
class CompactingBackend(Protocol):
    """A backend whose server may shorten a conversation."""

    async def compact(self, request: Request) -> bytes | None:
        """Return the server's answer, or None if its API cannot do that. Raise BackendError if it fails."""
        ...


async def deliver_batch(deliver: Deliver, batch: list[StreamEvent]) -> Wanted:
    """Deliver a batch, waiting if necessary, and return what is still wanted."""
    wanted = deliver(batch)
    if wanted is not None and not isinstance(wanted, Wanted):
        wanted = await wanted
    return wanted or Wanted.ALL


async def deliver_all(batches: AsyncGenerator[list[StreamEvent], None], deliver: Deliver) -> None:
    """Deliver the batches of a generator. Closing the generator stops the model."""
    async with aclosing(batches):
        async for batch in batches:
            if await deliver_batch(deliver, batch) is Wanted.NOTHING:
                return


class HealthReport(Struct, frozen=True, kw_only=True):
    """The result of `toolrelay check` for a model. An empty `problem` means that it works; `notes` are further lines."""

    summary: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()


S = TypeVar("S", bound=ModelSettings)


class BackendKind(Struct, Generic[S], frozen=True, kw_only=True):
    """A way to reach models. The presets in providers.py name the kind of each provider.

    settings     the keys of a model's table: the common ones, and the backend's own
    open         creates the backend of one model; it does not connect yet
    profile      returns what a model's server can do, from what its provider's can; None: the same
    passes_tool  returns whether a model's server takes a tool that is no function as it is; None: it takes none
    inspect      examines a model for `toolrelay check`; None: the CLI only tries to connect to the model's base_url
    sample       returns the table of a model that is offered if nothing is configured, given the data directory
    """

    settings: type[S]
    open: Callable[[S, Environment], Backend]
    profile: Callable[[S, Profile], Profile] | None = None
    passes_tool: Callable[[S, OpaqueTool], bool] | None = None
    inspect: Callable[[S, Environment], Awaitable[HealthReport]] | None = None
    sample: Callable[[Path], Mapping[str, str] | None] | None = None


def discover() -> dict[str, BackendKind[Any]]:
    """Return the backend kinds by name: each sub-package is one."""
    import toolrelay.backends as package  # noqa: PLC0415 -- a circular import

    names = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    return {name: importlib.import_module(f"{package.__name__}.{name}").BACKEND for name in names}
