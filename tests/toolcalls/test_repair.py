"""JSON put right only where it was wrong, and only where one thing can have been meant."""

from __future__ import annotations

import json
from typing import Any

import json_repair
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.toolcalls.repair import LONGEST, repaired

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_json_that_is_valid_is_never_touched(value: dict[str, Any]) -> None:  # bug 19
    text = json.dumps(value)
    assert repaired(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
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
        "a comma too many",
        "single quotes",
        "Python's words",
        "a bare key",
        "encoded twice",
        "both quotes",
        "a backslash that begins no escape",
        "a comma short before a key",
        "a brace short",
        "brackets short",
        "a brace too many",
    ],
)
def test_what_can_only_mean_one_thing_is_repaired(text: str, meant: dict[str, Any]) -> None:
    mended = repaired(text)
    assert mended is not None
    assert json.loads(mended) == meant


@pytest.mark.parametrize("text", ["", "nothing", "[1, 2]", "42", '"text"', "\x00\xff", "[" * 5000])
def test_what_is_no_object_stays_wrong(text: str) -> None:
    assert repaired(text) is None


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
def test_where_more_than_one_thing_can_have_been_meant_nothing_is_repaired(text: str) -> None:
    assert repaired(text) is None


def test_a_text_that_would_take_long_is_not_repaired_and_a_number_may_be_of_any_size() -> None:
    long = '{"a": [' + ", ".join(f'"v{number:06}"' for number in range(1000)) + ",]}"
    assert repaired(long) is not None
    assert repaired('{"a": "' + "x" * LONGEST + '",}') is None
    assert repaired('{"a": 1e999, "b": 123456789012345678901234567890}') == '{"a": 1e999, "b": 123456789012345678901234567890}'


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "a.md", "edits": [{"old": "x", "new": "y"}]',
        '{"items": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]',
        '{"a": {"b": [1, 2], "c": 3}, "d": 4',
        '{"todos": [{"text": "a", "done": false}], "n": 1',
    ],
)
def test_a_brace_that_can_be_missing_in_one_place_only_is_put_there(text: str) -> None:
    assert repaired(text) == text + "}"


@pytest.mark.parametrize("text", ['{"a": "' + 'x\\"' * 10_000, "{" * 30_000, '{"a": [' + "1, " * 9_000])
def test_what_would_take_the_library_long_is_not_handed_to_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_repair, "repair_json", None)
    assert repaired(text) is None


def test_long_strings_are_kept_from_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    library = json_repair.repair_json

    def repair(text: str, **given: Any) -> Any:
        seen.append(text)
        return library(text, **given)

    monkeypatch.setattr(json_repair, "repair_json", repair)
    mended = repaired('{"a": "' + "\\u00e9" * 10_000 + '",}')
    assert json.loads(mended or "") == {"a": "é" * 10_000}
    assert [len(text) < 100 for text in seen] == [True]
