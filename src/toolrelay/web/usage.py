"""Usage over HTTP, as JSON and as CSV: figures by time and by model or key, for those who may see them."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeAlias
from unicodedata import normalize

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolrelay.core.json import Json, JsonObject
from toolrelay.errors import ClientError, invalid
from toolrelay.runtime.keys import KeyRing
from toolrelay.runtime.usage_report import MAX_POINTS, UsageGroup, UsageReport, UsageReporter
from toolrelay.stores.usage import FIGURES, UsageDimension, UsageQuery, UsageSum
from toolrelay.web.approver_auth import Approvers
from toolrelay.web.paging import whole_number
from toolrelay.web.site import identify
from toolrelay.wires.json import encode_repaired

DAY_SECONDS = 86_400
MAX_DAYS = 366
MAX_TIME = 253_402_300_800  # the year 10000, which neither CSV nor browsers can write

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 240, 360, 720, 1440, 2880)  # minutes
_USUAL_POINTS = 200
_SHARES = {"p50": 0.5, "p95": 0.95}
_PERCENTILES = ("first_p50", "first_p95", "turn_p50", "turn_p95")
_FORMULA_STARTS = ("=", "+", "-", "@")
_OTHER = "(other)"

NameOf: TypeAlias = Callable[[str], str]
"""Returns the name of a key's owner, for people."""


class UsagePages:
    """The operator sees everything, others what was used with their key."""

    def __init__(
        self, reporter: UsageReporter, approvers: Approvers, keys: KeyRing, clock: Callable[[], float] = time.time
    ) -> None:
        self._reporter = reporter
        self._approvers = approvers
        self._keys = keys
        self._clock = clock

    def routes(self) -> list[Route]:
        return [Route("/api/usage", self.show), Route("/api/usage.csv", self.download)]

    async def show(self, request: Request) -> Response:
        report = await self._report(request)
        body = await asyncio.to_thread(lambda: encode_repaired(_describe(report, self._keys.name_of)))
        return Response(body, headers={"content-type": "application/json", "cache-control": "no-store"})

    async def download(self, request: Request) -> Response:
        report = await self._report(request)
        name = f"usage-{_format_time(report.query.first)[:10]}-by-{report.query.by}.csv"
        headers = {
            "content-type": "text/csv; charset=utf-8; header=present",
            "content-disposition": f'attachment; filename="{name}"',
            "x-content-type-options": "nosniff",
            "cache-control": "no-store",
        }
        return Response(await asyncio.to_thread(_encode_csv, report, self._keys.name_of), headers=headers)

    async def _report(self, request: Request) -> UsageReport:
        owner = self._only_owner(request)
        query = decode_query(request.query_params, self._clock(), owner)
        return await self._reporter.report(query, owner)

    def _only_owner(self, request: Request) -> str | None:
        """Return the only owner whose usage the person may see. None: that of all. Raise a 401 for those who may see nothing."""
        identity = identify(request)
        self._approvers.require_person(identity, request.headers.get("authorization"), subject="Usage figures")
        return None if identity.is_operator else identity.key


def decode_query(params: Mapping[str, str], now: float, owner: str | None = None) -> UsageQuery:
    """Return the query of a request, by default for the last day, or raise a 400. `owner` is the only one that may be seen."""
    end = whole_number(params, "to", default=int(now) + 1, least=1, most=MAX_TIME - 2 * DAY_SECONDS)
    start = whole_number(params, "from", default=max(0, end - DAY_SECONDS), least=0, most=MAX_TIME)
    if start >= end:
        raise invalid("'from' must be before 'to'. Both are Unix times in seconds.", "from")
    if end - start > MAX_DAYS * DAY_SECONDS:
        raise invalid(f"From 'from' to 'to' there may be at most {MAX_DAYS} days.", "from")
    by = params.get("by") or "model"
    if by not in ("model", "key"):
        raise invalid("'by' must be 'model' or 'key'.", "by")
    dimension: UsageDimension = "model" if by == "model" else "key"
    step = _decode_step(params, start, end)
    key = params.get("key") or owner
    if owner is not None and key != owner:
        raise ClientError("There is no such key, or you may not see its usage.", status=404, code="key_not_found", param="key")
    first, last = _span(start, end, step)
    return UsageQuery(first=first, end=last, step=step, by=dimension, model=params.get("model") or None, key=key)


