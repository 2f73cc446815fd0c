"""Rails: Codex's own tools, allowed one by one and confined. Patches are made in test_codex_patches."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.backends.codex.play import SETTINGS, WEATHER, Play, error_of, fold, request
from tests.backends.codex.upstream import completed, frame, head, message
from toolrelay.backends.codex.rails import NO_RAILS, Rails, asks_for_search, rails_of
from toolrelay.backends.codex.request import plan_for
from toolrelay.core.events import ItemReceived
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call as PastCall
from toolrelay.core.messages import Item, Message, OpaqueItem, Result
from toolrelay.core.request import OpaqueTool, Sampling, Tool
from toolrelay.errors import ConfigurationError

USER = Message(role="user", content="hi")
NOW = datetime(2026, 11, 16)  # noqa: DTZ001 -- Codex speaks local time


# What the configuration says


def test_nothing_is_allowed_by_default() -> None:
    assert rails_of(SETTINGS) == NO_RAILS
    assert NO_RAILS.kinds([USER]) == frozenset()
    assert NO_RAILS.thread([USER]) == {}


def test_apply_patch_without_an_existing_directory_is_refused(tmp_path: Path) -> None:
    for folder in ("", str(tmp_path / "missing")):
        with pytest.raises(ConfigurationError, match=r"models\.mine\.rails_dir"):
            rails_of(replace(SETTINGS, rails=("apply_patch",), rails_dir=folder))


def test_each_rail_allows_its_own_kind(tmp_path: Path) -> None:
    assert rails_of(replace(SETTINGS, rails=("apply_patch",), rails_dir=str(tmp_path))).kinds([USER]) == {"fileChange"}
    assert rails_of(replace(SETTINGS, rails=("web_search",))).kinds([USER]) == {"webSearch"}
    assert rails_of(replace(SETTINGS, rails=("web_search_asked",))).kinds(past("web_search")) == {"webSearch"}


# Patches


def patch(*paths: str, moved: str | None = None) -> JsonObject:
    kind: JsonObject = {"type": "update", "move_path": moved} if moved else {"type": "add"}
    return {"type": "fileChange", "id": "c1", "changes": [{"path": path, "kind": kind, "diff": ""} for path in paths]}


def words(path: str) -> str:
    """The same as the model writes it."""
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n-x\n+y\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "out").symlink_to(tmp_path)
    (folder / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
    (folder / "round").symlink_to(folder / "round")
    (folder / ".git").mkdir()
    (folder / "repository").symlink_to(folder / ".git")
    return folder


@pytest.mark.parametrize("path", ["{0}/a.txt", "{0}/deep/new/b.txt", "a.txt", "{0}/deep/../a.txt", ".gitignore", "hooks/a.ts"])
def test_a_patch_within_the_directory_is_allowed(folder: Path, path: str) -> None:
    rails = Rails(patch_dir=str(folder))
    assert rails.admits(patch(path.format(folder)))
    assert rails.stray(words(path.format(folder))) is None


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/x", "{0}/../x", "{0}/out/x", "{0}/link.txt", "{0}", "{0}-2/x", "../x", "", "a\0b", "{0}/deep/../../x", "round/x",
        ".git/config", "{0}/.git/hooks/pre-commit", "deep/.GIT", "repository/config", ".codex/config.toml", ".agents/x",
    ],
)  # fmt: skip
def test_a_patch_that_leads_out_of_it_or_to_what_programs_obey_is_not(folder: Path, path: str) -> None:
    rails, path = Rails(patch_dir=str(folder)), path.format(folder)
    assert not rails.admits(patch(path))
    assert not rails.admits(patch(f"{folder}/a.txt", path))
    assert not rails.admits(patch(f"{folder}/a.txt", moved=path or "/"))
    for file in ("Add File", "Delete File", "Update File", "Move to"):
        assert rails.stray(words("a.txt") + f" *** {file}: {path} \r\n") == (path or None)


def test_what_a_patch_holds_is_no_path(folder: Path) -> None:
    assert Rails(patch_dir=str(folder)).stray(words("a.txt") + "+*** Add File: /tmp/x\n-*** Move to: /tmp/x\n+/tmp/x") is None


def test_a_file_that_has_another_name_elsewhere_is_not_patched(folder: Path) -> None:
    (folder.parent / "elsewhere.txt").write_text("x")
    (folder / "a.txt").hardlink_to(folder.parent / "elsewhere.txt")
    (folder / "b.txt").write_text("x")
    rails = Rails(patch_dir=str(folder))
    assert not rails.admits(patch("b.txt", "a.txt"))
    assert rails.admits(patch("b.txt"))


def test_a_directory_is_made_only_for_a_patch_that_is_allowed(folder: Path) -> None:
    rails = Rails(patch_dir=str(folder))
    assert not rails.admits(patch("new/a.txt", "/tmp/x"))
    assert not (folder / "new").exists()
    assert rails.admits(patch("new/er/a.txt"))
    assert (folder / "new" / "er").is_dir()
    (folder / "file").write_text("x")
    assert not rails.admits(patch("file/a.txt"))


def test_what_is_not_understood_is_not_allowed(folder: Path) -> None:
    rails = Rails(patch_dir=str(folder))
    odd: list[JsonObject] = [{}, {"changes": []}, {"changes": [1]}, {"changes": "x"}, {"changes": [{"kind": {"type": "add"}}]}]
    assert not any(map(rails.admits, odd))
    assert not NO_RAILS.admits(patch(f"{folder}/a.txt"))


def test_a_clients_own_tool_of_that_name_gets_another(folder: Path) -> None:
    plan = plan_for(request(tools=(Tool(name="apply_patch"),)), rails=Rails(patch_dir=str(folder)))
    assert list(plan.offered) == ["client_apply_patch"]


# Searches


def past(name: str, *then: Item) -> list[Item]:
    return [USER, PastCall(id="a", name=name, arguments="{}"), Result(call_id="a", output="x"), *then]


SAID = Message(role="assistant", content="Well.")
PRINTED = Message(role="assistant", content="<use_tool>\n<name>webSearch</name>\n<query>x</query>\n</use_tool>")


@pytest.mark.parametrize(
    ("items", "asks"),
    [
        ([USER], False),
        (past("webSearch"), True),
        (past("web_search"), True),
        (past("internet-search"), True),
        (past("searchNotes"), False),
        (past("webSearch", SAID, USER), False),
        (past("webSearch", USER, PastCall(id="b", name="get_time", arguments="{}"), Result(call_id="b", output="x")), False),
        ([USER, PRINTED, USER], True),
        ([USER, PRINTED, USER, SAID, USER], False),
        ([USER, Message(role="assistant", content="I could do a webSearch."), USER], False),
    ],
)
def test_a_search_may_be_limited_to_turns_whose_predecessor_asked_for_one(items: list[Item], asks: bool) -> None:  # noqa: FBT001 -- a column of the table
    assert asks_for_search(items) is asks
    assert ("config" in Rails(searches_when_asked=True).thread(items)) is asks
    assert ("webSearch" in plan_for(request(*items), rails=Rails(searches_when_asked=True)).own_work) is asks


def test_a_search_goes_with_verbosity_and_with_the_providers_own_tool() -> None:
    hosted = OpaqueTool(wire="openai_responses", raw={"type": "web_search"})
    asked = request(tools=(hosted, WEATHER), sampling=Sampling(verbosity="low"))
    plan = plan_for(asked, rails=Rails(searches=True))
    assert plan.thread["config"] == {"web_search": "live", "model_verbosity": "low"}
    assert list(plan.offered) == ["get_weather"]


# The real binary


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}}
SEARCHES = (
    head() + frame({"type": "response.output_item.done", "output_index": 0, "item": SEARCH}) + message("Cats.") + completed(),
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    play = Play(tmp_path_factory.mktemp("codex"))
    yield play
    play.close()


def test_a_search_on_rails_is_the_providers_and_is_told(plain: Play) -> None:
    events = plain.ask(request(), SEARCHES, backend=plain.backend(rails=("web_search",)))
    assert plain.requests[0]["tools"][0]["type"] == "web_search"
    told, said = fold(events).items
    assert isinstance(told, OpaqueItem)
    assert (told.wire, told.raw) == ("openai_responses", SEARCH)
    assert isinstance(said, Message)


@pytest.mark.parametrize("rails", [(), ("web_search_asked",)])
def test_a_search_without_rails_or_unasked_ends_the_answer(plain: Play, rails: tuple[str, ...]) -> None:
    events = plain.ask(request(), SEARCHES, backend=plain.backend(rails=rails))
    assert error_of(events).code == "builtin_tool"
    assert not any(isinstance(event, ItemReceived) for event in events)
