"""The gateway behind `toolrelay chat`: found, started, shared, lost, stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.cli.asking import TIMEOUT_SECONDS, await_value
from tests.cli.chatting import ChatModel
from tests.cli.commands import PROGRAM, Result
from tests.cli.screen import Screen
from tests.model_server import ModelServer, configuration


class Home:
    """A configuration with a free port, and its data directory."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.folder = folder
        self.data_dir = folder / "data"
        self.configure("")

    @property
    def options(self) -> tuple[str, ...]:
        return "--config", str(self.folder / "toolrelay.toml"), "--data-dir", str(self.data_dir)

    def configure(self, text: str, port: int | None = None) -> None:
        server = f"[server]\nport = {self.port if port is None else port}\n"
        (self.folder / "toolrelay.toml").write_text(server + text)

    def chat(self, *arguments: str, **options: Any) -> Screen:
        return Screen("chat", *self.options, *arguments, columns=200, **options)

    def ask(self, *arguments: str, **environ: str) -> Result:
        done = subprocess.run(
            [*PROGRAM, "chat", *self.options, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            timeout=TIMEOUT_SECONDS,
            env={**os.environ, **environ},
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.data_dir / "chat" / "gateway.json").read_text() or "{}"))

    def is_up(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=60).status_code == 200
        except httpx.TransportError:
            return False


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path)
    yield found
    if (tmp_path / "data" / "chat" / "gateway.json").exists() and (pid := found.record().get("pid")):
        with contextlib.suppress(psutil.NoSuchProcess):  # only of a test that failed
            psutil.Process(pid).kill()


def test_gateway_is_started_and_stopped_with_the_chat(home: Home) -> None:
    with home.chat() as screen:
        screen.expect(f"Started the gateway at http://127.0.0.1:{home.port}; it stops with the chat.")
        screen.expect_prompt()
        screen.enter("count to 3")
        screen.expect("1 2 3")
        screen.expect_prompt()
        screen.send("\x04")
        assert screen.end() == 0
        assert "Stopping the gateway" in screen.text
    assert not home.is_up()
    assert home.record() == {}
    for file in (home.data_dir / "chat").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_question_of_a_script_starts_and_stops_it_silently(home: Home) -> None:
    assert home.ask("count to 3") == (0, "1 2 3\n", "")
    assert not home.is_up()


def test_first_configured_model_replaces_the_demo_model_in_new_conversations(home: Home) -> None:
    with home.chat() as screen:
        screen.expect_prompt()
        screen.enter("count to 3")
        screen.expect("1 2 3")
        screen.expect_prompt()
        screen.send("\x04")
        assert screen.end() == 0
    with ModelServer(ChatModel().respond) as server:
        home.configure(configuration(server))
        assert home.ask("count to 3").out == "You said: count to 3\n"
        assert "1 2 3" in home.ask("--continue", "count to 3").out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_the_gateway_too(home: Home, number: signal.Signals) -> None:
    with home.chat() as screen:
        screen.expect_prompt()
        assert home.is_up()
        screen.process.send_signal(number)
        assert screen.end() == 128 + number
    assert not home.is_up()


def test_hangup_of_the_terminal_stops_the_gateway_too(home: Home) -> None:
    with home.chat() as screen:
        screen.expect_prompt()
        screen.hang_up()
        await_value(lambda: not home.is_up())
        screen.process.wait(TIMEOUT_SECONDS)


