"""The gateway's secret, kept in the data directory so that sealed calls look the same after a restart."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from toolrelay import log

FILE_NAME = "secret.key"
_LENGTH = 32


def load_secret(data_dir: Path) -> bytes:
    """Return the stored secret, or create one. If it cannot be stored, log that; it then lasts as long as the process."""
    path = data_dir / FILE_NAME
    try:
        return _read(path) or _create(path)
    except OSError as error:
        log.warning("secret_not_kept", file=str(path), reason=error.strerror)
        return secrets.token_bytes(_LENGTH)


def _read(path: Path) -> bytes | None:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return None
    return found if len(found) >= _LENGTH else None


def _create(path: Path) -> bytes:
    """Create the file atomically: gateways that start at the same time all get the secret of the first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_LENGTH))
        try:
            os.link(draft, path)
        except FileExistsError:
            if _read(path) is None:  # the file is there, but invalid
                draft.replace(path)
        return path.read_bytes()
    finally:
        draft.unlink(missing_ok=True)
