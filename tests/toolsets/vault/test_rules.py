"""Patterns of `exclude` and `private`, and paths that no note can have."""

from __future__ import annotations

import re

import pytest

from toolrelay.errors import ConfigurationError
from toolrelay.toolsets.vault.rules import Rules, check_path, show_path


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("Journal/**", "Journal/a.md", True),
        ("Journal/**", "Journal/a/b.md", True),
        ("Journal/**", "journal/a.md", True),
        ("Journal/**", "Other/Journal/a.md", False),
        ("Journal/**", "Journals/a.md", False),
        ("Journal", "x/Journal/a.md", True),
        ("Journal/", "Journal/a.md", True),
        ("/Journal", "Journal/a.md", True),
        ("/Journal", "x/Journal/a.md", False),
        ("*.secret.md", "x/a.secret.md", True),
        ("a/*.md", "a/b.md", True),
        ("a/*.md", "a/b/c.md", False),
        ("**/draft", "x/y/draft/a.md", True),
        ("a/**/c.md", "a/c.md", True),
        ("a/**/c.md", "a/b/b/c.md", True),
        ("note?.md", "note1.md", True),
        ("note[0-3].md", "note2.md", True),
        ("note[!0-3].md", "note2.md", False),
        ("Tagebücher/**", "Tagebu\u0308cher/a.md", True),
        ("**", "any/thing.md", True),
        ("a[b.md", "a[b.md", True),
    ],
)
def test_pattern_matches_paths_as_in_gitignore(glob: str, path: str, *, matches: bool) -> None:
    assert Rules(exclude=[glob]).excludes(path) is matches
    assert Rules(private=[glob]).is_private(path, set()) is matches


def test_tag_makes_a_note_private_in_any_case() -> None:
    rules = Rules(private=["tag:#Privé", "TAG:a/b"])
    assert rules.is_private("a.md", {"prive"})
    assert rules.is_private("a.md", {"a/b", "a"})
    assert not rules.is_private("a.md", {"a"})


def test_unknown_tags_count_as_private_only_if_a_tag_decides() -> None:
    assert Rules(private=["tag:x"]).is_private("a.md", None)
    assert not Rules(private=["Journal/**"]).is_private("a.md", None)


@pytest.mark.parametrize(
    "rules", [{"exclude": [""]}, {"private": ["tag:"]}, {"private": ["/"]}, {"exclude": ["a\\b"]}, {"exclude": ["../x"]}]
)
def test_pattern_that_matches_nothing_is_refused(rules: dict[str, list[str]]) -> None:
    with pytest.raises(ConfigurationError):
        Rules(**rules)


def test_all_bad_patterns_are_reported() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Rules(exclude=["", "../a"], private=["tag:"])
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("a" * 4096, "4,096 characters"),
        ("a\0b.md", "control character"),
        ("a\nb.md", "control character"),
        ("a\\b.md", "backslash"),
        ("/etc/passwd", "relative"),
        ("~/a.md", "relative"),
        ("C:/a.md", "relative"),
        ("c:a.md", "relative"),
        ("../a.md", r"\.\."),
        ("a/../b.md", r"\.\."),
        (".obsidian/a.md", "hidden"),
        ("a/.b.md", "hidden"),
        ("./", "names no file"),
    ],
)
def test_path_that_no_note_can_have_is_refused_with_a_reason(path: str, reason: str) -> None:
    found = check_path(path)
    assert found is not None
    assert re.search(reason, found)


@pytest.mark.parametrize("path", ["a.md", "./a.md", "a//b.md", "A: plan.md", "a..b.md", "é/東.md"])
def test_ordinary_path_is_not_refused(path: str) -> None:
    assert check_path(path) is None


def test_path_in_a_message_is_short_and_encodable() -> None:
    assert show_path("a" * 5000) == "a" * 120 + "…"
    assert show_path("\udcff.md").encode() == "\ufffd.md".encode()
