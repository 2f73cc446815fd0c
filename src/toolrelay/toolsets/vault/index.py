# ruff: noqa: S608 -- statements are put together from constants
"""The search index: an SQLite file with FTS5. It can be rebuilt from the vault at any time.

Private notes have a full-text table of their own, so that they have no influence on what models that are not local find: not on
the ranking, and not on the words that a part of a word stands for.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, LifoQueue

from toolrelay import log
from toolrelay.toolsets.vault.files import Note
from toolrelay.toolsets.vault.folding import UNICODE_VERSION, fold, fold_input, index_text, normalize
from toolrelay.toolsets.vault.rules import encodable
from toolrelay.toolsets.vault.words import NameList, Names, WordList, Words

VERSION = 3
PUBLIC, PRIVATE = "public", "private"

_APPLICATION_ID = 0x546F5276  # "ToRv"
_BUSY_SECONDS = 10.0
_CACHE_KB = 16_384
_TOKENIZER = "unicode61 remove_diacritics 0 categories 'L* N* M* So Co'"
_SCHEMA = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE note(
  id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, fingerprint TEXT NOT NULL, is_private INTEGER NOT NULL,
  name TEXT NOT NULL, path_folded TEXT NOT NULL);
CREATE INDEX note_private ON note(is_private);
CREATE TABLE content(id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE folded(id INTEGER PRIMARY KEY, text TEXT NOT NULL);  -- of texts that are not ASCII, which take longer to fold
CREATE TABLE tag(tag TEXT NOT NULL, note INTEGER NOT NULL, PRIMARY KEY(tag, note)) WITHOUT ROWID;
CREATE INDEX tag_note ON tag(note);
CREATE VIRTUAL TABLE public USING fts5(name, body, content='', tokenize="{_TOKENIZER}", prefix='1');
CREATE VIRTUAL TABLE private USING fts5(name, body, content='', tokenize="{_TOKENIZER}", prefix='1');
CREATE VIRTUAL TABLE public_words USING fts5vocab(public, row);
CREATE VIRTUAL TABLE private_words USING fts5vocab(private, row);
INSERT INTO public(public, rank) VALUES('hashsize', 8388608);
INSERT INTO private(private, rank) VALUES('hashsize', 8388608);
"""
# A tokenizer on its own: what is inserted can be read as tokens.
_PROBE = f"""
CREATE VIRTUAL TABLE temp.probe USING fts5(body, content='', tokenize="{_TOKENIZER}");
CREATE VIRTUAL TABLE temp.probe_tokens USING fts5vocab(temp, probe, instance);
"""


