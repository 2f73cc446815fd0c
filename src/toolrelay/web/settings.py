"""The settings of models and toolsets over HTTP: each value with where it comes from, and changes that count at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolrelay.core.json import Json, JsonObject
from toolrelay.errors import ClientError, invalid
from toolrelay.overlay import VAULT, VAULT_KEYS, SettingPath, is_fixed
from toolrelay.runtime.gateway_tools import GatewayTools, OpenTool
from toolrelay.runtime.live_settings import LiveSettings
from toolrelay.settings import ModelSettings, ToolsetSettings
from toolrelay.toolsets.base import discover
from toolrelay.web.approver_auth import Approvers
from toolrelay.web.folder_check import FolderReport, inspect_folder
from toolrelay.web.site import identify
from toolrelay.wires.json import encode_repaired

MAX_BODY_BYTES = 262_144
MAX_PATHS = 200  # in one request
CHECK_SECONDS = 10.0
MAX_CHECKS = 2  # at once: a folder on a dead network disk keeps its thread


class SettingChanges(Struct, frozen=True, forbid_unknown_fields=True):
    changes: Annotated[dict[Annotated[str, Meta(max_length=400)], Any], Meta(min_length=1, max_length=MAX_PATHS)]


class FolderQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(max_length=4096)]


_decode_changes = msgspec.json.Decoder(SettingChanges).decode
_decode_folder = msgspec.json.Decoder(FolderQuestion).decode


class SettingsPages:
    """Approvers may read the settings; only the operator may change them, or look at folders."""

    def __init__(self, live: LiveSettings, tools: GatewayTools, approvers: Approvers) -> None:
        self._live = live
        self._tools = tools
        self._approvers = approvers
        self._checks: set[asyncio.Task[FolderReport]] = set()

    def routes(self) -> list[Route]:
        return [
            Route("/api/settings", self.show),
            Route("/api/settings", self.change, methods=["PATCH"]),
            Route("/api/settings/check-folder", self.check_folder, methods=["POST"]),
        ]

    def _operator(self, request: Request) -> str:
        return self._approvers.require_operator(identify(request), request.headers.get("authorization"))

    async def show(self, request: Request) -> Response:
        identity = identify(request)
        if not identity.may_approve:
            self._operator(request)
        return _respond({**self._describe(), "may_change": identity.is_operator})

    async def change(self, request: Request) -> Response:
        by = self._operator(request)
        body = await _read(request)
        try:
            wanted = _decode_changes(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            message = f'The body is no change of settings: {error}. Example: {{"changes": {{"toolsets.vault.path": "~/Notes"}}}}.'
            raise invalid(message, code="invalid_change") from None
        await self._live.change(wanted.changes, by)
        return _respond({**self._describe(), "may_change": True})

    async def check_folder(self, request: Request) -> Response:
        self._operator(request)
        try:
            question = _decode_folder(await _read(request))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise invalid(f'The body names no folder: {error}. Example: {{"path": "~/Notes"}}.', code="invalid_folder") from None
        base = self._live.overlay.base.environment.config_dir or Path()
        if len(self._checks) >= MAX_CHECKS:
            raise ClientError("Other folders are being looked at. Try again in a moment.", status=429, code="busy", retry_after=5)
        job = asyncio.create_task(asyncio.to_thread(inspect_folder, question.path, base))
        self._checks.add(job)
        job.add_done_callback(self._checks.discard)
        done, _ = await asyncio.wait([job], timeout=CHECK_SECONDS)
        if not done:
            return _respond({"path": question.path, "problem": f"The folder did not answer within {CHECK_SECONDS:g} s."})
        return _respond(msgspec.to_builtins(job.result()))

    # The settings as JSON

    def _describe(self) -> JsonObject:
        overlay = self._live.overlay
        settings = overlay.settings
        return {
            "file": settings.config_file,
            "lasts": settings.store.record != "none",
            "tools": {
                "value": "off" if settings.tools_off else "on",
                "source": "environment" if settings.tools_off else "default",
                "fixed": True,
            },
            "models": [self._describe_model(model) for model in settings.models.values()],
            "toolsets": [self._describe_toolset(toolset) for toolset in settings.toolsets.values()],
            "ignored": [msgspec.to_builtins(each) for each in overlay.ignored],
        }

    def _describe_model(self, model: ModelSettings) -> JsonObject:
        return {
            "name": model.name,
            "provider": model.provider,
            "local": model.local,
            "toolsets": self._value(SettingPath("models", model.name, "toolsets"), list(model.toolsets)),
        }

    def _describe_toolset(self, toolset: ToolsetSettings) -> JsonObject:
        members: JsonObject = {"name": toolset.name, "kind": toolset.kind, "is_sample": _is_sample(toolset), "values": {}}
        keys = ("approval", *VAULT_KEYS) if toolset.kind == VAULT else ("approval",)
        members["values"] = {
            key: self._value(SettingPath("toolsets", toolset.name, key), msgspec.to_builtins(getattr(toolset, key)))
            for key in keys
        }
        members["tools"] = [_describe_tool(tool) for tool in self._tools_of(toolset)]
        return members

    def _tools_of(self, toolset: ToolsetSettings) -> Iterator[OpenTool]:
        return (tool for tool in self._tools.tools.values() if tool.settings.name == toolset.name)

    def _value(self, path: SettingPath, value: Json) -> JsonObject:
        overlay = self._live.overlay
        return {"path": str(path), "value": value, "source": overlay.source(path), "fixed": is_fixed(overlay.base, path)}


def _describe_tool(tool: OpenTool) -> JsonObject:
    """`tool` is the name that `approval` knows it by, `name` the one that models see."""
    return {
        "name": tool.gateway_tool.tool.name,
        "tool": tool.definition.name,
        "title": tool.definition.title or tool.gateway_tool.tool.name,
        "description": tool.definition.description,
        "approval": "always" if tool.gateway_tool.needs_approval else "never",
    }


def _is_sample(toolset: ToolsetSettings) -> bool:
    sample = discover()[toolset.kind].sample
    return bool(sample) and all(getattr(toolset, key) == value for key, value in sample.items())


async def _read(request: Request) -> bytes:
    body = await request.body()
    if len(body) > MAX_BODY_BYTES:
        raise ClientError(f"The body is larger than {MAX_BODY_BYTES} bytes.", status=413, code="request_too_large")
    return body


def _respond(value: Any) -> Response:  # noqa: ANN401 -- JSON
    return Response(encode_repaired(value), headers={"content-type": "application/json", "cache-control": "no-store"})
