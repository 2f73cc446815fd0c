"""`toolrelay chat` at a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.asking import NOTES, await_value
from tests.cli.chatting import ChatGateway, chatting
from tests.cli.screen import Screen, controls

PASTE = "\x1b[200~{}\x1b[201~"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatGateway]:
    with chatting(tmp_path_factory.mktemp("chatting")) as found:
        yield found


@pytest.fixture
def gateway(shared: ChatGateway) -> Iterator[ChatGateway]:
    yield shared
    shared.asked.clean()


@pytest.fixture
def screen(gateway: ChatGateway) -> Iterator[Screen]:
    with gateway.chat() as found:
        found.expect_prompt()
        yield found
        assert gateway.asked.token not in found.raw
        assert "Traceback" not in found.raw


def calls(*made: tuple[str, object]) -> str:
    return json.dumps(made)


def test_answer_is_printed_as_markdown_with_usage_and_time(screen: Screen) -> None:
    screen.enter("markdown")
    screen.expect("7 tokens in, 3 out, ")
    assert "**" not in screen.text
    assert "```" not in screen.text
    for line in ("Title", "Some bold text.", " • one", "  def greet():", "      return 1", "The end."):
        assert re.search(rf"^{re.escape(line)}$", screen.text, re.MULTILINE), (line, screen.text)
    screen.expect_prompt()


def test_text_appears_while_the_model_still_answers(screen: Screen, gateway: ChatGateway) -> None:
    screen.enter("wait streaming")
    screen.expect("Begun\n\nand")
    screen.expect("Ctrl-C stops")
    gateway.model.gate("streaming").open()
    screen.expect("and done.")
    screen.expect("tokens in")
    assert screen.text.count("Begun") == 1
    assert "Ctrl-C stops" not in screen.text


def test_next_question_goes_on_with_the_conversation(screen: Screen, gateway: ChatGateway) -> None:
    for text in ("first", "second"):
        screen.enter(text)
        screen.expect(f"You said: {text}")
        screen.expect_prompt()
    assert [message["content"] for message in gateway.model.seen[-1]] == ["first", "You said: first", "second"]


@pytest.mark.parametrize("typed", ["one\\\rtwo", "one\x1b\rtwo", PASTE.format("one\ntwo")])
def test_several_lines_are_one_message(screen: Screen, gateway: ChatGateway, typed: str) -> None:
    screen.send(typed)
    screen.expect(". two")
    screen.enter("")
    screen.expect("You said: one two")  # Markdown joins lines
    assert gateway.model.seen[-1][-1]["content"] == "one\ntwo"


def test_ctrl_c_stops_the_answer_and_not_the_program(screen: Screen, gateway: ChatGateway) -> None:
    screen.enter("wait for ctrl-c")
    screen.expect("Begun")
    gateway.model.gate("for ctrl-c").reached.result(30)
    screen.send("\x03")
    screen.expect("Stopped.")
    screen.expect_prompt()
    screen.enter("again")
    screen.expect("You said: again")


def test_ctrl_c_clears_a_line_and_leaves_at_the_second_empty_one(screen: Screen) -> None:
    screen.send("something")
    screen.expect("> something")
    screen.send("\x03")
    screen.expect_prompt()
    screen.send("\x03")
    screen.expect("Ctrl-C again or Ctrl-D leaves.")
    screen.expect_prompt()
    screen.send("\x03")
    assert screen.end() == 0


@pytest.mark.parametrize("leave", ["\x04", "/quit\r"])
def test_ctrl_d_and_quit_leave(screen: Screen, leave: str) -> None:
    screen.send(leave)
    assert screen.end() == 0


def test_hostile_text_cannot_control_the_terminal(screen: Screen) -> None:
    screen.enter("evil")
    screen.expect("tokens in")
    assert "\\u001b[2J\\u001b]0;owned\\u0007\\u009b31m \\u202eentity" in screen.text
    assert controls(screen.raw) == []
    assert "\x1b[2J" not in screen.raw
    assert "owned\x07" not in screen.raw


def test_error_of_the_model_is_shown_and_the_chat_goes_on(screen: Screen) -> None:
    screen.enter("fail")
    screen.expect("refuses")
    screen.expect_prompt()
    assert controls(screen.raw) == []
    screen.enter("again")
    screen.expect("You said: again")


def test_reasoning_is_folded_and_shown_on_request(screen: Screen) -> None:
    screen.enter("reason")
    screen.expect("Reasoned for ")
    screen.expect("tokens in")
    screen.expect_prompt()
    assert "Then I think again." not in screen.text
    screen.enter("/reasoning")
    screen.expect("First I think.\nThen I think again.")


# Approvals


def test_tool_is_allowed_and_the_model_goes_on(screen: Screen) -> None:
    screen.enter(calls(("get_weather", {"city": "Rome"})))
    screen.expect("Run get_weather?")
    screen.expect("[r]emember: no >")
    screen.enter("a")
    screen.expect('Allowed: get_weather {"city": "Rome"}.')
    screen.expect('Tool get_weather {"city": "Rome"} done')
    screen.expect("18 degrees in Rome")
    screen.expect_prompt()


def test_files_are_picked(screen: Screen) -> None:
    screen.enter(calls(("read_notes", NOTES)))
    screen.expect("[p]ick files")
    for typed in ("p", "0", "1 3"):
        screen.enter(typed)
        screen.expect("[b]ack >", times=("p", "0", "1 3").index(typed) + 1)
    screen.enter("a")
    screen.expect("Allowed with other arguments: read_notes ")
    screen.expect('"result":"read Trips/Rome.md')
    assert "read Trips/Rome.md Trips/Oslo.md" not in screen.text


def test_ctrl_d_skips_a_question_and_says_so_on_a_line_of_its_own(screen: Screen) -> None:
    screen.enter(calls(("get_weather", {"city": "Rome"})))
    screen.expect("[r]emember: no >")
    screen.send("\x04")
    screen.expect("\nSkipped. The answer waits until somebody answers")
    screen.send("\x03")
    screen.expect("Stopped.")


def test_arguments_are_edited(gateway: ChatGateway, tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\necho \'{"city": "Oslo"}\' > "$1"\n')
    editor.chmod(0o755)
    with gateway.chat("--editor", str(editor)) as screen:
        screen.expect_prompt()
        screen.enter(calls(("get_weather", {"city": "Rome"})))
        screen.expect("[r]emember: no >")
        screen.enter("e")
        screen.expect('Allowed with other arguments: get_weather {"city": "Oslo"}.')
        screen.expect("18 degrees in Oslo")


def test_denied_model_is_told_the_reason(screen: Screen, gateway: ChatGateway) -> None:
    screen.enter(calls(("get_weather", {"city": "Rome"})))
    screen.expect("[r]emember: no >")
    screen.enter("d")
    screen.expect("Enter: none) >")
    screen.enter("not today")
    screen.expect("Denied: get_weather")
    screen.expect("tokens in")
    assert "not today" in str(gateway.model.seen[-1][-1]["content"])


def test_two_questions_come_one_after_the_other(screen: Screen) -> None:
    screen.enter(calls(("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Oslo"})))
    screen.expect("[r]emember: no >")
    screen.enter("a")
    screen.expect("[r]emember: no >", times=2)
    screen.enter("a")
    screen.expect("18 degrees in Rome")
    screen.expect("18 degrees in Oslo")


def test_question_answered_elsewhere_goes_away(screen: Screen, gateway: ChatGateway) -> None:
    screen.enter(calls(("get_weather", {"city": "Rome"})))
    screen.expect("[r]emember: no >")
    question = gateway.asked.pending()[0]["id"]
    gateway.asked.answer(question, verdict="allow")
    screen.expect('get_weather {"city": "Rome"} is allowed by local.')
    screen.expect("18 degrees in Rome")
    screen.expect_prompt()


def test_questions_of_other_conversations_are_not_asked_here(screen: Screen, gateway: ChatGateway) -> None:
    other = gateway.asked.ask_stored()
    screen.enter("hello")
    screen.expect("You said: hello")
    screen.expect_prompt()
    assert "get_weather" not in screen.text
    gateway.asked.answer(other, verdict="deny")


def test_ctrl_c_at_a_question_stops_the_answer(screen: Screen, gateway: ChatGateway) -> None:
    screen.enter(calls(("get_weather", {"city": "Rome"})))
    screen.expect("[r]emember: no >")
    screen.send("\x03")
    screen.expect("Stopped.")
    screen.expect_prompt()
    await_value(lambda: not gateway.asked.pending())


def test_hostile_question_cannot_control_the_terminal(screen: Screen) -> None:
    screen.enter(calls(("odd", {"paths": ["\x1b[2J\x9b31m[bold]\u202egnp.md"]})))
    screen.expect("[r]emember: no >")
    screen.enter("a")
    screen.expect("tokens in")
    assert controls(screen.raw) == []
    assert "\x1b[2J" not in screen.raw


# Commands


def test_model_is_listed_and_changed(screen: Screen, gateway: ChatGateway) -> None:
    screen.enter("/model")
    screen.expect("* 1  fast")
    screen.enter("/model home")
    screen.expect("The model is home now.")
    screen.enter("/model 1")
    screen.expect("The model is fast now.")
    screen.enter("/model nope")
    screen.expect("There is no model nope.")


def test_tab_completes_commands_and_models(screen: Screen) -> None:
    screen.send("/mo\t")
    screen.expect("> /model")
    screen.send(" ho\t")
    screen.expect("> /model home")
    screen.enter("")
    screen.expect("The model is home now.")
    screen.enter("/model fast")
    screen.expect("The model is fast now.")


def test_history_takes_up_a_conversation(screen: Screen, gateway: ChatGateway) -> None:
    screen.enter("remember the bees")
    screen.expect("You said: remember the bees")
    screen.expect_prompt()
    screen.enter("/new")
    screen.expect("A new conversation begins")
    screen.enter("something else")
    screen.expect("You said: something else")
    screen.expect_prompt()
    screen.enter("/history")
    screen.expect("/history NUMBER takes one up again.")
    assert re.search(r"\* +1 .* something else", screen.text)
    screen.enter("/history 2")
    screen.expect("You said: remember the bees", times=2)
    screen.expect_prompt()
    screen.enter("go on")
    screen.expect("You said: go on")
    assert gateway.model.seen[-1][0]["content"] == "remember the bees"


def test_inputs_of_earlier_chats_come_back_with_the_arrow(gateway: ChatGateway) -> None:
    with gateway.chat() as first:
        first.expect_prompt()
        first.enter("typed before")
        first.expect("You said: typed before")
    with gateway.chat() as second:
        second.expect_prompt()
        second.send("\x1b[A")
        second.expect("> typed before")


def test_export_writes_markdown_and_never_overwrites(screen: Screen, tmp_path: Path) -> None:
    screen.enter("/export")
    screen.expect("There is nothing to export yet.")
    screen.enter("markdown")
    screen.expect("tokens in")
    screen.expect_prompt()
    screen.enter(f"/export {tmp_path}/out.md")
    screen.expect("Wrote ")
    assert (tmp_path / "out.md").read_text() == (
        "# markdown\n\n## You\n\nmarkdown\n\n## Model\n\n# Title\n\nSome **bold** text.\n\n- one\n- two\n\n"
        "```python\ndef greet():\n    return 1\n```\n\nThe end.\n\n"
    )
    screen.enter(f"/export {tmp_path}/out.md")
    screen.expect("out.md exists.")


def test_help_and_unknown_commands(screen: Screen) -> None:
    screen.enter("/help")
    for command in ("/model", "/tools", "/history", "/export", "/new", "/quit", "Alt-Enter"):
        screen.expect(f"\n{command}")
    screen.enter("/nope")
    screen.expect("There is no command /nope.")
    screen.enter("//etc")
    screen.expect("You said: /etc")


# Terminals of all kinds


def test_narrow_terminal_shows_everything(gateway: ChatGateway) -> None:
    gateway.model.texts["long"] = " ".join(f"word{number}" for number in range(200)) + "\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    with gateway.chat(columns=40, lines=12) as screen:
        screen.expect_prompt()
        screen.enter("long")
        screen.expect("tokens in")
        words = screen.text.split()
        assert [word for word in words if word.startswith("word")] == [f"word{number}" for number in range(200)]


def test_narrow_terminal_names_the_files_of_a_question(gateway: ChatGateway) -> None:
    with gateway.chat(columns=40) as screen:
        screen.expect_prompt()
        screen.enter(calls(("read_notes", NOTES)))
        screen.expect("[p]ick")
        assert re.search(r"files +-  Trips/Rome\.md", screen.text)
        screen.enter("p")
        screen.expect("[b]ack")
        for number, path in enumerate(NOTES["paths"], 1):
            assert f"{number} [x]  {path}" in screen.text


def test_long_open_block_is_printed_once_and_whole(gateway: ChatGateway) -> None:
    gateway.model.texts["code"] = "```text\n" + "".join(f"line {number}\n" for number in range(2000)) + "```"
    with gateway.chat(lines=20) as screen:
        screen.expect_prompt()
        screen.enter("code")
        screen.expect("tokens in")
        assert re.findall(r"^  line (\d+)$", screen.text, re.MULTILINE) == [str(number) for number in range(2000)]


def test_answer_of_a_megabyte_is_printed_whole(gateway: ChatGateway) -> None:
    with gateway.chat(columns=200) as screen:
        screen.expect_prompt()
        screen.enter("big")
        screen.expect_raw("tokens in")
        found = re.findall(r"Paragraph (\d+): word", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.raw))
        assert set(map(int, found)) == set(range(1100))


@pytest.mark.parametrize("environ", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1", "LC_ALL": "C"}])
def test_locale_without_unicode_shows_what_it_can(gateway: ChatGateway, environ: dict[str, str]) -> None:
    gateway.model.texts["euro"] = "- 5 € and 日本"
    with gateway.chat(environ=environ) as screen:
        screen.expect_prompt()
        screen.enter("euro")
        screen.expect("5 ? and ??")
        screen.expect("tokens in")
        assert "Traceback" not in screen.text


def test_dumb_terminal_gets_plain_lines(gateway: ChatGateway) -> None:
    with gateway.chat(environ={"TERM": "dumb"}) as screen:
        screen.expect("/help lists the commands")
        screen.enter("markdown")
        screen.expect("The end.")
        screen.expect("tokens in")
        assert "\x1b" not in screen.raw
