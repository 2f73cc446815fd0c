"""The user's sign-in to Codex, and the gateway's copy of it, kept in sync.

Codex writes auth.json in place: a process that is killed meanwhile leaves half a file. A refreshed token invalidates the previous
one, so two copies that are refreshed separately sign the user out. Therefore all processes of the gateway share one copy and
never touch the user's file: a complete copy is moved there by renaming. The later refresh of the same account wins; otherwise,
and for signing out, the user's file wins.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec
from msgspec import Struct, field

from toolrelay import log

_Stamp = tuple[int, int, int] | None


class _Tokens(Struct):
    account_id: str | None = None


class _Auth(Struct):
    """The members of auth.json that are used. `last_refresh` is in UTC, so its text sorts by time."""

    tokens: _Tokens | None = None
    last_refresh: str | None = None
    api_key: str | None = field(name="OPENAI_API_KEY", default=None)

    @property
    def account(self) -> str:
        return (self.tokens and self.tokens.account_id) or ""

    @property
    def owner(self) -> str:
        return self.account or self.api_key or ""

    @property
    def refreshed(self) -> str:
        return (self.last_refresh or "").rstrip("Z")


class SignIn:
    """`shared_file` is the gateway's copy of `user_file`. Several objects may sync the same two files."""

    def __init__(self, user_file: str, folder: str) -> None:
        self.shared_file = Path(folder, "auth.json")
        self._user_file = Path(user_file).expanduser()
        self._seen: tuple[_Stamp, _Stamp] | None = None
        self._owner: str | None = None

    def sync(self) -> bool:
        """Bring both files to the same state. Return True if the owner changed, so that running processes are outdated."""
        if (_stamp(self._user_file), _stamp(self.shared_file)) == self._seen:
            return False
        try:
            owner = self._sync()
        except OSError as error:
            log.warning("codex_sign_in_failed", reason=error.strerror, path=error.filename)
            return False
        if owner is None:
            return False
        self._seen = (_stamp(self._user_file), _stamp(self.shared_file))
        changed = self._owner is not None and owner != self._owner
        self._owner = owner
        return changed

    def _sync(self) -> str | None:
        """Return the owner, or None while one of the files is being written."""
        user_data, shared_data = _read(self._user_file), _read(self.shared_file)
        if user_data is None:
            self.shared_file.unlink(missing_ok=True)
            return ""
        user_auth = _decode(user_data)
        if user_auth is None:
            return None
        if shared_data == user_data:
            return user_auth.owner
        if shared_data is not None:
            shared_auth = _decode(shared_data)
            if shared_auth is None and self._seen is not None and self._seen[1] != _stamp(self.shared_file):
                # Half a file: wait for the rest. If it is unchanged at the next sync, its writer was killed.
                self._seen = (None, _stamp(self.shared_file))
                return None
            if shared_auth is not None and _is_refresh(shared_auth, user_auth):
                _replace(self._user_file.resolve(), shared_data)
                log.info("codex_sign_in_refreshed")
                return user_auth.owner
        _replace(self.shared_file, user_data)
        return user_auth.owner


def describe_sign_in(user_file: str) -> str | None:
    """Say how the user is signed in, without any secret; None if there is no sign-in. OSError if the file cannot be read."""
    data = _read(Path(user_file).expanduser())
    auth = _decode(data) if data is not None else None
    if auth is None or not (auth.tokens or auth.api_key):
        return None
    return "with ChatGPT" if auth.tokens else "with an API key"


def _is_refresh(new: _Auth, old: _Auth) -> bool:
    return new.account == old.account != "" and new.refreshed > old.refreshed


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _decode(data: bytes) -> _Auth | None:
    try:
        return msgspec.json.decode(data, type=_Auth)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _replace(path: Path, data: bytes) -> None:
    """Write atomically: the file always has either its old or its new content."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".auth-", dir=path.parent)  # mode 600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
