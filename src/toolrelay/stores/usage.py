"""Usage as the store keeps it, and sums over it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from toolrelay.core.events import limit_tokens
from toolrelay.core.latencies import Latencies

UsageDimension: TypeAlias = Literal["model", "key"]

FIGURES = ("turns", "failed", "input", "output", "cached", "tool_runs", "denials")
"""The members of UsageRow and UsageSum that are added up as numbers."""


class UsageRow(Struct, frozen=True, kw_only=True):
    """Usage of one model by one key in one minute.

    minute            the Unix time divided by 60
    key               the owner
    first_latencies   from a request to the first event of the model, see core.latencies
    turn_latencies    from a request to the end of its answer, without the time in which a person was asked
    """

    minute: int
    model: str
    key: str
    turns: int = 0
    failed: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    tool_runs: int = 0
    denials: int = 0
    first_latencies: str = ""
    turn_latencies: str = ""


class UsageShare(Struct, frozen=True):
    """How many turns of a model a key has had."""

    model: str
    key: str
    turns: int


class UsageQuery(Struct, frozen=True, kw_only=True):
    """Minutes from `first` up to `end`, which is not included, added up by `step` minutes.

    first    a multiple of `step`, as is `end`
    by       what the sums are grouped by
    model    only the usage of this model
    key      only the usage of this owner
    """

    first: int
    end: int
    step: int
    by: UsageDimension = "model"
    model: str | None = None
    key: str | None = None


class UsageSum(Struct, kw_only=True):
    """Figures that are added up. `start` is a minute; `name` that of a model or owner, None for all others."""

    start: int
    name: str | None
    turns: int = 0
    failed: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    tool_runs: int = 0
    denials: int = 0
    first: Latencies = field(default_factory=Latencies)
    turn: Latencies = field(default_factory=Latencies)

    def add_row(self, row: UsageRow) -> None:
        for figure in FIGURES:
            setattr(self, figure, limit_tokens(getattr(self, figure) + getattr(row, figure)))
        self.first.add_text(row.first_latencies)
        self.turn.add_text(row.turn_latencies)

    def add_sum(self, other: UsageSum) -> None:
        for figure in FIGURES:
            setattr(self, figure, limit_tokens(getattr(self, figure) + getattr(other, figure)))
        self.first.merge(other.first)
        self.turn.merge(other.turn)
