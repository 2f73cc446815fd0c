"""Settings that are changed while the gateway runs: laid over the configuration, kept in the store, used at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from toolrelay import log
from toolrelay.core.json import Json
from toolrelay.errors import ClientError, ConfigurationError
from toolrelay.overlay import Overlay, apply_changes, is_fixed, parse_path
from toolrelay.runtime.gateway_tools import GatewayTools, ToolsetsError
from toolrelay.runtime.models import Model
from toolrelay.settings import Settings, file_prefix
from toolrelay.stores.base import SettingRow, Store

MAX_CHANGES = 1000  # in the store
MAX_NAME = 100  # of a toolset that is added here


class LiveSettings:
    """The settings of models and toolsets that count now. `models` gets new settings when they change."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        tools: GatewayTools,
        models: dict[str, Model],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.overlay = Overlay(base=settings, settings=settings)
        self._store = store
        self._tools = tools
        self._models = models
        self._clock = clock
        self._stored: dict[str, Json] = {}
        self._broken: dict[str, str] = {}  # toolsets that could not be opened with what was changed here
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Lay what is stored over the configuration and open the toolsets. Changes that do not fit are ignored, and logged."""
        base = self.overlay.base
        rows = await self._store.load_settings()
        self._stored = {row.path: _decode(row.value) for row in rows}
        overlay = apply_changes(base, self._stored)
        while True:
            try:
                if overlay.settings is not base or self._broken:
                    self._tools.reset(overlay.settings)
                await self._tools.open()
                break
            except ToolsetsError as error:
                changed = {path.name for text in overlay.changes if (path := parse_path(text)) and path.section == "toolsets"}
                broken = {name: "\n".join(lines) for name, lines in error.problems.items() if name in changed}
                if not broken:
                    raise
                self._broken |= broken
                overlay = apply_changes(base, self._stored, self._broken)
        for each in overlay.ignored:
            log.warning("setting_ignored", path=each.path, reason=each.reason)
        self._use(overlay)

    async def change(self, changes: Mapping[str, Json], by: str) -> None:
        """Change settings by path; None is back to the file or the default. Either all of them count from now on, or none.

        Raise a 422 with what is wrong, or a 409 for what the configuration file sets.
        """
        async with self._lock:
            self._check(changes)
            stored: dict[str, Json] = {path: value for path, value in {**self._stored, **changes}.items() if value is not None}
            if len(stored) > MAX_CHANGES:
                raise _refused("Too many settings were changed here.", next(iter(changes)))
            touched = {path.name for text in changes if (path := parse_path(text)) and path.section == "toolsets"}
            broken = {name: reason for name, reason in self._broken.items() if name not in touched}
            overlay = apply_changes(self.overlay.base, stored, broken)
            known = {each.path for each in self.overlay.ignored} - changes.keys()
            for each in overlay.ignored:
                if each.path not in known:
                    raise _refused(each.reason, each.path)
            await self._switch(overlay, stored, changes, by)
            self._broken = broken
            log.info("settings_changed", paths=sorted(changes), by=by)

    def _check(self, changes: Mapping[str, Json]) -> None:
        for text, value in changes.items():
            path = parse_path(text)
            if text in self._stored and value is None:
                continue  # what is ignored can be removed
            if path is None:
                raise _refused(f"{text[:200]!r} is no setting that can be changed here.", text)
            if len(path.name) > MAX_NAME and path.key == "kind":
                raise _refused(f"The name of a toolset has at most {MAX_NAME} characters.", text)
            if is_fixed(self.overlay.base, path):
                message = f"{text} is set in {self.overlay.base.config_file}. Change it there, and restart the gateway."
                raise ClientError(message, status=409, code="setting_fixed", param=text)

    async def _switch(self, overlay: Overlay, stored: dict[str, Json], changes: Mapping[str, Json], by: str) -> None:
        """Open what is new, write the store, then use both."""
        at = self._clock()
        rows = [
            SettingRow(path=path, value=msgspec.json.encode(value).decode(), changed_at=at, changed_by=by)
            for path, value in changes.items()
            if value is not None
        ]
        try:
            async with self._tools.prepare(overlay.settings) as prepared:
                await self._store.change_settings(rows, [path for path, value in changes.items() if value is None])
                self._tools.commit(prepared)
        except ConfigurationError as error:
            prefix = file_prefix(overlay.base)
            message = "\n".join(line.removeprefix(prefix) for line in error.message.splitlines())
            raise _refused(message, None) from None
        self._stored = stored
        self._use(overlay)

    def _use(self, overlay: Overlay) -> None:
        self.overlay = overlay
        for name, settings in overlay.settings.models.items():
            if self._models[name].settings is not settings:
                self._models[name] = replace(self._models[name], settings=settings)


def _decode(value: str) -> Json:
    """Return the value. One that is damaged is null, which fits no setting."""
    try:
        decoded: Json = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return None
    return decoded


def _refused(message: str, param: str | None) -> ClientError:
    return ClientError(message, status=422, code="invalid_setting", param=param)
