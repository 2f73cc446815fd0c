"""Permissions of the data directory: only the user of the gateway may read what is in it."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from toolrelay import log
from toolrelay.errors import ConfigurationError
from toolrelay.runtime import secret

_FILES = ("toolrelay.db", "toolrelay.db-wal", "toolrelay.db-shm", secret.FILE_NAME, "approver.token")
_OWN_ENTRIES = frozenset({*_FILES, "codex"})
_OF_EVERY_VOLUME = frozenset({"lost+found"})
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def protect_data_directory(path: Path) -> None:
    """Create the directory with mode 0700, or tighten it, and make its files 0600.

    Raise ConfigurationError if others keep access, or if the directory seems to be for others too.
    A directory that cannot be created is no error here: not every gateway needs one, and those who write to it report it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return
    if os.name != "posix":  # there the mode says nothing about other users
        return
    try:
        _protect(path)
    except OSError as error:
        raise ConfigurationError(
            f"--data-dir: {path} cannot be used: {error.strerror}. Name a directory that belongs to the user of the gateway."
        ) from None


def _protect(path: Path) -> None:
    if is_open_to_others(path):
        _check_purpose(path)
        tighten(path)
    for name in _FILES:
        file = path / name
        if not file.is_symlink() and file.is_file() and is_open_to_others(file):
            tighten(file)


def tighten(path: Path) -> None:
    """Take all permissions from group and others, and log it. Raise ConfigurationError if that fails."""
    before = stat.S_IMODE(path.stat().st_mode)
    try:
        path.chmod(before & ~_OTHERS)
        reason = "its file system keeps no permissions" if is_open_to_others(path) else ""
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise ConfigurationError(
            f"--data-dir: {path} can be read by other users (mode {before:04o}), and that cannot be changed: {reason}. "
            "Name a directory that belongs to the user of the gateway alone, such as a new one in this directory."
        )
    log.warning("permissions_tightened", path=str(path), mode=f"{before:04o}")


def is_open_to_others(path: Path) -> bool:
    return bool(path.stat().st_mode & _OTHERS)


def _check_purpose(path: Path) -> None:
    """Refuse to close a directory that others may need, such as /tmp or the user's project."""
    entries = {entry.name for entry in path.iterdir()} - _OF_EVERY_VOLUME
    is_shared = path.stat().st_mode & stat.S_ISVTX
    if is_shared or (entries and not entries & _OWN_ENTRIES):
        raise ConfigurationError(
            f"--data-dir: {path} is open to other users and does not look like a data directory of Toolrelay. Name a directory "
            f"of its own, or, if nobody else needs this one, run: chmod 700 {shlex.quote(str(path))}"
        )
