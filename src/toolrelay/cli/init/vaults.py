"""The vaults that Obsidian knows, from its own list."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

MAX_VAULTS = 9
MAX_BYTES = 1_000_000


def find_vaults(environ: Mapping[str, str], home: Path) -> list[str]:
    """Return the folders of vaults that exist, the last opened first."""
    found: dict[str, float] = {}
    for file in _list_files(environ, home):
        try:
            with file.open("rb") as opened:
                vaults = json.loads(opened.read(MAX_BYTES))["vaults"].values()
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
        for vault in vaults:
            path, opened_at = (vault.get("path"), vault.get("ts", 0)) if isinstance(vault, dict) else (None, 0)
            if isinstance(path, str) and path.isprintable() and _is_folder(path):
                found[path] = opened_at if isinstance(opened_at, int | float) else 0
    return sorted(found, key=lambda path: found[path], reverse=True)[:MAX_VAULTS]


def _list_files(environ: Mapping[str, str], home: Path) -> list[Path]:
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    return [
        folder / "obsidian.json"
        for folder in (
            config / "obsidian",
            home / ".var/app/md.obsidian.Obsidian/config/obsidian",  # Flatpak
            home / "snap/obsidian/current/.config/obsidian",
            home / "Library/Application Support/obsidian",  # macOS
        )
    ]


def _is_folder(path: str) -> bool:
    try:
        return os.path.isabs(path) and os.path.isdir(path)  # noqa: PTH112, PTH117 -- any text, which Path may refuse
    except ValueError:
        return False
