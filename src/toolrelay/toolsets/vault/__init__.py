"""Toolsets of kind `vault`: search and read the notes of an Obsidian vault. Nothing is ever written there."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment, ToolsetSettings
from toolrelay.toolsets.base import Toolset, ToolsetKind

if TYPE_CHECKING:
    from toolrelay.toolsets.vault.rules import Rules

FOLDER = "vaults"  # of the indexes, in the data directory


class VaultSettings(ToolsetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    exclude: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    share: Literal["silent", "ask"] = "silent"


def _rules(settings: VaultSettings) -> Rules:
    # Every gateway imports this module; one without a vault need not load YAML and the index.
    from toolrelay.toolsets.vault.rules import Rules  # noqa: PLC0415 -- see above

    return Rules(settings.exclude, settings.private)


def _root(settings: VaultSettings, environment: Environment) -> Path:
    if not settings.path.strip():
        raise ConfigurationError("path is empty; write the folder of the vault, such as ~/Notes")
    try:
        path = Path(settings.path).expanduser()
        return Path(os.path.realpath((environment.config_dir or Path()) / path))
    except (RuntimeError, ValueError) as error:  # no such user, or a NUL in the path
        raise ConfigurationError(f"path: {settings.path}: {error}") from None


def _index_path(settings: VaultSettings, environment: Environment) -> Path:
    """Return the file of the index. With other rules it is another one: while they change, both may be in use."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", settings.name) or "vault"
    key = os.fsencode(_root(settings, environment)) + b"\0" + _rules(settings).key.encode()
    return environment.data_dir / FOLDER / f"{name}-{hashlib.sha256(key).hexdigest()[:12]}.db"


def _open(settings: VaultSettings, environment: Environment) -> Toolset:
    from toolrelay.toolsets.vault.files import VaultFiles  # noqa: PLC0415 -- as in _rules
    from toolrelay.toolsets.vault.index import Index  # noqa: PLC0415 -- as in _rules
    from toolrelay.toolsets.vault.toolset import VaultToolset  # noqa: PLC0415 -- as in _rules

    rules, root = _rules(settings), _root(settings, environment)
    data = Path(os.path.realpath(environment.data_dir))
    if data == root or root in data.parents:
        raise ConfigurationError(
            f"the data directory {data} is inside the vault, in which nothing may be written; choose another one with --data-dir"
        )
    return VaultToolset(
        VaultFiles(root, rules),
        Index(_index_path(settings, environment), rules.key),
        name=settings.name,
        asks_to_share=settings.share == "ask",
        timeout_seconds=settings.timeout_seconds,
        max_concurrent=settings.max_concurrent,
    )


def _forget(gone: VaultSettings, kept: Sequence[VaultSettings], environment: Environment) -> None:
    """Delete the index, which contains the notes, unless another toolset uses it."""
    path = _index_path(gone, environment)
    if path not in [_index_path(each, environment) for each in kept]:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)


KIND = ToolsetKind(
    name="vault",
    settings=VaultSettings,
    open=_open,
    sample={"path": str(Path(__file__).parent / "sample")},
    forget=_forget,
)
