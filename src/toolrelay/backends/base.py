"""The interface of backends: they answer a request with stream events."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import Protocol, TypeAlias

from msgspec import Struct

from toolrelay.core.events import StreamEvent
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.settings import ModelSettings, Surroundings


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


class Finding(Struct, frozen=True, kw_only=True):
    """`problem` is empty where all is well; `notes` are further lines for whoever asked."""

    told: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()


class BackendKind(Struct, frozen=True, kw_only=True):
    """`providers` are the values of a model's `provider` that this kind serves.

    open     connects nothing yet
    profile  what a model of this kind can do
    inspect  how it stands with such a model, for `toolrelay check`; None: no more than its server's address can be told
    """

    providers: frozenset[str]
    open: Callable[[ModelSettings, Surroundings], Backend]
    profile: Callable[[ModelSettings], Profile]
    inspect: Callable[[ModelSettings, Surroundings], Awaitable[Finding]] | None = None


def discover() -> dict[str, BackendKind]:
    """Every backend kind in this package, by provider. A module that begins with an underscore is not one."""
    import toolrelay.backends as package  # noqa: PLC0415 -- this module is part of it

    found: dict[str, BackendKind] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("_") or module.name == "base":
            continue
        kind: BackendKind = importlib.import_module(f"{package.__name__}.{module.name}").BACKEND
        found.update(dict.fromkeys(kind.providers, kind))
    return found
