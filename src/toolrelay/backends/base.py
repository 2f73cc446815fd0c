"""What a backend is: something that answers a request with stream events."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol, TypeAlias

from msgspec import Struct

from toolrelay.core.events import StreamEvent
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.settings import ModelSettings, Surroundings

Take: TypeAlias = Callable[[list[StreamEvent]], Awaitable[None] | None]
"""Takes a batch of events. What it returns is to be waited for before it gets more."""


async def taken(take: Take, batch: list[StreamEvent]) -> None:
    full = take(batch)
    if full is not None:
        await full


class Streams(Protocol):
    def stream(self, request: Request) -> AsyncGenerator[list[StreamEvent], None]:
        """The answer in batches: what arrives together is handed on together.

        Ends after AnswerFinished or AnswerFailed and raises nothing but cancellation. Closing the generator lets the model go.
        `request.stream` says how the client asked.
        """
        ...

    async def close(self) -> None: ...


class Relays(Protocol):
    async def relay(self, request: Request, take: Take) -> None:
        """As `stream`, but each batch is taken where it arrives, which wakes nobody. What `take` raises lets the model go."""
        ...

    async def close(self) -> None: ...


Backend: TypeAlias = Streams | Relays
"""A backend has one of the two ways, or both; then it is asked for `relay`."""


async def relayed(backend: Backend, request: Request, take: Take) -> None:
    """The backend's answer, each batch taken, whichever way it has."""
    if hasattr(backend, "relay"):
        await backend.relay(request, take)
        return
    async with aclosing(backend.stream(request)) as batches:
        async for batch in batches:
            await taken(take, batch)


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
