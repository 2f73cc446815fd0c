"""file_read: notes by path, as they are at this moment, and what a person sees of them before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolrelay.core.json import Json, JsonObject
from toolrelay.toolsets.base import FilePreview
from toolrelay.toolsets.vault.files import Note, NoteUnreadableError, VaultFiles
from toolrelay.toolsets.vault.markdown import first_line
from toolrelay.toolsets.vault.rules import SUFFIX, check_path, encodable, has_other_suffix, show_path, split_path

MAX_FILES = 100  # in one call
MAX_CONTENT = 1_000_000  # characters of one note
MAX_CONTENTS = 4_000_000  # characters of all notes of a call
FIRST_LINE_LENGTH = 120
TOO_MANY = f"Error reading file: only {MAX_FILES} files can be read at once"


class NoteError(Exception):
    """The text of an error entry."""


class NoteReader:
    """Reads notes for one model. If it is not local, private notes are as if they did not exist."""

    def __init__(self, files: VaultFiles, *, local: bool) -> None:
        self._files = files
        self._local = local

    def find(self, asked: str) -> Note:
        """Return the note with this path, or with the only path that differs in case, normal form or a missing `.md`."""
        problem = check_path(asked)
        if problem is not None:
            raise NoteError(f"Error reading file: {problem}")
        path = "/".join(split_path(asked))
        exact = path if path.lower().endswith(SUFFIX) else path + SUFFIX
        note = self._read(exact)
        if note is not None:
            return note
        found = [
            note for each in self._files.find_spellings(path) if each != exact and (note := self._read(each, is_asked=False))
        ]
        if len(found) == 1:
            return found[0]
        if has_other_suffix(path):
            raise NoteError(f"Error reading file: only Markdown notes ({SUFFIX}) can be read")
        raise NoteError(f"File not found: {show_path(asked)}")

    def _read(self, path: str, *, is_asked: bool = True) -> Note | None:
        """Return None if there is no such note for this model. Raise NoteError for one that cannot be read."""
        try:
            note = self._files.read_linked(path)
        except NoteUnreadableError as error:
            rules = self._files.rules
            hidden = rules.is_private_path(path) or (error.is_content and rules.has_private_tags)
            if error.is_gone or not is_asked or (hidden and not self._local):
                return None
            raise NoteError(f"Error reading file: {error.reason}") from error
        return note if self._local or not note.is_private else None


def read_files(
    files: VaultFiles, paths: Sequence[str], *, local: bool, is_cancelled: Callable[[], bool]
) -> tuple[list[Json], bool]:
    """Return an entry for each path, and whether a private note is among them."""
    reader = NoteReader(files, local=local)
    entries: list[Json] = []
    left = MAX_CONTENTS
    has_private = False
    for number, asked in enumerate(paths):
        if is_cancelled():
            break
        if number >= MAX_FILES:
            entries.append(_error_entry(asked, TOO_MANY))
            continue
        try:
            note = reader.find(asked)
            content = _content(note, left)
        except NoteError as error:
            entries.append(_error_entry(asked, str(error)))
            continue
        left -= len(content)
        has_private = has_private or note.is_private
        entries.append({"path": encodable(note.path), "content": content, "size": note.size})
    return entries, has_private


def _error_entry(asked: str, message: str) -> JsonObject:
    return {"path": show_path(asked), "content": message, "size": 0}


def _content(note: Note, left: int) -> str:
    """Return the text of a note, cut with a plain mark if it is too long."""
    if note.text is None:
        raise NoteError("Error reading file: it is a binary file, not text")
    limit = min(MAX_CONTENT, left)
    if limit <= 0:
        raise NoteError(f"Error reading file: the files before it have {MAX_CONTENTS:,} characters; read it in another call")
    if len(note.text) <= limit and not note.is_cut:
        return note.text
    shown = note.text[:limit]
    return f"{shown}\n\n[truncated: these are the first {len(shown):,} characters of {note.size:,} bytes]"


def read_beginning(files: VaultFiles, asked: str, *, local: bool, limit: int) -> str:
    """Return the beginning of one file, or raise NoteError with what a run would say."""
    return _content(NoteReader(files, local=local).find(asked), limit)


def preview_files(files: VaultFiles, paths: Sequence[str], *, local: bool) -> tuple[FilePreview, ...]:
    """Return what a person sees of each file: the same files, in the same order, with the same errors as a run would have."""
    reader = NoteReader(files, local=local)
    shown = [_preview(reader, asked, local=local) for asked in paths[:MAX_FILES]]
    return (*shown, *(_error_preview(asked, TOO_MANY) for asked in paths[MAX_FILES:]))


def _error_preview(asked: str, message: str) -> FilePreview:
    shown = show_path(asked)
    return FilePreview(path=shown, name=shown.rpartition("/")[2], error=message)


def _preview(reader: NoteReader, asked: str, *, local: bool) -> FilePreview:
    try:
        note = reader.find(asked)
        _content(note, MAX_CONTENT)
    except NoteError as error:
        return _error_preview(asked, str(error))
    return FilePreview(
        path=encodable(asked),
        name=note.file_name,
        size=note.size,
        modified_at=note.mtime_ns / 1e9,
        first_line=first_line(note.text or "", FIRST_LINE_LENGTH),
        private=note.is_private if local else None,
    )
