# ruff: noqa: S608 -- statements are put together from constants
"""Search in the index: names first, then notes with the terms as words, then notes with the terms as parts of words.

Each step yields notes that may match, in its order. What it yields is checked and counted in the text of the note, so that a step
may yield too much. A later step runs only if the earlier ones did not find enough.
"""

from __future__ import annotations

import heapq
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from msgspec import Struct

from toolrelay.toolsets.vault.excerpts import cut_excerpt
from toolrelay.toolsets.vault.folding import bigrams, split_cjk
from toolrelay.toolsets.vault.index import PRIVATE, PUBLIC, Index, read_folded, read_text, read_tokens
from toolrelay.toolsets.vault.query import Query, Term
from toolrelay.toolsets.vault.words import WordList

MAX_RANKED = 1000  # if more notes match, the newest come first: ranking them all would take too long
MAX_WORDS = 1000  # that a part of a word may stand for; if there are more, the texts are searched
MAX_PHRASES = 20  # the same for the first word of a phrase; if there are more, the rest of the phrase is searched
_NAME_WEIGHT = 10.0
_STEPS = 20_000  # of SQLite's virtual machine between two looks whether the search is still wanted, some ms


class Hit(Struct, frozen=True, kw_only=True):
    path: str
    fingerprint: str
    is_private: bool
    matches: int
    preview: str


class TermTokens(Struct, frozen=True):
    """A term as tokens of the index.

    is_open_start   the first token may be the end of a longer word
    is_open_end     the last token may be the beginning of a longer word
    is_half_pair    the last token is a CJK character that may be the first of a pair
    """

    tokens: tuple[str, ...]
    is_open_start: bool
    is_open_end: bool
    is_half_pair: bool = False


