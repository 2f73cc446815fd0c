"""Toolsets of kind `vault`: search and read the notes of an Obsidian vault. Nothing is ever written there."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Literal

from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment, ToolsetSettings
from toolrelay.toolsets.base import Toolset, ToolsetKind

FOLDER = "vaults"  # of the indexes, in the data directory


class VaultSettings(ToolsetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    exclude: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    share: Literal["silent", "ask"] = "silent"


def _open(settings: VaultSettings, environment: Environment) -> Toolset:
    # Every gateway imports this module; one without a vault need not load YAML and the index.
    from toolrelay.toolsets.vault.files import VaultFiles  # noqa: PLC0415 -- see above
    from toolrelay.toolsets.vault.index import Index  # noqa: PLC0415 -- see above
    from toolrelay.toolsets.vault.rules import Rules  # noqa: PLC0415 -- see above
    from toolrelay.toolsets.vault.toolset import VaultToolset  # noqa: PLC0415 -- see above

    rules = Rules(settings.exclude, settings.private)
    if not settings.path.strip():
        raise ConfigurationError("path is empty; write the folder of the vault, such as ~/Notes")
    try:
        path = Path(settings.path).expanduser()
    except RuntimeError as error:  # no such user
        raise ConfigurationError(f"path: {settings.path}: {error}") from None
    root = Path(os.path.realpath((environment.config_dir or Path()) / path))
    data = Path(os.path.realpath(environment.data_dir))
    if data == root or root in data.parents:
        raise ConfigurationError(
            f"the data directory {data} is inside the vault, in which nothing may be written; choose another one with --data-dir"
        )
    name = re.sub(r"[^A-Za-z0-9_-]", "_", settings.name) or "vault"
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    index = Index(environment.data_dir / FOLDER / f"{name}-{digest}.db", rules.key)
    return VaultToolset(
        VaultFiles(root, rules),
        index,
        name=settings.name,
        asks_to_share=settings.share == "ask",
        timeout_seconds=settings.timeout_seconds,
        max_concurrent=settings.max_concurrent,
    )


KIND = ToolsetKind(name="vault", settings=VaultSettings, open=_open)
