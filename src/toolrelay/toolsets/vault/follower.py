"""A thread that keeps the index in step with the files: a scan at the start, then a watch, and a scan now and then."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from toolrelay import log
from toolrelay.errors import ToolError
from toolrelay.toolsets.base import ToolContext
from toolrelay.toolsets.vault.files import FoundFile, Note, NoteUnreadableError, VaultFiles
from toolrelay.toolsets.vault.index import Index, is_damaged
from toolrelay.toolsets.vault.rules import is_note_name

RETRY_SECONDS = 1.0  # while the vault is not there
RESCAN_SECONDS = 300.0  # for changes that the watch missed
UNWATCHED_RESCAN_SECONDS = 10.0  # where the operating system cannot watch
STOP_SECONDS = 4.0
PROGRESS_SECONDS = 5.0  # between two lines of the log

_BATCH_NOTES = 1000
_BATCH_CHARACTERS = 8_000_000
_MANY = 200  # changes at once, after which a scan is simpler
_TICK_MS = 500  # how often the watch looks whether the folder is still the same
_POLL_SECONDS = 0.05


class VaultFollower:
    """`done` and `total` count the notes of the scan that runs, or ran last."""

    def __init__(self, files: VaultFiles, index: Index, name: str) -> None:
        self._files = files
        self._index = index
        self._name = name
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._damage: str | None = None
        self._problem: str | None = None  # why the index cannot be written
        self._thread: threading.Thread | None = None
        self.done = 0
        self.total = 0

    def start(self) -> None:
        """Open the index and start the thread."""
        self._index.open()
        if self._index.is_complete:
            self._ready.set()
        self._thread = threading.Thread(target=self._run, name=f"vault {self._name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. One that a disk keeps waiting is left behind."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
        if self._thread is None or not self._thread.is_alive():
            self._index.close()

    def wait(self, seconds: float, context: ToolContext, is_cancelled: Callable[[], bool]) -> None:
        """Wait until all notes have been indexed once, or raise ToolError."""
        deadline = time.monotonic() + seconds
        reported = -1
        while not self._ready.wait(_POLL_SECONDS if reported >= 0 else 0):
            if self._problem is not None:
                raise ToolError(f"the index of the vault cannot be written: {self._problem}")
            if is_cancelled() or time.monotonic() >= deadline:
                raise ToolError(f"indexing, {self.done:,} of {self.total:,} notes: try again in a moment")
            if self.done != reported:
                reported = self.done
                context.progress(self.done, self.total, "indexing")

    def report_damage(self, error: sqlite3.Error) -> None:
        """Have the index built anew."""
        self._damage = str(error)
        self._ready.clear()

    def refresh(self, paths: Iterable[str]) -> None:
        """Index these files again if they have changed."""
        self._files.check()
        known = self._index.fingerprints_of(paths)
        notes, removed = [], []
        for path, fingerprint in known.items():
            found = self._files.stat(path)
            if found is None:
                removed.append(path)
            elif found.fingerprint != fingerprint:
                notes += self._read(found)
        if notes or removed:
            self._index.change(notes, removed)

    # The thread

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._damage is not None:
                    self._index.rebuild(self._damage)
                    self._damage = None
                self._follow()
                self._problem = None
            except (ToolError, OSError) as error:
                log.debug("vault_missing", toolset=self._name, reason=str(error))
                self._stop.wait(RETRY_SECONDS)
            except sqlite3.Error as error:
                self._handle(error)
                self._stop.wait(RETRY_SECONDS)
            except Exception:  # noqa: BLE001 -- the index must not stop to follow because of one note
                log.exception("vault_error", toolset=self._name)
                self._stop.wait(RETRY_SECONDS)

    def _handle(self, error: sqlite3.Error) -> None:
        if is_damaged(error):
            self.report_damage(error)
        elif self._problem != str(error):
            self._problem = str(error)
            log.warning("vault_index_not_written", toolset=self._name, reason=self._problem)

    def _follow(self) -> None:
        """Scan and watch until the vault goes away, or is replaced by another folder."""
        self._files.check()
        identity = self._identity()
        self._scan()
        scanned = 0.0  # once more when the watch has begun: something may have changed in between
        for changes in self._watch():
            if self._stop.is_set() or self._damage is not None or self._identity() != identity:
                return
            if changes is None or not scanned or time.monotonic() - scanned > RESCAN_SECONDS or not self._apply(changes):
                self._scan()
                scanned = time.monotonic()
                self._problem = None

    def _identity(self) -> tuple[int, int]:
        status = self._files.root.stat()
        return status.st_dev, status.st_ino

    def _watch(self) -> Iterator[set[str] | None]:
        """Yield changed paths, or an empty set now and then. None: a scan is needed."""
        import watchfiles  # noqa: PLC0415 -- it imports anyio, which a gateway without vaults does not need

        try:
            for changes in watchfiles.watch(
                self._files.root,
                watch_filter=None,
                debounce=300,
                step=50,
                stop_event=self._stop,
                rust_timeout=_TICK_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                yield {path for _, path in changes}
        except (OSError, RuntimeError) as error:  # no more watches, or a file system that has none
            if not self._files.root.is_dir():
                raise
            log.warning("vault_not_watched", toolset=self._name, reason=str(error))
        while not self._stop.is_set():
            yield None
            self._stop.wait(UNWATCHED_RESCAN_SECONDS)

    def _apply(self, changes: set[str]) -> bool:
        """Index changed files. Return False if a scan is needed: a folder changed, or very many files."""
        if len(changes) > _MANY:
            return False
        paths = []
        for change in changes:
            path = os.path.relpath(change, self._files.root)
            if path.startswith(".") or "/." in path:
                continue
            if "\ufffd" in path:  # a name that is not UTF-8
                return False
            if is_note_name(path.rpartition("/")[2]):
                paths.append(path)
            elif Path(change).is_dir() or not Path(change).exists():
                return False
        if paths:
            self.refresh(paths)
        return True

    def _scan(self) -> None:
        """Compare all files with the index, and index what has changed."""
        known = self._index.fingerprints()
        unread: list[str] = []
        changed: list[FoundFile] = []
        for found in self._files.walk(self._stop.is_set):
            if isinstance(found, str):
                unread.append(found)
            elif known.pop(found.path, None) != found.fingerprint:
                changed.append(found)
        if self._stop.is_set():
            return
        self._files.check()  # a vault that vanished meanwhile has not lost its notes
        removed = [path for path in known if not any(path.startswith(f"{folder}/") or not folder for folder in unread)]
        changed.sort(key=lambda found: found.mtime_ns)  # the newest notes are the last, also in the index
        self._index_files(changed, removed)
        if not self._stop.is_set():
            if not self._ready.is_set():
                self._index.set_complete()
                self._ready.set()
            self._index.load_words()

    def _index_files(self, changed: list[FoundFile], removed: list[str]) -> None:
        is_bulk = len(changed) > _MANY
        started = logged = time.monotonic()
        self.done, self.total = 0, len(changed)
        if is_bulk:
            log.info("vault_indexing", toolset=self._name, done=0, notes=self.total)
        self._index.change((), removed)
        batch: list[Note] = []
        size = 0
        for found in changed:
            if self._stop.is_set():
                return
            notes = self._read(found)
            batch += notes
            size += sum(len(note.text or "") for note in notes)
            self.done += 1
            if len(batch) >= _BATCH_NOTES or size > _BATCH_CHARACTERS:
                self._index.change(batch, is_bulk=is_bulk)
                batch, size = [], 0
                if time.monotonic() - logged > PROGRESS_SECONDS:
                    logged = time.monotonic()
                    log.info("vault_indexing", toolset=self._name, done=self.done, notes=self.total)
        self._index.change(batch, is_bulk=is_bulk)
        if is_bulk:
            self._index.clear_words()
        if changed or removed:
            seconds = round(time.monotonic() - started, 3)
            write = log.info if is_bulk or not self._ready.is_set() else log.debug
            write("vault_indexed", toolset=self._name, notes=self.total, removed=len(removed), seconds=seconds)

    def _read(self, found: FoundFile) -> list[Note]:
        """Return the note, by its name alone if its content cannot be read, or nothing if it is gone."""
        try:
            return [self._files.read(found.path)]
        except NoteUnreadableError as error:
            return [] if error.is_gone else [self._files.unread_note(found)]
