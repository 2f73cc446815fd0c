"""`toolrelay chat` with a question, in scripts and pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.asking import TIMEOUT_SECONDS, await_value
from tests.cli.chatting import EVIL, ChatGateway, chatting
from tests.cli.commands import PROGRAM, Result
from tests.cli.screen import Screen

CALL = json.dumps([("get_weather", {"city": "Rome"})])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatGateway]:
    with chatting(tmp_path_factory.mktemp("scripts")) as found:
        yield found


@pytest.fixture
def gateway(shared: ChatGateway) -> Iterator[ChatGateway]:
    yield shared
    shared.asked.clean()


def start(gateway: ChatGateway, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    """Start the command without a terminal."""
    return subprocess.Popen(
        [*PROGRAM, "chat", *gateway.options, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **gateway.environ, **environ},
    )


def run(gateway: ChatGateway, *arguments: str, given: str = "", **environ: str) -> Result:
    process = start(gateway, *arguments, **environ)
    out, err = process.communicate(given, timeout=TIMEOUT_SECONDS)
    return Result(process.returncode, out, err)


def last_message(gateway: ChatGateway) -> Any:
    return gateway.model.seen[-1][-1]["content"]


def test_answer_is_plain_text_on_standard_output(gateway: ChatGateway) -> None:
    code, out, err = run(gateway, "markdown")
    assert (code, err) == (0, "")
    assert out.startswith("# Title\n\nSome **bold** text.\n")
    assert out.endswith("The end.\n")


def test_pipe_follows_the_question(gateway: ChatGateway) -> None:
    assert run(gateway, "summarise", given="a\nb\n").out == "You said: summarise\n\na\nb\n"
    assert run(gateway, given="only this").out == "You said: only this\n"


def test_nothing_to_ask_is_an_error(gateway: ChatGateway) -> None:
    code, out, err = run(gateway)
    assert (code, out) == (2, "")
    assert err == 'toolrelay: There is no question. Give one: toolrelay chat "question".\n'


def test_json_has_text_usage_and_tools(gateway: ChatGateway) -> None:
    code, out, err = run(gateway, "--json", "--model", "home", CALL)
    found = json.loads(out)
    assert code == 0
    assert "denied" in err
    assert (found["status"], found["model"]) == ("completed", "home")
    assert found["usage"]["output_tokens"] == 6
    assert [tool["name"] for tool in found["tools"]] == ["get_weather"]
    assert "Nobody could be asked." in str(found["tools"][0]["error"])


def test_approval_without_a_terminal_is_denied_and_said(gateway: ChatGateway) -> None:
    code, out, err = run(gateway, CALL)
    assert code == 0
    assert err == (
        'toolrelay: denied, because nobody can be asked here: get_weather {"city": "Rome"}. '
        "--wait-for-approval waits for an answer elsewhere.\n"
    )
    assert "Nobody could be asked." in out


def test_approval_can_be_waited_for(gateway: ChatGateway) -> None:
    process = start(gateway, "--wait-for-approval", CALL)
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    question = await_value(lambda: next((each["id"] for each in gateway.asked.pending()), None))
    gateway.asked.answer(question, verdict="allow")
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert out == "18 degrees in Rome\n\n"
    assert "waiting for an approval of get_weather" in err


def test_approval_is_asked_at_the_terminal_behind_a_pipe(gateway: ChatGateway, tmp_path: Path) -> None:
    options = " ".join(gateway.options)
    with Screen(shell=f"echo '{CALL}' | $TOOLRELAY chat {options} > {tmp_path}/out", environ=gateway.environ) as screen:
        screen.expect("[r]emember: no >")
        screen.enter("a")
        screen.expect("Allowed: get_weather")
        assert screen.end() == 0
    assert (tmp_path / "out").read_text() == "18 degrees in Rome\n\n"


def test_question_at_a_terminal_prints_markdown_and_ends(gateway: ChatGateway) -> None:
    with gateway.chat("markdown") as screen:
        screen.expect("7 tokens in, 3 out")
        assert screen.end() == 0
        assert "**" not in screen.text


def test_failed_answer_exits_with_1(gateway: ChatGateway) -> None:
    code, out, err = run(gateway, "fail")
    assert (code, out) == (1, "")
    assert "refuses" in err
    assert "\x1b" not in err


def test_unknown_model_exits_with_2(gateway: ChatGateway) -> None:
    code, out, err = run(gateway, "--model", "nope", "hello")
    assert (code, out) == (2, "")
    assert err == "toolrelay: There is no model 'nope'. There are: fast, home, brief, demo.\n"


def test_control_characters_are_escaped_in_a_pipe_and_exact_in_json(gateway: ChatGateway) -> None:
    out = run(gateway, "evil").out
    assert [each for each in out if not (each.isprintable() or each == "\n")] == []
    raw = run(gateway, "--json", "evil").out
    assert raw.rstrip("\n").isprintable()
    assert json.loads(raw)["text"] == EVIL


def test_output_that_cannot_show_a_character_replaces_it(gateway: ChatGateway) -> None:
    assert run(gateway, given="5 €", PYTHONIOENCODING="ascii").out == "You said: 5 ?\n"


def test_ctrl_c_cancels_and_exits_with_130(gateway: ChatGateway) -> None:
    process = start(gateway, "wait for interruption")
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    gateway.model.gate("for interruption").reached.result(TIMEOUT_SECONDS)
    assert process.stdout is not None
    assert process.stdout.readline() == "Begun\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130
    assert "The answer was stopped." in err


def test_reader_that_leaves_ends_it_quietly(gateway: ChatGateway) -> None:
    options = " ".join(gateway.options)
    command = f"echo big | {' '.join(PROGRAM)} chat {options} | head -1"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env={**os.environ, **gateway.environ}, timeout=60, check=False
    )
    assert done.stdout.startswith("Paragraph 0: word")
    assert done.stderr == ""


def test_answer_of_a_megabyte_arrives_whole(gateway: ChatGateway) -> None:
    assert run(gateway, "big").out.rstrip("\n") == gateway.model.texts["big"].rstrip("\n")


def test_continue_goes_on_with_the_last_conversation(gateway: ChatGateway) -> None:
    with gateway.chat("the first") as screen:
        assert screen.end() == 0
    assert run(gateway, "--continue", "the second").code == 0
    assert [message["content"] for message in gateway.model.seen[-1]] == ["the first", "You said: the first", "the second"]


def test_unreachable_url_exits_with_2(gateway: ChatGateway) -> None:
    code, _, err = run(gateway, "--url", "http://127.0.0.1:1", "hello")
    assert (code, err) == (2, "toolrelay: No gateway answers at http://127.0.0.1:1.\n")


def test_gateway_killed_in_mid_answer_is_taken_up_again(tmp_path: Path) -> None:
    with chatting(tmp_path / "first") as first:
        port = first.asked.gateway.port
        process = start(first, CALL, "--wait-for-approval")
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        await_value(lambda: next((each["id"] for each in first.asked.pending()), None))
        first.asked.gateway.process.kill()
        first.asked.gateway.process.wait()
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("connection to the gateway is lost" in line for line in lines)
        with chatting(tmp_path / "first", port=port) as second:
            assert any("Connected again." in line for line in lines)
            question = second.asked.pending()[0]["id"]
            second.asked.await_open(question)
            reader = threading.Thread(target=lambda: list(lines))
            reader.start()
            second.asked.answer(question, verdict="allow")
            assert process.stdout is not None
            assert process.stdout.read() == "18 degrees in Rome\n\n"
            reader.join(TIMEOUT_SECONDS)
            assert process.wait(TIMEOUT_SECONDS) == 0
            process.stdout.close()
            process.stderr.close()
