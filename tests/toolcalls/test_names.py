"""Tool names as models take them: mapped one to one, and back."""

from __future__ import annotations

import re
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from toolrelay.toolcalls.names import LONGEST, Names

NAMES = st.lists(st.text(min_size=1, max_size=100), max_size=8, unique=True)


def test_a_name_that_is_fit_stays() -> None:
    assert Names(["get_weather", "a-b"]).to_model("get_weather") == "get_weather"


def test_dotted_and_foreign_characters_are_replaced() -> None:
    names = Names(["files.read", "großes Wetter"])
    assert names.to_model("files.read") == "files_read"
    assert names.to_client("files_read") == "files.read"
    assert re.fullmatch(r"[A-Za-z0-9_-]+", names.to_model("großes Wetter"))


def test_names_that_would_collide_are_told_apart() -> None:  # bug 32
    names = Names(["a.b", "a_b", "a/b"])
    assert names.to_model("a_b") == "a_b"
    assert len({names.to_model(name) for name in ("a.b", "a_b", "a/b")}) == 3


def test_a_reserved_name_is_another_for_the_model() -> None:
    assert Names(["python"]).to_model("python") != "python"


def test_a_name_of_the_history_only_is_made_fit_too() -> None:
    assert Names([]).to_model("old.tool") == "old_tool"


@given(NAMES)
def test_every_name_is_fit_unique_and_finds_its_way_back(given_names: list[str]) -> None:
    names = Names(given_names)
    fit = [names.to_model(name) for name in given_names]
    assert len(set(fit)) == len(given_names)
    assert all(re.fullmatch(rf"[A-Za-z0-9_-]{{1,{LONGEST}}}", name) for name in fit)
    assert [names.to_client(name) for name in fit] == given_names
    assert [Names(given_names).to_model(name) for name in given_names] == fit


def test_a_name_that_looks_like_another_ones_mark_stays_its_own() -> None:
    given = ["a.b", "a_b", "a_b_" + sha256(b"a.b").hexdigest()[:8]]
    names = Names(given)
    assert [names.to_client(names.to_model(name)) for name in given] == given
