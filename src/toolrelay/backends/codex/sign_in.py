"""The one thing that is borrowed from a person's own Codex home: the sign-in, kept the same in both places.

Codex writes auth.json in place: a process that is killed while it does so leaves half a file. And a refreshed token makes the one
before it useless, so that two copies which are refreshed apart sign a person out. So all processes of the gateway share one copy,
which they may write as they like, and never see the person's own file: what they wrote goes there once it is whole, by renaming.
The later refresh of the same account wins; in all else, signing out too, the person's file is right.
"""

from __future__ import annotations

import contextlib
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
    """What is read of it. `last_refresh` is in UTC, so that its text sorts as its time."""

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
    """`theirs` is the person's auth.json, `ours` the gateway's copy, which any number of these may keep together."""

    def __init__(self, theirs: str, folder: str) -> None:
        self.ours = Path(folder, "auth.json")
        self._theirs = Path(theirs).expanduser()
        self._seen: tuple[_Stamp, _Stamp] | None = None
        self._owner: str | None = None

    def sync(self) -> bool:
        """Brings both to the same state. True: it is another's now, or nobody's, so that running processes know the wrong one."""
        if (_stamp(self._theirs), _stamp(self.ours)) == self._seen:
            return False
        try:
            owner = self._sync()
        except OSError as error:
            log.warning("codex_sign_in_failed", reason=error.strerror, path=error.filename)
            return False
        if owner is None:
            return False
        self._seen = (_stamp(self._theirs), _stamp(self.ours))
        changed = self._owner is not None and owner != self._owner
        self._owner = owner
        return changed

    def _sync(self) -> str | None:
        """Whose it is; None while it cannot be told, because one of the two is just being written."""
        theirs, ours = _read(self._theirs), _read(self.ours)
        if theirs is None:
            self.ours.unlink(missing_ok=True)
            return ""
        their_auth = _decoded(theirs)
        if their_auth is None:
            return None
        our_auth = None if ours is None else _decoded(ours)
        if ours is None or theirs == ours:
            pass
        elif our_auth is None and self._seen is not None and self._seen[1] != _stamp(self.ours):
            # Half a file: the other half is on its way, unless its writer was killed, which the next look at it shows.
            self._seen = (None, _stamp(self.ours))
            return None
        elif our_auth is not None and our_auth.account == their_auth.account != "" and our_auth.refreshed > their_auth.refreshed:
            _replace(self._theirs.resolve(), ours)
            log.info("codex_sign_in_refreshed")
            return their_auth.owner
        if theirs != ours:
            _replace(self.ours, theirs)
        return their_auth.owner


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _decoded(data: bytes) -> _Auth | None:
    try:
        return msgspec.json.decode(data, type=_Auth)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _replace(path: Path, data: bytes) -> None:
    """At every moment the file is whole, the old one or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".auth-", dir=path.parent)  # mode 600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
