"""Queries, folding and previews."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.errors import ToolError
from toolrelay.toolsets.vault.excerpts import LENGTH, cut_excerpt
from toolrelay.toolsets.vault.folding import find_place, fold, fold_input, index_text
from toolrelay.toolsets.vault.query import parse_query


@pytest.mark.parametrize(
    ("text", "terms", "tags", "paths"),
    [
        ("two words", ["two", "words"], [], []),
        ('"a  phrase" Word', ["a phrase", "word"], [], []),
        ('"not closed here', ["not closed here"], [], []),
        ("CAFÉ cafe", ["cafe"], [], []),
        ("What is this?", ["what", "is", "this"], [], []),
        ("c++, node.js; ?", ["c++", "node.js", "?"], [], []),
        ("tag:#A/b TAG:c path:Ab", [], ["a/b", "c"], ["ab"]),
        ('path:"Daily notes" tag:"x y"', [], ["x y"], ["daily notes"]),
        ("tag: http://x tag:#", ["tag", "http://x"], [], []),
        ('x""y', ["x", "y"], [], []),
    ],
)
def test_query_is_split_into_terms_and_filters(text: str, terms: list[str], tags: list[str], paths: list[str]) -> None:
    query = parse_query(text)
    assert ([term.text for term in query.terms], list(query.tags), list(query.paths)) == (terms, tags, paths)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the query is empty"),
        ('  "" ', "the query is empty"),
        ("\u0301", "the query is empty"),
        ("tag:#", "the query is empty"),
        ("x" * 1001, "1,001 characters"),
        (" ".join(map(str, range(40))), "more than 32"),
    ],
)
def test_query_that_cannot_be_searched_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        parse_query(text)


@given(st.text(max_size=60))
def test_any_text_is_a_query_or_an_error(text: str) -> None:
    try:
        query = parse_query(text)
    except ToolError:
        return
    assert all(term.text and term.text == fold(term.text).strip() for term in query.terms)


def test_matches_do_not_overlap_and_are_counted_in_all_texts() -> None:
    assert parse_query("aa").count("aaaa", "aaa") == 3
    assert parse_query('"a b"').count("a  b", "a\nb") == 1  # the second text is not folded: no line break there
    assert parse_query("a b").count("aa", "c") == 0
    assert parse_query("tag:x").count("", "") == 1


@given(st.text(max_size=2000), st.data())
def test_place_in_folded_text_is_found_in_the_text(text: str, data: st.DataObject) -> None:
    text = fold_input(text).upper()
    folded = fold(text)
    place = data.draw(st.integers(0, max(0, len(folded) - 1)))
    found = find_place(text, place)
    assert len(fold(text[:found])) <= place or not folded
    assert not folded or len(fold(text[: found + 1])) > place


def test_cjk_text_is_indexed_by_pairs() -> None:
    assert index_text("ab東京都c") == "ab 東京 京都 都 c"
    assert index_text("plain") == "plain"


def excerpt(text: str, query: str) -> str:
    return cut_excerpt(text, fold(text), parse_query(query))


def test_short_text_is_its_own_preview() -> None:
    assert excerpt("A short note.", "note") == "A short note."


def test_preview_is_cut_around_the_match_with_dots() -> None:
    text = "x" * 500 + " Straße … Ziel " + "y" * 500
    preview = excerpt(text, "ziel")
    assert preview.startswith("...x")
    assert preview.endswith("y...")
    assert len(preview) == LENGTH + 6
    assert "Straße … Ziel" in preview


def test_preview_shows_the_beginning_if_only_the_name_matches() -> None:
    assert excerpt("z" * 300, "name") == "z" * 200 + "..."


def test_preview_prefers_a_place_with_all_terms() -> None:
    text = "alpha" + " ." * 300 + "beta" + " ." * 300 + "alpha beta" + " ." * 300
    assert "alpha beta" in excerpt(text, "alpha beta")


def test_preview_prefers_the_beginning_of_a_word() -> None:
    text = "anode" + " ." * 300 + "node" + " ." * 300
    assert excerpt(text, "node").startswith("...")
