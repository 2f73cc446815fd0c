"""Usage: what is added to it, and sums over it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolrelay.core.events import MAX_TOKENS, limit_tokens
from toolrelay.core.latencies import Latencies
from toolrelay.stores.sql.database import Connection
from toolrelay.stores.usage import FIGURES, UsageQuery, UsageRow, UsageShare, UsageSum

MAX_SHARES = 10_000

USAGE_COLUMNS = UsageRow.__struct_fields__
_LATENCIES = ("first_latencies", "turn_latencies")
_ADD_FIGURE = "{0} = CASE WHEN usage.{0} < {1} - excluded.{0} THEN usage.{0} + excluded.{0} ELSE {1} END"
_ADD_LATENCIES = "{0} = trim(usage.{0} || ' ' || excluded.{0})"
_ADDITIONS = [_ADD_FIGURE.format(name, MAX_TOKENS) for name in FIGURES] + [_ADD_LATENCIES.format(name) for name in _LATENCIES]
_ADD_USAGE = f"""
    INSERT INTO usage ({", ".join(USAGE_COLUMNS)}) VALUES ({", ".join("?" * len(USAGE_COLUMNS))})
    ON CONFLICT (minute, model, key) DO UPDATE SET {", ".join(_ADDITIONS)}"""

# The parameter of a condition that is NULL switches it off.
_WITHIN = "minute >= ? AND minute < ? AND model = coalesce(?, model) AND key = coalesce(?, key)"
_SHARES = f"""
    SELECT model, key, sum(turns) AS total FROM usage WHERE {_WITHIN}
    GROUP BY model, key ORDER BY total DESC, model, key LIMIT {MAX_SHARES}"""
# Sums of absurd figures are not within the integers of a database.
_SUM_FIGURES = ", ".join(f"sum(CAST({name} AS DOUBLE PRECISION))" for name in FIGURES)
_JOIN_LATENCIES = ", ".join(f"group_concat({name}, ' ')" for name in _LATENCIES)
_SUMS = """
    SELECT minute - minute % ? AS start, CASE WHEN {by} IN ({names}) THEN {by} END AS name, {figures}, {latencies}
    FROM usage WHERE {within} GROUP BY start, name ORDER BY start"""


def add_usage(connection: Connection, rows: Sequence[UsageRow]) -> None:
    connection.executemany(_ADD_USAGE, [msgspec.structs.astuple(row) for row in rows])


def list_shares(connection: Connection, query: UsageQuery) -> list[UsageShare]:
    return [UsageShare(*values) for values in connection.execute(_SHARES, _parameters(query)).fetchall()]


def sum_usage(connection: Connection, query: UsageQuery, names: Sequence[str]) -> list[UsageSum]:
    statement = _SUMS.format(
        by=query.by,
        names=", ".join("?" * len(names)) or "NULL",
        figures=_SUM_FIGURES,
        latencies=_JOIN_LATENCIES,
        within=_WITHIN,
    )
    rows = connection.execute(statement, (query.step, *names, *_parameters(query))).fetchall()
    return [
        UsageSum(
            start=start,
            name=name,
            **{figure: limit_tokens(value) for figure, value in zip(FIGURES, values, strict=False)},
            first=Latencies(values[-2] or ""),
            turn=Latencies(values[-1] or ""),
        )
        for start, name, *values in rows
    ]


def _parameters(query: UsageQuery) -> tuple[object, ...]:
    return query.first, query.end, query.model, query.key
