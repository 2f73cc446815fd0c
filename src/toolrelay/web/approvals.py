"""Approvals over HTTP: the questions that wait for a person, their answers, live events, and remembered answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import Any, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from toolrelay import log
from toolrelay.core.approvals import PATHS, QuestionStatus, decode_text
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.steps import ToolRunFinished
from toolrelay.errors import ClientError, ToolError, ToolrelayError, invalid
from toolrelay.runtime.approvals import ApprovalEvent, Approvals, Decision
from toolrelay.runtime.gateway_tools import OpenTool
from toolrelay.runtime.keys import KeyRing
from toolrelay.runtime.models import Model
from toolrelay.settings import LOCAL
from toolrelay.stores.approvals import ApprovalRow, RuleRow
from toolrelay.toolsets.base import FilePreview, FilePreviewer, ToolContext, ToolDefinition
from toolrelay.web.access import Access
from toolrelay.web.approver_auth import Approvers
from toolrelay.web.keep_alive import with_keep_alive
from toolrelay.web.paging import whole_number
from toolrelay.web.site import exchange_of, identify
from toolrelay.wires.base import KEEP_ALIVE
from toolrelay.wires.json import encode_repaired

MAX_LISTED = 1000
MAX_FILES = 200  # that a question lists
MAX_DIGITS = 6  # of the number of a file
MAX_LINE = 200  # characters
MAX_TEXT = 20_000  # characters of a file that a person looks at before answering
PREVIEW_SECONDS = 5.0
_STATUSES: tuple[QuestionStatus, ...] = get_args(QuestionStatus)
_EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}

_decode_decision = msgspec.json.Decoder(Decision).decode


class ApprovalPages:
    """All pages need an approver, who sees the questions of everybody."""

    def __init__(
        self,
        approvals: Approvals,
        models: Mapping[str, Model],
        approvers: Approvers,
        access: Access,
        keys: KeyRing,
        *,
        keepalive: float = 15,
    ) -> None:
        self._access = access
        self._keys = keys
        self._approvals = approvals
        self._models = models
        self._approvers = approvers
        self._keepalive = keepalive

    def routes(self) -> list[Route]:
        return [
            Route("/approvals", self.list),
            Route("/approvals/events", self.stream),
            Route("/approvals/rules", self.list_rules),
            Route("/approvals/rules/{id}", self.delete_rule, methods=["DELETE"]),
            Route("/approvals/{id}", self.retrieve),
            Route("/approvals/{id}", self.answer, methods=["POST"]),
            Route("/approvals/{id}/files/{index}", self.show_file),
        ]

    def _approver(self, request: Request) -> str:
        """Return the name of who sent the request, or raise the error for those who may not approve."""
        return self._approvers.require_identity(identify(request), request.headers.get("authorization"))

    async def list(self, request: Request) -> Response:
        self._approver(request)
        status = request.query_params.get("status")
        wanted = next((known for known in _STATUSES if known == status), None)
        if status is not None and wanted is None:
            raise invalid(f"'status' must be one of {', '.join(_STATUSES)}.", "status")
        limit = whole_number(request.query_params, "limit", default=100, least=1, most=MAX_LISTED)
        rows = await self._approvals.list(wanted, limit=limit)
        return _respond({"approvals": await asyncio.gather(*[self._describe(row) for row in rows])})

    async def retrieve(self, request: Request) -> Response:
        self._approver(request)
        return _respond(await self._describe(await self._load(request)))

    async def _load(self, request: Request) -> ApprovalRow:
        row = await self._approvals.store.load_approval(request.path_params["id"])
        if row is None:
            raise ClientError("There is no such question.", status=404, code="approval_not_found")
        return row

    async def answer(self, request: Request) -> Response:
        by = self._approver(request)
        body = await request.body()
        try:
            decision = _decode_decision(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            message = f'The body is not a verdict: {error}. Example: {{"verdict": "allow"}}.'
            raise invalid(message, code="invalid_verdict") from None
        row = await self._approvals.answer(request.path_params["id"], decision, by)
        return _respond(await self._describe(row))

    async def show_file(self, request: Request) -> Response:
        """Return the beginning of a file that an open question lists, by its number in the list."""
        self._approver(request)
        row = await self._load(request)
        if row.status != "pending":
            raise ClientError("The question was answered already.", status=409, code="approval_not_pending")
        number = request.path_params["index"]
        index = int(number) if number.isascii() and number.isdigit() and len(number) < MAX_DIGITS else MAX_FILES
        text = await (self._shared_text(row, index) if row.kind == "share" else self._file_text(row, index))
        if text is None:
            raise ClientError("The question has no such file.", status=404, code="file_not_found")
        return _respond({"text": text[:MAX_TEXT], "is_cut": len(text) > MAX_TEXT})

    async def stream(self, request: Request) -> Response:
        self._approver(request)
        source = self._approvals.events()
        await anext(source)  # from here on nothing is missed
        return StreamingResponse(self._frames(source, request), headers=_EVENT_STREAM)

    async def _has_ended(self, request: Request) -> bool:
        """Return whether the session or the key of a request is no longer valid."""
        try:
            return not (await self._access.identify(exchange_of(request))).may_approve
        except ToolrelayError:
            return True

    async def _frames(self, source: AsyncGenerator[ApprovalEvent | None, None], request: Request) -> AsyncGenerator[bytes, None]:
        yield KEEP_ALIVE  # so that the listener knows that it is connected
        async with aclosing(with_keep_alive(source, self._keepalive)) as events:
            async for event in events:
                if await self._has_ended(request):
                    return
                if event is None:
                    yield KEEP_ALIVE
                    continue
                data = encode_repaired(await self._describe(event.row))
                yield b"event: %b\ndata: %b\n\n" % (event.name.encode(), data)

    async def list_rules(self, request: Request) -> Response:
        self._approver(request)
        rules = await self._approvals.store.list_rules()
        return _respond({"rules": [self._rule_members(rule) for rule in rules]})

    def _rule_members(self, rule: RuleRow) -> JsonObject:
        return {
            "id": rule.id,
            "key": self._keys.name_of(rule.owner),
            "toolset": rule.toolset,
            "tool": rule.tool,
            "kind": rule.kind,
            "verdict": rule.verdict,
            "conversation": rule.conversation,
            "arguments": None if rule.arguments is None else decode_text(rule.arguments),
            "runs_with": None if rule.new_arguments is None else decode_text(rule.new_arguments),
            "reason": rule.reason,
            "created_at": rule.created_at,
            "created_by": self._keys.name_of(rule.created_by),
        }

    async def delete_rule(self, request: Request) -> Response:
        by = self._approver(request)
        rule = request.path_params["id"]
        if not await self._approvals.store.delete_rule(rule):
            raise ClientError("There is no such rule.", status=404, code="rule_not_found")
        log.info("approval_rule_deleted", id=rule, by=by)
        return _respond({"id": rule, "deleted": True})

    # A question as JSON

    async def _describe(self, row: ApprovalRow) -> JsonObject:
        tool = self._approvals.find_tool(row)
        model = self._models.get(row.model)
        definition = None if tool is None else tool.definition
        members: JsonObject = {
            "id": row.id,
            "call_id": row.call_id,
            "turn": row.turn,
            "conversation": row.conversation,
            "kind": row.kind,
            "tool": row.tool,
            "toolset": row.toolset,
            "title": (definition.title if definition is not None else "") or row.tool,
            "purpose": definition.description if definition is not None else "",
            "hints": definition.hints if definition is not None else None,
            "arguments": decode_text(row.arguments),
            "files_argument": _files_argument(row, definition),
            "schema": definition.parameters if definition is not None and row.kind == "run" else None,
            "model": row.model,
            "provider": None if model is None else model.settings.provider,
            "local": model is not None and model.settings.local,
            "key": self._keys.name_of(row.owner),
            "status": row.status,
            "created_at": row.created_at,
            "expires_at": row.expires_at,
            "answered_at": row.answered_at,
            "answered_by": row.answered_by and self._keys.name_of(row.answered_by),
            "ran_with": None if row.new_arguments is None else decode_text(row.new_arguments),
            "reason": row.reason,
        }
        if row.status == "pending":  # the clocks of browsers are not to be trusted
            members["expires_in"] = max(row.expires_at - time.time(), 0.0)
        if row.status == "pending" and (files := await self._files(row, tool, model)) is not None:
            members["files"] = msgspec.to_builtins(files)
        return members

    async def _shared_entries(self, row: ApprovalRow) -> Sequence[Json]:
        """Return the entries of a result that a person is asked about."""
        stored = await self._approvals.store.load_turn(row.turn)
        steps = [each.step for each in stored.steps] if stored is not None else []
        outputs = [step.output for step in steps if isinstance(step, ToolRunFinished) and step.call_id == row.call_id]
        entries = decode_text(outputs[-1]) if outputs and isinstance(outputs[-1], str) else []
        return entries[:MAX_FILES] if isinstance(entries, list) else []

    async def _shared_text(self, row: ApprovalRow, index: int) -> str | None:
        entries = await self._shared_entries(row)
        return _entry_text(entries[index]) if index < len(entries) else None

    async def _files(self, row: ApprovalRow, tool: OpenTool | None, model: Model | None) -> tuple[FilePreview, ...] | None:
        """Return the files that a question is about, as they are now. None: it is not about files."""
        arguments = decode_text(row.arguments)
        if not isinstance(arguments, dict):
            return None
        if row.kind == "share":
            return tuple([_shared_file(entry) for entry in await self._shared_entries(row)])
        if tool is None or tool.definition.files_argument is None:
            return None
        try:
            async with asyncio.timeout(PREVIEW_SECONDS):
                preview = await tool.toolset.preview(tool.definition.name, arguments, _context(row, model))
        except Exception as error:  # noqa: BLE001 -- one broken toolset must not hide the questions of the others
            log.warning("preview_failed", tool=row.tool, reason=str(error) or type(error).__name__)
            return None
        return preview.files[:MAX_FILES]

    async def _file_text(self, row: ApprovalRow, index: int) -> str | None:
        """Return a file of the arguments as the tool would read it. None: there is none."""
        tool, arguments = self._approvals.find_tool(row), decode_text(row.arguments)
        if tool is None or tool.definition.files_argument is None or not isinstance(arguments, dict):
            return None
        paths = arguments.get(tool.definition.files_argument)
        path = paths[index] if isinstance(paths, list) and index < min(len(paths), MAX_FILES) else None
        if not isinstance(path, str) or not isinstance(tool.toolset, FilePreviewer):
            return None
        context = _context(row, self._models.get(row.model))
        try:
            async with asyncio.timeout(PREVIEW_SECONDS):
                return await tool.toolset.read_file(tool.definition.name, path, context, limit=MAX_TEXT)
        except ToolError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 -- a plug-in
            log.warning("preview_failed", tool=row.tool, reason=str(error) or type(error).__name__)
            return None


def _context(row: ApprovalRow, model: Model | None) -> ToolContext:
    """Return the context that a run of the call has, so that a preview shows the same."""
    key = None if row.owner == LOCAL else row.owner
    return ToolContext(call_id=row.call_id, key=key, model=row.model, local=model is not None and model.settings.local)


def _entry_text(entry: Json) -> str:
    values = entry if isinstance(entry, dict) else {}
    return str(values.get("content") or values.get("preview") or "")


def _shared_file(entry: Json) -> FilePreview:
    """Return an entry of a result that a person is asked about, with the beginning of what the model would see."""
    values = entry if isinstance(entry, dict) else {}
    path, size = str(values.get("path", "")), values.get("size", 0)
    shown = str(values.get("preview") or values.get("content") or "").strip()
    first_line = shown.splitlines()[0][:MAX_LINE] if shown else ""
    return FilePreview(path=path, name=PurePosixPath(path).name, size=size if isinstance(size, int) else 0, first_line=first_line)


def _files_argument(row: ApprovalRow, definition: ToolDefinition | None) -> str | None:
    """Return the argument that lists the files of a question, from which a person picks."""
    if row.kind == "share":
        return PATHS
    return None if definition is None else definition.files_argument


def _respond(value: Any) -> Response:  # noqa: ANN401 -- JSON
    return Response(encode_repaired(value), headers={"content-type": "application/json", "cache-control": "no-store"})
