"""Rails: built-in tools, allowed one by one and confined. test_patches covers the approval of patches."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.backends.codex.harness import SETTINGS, WEATHER, CodexHarness, error_of, fold, request
from tests.backends.codex.upstream import completed, frame, head, message
from toolrelay.backends.codex.rails import NO_RAILS, Rails, rails_from, requests_search
from toolrelay.backends.codex.request import plan_turn
from toolrelay.core.events import ItemReceived
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call as PastCall
from toolrelay.core.messages import Item, Message, OpaqueItem, Result
from toolrelay.core.request import OpaqueTool, Sampling, Tool
from toolrelay.errors import ConfigurationError

USER = Message(role="user", content="hi")
NOW = datetime(2026, 11, 16)  # noqa: DTZ001 -- Codex uses local time


# Configuration


def test_no_builtin_is_allowed_by_default() -> None:
    assert rails_from(SETTINGS) == NO_RAILS
    assert NO_RAILS.allowed_items([USER]) == frozenset()
    assert NO_RAILS.thread_params([USER]) == {}


def test_apply_patch_without_an_existing_directory_is_refused(tmp_path: Path) -> None:
    for folder in ("", str(tmp_path / "missing")):
        with pytest.raises(ConfigurationError, match=r"models\.mine\.rails_dir"):
            rails_from(replace(SETTINGS, rails=("apply_patch",), rails_dir=folder))


def test_each_rail_allows_its_own_item(tmp_path: Path) -> None:
    assert rails_from(replace(SETTINGS, rails=("apply_patch",), rails_dir=str(tmp_path))).allowed_items([USER]) == {"fileChange"}
    assert rails_from(replace(SETTINGS, rails=("web_search",))).allowed_items([USER]) == {"webSearch"}
    assert rails_from(replace(SETTINGS, rails=("web_search_asked",))).allowed_items(past("web_search")) == {"webSearch"}


# Patches


def patch(*paths: str, moved: str | None = None) -> JsonObject:
    kind: JsonObject = {"type": "update", "move_path": moved} if moved else {"type": "add"}
    return {"type": "fileChange", "id": "c1", "changes": [{"path": path, "kind": kind, "diff": ""} for path in paths]}


def patch_text(path: str) -> str:
    """Return the patch as the model writes it."""
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
def test_patch_within_the_directory_is_allowed(folder: Path, path: str) -> None:
    rails = Rails(patch_dir=str(folder))
    assert rails.allows_change(patch(path.format(folder)))
    assert rails.find_forbidden_path(patch_text(path.format(folder))) is None


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/x", "{0}/../x", "{0}/out/x", "{0}/link.txt", "{0}", "{0}-2/x", "../x", "", "a\0b", "{0}/deep/../../x", "round/x",
        ".git/config", "{0}/.git/hooks/pre-commit", "deep/.GIT", "repository/config", ".codex/config.toml", ".agents/x",
    ],
)  # fmt: skip
def test_patch_outside_or_of_protected_names_is_refused(folder: Path, path: str) -> None:
    rails, path = Rails(patch_dir=str(folder)), path.format(folder)
    assert not rails.allows_change(patch(path))
    assert not rails.allows_change(patch(f"{folder}/a.txt", path))
    assert not rails.allows_change(patch(f"{folder}/a.txt", moved=path or "/"))
    for file in ("Add File", "Delete File", "Update File", "Move to"):
        assert rails.find_forbidden_path(patch_text("a.txt") + f" *** {file}: {path} \r\n") == (path or None)


def test_patch_content_is_not_read_as_a_path(folder: Path) -> None:
    content = "+*** Add File: /tmp/x\n-*** Move to: /tmp/x\n+/tmp/x"
    assert Rails(patch_dir=str(folder)).find_forbidden_path(patch_text("a.txt") + content) is None


def test_hard_linked_file_is_refused(folder: Path) -> None:
    (folder.parent / "elsewhere.txt").write_text("x")
    (folder / "a.txt").hardlink_to(folder.parent / "elsewhere.txt")
    (folder / "b.txt").write_text("x")
    rails = Rails(patch_dir=str(folder))
    assert not rails.allows_change(patch("b.txt", "a.txt"))
    assert rails.allows_change(patch("b.txt"))


def test_directories_are_created_only_for_an_allowed_patch(folder: Path) -> None:
    rails = Rails(patch_dir=str(folder))
    assert not rails.allows_change(patch("new/a.txt", "/tmp/x"))
    assert not (folder / "new").exists()
    assert rails.allows_change(patch("new/er/a.txt"))
    assert (folder / "new" / "er").is_dir()
    (folder / "file").write_text("x")
    assert not rails.allows_change(patch("file/a.txt"))


def test_malformed_change_is_refused(folder: Path) -> None:
    rails = Rails(patch_dir=str(folder))
    odd: list[JsonObject] = [{}, {"changes": []}, {"changes": [1]}, {"changes": "x"}, {"changes": [{"kind": {"type": "add"}}]}]
    assert not any(map(rails.allows_change, odd))
    assert not NO_RAILS.allows_change(patch(f"{folder}/a.txt"))


def test_client_tool_named_apply_patch_is_renamed(folder: Path) -> None:
    plan = plan_turn(request(tools=(Tool(name="apply_patch"),)), rails=Rails(patch_dir=str(folder)))
    assert list(plan.offered) == ["client_apply_patch"]


# Searches


def past(name: str, *then: Item) -> list[Item]:
    return [USER, PastCall(id="a", name=name, arguments="{}"), Result(call_id="a", output="x"), *then]


SAID = Message(role="assistant", content="Well.")
PRINTED_CALL = Message(role="assistant", content="<use_tool>\n<name>webSearch</name>\n<query>x</query>\n</use_tool>")


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
        ([USER, PRINTED_CALL, USER], True),
        ([USER, PRINTED_CALL, USER, SAID, USER], False),
        ([USER, Message(role="assistant", content="I could do a webSearch."), USER], False),
    ],
)
def test_requested_search_is_allowed_only_after_a_search_call(items: list[Item], asks: bool) -> None:  # noqa: FBT001 -- a column of the table
    assert requests_search(items) is asks
    assert ("config" in Rails(allows_requested_search=True).thread_params(items)) is asks
    assert ("webSearch" in plan_turn(request(*items), rails=Rails(allows_requested_search=True)).allowed_items) is asks


def test_search_combines_with_verbosity_and_hosted_tool() -> None:
    hosted = OpaqueTool(wire="openai_responses", raw={"type": "web_search"})
    asked = request(tools=(hosted, WEATHER), sampling=Sampling(verbosity="low"))
    plan = plan_turn(asked, rails=Rails(allows_search=True))
    assert plan.thread["config"] == {"web_search": "live", "model_verbosity": "low"}
    assert list(plan.offered) == ["get_weather"]


# With the real binary


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}}
SEARCHES = (
    head() + frame({"type": "response.output_item.done", "output_index": 0, "item": SEARCH}) + message("Cats.") + completed(),
)


def test_allowed_search_is_passed_on_as_an_item(codex: CodexHarness) -> None:
    events = codex.ask(request(), SEARCHES, backend=codex.backend(rails=("web_search",)))
    assert codex.requests[0]["tools"][0]["type"] == "web_search"
    told, said = fold(events).items
    assert isinstance(told, OpaqueItem)
    assert (told.wire, told.raw) == ("openai_responses", SEARCH)
    assert isinstance(said, Message)


@pytest.mark.parametrize("rails", [(), ("web_search_asked",)])
def test_search_without_rails_or_request_fails_the_answer(codex: CodexHarness, rails: tuple[str, ...]) -> None:
    events = codex.ask(request(), SEARCHES, backend=codex.backend(rails=rails))
    assert error_of(events).code == "builtin_tool"
    assert not any(isinstance(event, ItemReceived) for event in events)
