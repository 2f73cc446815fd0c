"""`toolrelay approvals watch`: in a terminal, and as JSON lines."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.asking import NOTES, TIMEOUT_SECONDS, AskingGateway, Terminal, asking
from tests.cli.commands import PROGRAM

IDLE = "No question is open. Waiting for the next one; Ctrl-C ends.\n"
CHANGED = "this is another one. Enter goes on > "
PROMPT = "[r]emember: no > "
EVIL = "\x1b[2J\x9b31m[bold]\u202egnp.md\u2066\x07"
Watch = Callable[..., Terminal]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskingGateway]:
    with asking(tmp_path_factory.mktemp("asking")) as found:
        yield found


@pytest.fixture
def gateway(shared: AskingGateway) -> Iterator[AskingGateway]:
    yield shared
    shared.clean()


@pytest.fixture
def watch(gateway: AskingGateway) -> Iterator[Watch]:
    terminals: list[Terminal] = []

    def watch(**environ: str) -> Terminal:
        terminals.append(Terminal("approvals", "watch", *gateway.options, environ=environ))
        return terminals[-1]

    yield watch
    for terminal in terminals:
        with terminal:
            assert gateway.token not in terminal.output
            assert "Traceback" not in terminal.output


def test_question_is_shown_and_allowed(watch: Watch, gateway: AskingGateway) -> None:
    terminal = watch()
    terminal.expect(IDLE)
    _, answer = gateway.ask()
    terminal.expect("Run get_weather?\n")
    terminal.expect("fast (compatible) will see the result of this call.")
    assert "[p]ick" not in terminal.expect(PROMPT)
    terminal.send("a\n")
    terminal.expect('Allowed: get_weather {"city": "Rome"}.\n')
    terminal.expect(IDLE)
    assert answer.result(TIMEOUT_SECONDS) == "18 degrees in Rome"


def test_open_questions_come_first_one_at_a_time(watch: Watch, gateway: AskingGateway) -> None:
    answers = [gateway.ask(arguments={"city": city})[1] for city in ("Rome", "Oslo")]
    terminal = watch()
    assert "Oslo" not in terminal.expect(PROMPT)
    terminal.send("allow\n")
    terminal.expect("Oslo")
    terminal.expect(PROMPT)
    terminal.send("a\n")
    terminal.expect(IDLE)
    assert [answer.result(TIMEOUT_SECONDS)[-4:] for answer in answers] == ["Rome", "Oslo"]


def test_denial_asks_for_the_reason(watch: Watch, gateway: AskingGateway) -> None:
    _, answer = gateway.ask()
    terminal = watch()
    terminal.expect(PROMPT)
    terminal.send("d\n")
    terminal.expect("Reason, which the model is told (Enter: none) > ")
    terminal.send("too warm – ß\n")
    terminal.expect('Denied: get_weather {"city": "Rome"}. Reason: too warm – ß\n')
    assert "Reason: too warm – ß" in answer.result(TIMEOUT_SECONDS)


def test_wrong_letter_asks_again(watch: Watch, gateway: AskingGateway) -> None:
    gateway.ask()
    terminal = watch()
    for typed in ("", "x", "p", "al", "\x01"):
        terminal.expect(PROMPT)
        terminal.send(f"{typed}\n")
        terminal.expect("Type one of the letters in brackets.\n")
    assert len(gateway.pending()) == 1


def test_skipped_question_stays_open(watch: Watch, gateway: AskingGateway) -> None:
    question, answer = gateway.ask()
    terminal = watch()
    terminal.expect(PROMPT)
    terminal.send("s\n")
    terminal.expect("1 skipped, no other question is open. Waiting for the next one; Ctrl-C ends.\n")
    gateway.answer(question, verdict="allow")
    terminal.expect('get_weather {"city": "Rome"} is allowed by local.\n')
    answer.result(TIMEOUT_SECONDS)


def test_files_are_picked_from_a_numbered_list(watch: Watch, gateway: AskingGateway) -> None:
    _, answer = gateway.ask("read_notes", NOTES)
    terminal = watch()
    assert "[p]ick files" in terminal.expect(PROMPT)
    terminal.send("p\n")
    ask = "[a]llow those with x, [b]ack > "
    listed = terminal.expect(ask)
    assert re.search(r"1 \[x\] +Trips/Rome\.md +1\.2 KB .*\n +2 \[x\] +Trips/Oslo\.md .*\n +3 \[x\] +Diary\.md ", listed)
    for typed, marks in (("0", "   "), ("1-3", "xxx"), ("2", "x x"), ("4", "x x"), ("3-1", "x x"), ("*", "xxx"), ("1, 3", " x ")):
        terminal.send(f"{typed}\n")
        assert re.findall(r"\d \[(.)\]", terminal.expect(ask)) == list(marks)
    terminal.send("a\n")
    terminal.expect("Allowed with other arguments: read_notes ")
    assert json.loads(answer.result(TIMEOUT_SECONDS))["result"] == "read Trips/Oslo.md"


def test_no_file_is_no_answer(watch: Watch, gateway: AskingGateway) -> None:
    gateway.ask("read_notes", NOTES)
    terminal = watch()
    terminal.expect(PROMPT)
    for typed, expected in (("p", "]ack > "), ("0", "]ack > "), ("a", "No file is ticked."), ("b", PROMPT)):
        terminal.send(f"{typed}\n")
        terminal.expect(expected)
    assert len(gateway.pending()) == 1


def test_answer_is_remembered(watch: Watch, gateway: AskingGateway) -> None:
    _, answer = gateway.ask()
    terminal = watch()
    terminal.expect(PROMPT)
    terminal.send("r\n")
    terminal.expect("[o]nce, this [c]onversation, [a]lways > ")
    terminal.send("a\n")
    terminal.expect("For [a]ny arguments, or only the [s]ame > ")
    terminal.send("s\n")
    terminal.expect("[r]emember: always, the same arguments > ")
    terminal.send("a\n")
    terminal.expect("Remembered for always, with the same arguments: toolrelay approvals rules\n")
    answer.result(TIMEOUT_SECONDS)
    assert [rule["arguments"] for rule in gateway.rules()] == [{"city": "Rome"}]


def test_arguments_are_edited_until_they_are_right(watch: Watch, gateway: AskingGateway, tmp_path: Path) -> None:
    texts = ['{"city": 1}', "{", '{"city": "Oslo"}']
    (tmp_path / "texts").write_text(json.dumps(texts))
    (tmp_path / "editor.py").write_text(
        f"import json, sys\nfile = {str(tmp_path / 'texts')!r}\nfirst, *rest = json.load(open(file))\n"
        "json.dump(rest, open(file, 'w'))\nopen(sys.argv[1], 'w').write(first)\n"
    )
    _, answer = gateway.ask()
    terminal = watch(VISUAL=f"{sys.executable} {tmp_path / 'editor.py'}")
    terminal.expect(PROMPT)
    terminal.send("e\n")
    terminal.expect("These arguments cannot be approved: ")
    terminal.expect("Enter edits again, [c]ancels > ")
    terminal.send("c\n")
    terminal.expect("Nothing was answered.\n")
    terminal.expect(PROMPT)
    terminal.send("e\n")
    terminal.expect("The arguments cannot be used: this is not JSON: ")
    terminal.expect("Enter edits again, [c]ancels > ")
    terminal.send("\n")
    terminal.expect('Allowed with other arguments: get_weather {"city": "Oslo"}.\n')
    assert json.loads(answer.result(TIMEOUT_SECONDS))["result"] == "18 degrees in Oslo"


def test_unchanged_arguments_are_confirmed(watch: Watch, gateway: AskingGateway) -> None:
    _, answer = gateway.ask()
    terminal = watch(VISUAL="true")
    confirm = "The arguments are unchanged. Allow the call as it is? [y/N] > "
    for typed, expected in (("", "Nothing was answered.\n"), ("y", "Allowed: ")):
        terminal.expect(PROMPT)
        terminal.send("e\n")
        terminal.expect(confirm)
        terminal.send(f"{typed}\n")
        terminal.expect(expected)
    answer.result(TIMEOUT_SECONDS)


def test_question_answered_elsewhere_is_left(watch: Watch, gateway: AskingGateway) -> None:
    first, _ = gateway.ask()
    gateway.ask(arguments={"city": "Oslo"})
    terminal = watch()
    terminal.expect(PROMPT)
    terminal.send("a")  # without Enter: it must not count for the next question
    gateway.answer(first, verdict="deny", reason="me first")
    terminal.expect('get_weather {"city": "Rome"} is denied by local: me first.\n')
    terminal.expect("Oslo")
    terminal.expect(CHANGED)
    terminal.send("a\n")  # meant for the first question, a moment too late
    terminal.expect(PROMPT)
    assert [question["arguments"] for question in gateway.pending()] == [{"city": "Oslo"}]
    terminal.send("a\n")
    terminal.expect('Allowed: get_weather {"city": "Oslo"}.\n')


def test_answer_that_comes_second_says_who_was_first(watch: Watch, gateway: AskingGateway, tmp_path: Path) -> None:
    question, answer = gateway.ask()
    (tmp_path / "editor.py").write_text(
        "import httpx, sys\nopen(sys.argv[1], 'w').write('{\"city\": \"Oslo\"}')\n"
        f"httpx.post('{gateway.gateway.url}/approvals/{question}', json={{'verdict': 'allow'}}, timeout=60,"
        f" headers={{'authorization': 'Bearer {gateway.token}'}}).raise_for_status()\n"
    )
    terminal = watch(VISUAL=f"{sys.executable} {tmp_path / 'editor.py'}")
    terminal.expect(PROMPT)
    terminal.send("e\n")
    terminal.expect(f"The question '{question}' is allowed by local already.\n")
    terminal.expect(IDLE)
    assert answer.result(TIMEOUT_SECONDS) == "18 degrees in Rome"


def test_expired_question_is_left(watch: Watch, gateway: AskingGateway) -> None:
    terminal = watch()
    terminal.expect(IDLE)
    answer = gateway.call("get_weather", {"city": "Rome"}, model="brief")
    terminal.expect('get_weather {"city": "Rome"} is expired.\n')
    terminal.expect(IDLE)
    assert "Nobody answered" in answer.result(TIMEOUT_SECONDS)


def test_withdrawn_question_is_left(watch: Watch, gateway: AskingGateway) -> None:
    terminal = watch()
    terminal.expect(IDLE)
    body = {"model": "fast", "messages": [{"role": "user", "content": json.dumps([("get_weather", {"city": "Rome"})])}]}
    leaving = f"import httpx; httpx.post({gateway.gateway.v1 + '/chat/completions'!r}, json={body!r}, timeout=60)"
    with subprocess.Popen([sys.executable, "-c", leaving]) as client:
        terminal.expect(PROMPT)
        client.kill()
    terminal.expect('get_weather {"city": "Rome"} is withdrawn.\n')
    terminal.expect(IDLE)


def test_hostile_question_cannot_control_the_terminal(watch: Watch, gateway: AskingGateway) -> None:
    _, answer = gateway.ask("odd", {"paths": [EVIL, "b.md"]})
    terminal = watch()
    terminal.expect(PROMPT)
    for typed, expected in (("v", PROMPT), ("p", "]ack > "), ("2", "]ack > "), ("a", IDLE)):
        terminal.send(f"{typed}\n")
        terminal.expect(expected)
    assert [hex(ord(each)) for each in terminal.output if not (each.isprintable() or each == "\n")] == []
    assert json.loads(answer.result(TIMEOUT_SECONDS))["ran_with"] == {"paths": [EVIL]}


def test_long_arguments_are_cut_until_all_is_wanted(watch: Watch, gateway: AskingGateway) -> None:
    gateway.ask("read_notes", {"paths": ["a.md"], "tags": [f"tag{number}." for number in range(200)]})
    terminal = watch()
    shown = terminal.expect(PROMPT)
    assert "more lines" in shown
    assert "tag199." not in shown
    terminal.send("v\n")
    assert "tag199." in terminal.expect(PROMPT)


@pytest.mark.parametrize("is_asking", [True, False])
def test_ctrl_c_exits_with_130_without_traceback(watch: Watch, gateway: AskingGateway, *, is_asking: bool) -> None:
    if is_asking:
        gateway.ask()
    terminal = watch()
    terminal.expect(PROMPT if is_asking else IDLE)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130


def test_ctrl_d_ends_it(watch: Watch, gateway: AskingGateway) -> None:
    gateway.ask()
    terminal = watch()
    terminal.expect(PROMPT)
    terminal.send("\x04")
    assert terminal.end() == 0


def test_gateway_that_restarts_is_found_again(tmp_path: Path) -> None:
    with asking(tmp_path / "gateway") as first:
        port = first.gateway.port
        question = first.ask_stored()
        with Terminal("approvals", "watch", *first.options) as terminal:
            terminal.expect(PROMPT)
            first.gateway.process.kill()
            first.gateway.process.wait()
            terminal.expect("The connection to the gateway is lost. Trying again until it answers.\n")
            with asking(tmp_path / "gateway", port=port) as second:
                terminal.expect("Connected again.\n")
                terminal.expect(PROMPT)
                second.await_open(question)
                terminal.send("a\n")
                terminal.expect("Allowed: get_weather ")
                assert terminal.output.count("connection to the gateway is lost") == 1
                assert terminal.output.count("Run get_weather?") == 1
                other, answer = second.ask(arguments={"city": "Oslo"})
                terminal.expect("Oslo")
                second.answer(other, verdict="allow")
                answer.result(TIMEOUT_SECONDS)
                terminal.expect("is allowed by local.\n")


# JSON lines


def test_without_a_terminal_events_are_json_lines(gateway: AskingGateway) -> None:
    first, answer = gateway.ask()
    with subprocess.Popen([*PROGRAM, "approvals", "watch", *gateway.options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        received = [read(process)]
        second, other = gateway.ask("odd", {"paths": [EVIL]})
        received.append(read(process))
        gateway.answer(first, verdict="allow")
        gateway.answer(second, verdict="deny")
        received += [read(process), read(process)]
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_SECONDS) == 130
    events = [(each["event"], each["approval"]["id"], each["approval"]["status"]) for each in received]
    assert events == [
        ("asked", first, "pending"),
        ("asked", second, "pending"),
        ("answered", first, "allowed"),
        ("answered", second, "denied"),
    ]
    assert received[1]["approval"]["arguments"] == {"paths": [EVIL]}
    answer.result(TIMEOUT_SECONDS)
    other.result(TIMEOUT_SECONDS)


def read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.rstrip("\n").isprintable()
    return dict(json.loads(line))


def test_restart_is_reported_beside_the_json_lines(tmp_path: Path) -> None:
    with asking(tmp_path / "gateway") as first:
        port, options = first.gateway.port, first.options
        process = subprocess.Popen(
            [*PROGRAM, "approvals", "watch", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            first.ask()
            assert read(process)["event"] == "asked"
            first.gateway.process.kill()
            first.gateway.process.wait()
            assert process.stderr is not None
            assert process.stderr.readline().startswith("toolrelay: The connection to the gateway is lost.")
            with asking(tmp_path / "gateway", port=port) as second:
                assert read(process)["event"] == "withdrawn"  # a client of Chat went with the gateway
                assert process.stderr.readline() == "toolrelay: Connected again.\n"
                question, _ = second.ask()
                assert read(process)["approval"]["id"] == question
                second.clean()
        finally:
            process.kill()
            process.communicate()


def test_reader_that_leaves_ends_it_quietly(gateway: AskingGateway) -> None:
    reading, writing = os.pipe()
    question, answer = gateway.ask()
    with subprocess.Popen(
        [*PROGRAM, "approvals", "watch", *gateway.options], stdout=writing, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        gateway.answer(question, verdict="allow")
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert err == ""
    answer.result(TIMEOUT_SECONDS)
