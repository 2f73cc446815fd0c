"""The mapping of tool names."""

from __future__ import annotations

import re
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from toolrelay.toolcalls.names import MAX_LENGTH, ToolNames

NAMES = st.lists(st.text(min_size=1, max_size=100), max_size=8, unique=True)


def test_valid_name_is_unchanged() -> None:
    assert ToolNames(["get_weather", "a-b"]).to_model("get_weather") == "get_weather"


def test_invalid_characters_are_replaced() -> None:
    names = ToolNames(["files.read", "großes Wetter"])
    assert names.to_model("files.read") == "files_read"
    assert names.to_client("files_read") == "files.read"
    assert re.fullmatch(r"[A-Za-z0-9_-]+", names.to_model("großes Wetter"))


def test_colliding_names_stay_distinct() -> None:  # bug 32
    names = ToolNames(["a.b", "a_b", "a/b"])
    assert names.to_model("a_b") == "a_b"
    assert len({names.to_model(name) for name in ("a.b", "a_b", "a/b")}) == 3


def test_reserved_name_is_changed() -> None:
    assert ToolNames(["python"]).to_model("python") != "python"


def test_name_in_the_history_only_is_made_valid() -> None:
    assert ToolNames([]).to_model("old.tool") == "old_tool"


@given(NAMES)
def test_mapping_is_valid_unique_and_reversible(given_names: list[str]) -> None:
    names = ToolNames(given_names)
    mapped = [names.to_model(name) for name in given_names]
    assert len(set(mapped)) == len(given_names)
    assert all(re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_LENGTH}}}", name) for name in mapped)
    assert [names.to_client(name) for name in mapped] == given_names
    assert [ToolNames(given_names).to_model(name) for name in given_names] == mapped


def test_name_that_equals_the_mapping_of_another_is_kept() -> None:
    given = ["a.b", "a_b", "a_b_" + sha256(b"a.b").hexdigest()[:8]]
    names = ToolNames(given)
    assert [names.to_client(names.to_model(name)) for name in given] == given