def _decode_step(params: Mapping[str, str], start: int, end: int) -> int:
    """Return the step in minutes."""
    seconds = whole_number(params, "step", default=0, least=60, most=31 * DAY_SECONDS)
    if not seconds:
        usual = (step for step in _STEPS if _point_count(start, end, step) <= _USUAL_POINTS)
        return next(usual, _STEPS[-1])
    if seconds % 60:
        raise invalid("'step' must be a multiple of 60 seconds.", "step")
    if _point_count(start, end, seconds // 60) > MAX_POINTS:
        message = f"There may be at most {MAX_POINTS} steps from 'from' to 'to'. Choose a longer 'step', or leave it out."
        raise invalid(message, "step")
    return seconds // 60


def _span(start: int, end: int, step: int) -> tuple[int, int]:
    """Return the minutes of whole steps, counted from 1970 in UTC, in which these seconds are."""
    return start // 60 // step * step, -(-end // (60 * step)) * step


def _point_count(start: int, end: int, step: int) -> int:
    first, last = _span(start, end, step)
    return (last - first) // step


def _describe(report: UsageReport, name_of: NameOf) -> JsonObject:
    query = report.query
    starts = range(query.first, query.end, query.step)
    return {
        "from": query.first * 60,
        "to": query.end * 60,
        "step": query.step * 60,
        "by": query.by,
        "times": [start * 60 for start in starts],
        "groups": [_describe_group(group, query, starts, name_of) for group in report.groups],
        "total": _figures(report.total),
        "models": list(report.models),
        "keys": [{"name": key, "label": name_of(key)} for key in report.keys],
    }


def _describe_group(group: UsageGroup, query: UsageQuery, starts: range, name_of: NameOf) -> JsonObject:
    points = [group.points.get(start) for start in starts]
    figures = [None if point is None else _figures(point) for point in points]
    series: JsonObject = {name: [0 if each is None else each[name] for each in figures] for name in FIGURES}
    series |= {name: [None if each is None else each[name] for each in figures] for name in _PERCENTILES}
    return {"name": group.name, "label": _label(group, query.by, name_of), "series": series, "total": _figures(group.total)}


def _label(group: UsageGroup, by: UsageDimension, name_of: NameOf) -> str:
    if group.name is None:
        return _OTHER
    return name_of(group.name) if by == "key" else group.name


def _figures(point: UsageSum) -> dict[str, Json]:
    latencies = {"first": point.first, "turn": point.turn}
    return {
        **{name: getattr(point, name) for name in FIGURES},
        **{f"{kind}_{name}": each.percentile(share) for kind, each in latencies.items() for name, share in _SHARES.items()},
    }


# CSV


def _encode_csv(report: UsageReport, name_of: NameOf) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(("time", report.query.by, *FIGURES, *[f"{name}_seconds" for name in _PERCENTILES]))
    writer.writerows(_csv_rows(report, name_of))
    return text.getvalue().encode("utf-8", "replace")


def _csv_rows(report: UsageReport, name_of: NameOf) -> Iterator[list[Json]]:
    """Yield the steps in which something was used."""
    points = ((start, number) for number, group in enumerate(report.groups) for start in group.points)
    for start, number in sorted(points):
        group = report.groups[number]
        figures = _figures(group.points[start])
        yield [
            _format_time(start),
            _escape(_label(group, report.query.by, name_of)),
            *[figures[name] for name in (*FIGURES, *_PERCENTILES)],
        ]


def _escape(name: str) -> str:
    """Return a name that no spreadsheet takes for a formula."""
    start = normalize("NFKC", name).lstrip()  # some read full-width signs, too, and skip white space
    return f"'{name}" if start.startswith(_FORMULA_STARTS) else name


def _format_time(minute: int) -> str:
    return datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
