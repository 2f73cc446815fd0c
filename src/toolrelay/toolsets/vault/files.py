"""The files of a vault, read only. No link is followed while a file is opened, and only regular files are read."""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from toolrelay.errors import ToolError
from toolrelay.toolsets.vault.markdown import decode_note, read_possible_tags, read_tags
from toolrelay.toolsets.vault.rules import SUFFIX, Rules, encodable, is_note_name, split_path

MAX_NOTE_BYTES = 5_000_000  # of a larger note only the beginning is read

_MAX_SPELLINGS = 16  # files and folders whose names differ in case or normal form only
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # non-blocking: a FIFO has no writer
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


class NoteUnreadableError(Exception):
    """A path that cannot be read as a note, and why. `is_gone`: there is no such file."""

    def __init__(self, reason: str, *, is_gone: bool = False, is_content: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_gone = is_gone
        self.is_content = is_content  # the file is there, and its content would decide whether it is private


class FoundFile(Struct, frozen=True):
    """A file that is named like a note. `fingerprint` changes with every change of the file."""

    path: str
    mtime_ns: int
    fingerprint: str


class Note(Struct, frozen=True, kw_only=True):
    """A note as it is on the disk. `text` None: it is binary. `is_cut`: only its beginning was read."""

    path: str
    size: int
    mtime_ns: int
    fingerprint: str
    text: str | None
    is_cut: bool
    is_private: bool
    tags: frozenset[str]

    @property
    def file_name(self) -> str:
        return encodable(self.path.rpartition("/")[2])

    @property
    def name(self) -> str:
        """The name without its suffix."""
        return self.file_name[: -len(SUFFIX)]


def spelling_key(name: str) -> str:
    """Return the same key for names that differ in case, normal form or bytes that are not UTF-8."""
    return unicodedata.normalize("NFC", encodable(name)).casefold()


class VaultFiles:
    """Reads notes below a folder. Paths are relative to it, with `/`."""

    def __init__(self, root: Path, rules: Rules) -> None:
        self.root = root
        self.rules = rules

    def check(self) -> None:
        """Raise ToolError if the vault is not there, or empty: a disk that is not mounted is an empty folder."""
        try:
            with os.scandir(self.root) as entries:
                if next(entries, None) is not None:
                    return
        except OSError as error:
            raise ToolError(f"the vault cannot be read: {error.strerror}") from error
        raise ToolError("the vault cannot be read: its folder is empty; is its disk mounted?")

    def walk(self, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[FoundFile | str]:
        """Yield every note, and as a string the path of each folder that could not be read. Links are not followed."""
        folders = [""]
        while folders and not is_stopped():
            folder = folders.pop()
            try:
                with os.scandir(self.root / folder) as entries:
                    for entry in entries:
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.name.startswith(".") or "\\" in entry.name or self.rules.excludes(path):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(path)
                        elif is_note_name(entry.name) and entry.is_file(follow_symlinks=False):
                            yield _found(path, entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue
            except OSError:
                yield folder

    def stat(self, path: str) -> FoundFile | None:
        """Return the file if it is a note that a walk would find."""
        parts = split_path(path)
        if not is_note_name(parts[-1]) or self._is_refused(parts):
            return None
        try:
            with self._folder(parts[:-1]) as folder:
                status = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        except (OSError, ValueError):
            return None
        return _found(path, status) if stat.S_ISREG(status.st_mode) else None

    def read(self, path: str) -> Note:
        """Read a note that a walk found."""
        return self._read(path, split_path(path))

    def unread_note(self, found: FoundFile) -> Note:
        """Return a note of which only the name is known."""
        return Note(
            path=found.path,
            size=0,
            mtime_ns=found.mtime_ns,
            fingerprint=found.fingerprint,
            text=None,
            is_cut=False,
            is_private=self.rules.is_private(found.path, None),
            tags=frozenset(),
        )

    def read_linked(self, path: str) -> Note:
        """Read a note whose path may contain links, which must not leave the vault or lead to hidden or excluded files."""
        if self._is_refused(split_path(path)):
            raise NoteUnreadableError("no such file", is_gone=True)
        try:
            real, root = os.path.realpath(self.root / path), os.path.realpath(self.root)
        except (OSError, ValueError):  # ValueError: a name that the file system cannot have
            raise NoteUnreadableError("no such file", is_gone=True) from None
        if os.path.commonpath([real, root]) != root or real == root:
            raise NoteUnreadableError("it is a link that leaves the vault")
        parts = split_path(os.path.relpath(real, root))
        if self._is_refused(parts) or not is_note_name(parts[-1]):
            raise NoteUnreadableError("no such file", is_gone=True)
        return self._read(path, parts)

    def find_spellings(self, path: str) -> list[str]:
        """Return the notes whose paths differ from this one only in case, normal form or a missing `.md`."""
        *folders, name = split_path(path)
        names = {spelling_key(name), spelling_key(name + SUFFIX)}
        found = [""]
        for folder in folders:
            found = [each for parent in found for each in self._list(parent, {spelling_key(folder)}, is_folder=True)]
            found = found[:_MAX_SPELLINGS]
        notes = [each for parent in found for each in self._list(parent, names, is_folder=False)]
        return sorted(notes)[:_MAX_SPELLINGS]

    def _list(self, folder: str, names: set[str], *, is_folder: bool) -> Iterator[str]:
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    if (
                        spelling_key(entry.name) in names
                        and entry.is_dir() == is_folder
                        and (is_folder or is_note_name(entry.name))
                    ):
                        yield f"{folder}/{entry.name}" if folder else entry.name
        except OSError:
            return

    def _is_refused(self, parts: list[str]) -> bool:
        if any(part.startswith(".") for part in parts):
            return True
        return any(self.rules.excludes("/".join(parts[: count + 1])) for count in range(len(parts)))

    @contextmanager
    def _folder(self, parts: list[str]) -> Iterator[int]:
        """Open a folder below the root, one level after the other, without following links."""
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                below = os.open(part, _DIRECTORY, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    def _read(self, path: str, real_parts: list[str]) -> Note:
        try:
            with self._folder(real_parts[:-1]) as folder:
                file = os.open(real_parts[-1], _FILE, dir_fd=folder)
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise NoteUnreadableError("it is not a regular file")
                content = _read_bytes(file, MAX_NOTE_BYTES)
            finally:
                os.close(file)
        except ValueError:  # an embedded NUL, or a name that the file system cannot have
            raise NoteUnreadableError("no such file", is_gone=True) from None
        except OSError as error:
            is_gone = error.errno in _GONE
            raise NoteUnreadableError(error.strerror or "it cannot be read", is_gone=is_gone, is_content=not is_gone) from error
        return self._note(path, "/".join(real_parts), status, content)

    def _note(self, path: str, real_path: str, status: os.stat_result, content: bytes) -> Note:
        text = decode_note(content)
        is_cut = status.st_size > len(content)
        tags = frozenset() if text is None else frozenset(read_tags(text))
        possible = read_possible_tags(text) if text is not None and self.rules.has_private_tags else tags
        known = None if text is None or is_cut else possible
        return Note(
            path=path,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            fingerprint=_fingerprint(status),
            text=text,
            is_cut=is_cut,
            is_private=any(self.rules.is_private(each, known) for each in {path, real_path})
            or (is_cut and self.rules.is_private(path, possible)),
            tags=tags,
        )


def _read_bytes(file: int, count: int) -> bytes:
    pieces: list[bytes] = []
    while count > 0 and (piece := os.read(file, min(count, 1 << 20))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _found(path: str, status: os.stat_result) -> FoundFile:
    return FoundFile(path, status.st_mtime_ns, _fingerprint(status))


def _fingerprint(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_size}-{status.st_ino}"
