"""Approval of patches on rails. The last tests run the real binary."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.backends.codex.harness import WEATHER, CodexHarness, collect, error_of, finish_of, fold, request, text
from tests.backends.codex.upstream import Call, calls, head, says
from tests.upstream import Gate, result_of
from toolrelay.backends.codex import CodexBackend
from toolrelay.backends.codex.decoder import CodexDecoder, DecoderOptions
from toolrelay.backends.codex.rails import MAX_PATCH_RESPONSES, PATCH_APPROVAL, Rails
from toolrelay.backends.codex.request import plan_turn
from toolrelay.backends.codex.rpc import Notification, ServerRequest
from toolrelay.core.events import Noticed, StreamEvent

NOW = datetime(2026, 11, 16)  # noqa: DTZ001 -- Codex uses local time
ADD = "*** Add File: {0}\n+hello"


def patch_text(body: str) -> str:
    return f"*** Begin Patch\n{body}\n*** End Patch\n"


def rules(events: Sequence[StreamEvent]) -> list[str]:
    return [event.rule for event in events if isinstance(event, Noticed)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    return folder


# With the decoder


def decoder_in(folder: Path) -> CodexDecoder:
    rails = Rails(patch_dir=str(folder))
    plan = plan_turn(request(tools=(WEATHER,)), rails=rails)
    return CodexDecoder(plan, "t", options=DecoderOptions(rails=rails), now=NOW)


def feed(turn: CodexDecoder, messages: list[Notification | ServerRequest]) -> list[StreamEvent]:
    return [*turn.feed(messages), *turn.answer_patches()]


def probe(turn: CodexDecoder) -> list[StreamEvent]:
    turn.probe()
    return turn.answer_patches()


def notification(method: str, **params: Any) -> Notification:
    return Notification(method, {"turnId": "t", **params})


def raw_patch(path: str = "a.txt") -> Notification:
    item = {"type": "custom_tool_call", "call_id": "p", "name": "apply_patch", "input": patch_text(ADD.format(path))}
    return notification("rawResponseItem/completed", item=item)


def change_started(path: str = "a.txt") -> Notification:
    changes = [{"path": path, "kind": {"type": "add"}, "diff": ""}]
    return notification("item/started", item={"type": "fileChange", "id": "p", "changes": changes})


CALL = notification(
    "rawResponseItem/completed", item={"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"}
)
ASKED = ServerRequest(0, PATCH_APPROVAL, {"turnId": "t", "itemId": "p"})
ENDED = notification("rawResponse/completed", usage={})
ACCEPT, DECLINE = {"decision": "accept"}, {"decision": "decline"}


def test_patch_is_accepted_when_the_response_ends(folder: Path) -> None:
    turn = decoder_in(folder)
    assert feed(turn, [raw_patch(), change_started(), ASKED]) == []
    assert (turn.answers, turn.is_waiting) == ([], True)
    assert rules(feed(turn, [ENDED])) == ["patch_allowed"]
    assert (turn.answers, turn.is_waiting, turn.is_finished) == ([(ASKED, ACCEPT)], False, False)


def test_patch_requested_after_the_response_is_accepted_at_once(folder: Path) -> None:
    """Codex applies the patches of one response one after the other."""
    turn = decoder_in(folder)
    assert rules(feed(turn, [raw_patch(), change_started(), ENDED, ASKED])) == ["patch_allowed"]
    assert turn.answers == [(ASKED, ACCEPT)]


@pytest.mark.parametrize("change", [[], [change_started("/tmp/x")]], ids=["unknown", "another path than the model wrote"])
def test_change_outside_of_the_rails_is_declined(folder: Path, change: list[Notification]) -> None:
    turn = decoder_in(folder)
    assert rules(feed(turn, [raw_patch(), *change, ASKED, ENDED])) == ["patch_refused"]
    assert turn.answers == [(ASKED, DECLINE)]


@pytest.mark.parametrize("made", [[raw_patch(), change_started(), ASKED, CALL], [CALL, raw_patch()]], ids=["before", "after"])
def test_patch_beside_a_client_call_is_not_made(folder: Path, made: list[Notification | ServerRequest]) -> None:
    turn = decoder_in(folder)
    assert rules(feed(turn, [*made, ENDED])) == ["patch_beside_calls", "end_of_calls"]
    assert (turn.answers, turn.is_finished) == ([], True)


def test_probe_accepts_a_waiting_patch(folder: Path) -> None:
    turn = decoder_in(folder)
    feed(turn, [raw_patch(), change_started(), ASKED])
    assert rules(probe(turn)) == ["patch_allowed"]
    assert turn.answers == [(ASKED, ACCEPT)]


def test_call_after_an_accepted_patch_is_not_reported(folder: Path) -> None:
    turn = decoder_in(folder)
    feed(turn, [raw_patch(), change_started(), ASKED])
    turn.probe()
    assert rules(feed(turn, [CALL, ENDED])) == ["end_of_calls"]


def test_probe_declines_a_patch_beside_a_call(folder: Path) -> None:
    turn = decoder_in(folder)
    feed(turn, [raw_patch(), change_started(), ASKED, CALL])
    assert rules(probe(turn)) == ["patch_refused"]
    assert turn.answers == [(ASKED, DECLINE)]


def test_patch_is_refused_once_the_output_is_discarded(folder: Path) -> None:
    turn = decoder_in(folder)
    turn.feed([notification("item/agentMessage/delta", itemId="m", delta="the END"), raw_patch(), change_started(), ENDED, ASKED])
    turn.discard_output()
    assert rules(turn.answer_patches()) == ["patch_refused"]
    assert turn.answers == [(ASKED, DECLINE)]


def test_too_many_responses_with_patches_fail_the_answer(folder: Path) -> None:  # bug 47
    turn = decoder_in(folder)
    for _ in range(MAX_PATCH_RESPONSES):
        assert feed(turn, [raw_patch(), raw_patch(), ENDED]) == []
    assert error_of(feed(turn, [raw_patch()])).code == "too_many_rounds"


def test_text_after_the_last_allowed_patch_is_emitted(folder: Path) -> None:
    turn = decoder_in(folder)
    feed(turn, [raw_patch(), ENDED] * MAX_PATCH_RESPONSES)
    done = Notification("turn/completed", {"turn": {"id": "t", "status": "completed"}})
    events = feed(turn, [notification("item/agentMessage/delta", itemId="m", delta="Done."), ENDED, done])
    assert (text(events), finish_of(events).finish) == ("Done.", "stop")


# With the real binary


@pytest.fixture(scope="module")
def codex(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodexHarness]:
    """A harness whose catalog offers patches."""
    codex = CodexHarness(tmp_path_factory.mktemp("codex"), allows_patches=True)
    yield codex
    codex.close()


def patch_call(body: str) -> Call:
    return Call("apply_patch", {"input": patch_text(body)}, kind="custom_tool_call")


def add_call(path: str) -> Call:
    return patch_call(ADD.format(path))


def on_rails(codex: CodexHarness, folder: Path) -> CodexBackend:
    return codex.backend(rails=("apply_patch",), rails_dir=str(folder))


@pytest.mark.parametrize("path", ["new.txt", "made/for/it/new.txt"])
def test_allowed_patch_is_written_and_the_turn_continues(codex: CodexHarness, folder: Path, path: str) -> None:
    script = calls(add_call(path), add_call("second.txt"))
    events = codex.ask(request(tools=(WEATHER,)), script, says("Done."), backend=on_rails(codex, folder))
    assert (folder / path).read_text() == (folder / "second.txt").read_text() == "hello\n"
    assert (text(events), finish_of(events).finish) == ("Done.", "stop")
    assert [tool.get("name") for tool in codex.requests[0]["tools"]] == ["apply_patch", "get_weather"]


@pytest.mark.parametrize("path", ["../escaped.txt", "out/escaped.txt", "{0}/escaped.txt"])
def test_forbidden_path_ends_the_turn_and_nothing_is_written(codex: CodexHarness, folder: Path, path: str) -> None:
    path = path.format(folder.parent)
    error = error_of(codex.ask(request(), calls(add_call(path)), says("Well then."), backend=on_rails(codex, folder)))
    assert (error.status, error.code) == (502, "patch_off_rails")
    assert path in error.message
    assert not (folder.parent / "escaped.txt").exists()


@pytest.mark.parametrize("guess", ["hunter1", "hunter2"])
def test_guess_at_a_forbidden_file_reveals_nothing(codex: CodexHarness, folder: Path, guess: str) -> None:
    """Codex would tell the model `Failed to find expected lines` of the wrong one, and `rejected` of the right one."""
    (folder.parent / "secret").write_text("hunter2\n")
    body = f"*** Update File: ../secret\n@@\n-{guess}\n+x"
    events = codex.ask(request(), calls(patch_call(body)), says("Now I know."), backend=on_rails(codex, folder))
    assert error_of(events).code == "patch_off_rails"
    assert text(events) == ""


def test_patch_of_git_configuration_is_refused(codex: CodexHarness, folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    before = (folder / ".git" / "config").read_text()
    body = "*** Add File: .git/config\n+[core]\n+\tfsmonitor = touch hacked"
    error = error_of(codex.ask(request(), calls(patch_call(body)), says("ok"), backend=on_rails(codex, folder)))
    assert error.code == "patch_off_rails"
    assert (folder / ".git" / "config").read_text() == before


@pytest.mark.parametrize("body", ["*** Update File: a.txt\n@@\n-nosuch\n+x", "no patch at all", "*** Add File: a.txt\n+x"])
def test_endless_patching_is_stopped(codex: CodexHarness, folder: Path, body: str) -> None:  # bug 47
    (folder / "a.txt").write_text("one\n")
    codex.script(calls(patch_call(body)))
    error = error_of(codex.run(asyncio.wait_for(collect(on_rails(codex, folder), request()), 30)))
    assert (error.status, error.code) == (502, "too_many_rounds")
    assert MAX_PATCH_RESPONSES < len(codex.requests) <= MAX_PATCH_RESPONSES + 2


def test_patch_beside_a_call_is_not_written(codex: CodexHarness, folder: Path) -> None:
    for made in ((add_call("a.txt"), Call("get_weather", {"city": "Paris"})), (Call("get_weather"), add_call("a.txt"))):
        events = codex.ask(request(tools=(WEATHER,)), calls(*made), backend=on_rails(codex, folder))
        assert [call.name for call in fold(events).calls] == ["get_weather"]
        assert "patch_beside_calls" in rules(events)
        assert "patch_allowed" not in rules(events)
    codex.ask(request(), says("later"))
    assert not (folder / "a.txt").exists()


def test_turn_with_a_patch_is_not_retried(codex: CodexHarness, folder: Path) -> None:
    codex.script(calls(add_call("a.txt")), (head(), Gate()), says("Hello"))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(collect(on_rails(codex, folder), request()))
        await result_of(codex.upstream.request(1))
        codex.kill()
        return await asking

    assert error_of(codex.run(main())).code == "upstream_cut"
    assert (folder / "a.txt").exists()
    assert len(codex.requests) == 2


@pytest.mark.parametrize(
    "command",
    [
        Call("exec_command", {"cmd": "touch {0}/hacked"}),
        Call("shell", {"command": ["touch", "{0}/hacked"]}),
        Call("shell_command", {"command": "touch {0}/hacked"}),
    ],
    ids=lambda call: call.name,
)
def test_commands_are_refused_on_rails(codex: CodexHarness, folder: Path, command: Call) -> None:
    filled = {key: value.format(folder) if isinstance(value, str) else value for key, value in command.arguments.items()}
    script = calls(Call(command.name, filled))
    events = codex.ask(request(), script, says("Well then."), backend=on_rails(codex, folder))
    assert text(events) == "Well then."
    assert not (folder / "hacked").exists()
