"""`toolrelay init`."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Run
from tests.cli.screen import Screen

FILE = Path("toolrelay.toml")


def written() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text())


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    with Screen("init", environ={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}) as found:
        found.expect("1. Which model?")
        yield found


def test_defaults_are_the_demo_model_on_this_machine(run: Run) -> None:
    code, out, err = run("init", "--yes")
    assert (code, err) == (0, "")
    assert FILE.read_text() in out
    assert out.endswith("Wrote toolrelay.toml.\n\nNext: toolrelay chat\n")
    assert written() == {"server": {"host": "127.0.0.1", "port": 8787}, "models": {"demo": {"provider": "demo"}}}
    assert stat.S_IMODE(FILE.stat().st_mode) == 0o600
    assert run("check").code == 0


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("hf:a/b/c.gguf", "First: models.c.model: there is no file a/b/c.gguf; get it with `toolrelay pull hf:a/b/c.gguf`\n"),
        ("smolm2", "found 'smolm2'; did you mean smollm2?\n"),
        ("my models/My Model.Q4_K.gguf", 'First: models."My-Model.Q4_K".model: there is no file '),
        ("smollm2", ""),
    ],
)
def test_local_model_that_is_missing_is_the_next_step(run: Run, model: str, hint: str) -> None:
    code, out, err = run("init", "--yes", "--provider", "local", "--model", model)
    assert (code, err) == (0, "")
    assert hint in out
    assert ("First: " in out) == bool(hint)
    assert out.endswith("\n\nNext: toolrelay chat\n")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ("--provider", "openai", "--model", "gpt-6-mini"),
            {"gpt-6-mini": {"provider": "openai", "model": "gpt-6-mini", "api_key": "env:OPENAI_API_KEY"}},
        ),
        (
            ("--provider", "openrouter", "--model", "a/b", "--key-variable", "MY_KEY"),
            {"a-b": {"provider": "openrouter", "model": "a/b", "api_key": "env:MY_KEY"}},
        ),
        (
            ("--provider", "ollama", "--model", "qwen3:8b"),
            {"qwen3-8b": {"provider": "ollama", "model": "qwen3:8b", "local": True}},
        ),
        (
            ("--provider", "lmstudio", "--model", "m", "--base-url", "http://192.168.1.5:1234/v1"),
            {"m": {"provider": "lmstudio", "model": "m", "base_url": "http://192.168.1.5:1234/v1"}},
        ),
        (("--provider", "local"), {"smollm2": {"provider": "local", "model": "smollm2", "local": True}}),
        (("--provider", "vllm", "--model", "m"), {"m": {"provider": "vllm", "model": "m", "local": True}}),
        (("--provider", "llamacpp", "--model", "x.y"), {"x.y": {"provider": "llamacpp", "model": "x.y", "local": True}}),
        (("--provider", "codex", "--model", "gpt-6-sol"), {"gpt-6-sol": {"provider": "codex", "model": "gpt-6-sol"}}),
        (
            ("--provider", "compatible", "--model", 'odd "näme"', "--base-url", "https://example.com/v1"),
            {"odd-n-me": {"provider": "compatible", "model": 'odd "näme"', "base_url": "https://example.com/v1"}},
        ),
    ],
)
def test_every_provider_makes_a_file_that_check_accepts(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], expected: dict[str, Any]
) -> None:
    code, out, err = run("init", "--yes", *options)
    assert (code, err) == (0, "")
    assert written()["models"] == expected
    variable = next(iter(expected.values())).get("api_key", "").removeprefix("env:")
    assert (f"First set the provider's key: export {variable}=…" in out) == bool(variable)
    if variable:
        monkeypatch.setenv(variable, "sk-something")
    assert run("check", "--offline").code == 0


def test_vault_is_a_toolset_of_the_model(run: Run, tmp_path: Path) -> None:
    (tmp_path / 'my "notes"').mkdir()
    assert run("init", "--yes", "--vault", 'my "notes"').code == 0
    assert written()["toolsets"]["vault"]["path"] == str(tmp_path / 'my "notes"')
    assert written()["models"]["demo"]["toolsets"] == ["vault"]
    assert run("check", "--offline").code == 0


def test_key_is_printed_once_and_only_its_hash_is_written(run: Run) -> None:
    code, out, _ = run("init", "--yes", "--connect", "key")
    assert code == 0
    found = re.search(r"^tr-\S+$", out, re.MULTILINE)
    assert found is not None
    assert found[0] not in FILE.read_text()
    assert written()["keys"][0]["sha256"] == hashlib.sha256(found[0].encode()).hexdigest()
    assert written()["server"]["host"] == "0.0.0.0"
    assert run("check", "--offline").code == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--provider", "nope"), "--provider: Expected one of demo, local, openai"),
        (("--provider", "ollama"), "--model is needed"),
        (("--provider", "compatible", "--model", "m"), "--base-url is needed"),
        (("--provider", "compatible", "--model", "m", "--base-url", "example.com"), "--base-url: Expected a URL"),
        (("--provider", "openai", "--model", "m", "--key-variable", "sk-proj-abc"), "and not the key itself"),
        (("--vault", "nowhere"), "--vault: There is no folder nowhere."),
        (("--provider", "ollama", "--model", "a\nb"), "--model: Expected the name of a model."),
    ],
)
def test_wrong_option_writes_nothing(run: Run, options: tuple[str, ...], problem: str) -> None:
    code, out, err = run("init", "--yes", *options)
    assert (code, out) == (2, "")
    assert problem in err
    assert "sk-proj" not in err
    assert list(Path().iterdir()) == []


def test_existing_file_is_replaced_only_with_force(run: Run) -> None:
    FILE.write_text("# mine\n")
    code, _, err = run("init", "--yes")
    assert (code, err) == (2, "toolrelay: toolrelay.toml exists. --force replaces it, --config names another file.\n")
    assert FILE.read_text() == "# mine\n"
    assert run("init", "--yes", "--force").code == 0
    assert written()["models"] == {"demo": {"provider": "demo"}}


def test_other_file_is_named_in_the_next_command(run: Run) -> None:
    code, out, _ = run("init", "--yes", "--config", "other one.toml")
    assert code == 0
    assert out.endswith("Next: toolrelay chat --config 'other one.toml'\n")


def test_without_a_terminal_yes_is_needed(run: Run) -> None:
    code, out, err = run("init")
    assert (code, out) == (2, "")
    assert err == "toolrelay: There is no terminal to ask at. Use --yes, with options for what is not the default.\n"


def test_folder_that_cannot_be_written_is_reported(run: Run) -> None:
    code, _, err = run("init", "--yes", "--config", "nowhere/toolrelay.toml")
    assert code == 1
    assert "nowhere/toolrelay.toml cannot be written" in err


# At a terminal


def test_four_times_enter_takes_the_defaults(screen: Screen) -> None:
    screen.expect("Number or name (Enter: 1) >")
    screen.enter("")
    screen.expect("Folder (Enter: none) >")
    screen.enter("")
    screen.expect("4. Who may connect?")
    screen.enter("")
    screen.expect("Next: toolrelay chat")
    assert screen.end() == 0
    assert written()["models"] == {"demo": {"provider": "demo"}}


def test_bad_answers_are_asked_again(screen: Screen, tmp_path: Path) -> None:
    screen.enter("nope")
    screen.expect("Expected one of demo, local, openai")
    screen.enter("compatible")
    screen.expect("Address of the server >")
    screen.enter("nonsense")
    screen.expect("Expected a URL")
    screen.enter("http://127.0.0.1:9/v1")
    screen.expect("Model >")
    screen.enter("")
    screen.expect("Expected the name of a model.")
    screen.enter("m")
    screen.expect("(Enter: no key) >")
    screen.enter("sk-abc")
    screen.expect("and not the key itself.")
    screen.enter("MY_KEY")
    screen.expect("Folder (Enter: none) >")
    screen.enter("nowhere")
    screen.expect("There is no folder nowhere.")
    (tmp_path / "Notes").mkdir()
    screen.enter("~/Notes")
    screen.expect("4. Who may connect?")
    screen.enter("3")
    screen.expect("Expected one of local, key.")
    screen.enter("2")
    screen.expect("The key, which is shown only now:")
    assert screen.end() == 0
    assert written()["models"]["m"] == {
        "provider": "compatible",
        "model": "m",
        "base_url": "http://127.0.0.1:9/v1",
        "api_key": "env:MY_KEY",
        "local": True,
        "toolsets": ["vault"],
    }
    assert written()["toolsets"]["vault"]["path"] == str(tmp_path / "Notes")


def test_vaults_that_obsidian_knows_are_offered(tmp_path: Path) -> None:
    for name in ("Old", "New"):
        (tmp_path / name).mkdir()
    vaults = {
        "a": {"path": str(tmp_path / "Old"), "ts": 1},
        "b": {"path": str(tmp_path / "New"), "ts": 2},
        "c": {"path": str(tmp_path / "Gone"), "ts": 3},
        "d": {"path": f"{tmp_path}/\x1b[2J"},
        "e": "nonsense",
    }
    (tmp_path / "config" / "obsidian").mkdir(parents=True)
    (tmp_path / "config" / "obsidian" / "obsidian.json").write_text(json.dumps({"vaults": vaults}))
    with Screen("init", columns=200, environ={"XDG_CONFIG_HOME": str(tmp_path / "config")}) as screen:
        screen.expect("Number or name (Enter: 1) >")
        screen.enter("")
        screen.expect("Number or folder (Enter: none) >")
        assert f"  1  {tmp_path}/New\n  2  {tmp_path}/Old\nNumber" in screen.text
        screen.enter("2")
        screen.expect("4. Who may connect?")
        screen.enter("")
        assert screen.end() == 0
    assert written()["toolsets"]["vault"]["path"] == str(tmp_path / "Old")


@pytest.mark.parametrize(("leave", "code"), [("\x03", 130), ("\x04", 1)])
def test_leaving_writes_nothing(screen: Screen, leave: str, code: int) -> None:
    screen.enter("ollama")
    screen.expect("Address of the server")
    screen.send(leave)
    assert screen.end() == code
    assert not FILE.exists()
    assert "Traceback" not in screen.text