class Index:
    """One writer, guarded by a lock, and any number of readers.

    `rules_key` names the rules that decide which notes are private: with other rules the index is built anew.
    """

    def __init__(self, path: Path, rules_key: str) -> None:
        self.path = path
        self._key = f"{VERSION} {UNICODE_VERSION} {rules_key}"
        self._lock = threading.RLock()
        self._writer: sqlite3.Connection | None = None
        self._readers: LifoQueue[sqlite3.Connection] = LifoQueue()
        self._is_closed = False
        self.words = {PUBLIC: Words(PUBLIC), PRIVATE: Words(PRIVATE)}
        self.names = {PUBLIC: Names(is_private=False), PRIVATE: Names(is_private=True)}

    def open(self) -> None:
        """Open the file, or create it. One that is damaged or of another version is replaced."""
        with self._lock:
            self._is_closed = False
            try:
                self._connect()
            except sqlite3.DatabaseError as error:
                if not is_damaged(error):
                    raise
                self.rebuild(str(error))

    def rebuild(self, reason: str) -> None:
        """Start again with an empty index."""
        log.warning("vault_index_rebuilt", path=str(self.path), reason=reason)
        with self._lock:
            self._disconnect()
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            self._connect()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        with suppress(Empty):
            while True:
                self._readers.get_nowait().close()
        if self._writer is not None:  # last: it moves the log into the file
            self._writer.close()
            self._writer = None
        self.clear_words()

    def _connect(self) -> None:
        for folder in (self.path.parent.parent, self.path.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._writer = connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the tables, or raise DatabaseError if there are others."""
        is_new = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if is_new:
            connection.execute("PRAGMA page_size = 8192")
        elif connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise sqlite3.DatabaseError("not a vault index")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_PROBE)
        if is_new:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {_APPLICATION_ID}; COMMIT;")
            connection.execute("INSERT INTO meta VALUES('key', ?)", (self._key,))
        elif connection.execute("SELECT value FROM meta WHERE key = 'key'").fetchone() != (self._key,):
            raise sqlite3.DatabaseError("made by another version, or with other rules")

    # Reading

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection that sees one state of the index."""
        try:
            connection = self._readers.get_nowait()
        except Empty:
            connection = sqlite3.connect(
                f"file:{_quote(self.path)}?mode=ro",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB // 4}")
            connection.executescript(_PROBE)
        writer = self._writer
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.set_progress_handler(None, 0)
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if self._is_closed or self._writer is not writer:
                connection.close()
            else:
                self._readers.put(connection)

    @property
    def is_complete(self) -> bool:
        """Whether all notes have been indexed once."""
        with self._writing() as connection:
            return connection.execute("SELECT 1 FROM meta WHERE key = 'complete'").fetchone() is not None

    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprint of every note."""
        with self._writing() as connection:
            return {os.fsdecode(path): print_ for path, print_ in connection.execute("SELECT path, fingerprint FROM note")}

    def fingerprints_of(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Return the fingerprints of these notes, None for one that is not in the index."""
        with self._writing() as connection:
            sql = "SELECT fingerprint FROM note WHERE path = ?"
            rows = {path: connection.execute(sql, (os.fsencode(path),)).fetchone() for path in paths}
            return {path: None if row is None else row[0] for path, row in rows.items()}

    def load_table_words(self, table: str) -> WordList:
        return self.words[table].load(self.reader)

    def load_table_names(self, table: str) -> NameList:
        return self.names[table].load(self.reader)

    def load_words(self) -> None:
        """Read names and words beforehand, so that no search has to wait for them."""
        for table in (PUBLIC, PRIVATE):
            self.load_table_names(table)
            self.load_table_words(table)

    # Writing

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._writer is None:
                raise sqlite3.ProgrammingError("the index is closed")
            yield self._writer

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def set_complete(self) -> None:
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES('complete', '1')")

    def change(self, notes: Iterable[Note] = (), removed: Iterable[str] = (), *, is_bulk: bool = False) -> None:
        """Add, replace and remove notes, all or none of them. After a change of many (`is_bulk`), call `clear_words`."""
        added: list[tuple[Words, str]] = []
        with self._transaction() as connection:
            for path in removed:
                _remove(connection, os.fsencode(path))
            for note in notes:
                _remove(connection, os.fsencode(note.path))
                text = _add(connection, note)
                if not is_bulk:
                    added.append((self.words[PRIVATE if note.is_private else PUBLIC], text))
        for names in self.names.values():
            names.clear()
        self._add_words(added)

    def clear_words(self) -> None:
        for table in (PUBLIC, PRIVATE):
            self.names[table].clear()
            self.words[table].clear()

    def _add_words(self, added: list[tuple[Words, str]]) -> None:
        for words, text in added:
            if words.is_used:
                with self._writing() as connection:
                    words.add(set(read_tokens(connection, text)))


def _add(connection: sqlite3.Connection, note: Note) -> str:
    """Add a note, newest last, and return its text for the tokenizer."""
    shown = encodable(note.path)
    name, text = fold_input(note.name), normalize(note.text or "")
    row = (os.fsencode(note.path), note.fingerprint, note.is_private, name, fold_input(shown))
    values = "(SELECT coalesce(max(id), 0) + 1 FROM note), ?, ?, ?, ?, ?"
    number = connection.execute(
        f"INSERT INTO note(id, path, fingerprint, is_private, name, path_folded) VALUES({values})", row
    ).lastrowid
    connection.execute("INSERT INTO content VALUES(?, ?)", (number, text))
    folded = fold(text)
    if not text.isascii():
        connection.execute("INSERT INTO folded VALUES(?, ?)", (number, folded))
    connection.executemany("INSERT INTO tag VALUES(?, ?)", [(tag, number) for tag in note.tags])
    columns = (index_text(name), index_text(folded))
    table = PRIVATE if note.is_private else PUBLIC
    connection.execute(f"INSERT INTO {table}(rowid, name, body) VALUES(?, ?, ?)", (number, *columns))
    return " ".join(columns)


def _remove(connection: sqlite3.Connection, path: bytes) -> None:
    row = connection.execute("SELECT id, is_private, name FROM note WHERE path = ?", (path,)).fetchone()
    if row is None:
        return
    number, is_private, name = row
    table = PRIVATE if is_private else PUBLIC
    # The full-text tables do not keep the text: it must be given back to remove it.
    columns = (index_text(name), index_text(read_folded(connection, number)))
    connection.execute(f"INSERT INTO {table}({table}, rowid, name, body) VALUES('delete', ?, ?, ?)", (number, *columns))
    connection.execute("DELETE FROM tag WHERE note = ?", (number,))
    for table in ("content", "folded", "note"):
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (number,))


def read_folded(connection: sqlite3.Connection, number: int) -> str:
    row = connection.execute("SELECT text FROM folded WHERE id = ?", (number,)).fetchone()
    return fold(read_text(connection, number)) if row is None else str(row[0])


def read_text(connection: sqlite3.Connection, number: int) -> str:
    return str(connection.execute("SELECT text FROM content WHERE id = ?", (number,)).fetchone()[0])


def read_tokens(connection: sqlite3.Connection, text: str) -> list[str]:
    """Return the tokens of a text, in order, as the tokenizer of the index makes them."""
    connection.execute("INSERT INTO temp.probe(rowid, body) VALUES(1, ?)", (text,))
    try:
        return [token for (token,) in connection.execute("SELECT term FROM temp.probe_tokens ORDER BY offset")]
    finally:
        connection.execute("INSERT INTO temp.probe(probe, rowid, body) VALUES('delete', 1, ?)", (text,))


_DAMAGES = ("malformed", "no such", "vtable constructor failed")  # in the texts of operational errors


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether the file must be replaced. Otherwise it may be good: it is locked, or its disk is full or read-only."""
    if isinstance(error, sqlite3.OperationalError | sqlite3.ProgrammingError):
        return any(text in str(error) for text in _DAMAGES)
    return isinstance(error, sqlite3.DatabaseError)


def _quote(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