def search(
    connection: sqlite3.Connection,
    index: Index,
    query: Query,
    limit: int,
    *,
    local: bool,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> list[Hit]:
    """Return the best notes. Private ones exist only if `local`. A cancelled search raises sqlite3.OperationalError.

    `connection` is a reader of the index.
    """
    connection.set_progress_handler(is_cancelled, _STEPS)
    return _Search(connection, index, query, local=local).run(limit, is_cancelled)


class _Search:
    def __init__(self, connection: sqlite3.Connection, index: Index, query: Query, *, local: bool) -> None:
        self._connection = connection
        self._index = index
        self._query = query
        self._checked: dict[int, Hit | None] = {}
        self._tables = (PUBLIC, PRIVATE) if local else (PUBLIC,)
        self._visible = "is_private IN (0, 1)" if local else "is_private = 0"

    def run(self, limit: int, is_cancelled: Callable[[], bool]) -> list[Hit]:
        found: dict[int, Hit] = {}
        for number in self._candidates(limit):
            if is_cancelled():
                raise sqlite3.OperationalError("interrupted")
            hit = self._check(number)
            if hit is not None:
                found[number] = hit
                if len(found) >= limit:
                    break
        return list(found.values())

    def _candidates(self, limit: int) -> Iterator[int]:
        if not self._query.terms:
            return self._all()
        tokens = [read_term(self._connection, term) for term in self._query.terms]
        return chain(self._by_name(), self._by_words(tokens, limit), self._by_parts(tokens))

    def _by_name(self) -> Iterator[int]:
        """Yield notes that have every term in their names: the same name first, then names that begin with a term."""
        terms = [term.text for term in self._query.terms]
        part = max((piece for text in terms for piece in text.split(" ")), key=len)
        named = chain.from_iterable(self._index.load_table_names(table).find(part) for table in self._tables)
        found = list(islice((row for row in named if self._query.count(row[1])), MAX_RANKED))
        found.sort(key=lambda row: (row[1] != " ".join(terms), not row[1].startswith(tuple(terms)), -row[0]))
        yield from (number for number, _ in found)

    def _by_words(self, tokens: Sequence[TermTokens], limit: int) -> Iterator[int]:
        """Yield notes with the terms as words.

        The most relevant come first: those with the most matches if there are few, by BM25 if there are some, else the newest.
        """
        expression = " AND ".join(_phrase(each.tokens, is_prefix=each.is_half_pair) for each in tokens if each.tokens)
        if not expression:
            return
        expressions = dict.fromkeys(self._tables, expression)
        newest = [list(self._match(table, expression, limit=MAX_RANKED + 1)) for table in self._tables]
        if any(len(numbers) > MAX_RANKED for numbers in newest):
            yield from sorted(chain(*newest), reverse=True)
            yield from self._newest(expressions)
        elif sum(map(len, newest)) <= limit:
            hits = [(hit.matches, number) for number in chain(*newest) if (hit := self._check(number))]
            yield from (number for _, number in sorted(hits, reverse=True))
        else:
            ranked = [row for table in self._tables for row in self._rank(table, expression)]
            yield from (number for _, number in sorted(ranked, key=lambda row: (row[0], -row[1])))

    def _by_parts(self, tokens: Sequence[TermTokens]) -> Iterator[int]:
        """Yield notes with the terms as parts of words, newest first."""
        expressions: dict[str, str] = {}
        for table in self._tables:
            words = self._index.load_table_words(table) if any(each.is_open_start for each in tokens) else WordList(())
            parts = [part for each in tokens if (part := _expand(each, words)) is not None]
            if "" in parts:
                continue  # no word of this table has the part
            if not parts:
                yield from self._all()
                return
            expressions[table] = " AND ".join(parts)
        yield from self._newest(expressions)

    # Statements

    def _filter(self, column: str) -> tuple[list[str], list[str]]:
        """Return conditions for `tag:` and `path:`, and their values."""
        # The plus sign keeps SQLite from looking up each of these notes in the full-text table.
        tags = [f"+{column} IN (SELECT note FROM tag WHERE tag = ?)" for _ in self._query.tags]
        paths = [f"+{column} IN (SELECT id FROM note WHERE instr(path_folded, ?))" for _ in self._query.paths]
        return [*tags, *paths], [*self._query.tags, *self._query.paths]

    def _all(self) -> Iterator[int]:
        where, values = self._filter("id")
        sql = f"SELECT id FROM note WHERE {' AND '.join([self._visible, *where])} ORDER BY id DESC"
        yield from (number for (number,) in self._connection.execute(sql, values))

    def _match(self, table: str, expression: str, limit: int = -1) -> Iterator[int]:
        where, values = self._filter("rowid")
        conditions = " AND ".join([f"{table} MATCH ?", *where])
        sql = f"SELECT rowid FROM {table} WHERE {conditions} ORDER BY rowid DESC LIMIT {limit}"
        yield from (number for (number,) in self._connection.execute(sql, [expression, *values]))

    def _rank(self, table: str, expression: str) -> list[tuple[float, int]]:
        where, values = self._filter("rowid")
        conditions = " AND ".join([f"{table} MATCH ?", *where])
        sql = f"SELECT bm25({table}, {_NAME_WEIGHT}, 1.0), rowid FROM {table} WHERE {conditions}"
        return self._connection.execute(sql, [expression, *values]).fetchall()

    def _newest(self, expressions: dict[str, str]) -> Iterator[int]:
        """Yield the notes of all tables that match, newest first."""
        steps = [self._match(table, expression) for table, expression in expressions.items()]
        yield from steps[0] if len(steps) == 1 else heapq.merge(*steps, reverse=True)

    def _check(self, number: int) -> Hit | None:
        """Count the matches in a note, once. None: it does not match, after all."""
        if number not in self._checked:
            self._checked[number] = self._count(number)
        return self._checked[number]

    def _count(self, number: int) -> Hit | None:
        tags = ["EXISTS(SELECT 1 FROM tag WHERE tag = ? AND note = id)" for _ in self._query.tags]
        paths = ["instr(path_folded, ?)" for _ in self._query.paths]
        conditions = " AND ".join(["id = ?", self._visible, *tags, *paths])
        sql = f"SELECT path, fingerprint, is_private, name FROM note WHERE {conditions}"
        row = self._connection.execute(sql, [number, *self._query.tags, *self._query.paths]).fetchone()
        if row is None:
            return None
        path, fingerprint, is_private, name = row
        folded = read_folded(self._connection, number)
        matches = self._query.count(name, folded)
        if not matches:
            return None
        return Hit(
            path=os.fsdecode(path),
            fingerprint=fingerprint,
            is_private=bool(is_private),
            matches=matches,
            preview=cut_excerpt(read_text(self._connection, number), folded, self._query),
        )


def read_term(connection: sqlite3.Connection, term: Term) -> TermTokens:
    """Return the tokens of a term. A CJK run is its pairs of characters, and its last one if it ends within the term."""
    if term.text.isascii() and term.text.isalnum():
        return TermTokens((term.text,), is_open_start=True, is_open_end=True)
    runs = split_cjk(term.text)
    tokens: list[str] = []
    for place, (is_cjk, run) in enumerate(runs):
        is_last = place == len(runs) - 1
        if not is_cjk:
            tokens += read_tokens(connection, run)
        elif is_last and len(run) > 1:
            tokens += bigrams(run)
        else:
            tokens += [*bigrams(run), run[-1]]
    ends_in_cjk, last_run = runs[-1]
    return TermTokens(
        tokens=tuple(tokens),
        is_open_start=not runs[0][0] and bool(read_tokens(connection, term.text[0])),
        is_open_end=not ends_in_cjk and bool(read_tokens(connection, term.text[-1])),
        is_half_pair=ends_in_cjk and len(last_run) == 1,
    )


def _phrase(tokens: Sequence[str], *, is_prefix: bool) -> str:
    """Return an FTS5 expression for tokens that follow each other."""
    text = " ".join(tokens).replace('"', '""')
    return f'"{text}"*' if is_prefix else f'"{text}"'


def _expand(term: TermTokens, words: WordList) -> str | None:
    """Return an FTS5 expression that also finds the first token at the end of, or within, a word.

    None: the index cannot help, and the texts must be searched. Empty: no note has the term.
    """
    if not term.tokens:
        return None
    first, *rest = term.tokens
    is_prefix = term.is_open_end or term.is_half_pair
    if not term.is_open_start:
        return _phrase(term.tokens, is_prefix=is_prefix)
    is_part = not rest and term.is_open_end
    found = words.find(first, at_end=not is_part, limit=MAX_PHRASES if rest else MAX_WORDS)
    if found is None:
        return _phrase(rest, is_prefix=is_prefix) if rest else None
    phrases = [_phrase([word, *rest], is_prefix=bool(rest) and is_prefix) for word in found]
    return f"({' OR '.join(phrases)})" if phrases else ""
