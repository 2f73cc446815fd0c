"""Reports of usage: what the store has, and what is not written yet, by time and by model or key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from toolrelay.runtime.usage import UsageCounter
from toolrelay.stores.usage import UsageQuery, UsageRow, UsageShare, UsageSum

MAX_POINTS = 400
MAX_GROUPS = 50  # more are added up in a group without a name
MAX_NAMES = 200


class UsageSource(Protocol):
    """The part of a store that adds up usage. See stores.base.Store."""

    async def list_usage_shares(self, query: UsageQuery) -> list[UsageShare]: ...

    async def sum_usage(self, query: UsageQuery, names: Sequence[str]) -> list[UsageSum]: ...


class UsageGroup(Struct, frozen=True, kw_only=True):
    """A model or owner, or None for all that have no group of their own. `points` are by minute, without those of no usage."""

    name: str | None
    points: dict[int, UsageSum]
    total: UsageSum


class UsageReport(Struct, frozen=True, kw_only=True):
    """Groups, the one with most turns first. `models` and `keys` are all that were used in the time, at most MAX_NAMES."""

    query: UsageQuery
    groups: Sequence[UsageGroup]
    total: UsageSum
    models: Sequence[str]
    keys: Sequence[str]


class UsageReporter:
    def __init__(self, counter: UsageCounter, source: UsageSource) -> None:
        self._counter = counter
        self._source = source

    async def report(self, query: UsageQuery, owner: str | None = None) -> UsageReport:
        """Return a report. With an owner it has nothing of others: not their names either."""
        everything = UsageQuery(first=query.first, end=query.end, step=query.step, by=query.by, key=owner)
        async with self._counter.unwritten() as rows:
            shares = await self._source.list_usage_shares(everything)
            unwritten = [row for row in rows if _is_within(everything, row)]
            shares = _add_shares(shares, unwritten)
            names = _names([share for share in shares if _matches(query, share)], query.by)[:MAX_GROUPS]
            sums = await self._source.sum_usage(query, names)
        groups = _group(query, names, sums, [row for row in unwritten if _matches(query, row)])
        return UsageReport(
            query=query,
            groups=groups,
            total=_add_up(UsageSum(start=query.first, name=None), [group.total for group in groups]),
            models=sorted(_names(shares, "model")[:MAX_NAMES]),
            keys=sorted(_names(shares, "key")[:MAX_NAMES]),
        )


def _is_within(query: UsageQuery, row: UsageRow) -> bool:
    return query.first <= row.minute < query.end and _matches(query, row)


def _matches(query: UsageQuery, used: UsageRow | UsageShare) -> bool:
    return query.model in (None, used.model) and query.key in (None, used.key)


def _add_shares(shares: Iterable[UsageShare], rows: Iterable[UsageRow]) -> list[UsageShare]:
    turns = {(share.model, share.key): share.turns for share in shares}
    for row in rows:
        turns[row.model, row.key] = turns.get((row.model, row.key), 0) + row.turns
    return [UsageShare(model, key, count) for (model, key), count in turns.items()]


def _names(shares: Iterable[UsageShare], by: str) -> list[str]:
    """Return models or owners, the one with most turns first."""
    turns: dict[str, int] = {}
    for share in shares:
        name = share.model if by == "model" else share.key
        turns[name] = turns.get(name, 0) + share.turns
    return sorted(turns, key=lambda name: (-turns[name], name))


def _group(query: UsageQuery, names: Iterable[str], sums: Iterable[UsageSum], rows: Iterable[UsageRow]) -> list[UsageGroup]:
    points: dict[str | None, dict[int, UsageSum]] = {name: {} for name in (*names, None)}
    for each in sums:
        points[each.name][each.start] = each
    for row in rows:
        used = row.model if query.by == "model" else row.key
        name = used if used in points else None
        start = row.minute - row.minute % query.step
        points[name].setdefault(start, UsageSum(start=start, name=name)).add_row(row)
    return [
        UsageGroup(name=name, points=found, total=_add_up(UsageSum(start=query.first, name=name), found.values()))
        for name, found in points.items()
        if found
    ]


def _add_up(total: UsageSum, parts: Iterable[UsageSum]) -> UsageSum:
    for part in parts:
        total.add_sum(part)
    return total
