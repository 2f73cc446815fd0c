"""Search against a scan of all notes that follows docs/vault.md word by word: the same notes, the same counts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from toolrelay.toolsets.vault import folding
from toolrelay.toolsets.vault.files import Note
from toolrelay.toolsets.vault.index import Index
from toolrelay.toolsets.vault.markdown import read_tags
from toolrelay.toolsets.vault.query import parse_query
from toolrelay.toolsets.vault.search import search

PIECES = [
    *(
        "a",
        "ab",
        "ba",
        "bab",
        "B",
        "node",
        "odes",
        "note",
        "x1",
        "10",
        "é",
        "É",
        "e\u0301",
        "e",
        "ß",
        "ss",
        "S",
        "ﬁ",
        "fi",
        "…",
        "...",
    ),
    *(
        "東",
        "京",
        "東京",
        "京東京",
        "が",
        "か",
        "か\u3099",
        "ｶﾞ",
        "カ",
        "한글",
        "\u1112\u1161\u11ab",
        "한",
        "Ω",
        "ς",
        "Σ",
        "İ",
        "\u0131",
        "ø",
    ),
    *("+", "++", "-", "_", ".", "'", "/", "😀", "❤\ufe0f", "€", "क्ष", "ä\u0323", "\u0301", "\u200b", "¼"),
    *(" ", " ", " ", "\n", "\t", "\u00a0", "\r\n", "\u2028"),
]
TAGS = ["x", "X/y", "é/東", "x/y/z", "z-1"]

pieces = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
inline_tags = st.sampled_from(TAGS).map(lambda tag: f" #{tag} ")
frontmatter = st.just("") | st.sampled_from(TAGS).map(lambda tag: f"---\ntags: [{tag}]\n---\n")
bodies = st.tuples(frontmatter, st.lists(pieces | inline_tags, max_size=4).map("".join)).map("".join)
names = st.lists(st.sampled_from([piece for piece in PIECES if "/" not in piece]), min_size=1, max_size=4).map("".join)
folders = st.sampled_from(["", "Ab/", "é/", "ab/東/"])
notes = st.dictionaries(st.tuples(folders, names).map("".join), st.tuples(bodies, st.booleans()), max_size=6)

plain_terms = st.lists(st.sampled_from([piece for piece in PIECES if piece.strip()]), min_size=1, max_size=3).map("".join)
phrases = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map(lambda found: f'"{"".join(found)}"')
filters = st.sampled_from(TAGS).map("tag:{}".format) | st.sampled_from(["ab", "É", "b/", "東"]).map("path:{}".format)
queries = st.lists(plain_terms | phrases | filters, min_size=1, max_size=3).map(" ".join)


def fold(text: str) -> str:
    folded = ""
    for character in unicodedata.normalize("NFC", text):
        if character.isspace() and character not in "\x1c\x1d\x1e\x1f":
            folded += " "
            continue
        kept = [part for part in unicodedata.normalize("NFKD", character) if unicodedata.combining(part) < 10]
        folded += unicodedata.normalize("NFC", "".join(kept).casefold().lower())
    return folded


def count(term: str, text: str) -> int:
    return len(re.findall(r"[ ]+".join(re.escape(word) for word in term.split()), text))


def tags_of(body: str) -> set[str]:
    written = re.findall(r"(?:^|\s)#(\S+)", body) + re.findall(r"\A---\ntags: \[(.*)\]", body)
    return {"/".join(fold(tag).split("/")[:depth]) for tag in written for depth in range(1, 4)}


def scan(vault: dict[str, tuple[str, bool]], query: str, *, local: bool) -> dict[str, int]:
    """Return the paths of the notes that match, with their counts."""
    terms: set[str] = set()
    tags: set[str] = set()
    paths: set[str] = set()
    for kind, quoted, plain in re.findall(r'(tag:|path:)?(?:"([^"]*)"|([^\s"]+))', query):
        value = " ".join(fold(quoted or plain.rstrip(",;.!?:") or plain).split())
        if value:
            {"": terms, "tag:": tags, "path:": paths}[kind].add(value)
    found = {}
    for path, (body, is_private) in vault.items():
        texts = fold(path.rpartition("/")[2]), fold(body)
        counts = [sum(count(term, text) for text in texts) for term in terms]
        is_filtered = tags <= tags_of(body) and all(each in fold(f"{path}.md") for each in paths)
        if all(counts) and is_filtered and (local or not is_private):
            found[f"{path}.md"] = sum(counts) or 1
    return found


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    index = Index(tmp_path_factory.mktemp("data") / "vaults" / "test.db", "")
    index.open()
    yield index
    index.close()


def make_note(path: str, body: str, *, is_private: bool) -> Note:
    tags = frozenset(read_tags(body))
    return Note(path=f"{path}.md", size=0, mtime_ns=0, fingerprint="", text=body, is_cut=False, is_private=is_private, tags=tags)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(vault=notes, query=queries, local=st.booleans(), loads_words=st.booleans())
@example(vault={"n": ("the anode", False), "m": ("node a", False)}, query="node", local=False, loads_words=True)
@example(vault={"n": ("xnode ab", False)}, query='"node a"', local=False, loads_words=True)
@example(vault={"n": ("京東京東", True)}, query="東京", local=True, loads_words=False)
def test_search_finds_and_counts_what_a_scan_does(
    index: Index, vault: dict[str, tuple[str, bool]], query: str, *, local: bool, loads_words: bool
) -> None:
    if loads_words:
        index.load_words()  # words of the notes that follow are added
    index.change(
        [make_note(path, body, is_private=is_private) for path, (body, is_private) in vault.items()], list(index.fingerprints())
    )
    try:
        parsed = parse_query(query)
    except Exception:  # noqa: BLE001 -- nothing to search for
        return
    with index.reader() as connection:
        hits = search(connection, index, parsed, 50, local=local)
    assert {hit.path: hit.matches for hit in hits} == scan(vault, query, local=local)
    assert len({hit.path for hit in hits}) == len(hits)


def test_folding_is_the_same_for_all_characters() -> None:
    for code in range(0x30000):
        character = unicodedata.normalize("NFC", chr(code))
        expected = "".join(map(folding.fold_character, character))
        assert folding.fold(character) == expected
        assert folding.fold(expected) == expected


def test_limit_keeps_some_of_the_hits_with_true_counts(tmp_path: Path) -> None:
    index = Index(tmp_path / "vaults" / "test.db", "")
    index.open()
    vault = {f"n{number}": ("node anode", False) for number in range(60)}
    index.change([make_note(path, body, is_private=False) for path, (body, _) in vault.items()])
    with index.reader() as connection:
        hits = search(connection, index, parse_query("node"), 10, local=False)
    expected = scan(vault, "node", local=False)
    assert len(hits) == 10
    assert all(expected[hit.path] == hit.matches for hit in hits)
    index.close()
