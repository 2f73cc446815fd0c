"""A look at a folder that may become a vault: whether it can be read, and how many notes are in it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from msgspec import Struct

MAX_ENTRIES = 100_000
MAX_SECONDS = 3.0


class FolderReport(Struct, frozen=True, kw_only=True):
    """`complete` is false if there are more notes than were counted. `problem` says why it is no vault."""

    path: str
    exists: bool = False
    is_folder: bool = False
    readable: bool = False
    notes: int = 0
    complete: bool = True
    obsidian: bool = False
    problem: str | None = None


def inspect_folder(written: str, base: Path, *, max_entries: int = MAX_ENTRIES, seconds: float = MAX_SECONDS) -> FolderReport:
    """Look at a folder. `~` is the home directory; a relative path is below `base`. It may take as long as the disk does."""
    if not written.strip():
        return FolderReport(path="", problem="Enter the folder of the vault.")
    try:
        path = Path(os.path.realpath(base / Path(written).expanduser()))
        exists, is_folder = path.exists(), path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        return FolderReport(path=written, problem=f"This path cannot be used: {error}.")
    if not is_folder:
        problem = f"{path} is not a folder." if exists else f"There is no folder {path}."
        return FolderReport(path=str(path), exists=exists, problem=problem)
    try:
        os.scandir(path).close()
    except OSError as error:
        problem = f"The folder {path} cannot be read: {error.strerror}."
        return FolderReport(path=str(path), exists=True, is_folder=True, problem=problem)
    notes, complete = _count_notes(path, max_entries, time.monotonic() + seconds)
    return FolderReport(
        path=str(path),
        exists=True,
        is_folder=True,
        readable=True,
        notes=notes,
        complete=complete,
        obsidian=(path / ".obsidian").is_dir(),
    )


def _count_notes(root: Path, max_entries: int, until: float) -> tuple[int, bool]:
    """Count notes without following links or entering hidden folders. The second value: all of them were counted."""
    # A gateway without a vault need not load it.
    from toolrelay.toolsets.vault.rules import is_note_name  # noqa: PLC0415 -- see above

    notes = entries = 0
    folders = [str(root)]
    while folders:
        try:
            with os.scandir(folders.pop()) as found:
                for entry in found:
                    entries += 1
                    if entries > max_entries or time.monotonic() > until:
                        return notes, False
                    if entry.is_dir(follow_symlinks=False):
                        if not entry.name.startswith("."):
                            folders.append(entry.path)
                    elif is_note_name(entry.name):
                        notes += 1
        except OSError:  # a folder that cannot be read has no notes for us
            continue
    return notes, True
