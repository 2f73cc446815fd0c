"""The gateway's secret, kept in its data directory, so that a conversation's sealed calls look the same after a restart."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from toolrelay import log

FILE = "secret.key"
_LENGTH = 32


def secret_in(data_dir: Path) -> bytes:
    """The one that is there, or a new one. Where it cannot be kept it lasts as long as the process, and the log says so."""
    path = data_dir / FILE
    try:
        kept = _read(path) or _write(path)
    except OSError as error:
        log.warning("secret_not_kept", file=str(path), reason=error.strerror)
        return secrets.token_bytes(_LENGTH)
    return kept


def _read(path: Path) -> bytes | None:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return None
    return found if len(found) >= _LENGTH else None


def _write(path: Path) -> bytes:
    """Whole or not at all: of two gateways that start together, both get the one that was first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = secrets.token_bytes(_LENGTH)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(made)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return _read(path) or _replaced(path, made)


def _replaced(path: Path, made: bytes) -> bytes:
    """What was there was no secret."""
    path.write_bytes(made)
    path.chmod(0o600)
    return made
