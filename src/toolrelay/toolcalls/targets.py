"""The models that can answer a request: the one that was asked, then its fallbacks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from toolrelay.errors import ToolrelayError
from toolrelay.toolcalls.options import ActiveOptions


class Target(Struct, frozen=True, kw_only=True, eq=False):
    """A model by its name in the configuration, and how it calls tools."""

    name: str
    mode: ActiveOptions


class TargetChooser(Protocol):
    """Chooses which model is asked. It is shared by all turns of a model."""

    @property
    def primary(self) -> Target: ...

    def choose(self) -> Target:
        """Return the model to ask first."""
        ...

    def choose_after(self, failed: Target, error: ToolrelayError, tried: Collection[str]) -> Target | None:
        """Return the model to ask instead, or None: the error is the client's, or all models were tried."""
        ...
