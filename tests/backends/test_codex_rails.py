"""Rails: Codex's own tools, allowed one by one and confined. The last tests run the real binary."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.backends.codex_play import SETTINGS, WEATHER, Play, ending, fold, request, text
from tests.backends.codex_upstream import Call, calls, completed, frame, head, message, says
from toolrelay.backends._codex_history import plan_for
from toolrelay.backends._codex_rails import NO_RAILS, Rails, asks_for_search, rails_of
from toolrelay.backends._codex_rpc import Notification, ServerRequest
from toolrelay.backends._codex_turn import CodexTurn, Manner
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
    assert NO_RAILS.kinds == frozenset()
    assert NO_RAILS.thread([USER]) == {}


def test_what_is_no_rail_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"models\.mine\.rails: .*'shell'"):
        rails_of(replace(SETTINGS, rails=("shell",)))
    for folder in ("", str(tmp_path / "missing")):
        with pytest.raises(ConfigurationError, match=r"models\.mine\.rails_dir"):
            rails_of(replace(SETTINGS, rails=("apply_patch",), rails_dir=folder))


def test_each_rail_allows_its_own_kind(tmp_path: Path) -> None:
    assert rails_of(replace(SETTINGS, rails=("apply_patch",), rails_dir=str(tmp_path))).kinds == {"fileChange"}
    assert rails_of(replace(SETTINGS, rails=("web_search",))).kinds == {"webSearch"}
    assert rails_of(replace(SETTINGS, rails=("web_search_asked",))).kinds == {"webSearch"}


# Patches


def patch(*paths: str, moved: str | None = None) -> JsonObject:
    kind: JsonObject = {"type": "update", "move_path": moved} if moved else {"type": "add"}
    return {"type": "fileChange", "id": "c1", "changes": [{"path": path, "kind": kind, "diff": ""} for path in paths]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "out").symlink_to(tmp_path)
    (folder / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
    return folder


@pytest.mark.parametrize("path", ["{0}/a.txt", "{0}/deep/new/b.txt", "a.txt", "{0}/deep/../a.txt"])
def test_a_patch_within_the_directory_is_allowed(folder: Path, path: str) -> None:
    assert Rails(patch_dir=str(folder)).allows(patch(path.format(folder)))


@pytest.mark.parametrize(
    "path", ["/tmp/x", "{0}/../x", "{0}/out/x", "{0}/link.txt", "{0}", "{0}-2/x", "../x", "", "a\0b", "{0}/deep/../../x"]
)
def test_a_patch_that_leads_out_of_it_is_not(folder: Path, path: str) -> None:
    rails = Rails(patch_dir=str(folder))
    assert not rails.allows(patch(path.format(folder)))
    assert not rails.allows(patch(f"{folder}/a.txt", path.format(folder)))
    assert not rails.allows(patch(f"{folder}/a.txt", moved=path.format(folder) or "/"))


def test_what_is_not_understood_is_not_allowed(folder: Path) -> None:
    rails = Rails(patch_dir=str(folder))
    odd: list[JsonObject] = [{}, {"changes": []}, {"changes": [1]}, {"changes": "x"}, {"changes": [{"kind": {"type": "add"}}]}]
    assert not any(map(rails.allows, odd))
    assert not NO_RAILS.allows(patch(f"{folder}/a.txt"))


def told(method: str, **params: Any) -> Notification:
    return Notification(method, {"turnId": "t", **params})


def test_a_request_to_patch_is_answered_by_the_rails(folder: Path) -> None:
    rails = Rails(patch_dir=str(folder))
    for path, decision in ((f"{folder}/a.txt", "accept"), ("/tmp/x", "decline")):
        manner = Manner(rails=rails.kinds, allows=rails.allows)
        turn = CodexTurn(plan_for(request(), rails=rails), "t", manner=manner, now=NOW)
        asked = ServerRequest(0, "item/fileChange/requestApproval", {"turnId": "t", "itemId": "c1"})
        turn.hear([told("item/started", item=patch(path)), asked])
        assert turn.answers == [(asked, {"decision": decision})]
        assert not turn.over


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


def test_a_search_goes_with_verbosity_and_with_the_providers_own_tool() -> None:
    hosted = OpaqueTool(wire="openai_responses", raw={"type": "web_search"})
    asked = request(tools=(hosted, WEATHER), sampling=Sampling(verbosity="low"))
    plan = plan_for(asked, rails=Rails(searches=True))
    assert plan.thread["config"] == {"web_search": "live", "model_verbosity": "low"}
    assert list(plan.offered) == ["get_weather"]


# The real binary


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    play = Play(tmp_path_factory.mktemp("codex"))
    yield play
    play.close()


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """Its catalog offers patches, as that of a model on rails does."""
    play = Play(tmp_path_factory.mktemp("codex"), patches=True)
    yield play
    play.close()


def patching(path: str) -> Call:
    return Call(
        "apply_patch", {"input": f"*** Begin Patch\n*** Add File: {path}\n+hello\n*** End Patch\n"}, kind="custom_tool_call"
    )


def test_a_patch_on_rails_is_written_and_the_model_goes_on(play: Play, folder: Path) -> None:
    backend = play.backend(rails=("apply_patch",), rails_dir=str(folder))
    events = play.ask(request(tools=(WEATHER,)), calls(patching("deep/new.txt")), says("Done."), backend=backend)
    assert (folder / "deep" / "new.txt").read_text() == "hello\n"
    assert (text(events), ending(events).finish) == ("Done.", "stop")
    assert [tool.get("name") for tool in play.requests[0]["tools"]] == ["apply_patch", "get_weather"]


@pytest.mark.parametrize("path", ["../escaped.txt", "out/escaped.txt", "{0}/escaped.txt"])
def test_a_patch_that_leaves_the_rails_is_refused_and_nothing_is_written(play: Play, folder: Path, path: str) -> None:
    backend = play.backend(rails=("apply_patch",), rails_dir=str(folder))
    script = calls(patching(path.format(folder.parent)))
    events = play.ask(request(), script, says("Well then."), backend=backend)
    assert text(events) == "Well then."
    assert "rejected" in str(play.requests[1]["input"][-1]["output"])
    assert not (folder.parent / "escaped.txt").exists()


@pytest.mark.parametrize(
    "command",
    [
        Call("exec_command", {"cmd": "touch {0}/hacked"}),
        Call("shell", {"command": ["touch", "{0}/hacked"]}),
        Call("shell_command", {"command": "touch {0}/hacked"}),
    ],
    ids=lambda call: call.name,
)
def test_commands_stay_impossible_on_rails(play: Play, folder: Path, command: Call) -> None:
    backend = play.backend(rails=("apply_patch",), rails_dir=str(folder))
    filled = {key: value.format(folder) if isinstance(value, str) else value for key, value in command.arguments.items()}
    events = play.ask(request(), calls(Call(command.name, filled)), says("Well then."), backend=backend)
    assert text(events) == "Well then."
    assert not (folder / "hacked").exists()


def test_a_search_on_rails_is_the_providers_and_is_told(plain: Play) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}}
    script = (
        head() + frame({"type": "response.output_item.done", "output_index": 0, "item": search}) + message("Cats.") + completed(),
    )
    events = plain.ask(request(), script, backend=plain.backend(rails=("web_search",)))
    assert plain.requests[0]["tools"][0]["type"] == "web_search"
    told, said = fold(events).items
    assert isinstance(told, OpaqueItem)
    assert (told.wire, told.raw) == ("openai_responses", search)
    assert isinstance(said, Message)


def test_a_search_without_rails_ends_the_answer(plain: Play) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}}
    script = (
        head() + frame({"type": "response.output_item.done", "output_index": 0, "item": search}) + message("Cats.") + completed(),
    )
    assert fold(plain.ask(request(), script)).error is not None
