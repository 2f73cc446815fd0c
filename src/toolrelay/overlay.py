"""Changes that were made in the console, laid over the configuration: file first, then these, then the defaults.

A change is a path, as in the file (`toolsets.vault.path`), and a value. It becomes part of the tables before they are read, so
that all checks of the configuration apply to it. A change that does not fit the file any more is ignored, and says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, structs

from toolrelay.config import FileReader, with_defaults
from toolrelay.core.json import Json
from toolrelay.errors import ConfigurationError
from toolrelay.setting_types import format_value, quote_key
from toolrelay.settings import Settings

Source: TypeAlias = Literal["file", "environment", "here", "default"]

VAULT: Final = "vault"  # the only kind of toolset that can be added here
VAULT_KEYS: Final = ("kind", "path", "private", "exclude", "share")
RESTRICTING: Final = ("path", "private", "exclude", "share")  # without these a model would see other notes than was meant

_PATH: Final = re.compile(r'(models|toolsets)\.([A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*")\.([a-z_]+)')


class SettingPath(NamedTuple):
    section: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.section}.{quote_key(self.name)}.{self.key}"


class IgnoredChange(Struct, frozen=True):
    path: str
    value: Json
    reason: str


class Overlay(Struct, frozen=True, kw_only=True):
    """The configuration with changes. `changes` are those that count; `base` is the configuration without them."""

    base: Settings
    settings: Settings
    changes: Mapping[str, Json] = {}
    ignored: tuple[IgnoredChange, ...] = ()

    def source(self, path: SettingPath) -> Source:
        if is_fixed(self.base, path):
            return "file"
        return "here" if str(path) in self.changes else "default"


def parse_path(text: str) -> SettingPath | None:
    """Return the parts of a path that may be changed in the console, or None. A path has one spelling only."""
    match = _PATH.fullmatch(text)
    if match is None:
        return None
    section, name, key = match.groups()
    try:
        path = SettingPath(section, json.loads(name) if name.startswith('"') else name, key)
    except ValueError:
        return None
    may_change = key == "toolsets" if section == "models" else key in (*VAULT_KEYS, "approval")
    return path if may_change and str(path) == text else None


def is_fixed(base: Settings, path: SettingPath) -> bool:
    """Return whether the configuration file has the key."""
    return path.key in _table(base.environment.tables, path)


def apply_changes(base: Settings, changes: Mapping[str, Json], broken: Mapping[str, str] | None = None) -> Overlay:
    """Return the configuration with all changes that fit. `broken` are toolsets whose changes do not, and why."""
    tables = with_defaults(base.environment.tables, has_file=bool(base.config_file), data_dir=base.environment.data_dir)
    reasons: dict[str, str] = {}
    fitting: dict[SettingPath, Json] = {}
    for text in sorted(changes):
        path = parse_path(text)
        reason = "This cannot be changed here." if path is None else _misfit(base, tables, path, changes)
        if path is not None and reason is None and path.section == "toolsets":
            reason = (broken or {}).get(path.name)
        if path is None or reason is not None:
            reasons[text] = reason or ""
        else:
            fitting[path] = changes[text]
    try:
        settings = _read(base, tables, fitting)
    except ConfigurationError:
        settings, fitting = _read_what_fits(base, tables, fitting, reasons)
    ignored = tuple(IgnoredChange(text, changes[text], reasons[text]) for text in sorted(reasons))
    return Overlay(
        base=base,
        settings=_without_unrestricted(settings, ignored),
        changes={str(path): value for path, value in fitting.items()},
        ignored=ignored,
    )


def _misfit(base: Settings, tables: Mapping[str, Any], path: SettingPath, changes: Mapping[str, Json]) -> str | None:
    """Return why a change has no place in the configuration, whatever its value is."""
    if is_fixed(base, path):
        return f"It is set in {base.config_file}."
    table = _table(tables, path)
    if path.section == "models":
        return None if table else f"There is no model {format_value(path.name)}."
    kind = table.get("kind", changes.get(str(path._replace(key="kind"))))
    if kind is None:
        return f"There is no toolset {format_value(path.name)}."
    if path.key in VAULT_KEYS and kind != VAULT:
        return f"The toolset {format_value(path.name)} is no vault."
    return None


def _table(tables: Mapping[str, Any], path: SettingPath) -> Mapping[str, Any]:
    section = tables.get(path.section)
    table = section.get(path.name) if isinstance(section, dict) else None
    return table if isinstance(table, dict) else {}


def merge(tables: Mapping[str, Any], changes: Mapping[SettingPath, Json]) -> dict[str, Any]:
    """Return the tables with the changes. What the file has comes first, so that a clash is reported for what was added."""
    merged = dict(tables)
    for path, value in changes.items():
        section = merged[path.section] = dict(merged.get(path.section, {}))
        section[path.name] = {**section.get(path.name, {}), path.key: value}
    return merged


def _read(base: Settings, tables: Mapping[str, Any], changes: Mapping[SettingPath, Json]) -> Settings:
    if not changes:
        return base
    read = FileReader("", base.environment.environ).read(merge(tables, changes))
    return structs.replace(base, models=read.models, toolsets=read.toolsets)


def _read_what_fits(
    base: Settings, tables: Mapping[str, Any], changes: Mapping[SettingPath, Json], reasons: dict[str, str]
) -> tuple[Settings, dict[SettingPath, Json]]:
    """Add the changes one by one, toolsets first. Leave out those that make the configuration invalid, with their reasons."""
    settings, kept = base, dict[SettingPath, Json]()
    for unit in _units(changes):
        wanted = {**kept, **{path: changes[path] for path in unit}}
        try:
            settings = _read(base, tables, wanted)
        except ConfigurationError as error:
            reasons.update({str(path): error.message for path in unit})
        else:
            kept = wanted
    return settings, kept


def _units(changes: Mapping[SettingPath, Json]) -> list[list[SettingPath]]:
    """Return the changes in the order in which they can be added: kind and path of a toolset only together."""
    units: dict[tuple[object, ...], list[SettingPath]] = {}
    keys = [*VAULT_KEYS, "approval", "toolsets"]
    for path in sorted(changes, key=lambda path: (path.section != "toolsets", path.name, keys.index(path.key))):
        units.setdefault((path.section, path.name, "path" if path.key == "kind" else path.key), []).append(path)
    return list(units.values())


def _without_unrestricted(settings: Settings, ignored: tuple[IgnoredChange, ...]) -> Settings:
    """Take toolsets away from all models if a change that restricts them is ignored."""
    paths = [path for each in ignored if (path := parse_path(each.path)) is not None and path.key in RESTRICTING]
    fixed = {path for path in paths if is_fixed(settings, path)}
    vaults = {name for name, toolset in settings.toolsets.items() if toolset.kind == VAULT}
    names = {path.name for path in paths if path not in fixed} & vaults
    if not names:
        return settings
    models = {
        name: structs.replace(model, toolsets=tuple(each for each in model.toolsets if each not in names))
        for name, model in settings.models.items()
    }
    return structs.replace(settings, models=models)
