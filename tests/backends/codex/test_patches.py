"""Patches on rails: when they are made. The last tests run the real binary."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.backends.codex.play import WEATHER, Play, ending, error_of, fold, request, text, told
from tests.backends.codex.upstream import Call, calls, head, says
from tests.upstream import Gate, seen
from toolrelay.backends.codex import CodexBackend
from toolrelay.backends.codex.decoder import CodexDecoder, DecoderOptions
from toolrelay.backends.codex.patches import APPROVAL, MOST_ROUNDS
from toolrelay.backends.codex.rails import Rails
from toolrelay.backends.codex.request import plan_for
from toolrelay.backends.codex.rpc import Notification, ServerRequest
from toolrelay.core.events import Noticed, StreamEvent

NOW = datetime(2026, 11, 16)  # noqa: DTZ001 -- Codex speaks local time
ADD = "*** Add File: {0}\n+hello"


def words(body: str) -> str:
    return f"*** Begin Patch\n{body}\n*** End Patch\n"


def rules(events: Sequence[StreamEvent]) -> list[str]:
    return [event.rule for event in events if isinstance(event, Noticed)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    return folder


# A turn, heard


def turn_in(folder: Path) -> CodexDecoder:
    rails = Rails(patch_dir=str(folder))
    plan = plan_for(request(tools=(WEATHER,)), rails=rails)
    return CodexDecoder(plan, "t", options=DecoderOptions(rails=rails), now=NOW)


def fed(turn: CodexDecoder, messages: list[Notification | ServerRequest]) -> list[StreamEvent]:
    return [*turn.feed(messages), *turn.answer_patches()]


def probed(turn: CodexDecoder) -> list[StreamEvent]:
    turn.probe()
    return turn.answer_patches()


def said(method: str, **params: Any) -> Notification:
    return Notification(method, {"turnId": "t", **params})


def raw_patch(path: str = "a.txt") -> Notification:
    item = {"type": "custom_tool_call", "call_id": "p", "name": "apply_patch", "input": words(ADD.format(path))}
    return said("rawResponseItem/completed", item=item)


def begun(path: str = "a.txt") -> Notification:
    changes = [{"path": path, "kind": {"type": "add"}, "diff": ""}]
    return said("item/started", item={"type": "fileChange", "id": "p", "changes": changes})


CALL = said("rawResponseItem/completed", item={"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"})
ASKED = ServerRequest(0, APPROVAL, {"turnId": "t", "itemId": "p"})
ENDED = said("rawResponse/completed", usage={})
ACCEPT, DECLINE = {"decision": "accept"}, {"decision": "decline"}


def test_a_patch_is_allowed_when_the_response_has_ended(folder: Path) -> None:
    turn = turn_in(folder)
    assert fed(turn, [raw_patch(), begun(), ASKED]) == []
    assert (turn.answers, turn.waits) == ([], True)
    assert rules(fed(turn, [ENDED])) == ["patch_allowed"]
    assert (turn.answers, turn.waits, turn.over) == ([(ASKED, ACCEPT)], False, False)


def test_one_that_is_asked_for_after_the_end_is_allowed_at_once(folder: Path) -> None:
    """Codex makes several patches of one response one after the other."""
    turn = turn_in(folder)
    assert rules(fed(turn, [raw_patch(), begun(), ENDED, ASKED])) == ["patch_allowed"]
    assert turn.answers == [(ASKED, ACCEPT)]


@pytest.mark.parametrize("change", [[], [begun("/tmp/x")]], ids=["unknown", "another path than the model wrote"])
def test_what_the_rails_do_not_allow_is_declined(folder: Path, change: list[Notification]) -> None:
    turn = turn_in(folder)
    assert rules(fed(turn, [raw_patch(), *change, ASKED, ENDED])) == ["patch_refused"]
    assert turn.answers == [(ASKED, DECLINE)]


@pytest.mark.parametrize("made", [[raw_patch(), begun(), ASKED, CALL], [CALL, raw_patch()]], ids=["before", "after"])
def test_a_patch_beside_a_call_of_the_clients_is_not_made_and_the_log_says_so(
    folder: Path, made: list[Notification | ServerRequest]
) -> None:
    turn = turn_in(folder)
    assert rules(fed(turn, [*made, ENDED])) == ["patch_beside_calls", "end_of_calls"]
    assert (turn.answers, turn.over) == ([], True)


def test_a_long_silence_is_no_reason_to_decline(folder: Path) -> None:
    turn = turn_in(folder)
    fed(turn, [raw_patch(), begun(), ASKED])
    assert rules(probed(turn)) == ["patch_allowed"]
    assert turn.answers == [(ASKED, ACCEPT)]


def test_a_call_after_a_long_silence_does_not_deny_what_was_allowed(folder: Path) -> None:
    turn = turn_in(folder)
    fed(turn, [raw_patch(), begun(), ASKED])
    turn.probe()
    assert rules(fed(turn, [CALL, ENDED])) == ["end_of_calls"]


def test_what_was_asked_for_before_a_call_is_declined_when_the_silence_after_it_is_long(folder: Path) -> None:
    turn = turn_in(folder)
    fed(turn, [raw_patch(), begun(), ASKED, CALL])
    assert rules(probed(turn)) == ["patch_refused"]
    assert turn.answers == [(ASKED, DECLINE)]


def test_patch_is_refused_once_the_output_is_discarded(folder: Path) -> None:
    turn = turn_in(folder)
    turn.feed([said("item/agentMessage/delta", itemId="m", delta="the END"), raw_patch(), begun(), ENDED, ASKED])
    turn.discard_output()
    assert rules(turn.answer_patches()) == ["patch_refused"]
    assert turn.answers == [(ASKED, DECLINE)]


def test_so_many_responses_with_patches_and_no_more(folder: Path) -> None:  # bug 47
    turn = turn_in(folder)
    for _ in range(MOST_ROUNDS):
        assert fed(turn, [raw_patch(), raw_patch(), ENDED]) == []
    assert error_of(fed(turn, [raw_patch()])).code == "too_many_rounds"


def test_an_answer_after_all_the_patches_is_heard(folder: Path) -> None:
    turn = turn_in(folder)
    fed(turn, [raw_patch(), ENDED] * MOST_ROUNDS)
    done = Notification("turn/completed", {"turn": {"id": "t", "status": "completed"}})
    events = fed(turn, [said("item/agentMessage/delta", itemId="m", delta="Done."), ENDED, done])
    assert (text(events), ending(events).finish) == ("Done.", "stop")


# The real binary


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """Its catalog offers patches, as that of a model on rails does."""
    play = Play(tmp_path_factory.mktemp("codex"), patches=True)
    yield play
    play.close()


def patching(body: str) -> Call:
    return Call("apply_patch", {"input": words(body)}, kind="custom_tool_call")


def adding(path: str) -> Call:
    return patching(ADD.format(path))


def on_rails(play: Play, folder: Path) -> CodexBackend:
    return play.backend(rails=("apply_patch",), rails_dir=str(folder))


@pytest.mark.parametrize("path", ["new.txt", "made/for/it/new.txt"])
def test_a_patch_on_rails_is_written_and_the_model_goes_on(play: Play, folder: Path, path: str) -> None:
    script = calls(adding(path), adding("second.txt"))
    events = play.ask(request(tools=(WEATHER,)), script, says("Done."), backend=on_rails(play, folder))
    assert (folder / path).read_text() == (folder / "second.txt").read_text() == "hello\n"
    assert (text(events), ending(events).finish) == ("Done.", "stop")
    assert [tool.get("name") for tool in play.requests[0]["tools"]] == ["apply_patch", "get_weather"]


@pytest.mark.parametrize("path", ["../escaped.txt", "out/escaped.txt", "{0}/escaped.txt"])
def test_a_patch_that_leaves_the_rails_ends_the_turn_and_nothing_is_written(play: Play, folder: Path, path: str) -> None:
    path = path.format(folder.parent)
    error = error_of(play.ask(request(), calls(adding(path)), says("Well then."), backend=on_rails(play, folder)))
    assert (error.status, error.code) == (502, "patch_off_rails")
    assert path in error.message
    assert not (folder.parent / "escaped.txt").exists()


@pytest.mark.parametrize("guess", ["hunter1", "hunter2"])
def test_a_guess_at_a_file_elsewhere_is_answered_alike_whether_it_is_right_or_wrong(play: Play, folder: Path, guess: str) -> None:
    """Codex would tell the model `Failed to find expected lines` of the wrong one, and `rejected` of the right one."""
    (folder.parent / "secret").write_text("hunter2\n")
    body = f"*** Update File: ../secret\n@@\n-{guess}\n+x"
    events = play.ask(request(), calls(patching(body)), says("Now I know."), backend=on_rails(play, folder))
    assert error_of(events).code == "patch_off_rails"
    assert text(events) == ""


def test_a_patch_does_not_reach_what_git_would_run(play: Play, folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    before = (folder / ".git" / "config").read_text()
    body = "*** Add File: .git/config\n+[core]\n+\tfsmonitor = touch hacked"
    error = error_of(play.ask(request(), calls(patching(body)), says("ok"), backend=on_rails(play, folder)))
    assert error.code == "patch_off_rails"
    assert (folder / ".git" / "config").read_text() == before


@pytest.mark.parametrize("body", ["*** Update File: a.txt\n@@\n-nosuch\n+x", "no patch at all", "*** Add File: a.txt\n+x"])
def test_a_model_that_patches_without_end_is_stopped(play: Play, folder: Path, body: str) -> None:  # bug 47
    (folder / "a.txt").write_text("one\n")
    play.script(calls(patching(body)))
    error = error_of(play.run(asyncio.wait_for(told(on_rails(play, folder), request()), 30)))
    assert (error.status, error.code) == (502, "too_many_rounds")
    assert MOST_ROUNDS < len(play.requests) <= MOST_ROUNDS + 2


def test_a_patch_beside_a_call_is_not_half_made(play: Play, folder: Path) -> None:
    for made in ((adding("a.txt"), Call("get_weather", {"city": "Paris"})), (Call("get_weather"), adding("a.txt"))):
        events = play.ask(request(tools=(WEATHER,)), calls(*made), backend=on_rails(play, folder))
        assert [call.name for call in fold(events).calls] == ["get_weather"]
        assert "patch_beside_calls" in rules(events)
        assert "patch_allowed" not in rules(events)
    play.ask(request(), says("later"))
    assert not (folder / "a.txt").exists()


def test_a_turn_that_has_patched_is_not_tried_again(play: Play, folder: Path) -> None:
    play.script(calls(adding("a.txt")), (head(), Gate()), says("Hello"))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(told(on_rails(play, folder), request()))
        await seen(play.upstream.request(1))
        play.kill()
        return await asking

    assert error_of(play.run(main())).code == "upstream_cut"
    assert (folder / "a.txt").exists()
    assert len(play.requests) == 2


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
    filled = {key: value.format(folder) if isinstance(value, str) else value for key, value in command.arguments.items()}
    script = calls(Call(command.name, filled))
    events = play.ask(request(), script, says("Well then."), backend=on_rails(play, folder))
    assert text(events) == "Well then."
    assert not (folder / "hacked").exists()
