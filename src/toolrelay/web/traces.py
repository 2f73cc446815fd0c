"""Traces over HTTP: the recorded turns of an owner, each step by step, live while it runs, and as a bug report without content.

Traces have the content of conversations. So they need a key or a session; where no keys are configured, a session or the
approver's token: any program on the machine can send requests without.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from toolrelay import __version__
from toolrelay.core.json import JsonObject
from toolrelay.errors import ClientError, ToolrelayError, invalid
from toolrelay.runtime.gateway_tools import GatewayTools
from toolrelay.runtime.models import Model
from toolrelay.runtime.service import TurnService, owner_of
from toolrelay.runtime.traces.cutting import BRIEF, NORMAL, WHOLE, CutLimits, Cutter
from toolrelay.runtime.traces.finder import TraceFinder, hide_withheld
from toolrelay.runtime.traces.report import ReportContext, make_report, parameter_names
from toolrelay.runtime.traces.timeline import TraceEntry, builtins_or_none, make_timeline, total_usage
from toolrelay.stores.turn_lists import TurnQuery, TurnRecord, TurnSummary
from toolrelay.stores.turns import TurnRow, TurnStatus
from toolrelay.web.access import Access
from toolrelay.web.approver_auth import Approvers
from toolrelay.web.keep_alive import with_keep_alive
from toolrelay.web.paging import decode_cursor, encode_cursor, whole_number
from toolrelay.web.site import exchange_of, identify
from toolrelay.wires.base import KEEP_ALIVE
from toolrelay.wires.json import encode_repaired

MAX_LISTED = 100
MAX_ENTRIES = 1000  # of one response
MAX_QUERY = 200  # characters
MAX_DETAILS = 2_000_000  # characters of the details of all entries of one response
_STATUSES: tuple[TurnStatus, ...] = get_args(TurnStatus)
_PREFIXES = ("resp_", "req_")
_EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class TracePages:
    def __init__(
        self,
        service: TurnService,
        models: Mapping[str, Model],
        tools: GatewayTools,
        approvers: Approvers,
        access: Access,
        *,
        record: str,
        keepalive: float = 15,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`record` is that of the store's settings."""
        self._service = service
        self._finder = TraceFinder(service, models)
        self._models = models
        self._tools = tools
        self._approvers = approvers
        self._access = access
        self._record = record
        self._keepalive = keepalive
        self._clock = clock

    def routes(self) -> list[Route]:
        return [
            Route("/api/traces", self.list),
            Route("/api/traces/{id}", self.retrieve),
            Route("/api/traces/{id}/entries/{key}", self.retrieve_entry),
            Route("/api/traces/{id}/events", self.stream),
            Route("/api/traces/{id}/report", self.report),
        ]

    def _owner(self, request: Request) -> str:
        identity = identify(request)
        self._approvers.require_person(identity, request.headers.get("authorization"), subject="Traces")
        return owner_of(identity)

    async def _load(self, request: Request) -> TurnRecord:
        identifier = request.path_params["id"]
        token = identifier
        for prefix in _PREFIXES:
            token = token.removeprefix(prefix)
        record = await self._finder.load(token, self._owner(request))
        if record is None:
            message = (
                f"There is no trace {identifier[:100]!r}: the turn was not recorded, was deleted, or belongs to another key."
            )
            raise ClientError(message, status=404, code="trace_not_found")
        identity = identify(request)
        return record if identity.may_approve or identity.is_operator else hide_withheld(record)

    async def list(self, request: Request) -> Response:
        owner, query = self._owner(request), request.query_params
        status = query.get("status") or None
        wanted = next((known for known in _STATUSES if known == status), None)
        if status is not None and wanted is None:
            raise invalid(f"'status' must be one of {', '.join(_STATUSES)}.", "status")
        page = await self._service.store.list_turns(
            owner,
            TurnQuery(
                model=query.get("model") or None,
                status=wanted,
                tool=_text(query.get("tool"), "tool"),
                text=_text(query.get("q"), "q"),
                before=decode_cursor(query),
                limit=whole_number(query, "limit", default=50, least=1, most=MAX_LISTED),
            ),
        )
        return _respond(
            {
                "traces": [_list_members(turn) for turn in page.turns],
                "next": encode_cursor(page.next),
                "searched": page.searched,
                "record": self._record,
            }
        )

    async def retrieve(self, request: Request) -> Response:
        first = whole_number(request.query_params, "from", default=0, least=0, most=2**31)
        record = await self._load(request)
        row, entries = record.row, await asyncio.to_thread(make_timeline, record)
        shown = entries[first : first + MAX_ENTRIES]
        more = first + len(shown)
        brief: Any = await asyncio.to_thread(_brief_entries, shown)
        return _respond(
            {
                **self._row_members(row),
                "elapsed_ms": round(max(0.0, self._clock() - row.created_at) * 1000, 2),
                "ended_ms": _ended(record),
                "usage": builtins_or_none(total_usage(record.steps)),
                "steps": len(record.steps),
                "entry_count": len(entries),
                "next": more if more < len(entries) else None,
                "entries": brief,
            }
        )

    async def retrieve_entry(self, request: Request) -> Response:
        record = await self._load(request)
        limits = WHOLE if request.query_params.get("all") == "1" else NORMAL
        entries = await asyncio.to_thread(make_timeline, record)
        entry = next((each for each in entries if each.key == request.path_params["key"]), None)
        if entry is None:
            raise ClientError("This trace has no such entry.", status=404, code="entry_not_found")
        if entry.kind == "model":
            entry.detail["told"] = await self._finder.describe_told(record, entry)
        return _respond(await asyncio.to_thread(_entry_members, entry, limits))

    async def report(self, request: Request) -> Response:
        record = await self._load(request)
        text = await asyncio.to_thread(make_report, record, self._report_context(record.row))
        headers = {"content-type": "text/markdown; charset=utf-8", "cache-control": "no-store"}
        return Response(text.encode(errors="replace"), headers=headers)

    def _report_context(self, row: TurnRow) -> ReportContext:
        model, tools = self._models.get(row.model), self._tools.tools
        parameters = {name for tool in tools.values() for name in parameter_names(tool.definition.parameters)}
        return ReportContext(
            versions=f"Toolrelay {__version__}, Python {platform.python_version()}, {platform.system()}",
            provider=None if model is None else model.settings.provider,
            tool_calling=None if model is None else _tool_calling(model),
            tools=frozenset(tools),
            parameters=frozenset(parameters),
        )

    def _row_members(self, row: TurnRow) -> JsonObject:
        model = self._models.get(row.model)
        return {
            **_turn_members(row),
            "conversation": row.conversation,
            "previous": row.previous,
            "stored": row.stored,
            "background": row.background,
            "provider": None if model is None else model.settings.provider,
            "tool_calling": None if model is None else _tool_calling(model),
        }

    # Live

    async def stream(self, request: Request) -> Response:
        """Send an event whenever the turn has new steps. The last one is `end`: the turn does not run, or no longer."""
        record = await self._load(request)
        return StreamingResponse(self._frames(record.row, request), headers=_EVENT_STREAM)

    async def _frames(self, row: TurnRow, request: Request) -> AsyncGenerator[bytes, None]:
        yield KEEP_ALIVE  # so that the listener knows that it is connected
        source = self._finder.follow(row.id, row.owner)
        async with aclosing(with_keep_alive(source, self._keepalive)) as counts:
            async for count in counts:
                if await self._has_ended(request):
                    return
                yield KEEP_ALIVE if count is None else _frame("steps", {"steps": count})
        record = await self._finder.load(row.id, row.owner)
        yield _frame("end", {"status": "deleted" if record is None else record.row.status})

    async def _has_ended(self, request: Request) -> bool:
        """Return whether the session or the key of a request is no longer valid."""
        try:
            identity = await self._access.identify(exchange_of(request))
        except ToolrelayError:
            return True
        return (identity.key, identity.is_operator) != (identify(request).key, identify(request).is_operator)