def test_running_gateway_is_used_and_left_alone(home: Home) -> None:
    with subprocess.Popen([*PROGRAM, "serve", *home.options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as served:
        assert served.stdout is not None
        assert served.stdout.readline().startswith(b"Toolrelay is ready")
        assert home.ask("count to 2") == (0, "1 2\n", "")
        assert home.is_up()
        served.terminate()


def test_two_chats_share_a_gateway_that_stops_with_the_last(home: Home) -> None:
    with home.chat() as first:
        first.expect_prompt()
        with home.chat() as second:
            second.expect_prompt()
            assert "Started the gateway" not in second.text
            first.send("\x04")
            assert first.end() == 0
            assert "Another chat uses the gateway" in first.text
            second.enter("count to 3")
            second.expect("1 2 3")
            second.expect_prompt()
            second.send("\x04")
            assert second.end() == 0
    assert not home.is_up()


def test_gateway_that_died_is_started_again_for_the_next_question(home: Home) -> None:
    with home.chat() as screen:
        screen.expect_prompt()
        psutil.Process(home.record()["pid"]).kill()
        await_value(lambda: not home.is_up())
        screen.enter("count to 3")
        screen.expect("Started the gateway at", times=2)
        screen.expect("1 2 3")


def test_gateway_killed_in_mid_answer_is_started_again_and_the_chat_goes_on(home: Home) -> None:
    model = ChatModel()
    with ModelServer(model.respond) as server:
        home.configure(configuration(server))
        with home.chat() as screen:
            screen.expect_prompt()
            screen.enter("wait killed")
            screen.expect("Begun")
            psutil.Process(home.record()["pid"]).kill()
            screen.expect("The connection to the gateway is lost.")
            screen.expect("Connected again.")
            screen.expect("The gateway was restarted in the middle of an answer.")
            assert screen.text.count("Begun") == 1
            screen.expect_prompt()
            screen.enter("and now?")
            screen.expect("You said: and now?")
            model.gate("killed").open()


def test_random_port_is_found(home: Home) -> None:
    home.configure("", port=0)
    with home.chat() as screen:
        screen.expect_prompt()
        assert home.ask("count to 3") == (0, "1 2 3\n", "")
        assert psutil.pid_exists(home.record()["pid"])


def test_other_program_on_the_port_is_recognised(home: Home) -> None:
    with subprocess.Popen(
        [PROGRAM[0], "-m", "http.server", str(home.port), "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as other:
        await_value(lambda: listens(home.port))
        code, out, err = home.ask("hello")
        other.terminate()
    assert (code, out) == (2, "")
    assert f"Another program listens at http://127.0.0.1:{home.port}" in err


def test_gateway_that_cannot_start_says_why(home: Home) -> None:
    home.configure('[toolsets.mine]\nkind = "python"\nmodule = "there_is_none"\n')
    code, out, err = home.ask("hello")
    assert (code, out) == (2, "")
    assert "there_is_none" in err
    assert "gateway.log" in err


def test_wrong_configuration_is_reported(home: Home) -> None:
    home.configure("[nonsense]\n")
    code, _, err = home.ask("hello")
    assert code == 2
    assert "nonsense" in err


def test_key_is_needed_where_keys_are_configured(home: Home) -> None:
    hashed = hashlib.sha256(b"tr-of-a-reader").hexdigest()
    home.configure(f'[[keys]]\nname = "reader"\nsha256 = "{hashed}"\n')
    code, _, err = home.ask("hello")
    assert code == 2
    assert "TOOLRELAY_KEY" in err
    assert home.ask("count to 3", TOOLRELAY_KEY="tr-of-a-reader") == (0, "1 2 3\n", "")
    with home.chat(environ={"TOOLRELAY_KEY": "tr-of-a-reader"}) as screen:
        screen.expect("Questions about tools cannot be answered here: The key 'reader' may not answer approvals.")
        screen.expect_prompt()
        assert "tr-of-a-reader" not in screen.raw


def test_tools_of_the_model_are_listed(home: Home) -> None:
    (home.folder / "my_tools.py").write_text(
        'from toolrelay import tool\n@tool\ndef add(a: int) -> int:\n    """Add."""\n    return a\n'
    )
    toolset = '[toolsets.mine]\nkind = "python"\nmodule = "my_tools"\n[models.demo]\nprovider = "demo"\ntoolsets = ["mine"]\n'
    home.configure(f'{toolset}[models.plain]\nprovider = "demo"\n')
    with home.chat() as screen:
        screen.expect_prompt()
        screen.enter("/tools")
        screen.expect("add (mine, asks first): Add.")
        screen.enter("/model plain")
        screen.expect("The model is plain now.")
        screen.enter("/tools")
        screen.expect("The model plain has no tools.")


def test_tools_are_listed_as_they_were_changed_in_the_console(home: Home) -> None:
    (home.folder / "my_tools.py").write_text("from toolrelay import tool\n@tool\ndef add(a: int) -> int:\n    return a\n")
    home.configure('[toolsets.mine]\nkind = "python"\nmodule = "my_tools"\n[models.demo]\nprovider = "demo"\n')
    with home.chat() as screen:
        screen.expect_prompt()
        changed = httpx.patch(
            f"http://127.0.0.1:{home.port}/api/settings",
            headers={"authorization": f"Bearer {(home.data_dir / 'approver.token').read_text().strip()}"},
            json={"changes": {"models.demo.toolsets": ["mine"], "toolsets.mine.approval": "never"}},
        )
        assert changed.status_code == 200
        screen.enter("/tools")
        screen.expect("add (mine, runs without asking)")
