"""The approver's token: a file in the data directory whose reader may answer approvals where no keys are configured."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from toolrelay.errors import ConfigurationError
from toolrelay.runtime.data_directory import is_open_to_others, tighten

FILE_NAME = "approver.token"
_RANDOM_BYTES = 32
_MAX_BYTES = 512
_TOKEN = re.compile(rb"[\x21-\x7e]{32,%d}" % _MAX_BYTES)


def load_or_create_approver_token(data_dir: Path) -> str:
    """Return the stored token, or create one. Raise ConfigurationError if it cannot be used, with what to do."""
    path = data_dir / FILE_NAME
    try:
        if not os.path.lexists(path):
            _create(path)
        _check_file(path)
        return _read(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path}: the approver's token cannot be read or written: {error.strerror}. Make the directory and the file yours, "
            "or name another directory with --data-dir."
        ) from None


def read_approver_token(data_dir: Path) -> str | None:
    """Return the stored token, or None if there is none. Raise ConfigurationError if it cannot be used."""
    path = data_dir / FILE_NAME
    return load_or_create_approver_token(data_dir) if os.path.lexists(path) else None


def _create(path: Path) -> None:
    """Create the file whole: gateways that start at the same time all get the token of the first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{FILE_NAME}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if os.name == "posix":
                os.fchmod(descriptor, 0o600)  # whatever the umask is
            file.write(secrets.token_urlsafe(_RANDOM_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(draft, path)  # unlike a rename, it never replaces the token of another gateway
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)


def _check_file(path: Path) -> None:
    """Refuse what another user may have put there, and take away the permissions of others."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise _unusable(path, "this is not a plain file")
    if os.name != "posix":  # there the mode says nothing about other users
        return
    if found.st_uid not in (os.geteuid(), path.parent.stat().st_uid):
        raise _unusable(path, "the file belongs to another user, who knows the token")
    if is_open_to_others(path):
        tighten(path)


def _read(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 3).rstrip(b"\r\n")
    if not _TOKEN.fullmatch(content):
        raise _unusable(path, "the approver's token is damaged: expected one line of 32 to 512 ASCII characters without blanks")
    return content.decode("ascii")


def _unusable(path: Path, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {problem}. Delete the file: the gateway makes a new one at its start.")