def _frame(name: str, data: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode_repaired(data))


def _text(text: str | None, name: str) -> str | None:
    if text is not None and len(text) > MAX_QUERY:
        raise invalid(f"'{name}' may have at most {MAX_QUERY} characters.", name)
    return text or None


def _tool_calling(model: Model) -> str:
    options = model.mode.options
    return "native" if options.native else options.dialect.name


def _turn_members(row: TurnRow) -> JsonObject:
    return {"id": row.id, "model": row.model, "wire": row.wire, "status": row.status, "created_at": row.created_at}


def _list_members(turn: TurnSummary) -> JsonObject:
    return {
        **_turn_members(turn.row),
        "ms": round(max(0.0, turn.last_at - turn.row.created_at) * 1000, 2),
        "input": turn.input,
        "output": turn.output,
        "tools": [name[:MAX_QUERY] for name in turn.tools],
        "questions": turn.questions,
        "prompt": turn.prompt,
        "error": turn.error,
    }


def _ended(record: TurnRecord) -> float | None:
    """Return when the turn ended, in milliseconds since it began."""
    if record.row.status in ("running", "parked"):
        return None
    last = max([record.row.created_at, *[step.at for step in record.steps]])
    return round((last - record.row.created_at) * 1000, 2)


def _brief_entries(entries: list[TraceEntry]) -> list[JsonObject]:
    """Return the entries with the beginnings of their texts. When they are long together, the later ones have none."""
    out: list[JsonObject] = []
    size = 0
    for entry in entries:
        members = _entry_members(entry, BRIEF if size < MAX_DETAILS else CutLimits(0, 0, 0))
        size += len(encode_repaired(members["detail"]))
        out.append(members)
    return out


def _entry_members(entry: TraceEntry, limits: CutLimits) -> JsonObject:
    cutter = Cutter(limits)
    detail: dict[str, Any] = cutter.cut(entry.detail)
    return {
        "key": entry.key,
        "kind": entry.kind,
        "title": entry.title if len(entry.title) <= MAX_QUERY else f"{entry.title[:MAX_QUERY]} …",
        "status": entry.status,
        "started_ms": entry.started,
        "ms": entry.ms,
        "open": entry.is_open,
        "steps": [*entry.steps],
        "detail": detail,
        "cut": cutter.was_cut,
    }


def _respond(value: JsonObject) -> Response:
    return Response(encode_repaired(value), headers={"content-type": "application/json", "cache-control": "no-store"})
