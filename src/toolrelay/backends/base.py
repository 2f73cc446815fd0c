"""The interface of backends: they answer a request with stream events."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from toolrelay.core.events import StreamEvent
from toolrelay.core.request import Request
from toolrelay.settings import Environment, ModelSettings


class Wanted(Enum):
    """How much of an answer is still wanted."""

    ALL = auto()
    USAGE = auto()  # its end, for its usage, if that comes soon
    NOTHING = auto()


Deliver: TypeAlias = Callable[[list[StreamEvent]], Awaitable[Wanted | None] | Wanted | None]
"""Takes a batch of events. Returns what is still wanted (None: all), or an awaitable of it to wait for before the next batch."""


class Backend(Protocol):
    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        """Deliver the model's answer in batches: what arrives together is delivered together.

        Return after AnswerFinished or AnswerFailed, or as soon as nothing more is wanted; then the model is stopped. Raise
        nothing but cancellation and what `deliver` raises. `request.stream` says how the client asked.
        """
        ...

    async def close(self) -> None: ...


async def delivered(deliver: Deliver, batch: list[StreamEvent]) -> Wanted:
    """Deliver a batch, and wait if necessary."""
    wanted = deliver(batch)
    if wanted is not None and not isinstance(wanted, Wanted):
        wanted = await wanted
    return wanted or Wanted.ALL


async def deliver_all(batches: AsyncGenerator[list[StreamEvent], None], deliver: Deliver) -> None:
    """Deliver what a generator yields. Closing the generator stops the model."""
    async with aclosing(batches):
        async for batch in batches:
            if await delivered(deliver, batch) is Wanted.NOTHING:
                return


class HealthReport(Struct, frozen=True, kw_only=True):
    """What `toolrelay check` prints about a model. An empty `problem` means that it works; `notes` are further lines."""

    summary: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()


S = TypeVar("S", bound=ModelSettings)


class BackendKind(Struct, Generic[S], frozen=True, kw_only=True):
    """A way to reach models. providers.py says which provider is reached in which way.

    settings   the keys of a model's table: those that every model has, and the backend's own
    open       makes the backend of one model and connects nothing yet
    inspect    examines a model for `toolrelay check`; None: the CLI only tries to connect to the model's base_url
    """

    settings: type[S]
    open: Callable[[S, Environment], Backend]
    inspect: Callable[[S, Environment], Awaitable[HealthReport]] | None = None


def discover() -> dict[str, BackendKind[Any]]:
    """Find every backend kind by its package's name: each sub-package is one."""
    import toolrelay.backends as package  # noqa: PLC0415 -- this module is part of it

    names = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    return {name: importlib.import_module(f"{package.__name__}.{name}").BACKEND for name in names}
