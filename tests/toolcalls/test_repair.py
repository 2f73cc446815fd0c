"""Repair of invalid JSON."""

from __future__ import annotations

import json
from typing import Any

import json_repair
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.toolcalls.repair import MAX_LENGTH, repair_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_valid_json_is_unchanged(value: dict[str, Any]) -> None:  # bug 19
    text = json.dumps(value)
    assert repair_object(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,}', {"a": 1}),
        ("{'a': 'b'}", {"a": "b"}),
        ('{"a": True, "b": None}', {"a": True, "b": None}),
        ('{a: "b"}', {"a": "b"}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": \'say "hi"\', \'b\': "it\\\'s"}', {"a": 'say "hi"', "b": "it's"}),
        ('{"a": "\\d+\\.x"}', {"a": "\\d+\\.x"}),
        ('{"a": "b" "c": 1}', {"a": "b", "c": 1}),
        ('{"a": {"b": 1}', {"a": {"b": 1}}),
        ('{"a": ["b", {"c": 1}', {"a": ["b", {"c": 1}]}),
        ('{"a": 1}}', {"a": 1}),
    ],
    ids=[
        "superfluous comma",
        "single quotes",
        "Python constants",
        "unquoted key",
        "double encoding",
        "mixed quotes",
        "literal backslash",
        "missing comma before a key",
        "missing brace",
        "missing brackets",
        "superfluous brace",
    ],
)
def test_unambiguous_error_is_repaired(text: str, expected: dict[str, Any]) -> None:
    repaired = repair_object(text)
    assert repaired is not None
    assert json.loads(repaired) == expected


@pytest.mark.parametrize("text", ["", "nothing", "[1, 2]", "42", '"text"', "\x00\xff", "[" * 5000])
def test_other_values_are_not_repaired(text: str) -> None:
    assert repair_object(text) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"a": tru}',
        '{"a": undefined}',
        '{"a": }',
        "{'a': 'it's'}",
        '{"a": "b',
        '{"a" 1}',
        '{"a": 1, b}',
        '{"a": "b" + "c"}',
        '{"a":"b":"c"}',
        '{"a": "echo "hi", "b": "/"}',
        '{"a": "P{"name": "x", "b": {"c": 1}}',
        '{"a": ""b""}',
        '{"a": a}',
        '{"a": ["b" "c"]}',
        '{"a": [1 2]}',
        '{"a": [1,,2]}',
        '{"a": {"b": 1, "c": 2}',
        '{"a": "C:\\dir\\new"}',
        '{"a": 1, "a": 2,}',
    ],
)
def test_ambiguous_error_is_not_repaired(text: str) -> None:
    assert repair_object(text) is None


def test_long_text_is_not_repaired_and_large_numbers_are_valid() -> None:
    long = '{"a": [' + ", ".join(f'"v{number:06}"' for number in range(1000)) + ",]}"
    assert repair_object(long) is not None
    assert repair_object('{"a": "' + "x" * MAX_LENGTH + '",}') is None
    assert (
        repair_object('{"a": 1e999, "b": 123456789012345678901234567890}') == '{"a": 1e999, "b": 123456789012345678901234567890}'
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "a.md", "edits": [{"old": "x", "new": "y"}]',
        '{"items": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]',
        '{"a": {"b": [1, 2], "c": 3}, "d": 4',
        '{"todos": [{"text": "a", "done": false}], "n": 1',
    ],
)
def test_missing_brace_is_added_at_the_end(text: str) -> None:
    assert repair_object(text) == text + "}"


@pytest.mark.parametrize("text", ['{"a": "' + 'x\\"' * 10_000, "{" * 30_000, '{"a": [' + "1, " * 9_000])
def test_slow_input_is_not_passed_to_the_library(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_repair, "repair_json", None)
    assert repair_object(text) is None


def test_long_strings_are_not_passed_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    library = json_repair.repair_json

    def repair(text: str, **given: Any) -> Any:
        seen.append(text)
        return library(text, **given)

    monkeypatch.setattr(json_repair, "repair_json", repair)
    repaired = repair_object('{"a": "' + "\\u00e9" * 10_000 + '",}')
    assert json.loads(repaired or "") == {"a": "é" * 10_000}
    assert [len(text) < 100 for text in seen] == [True]
