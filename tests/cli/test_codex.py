"""`toolrelay codex` with the real binary, and with a script that records how it is run. The sign-ins are made up (E4)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.backends.codex.app_server import binary_path
from tests.cli.commands import PROGRAM, Result

KEY = "sk-made-up-0123456789"
RECORDER = """#!/bin/sh
echo "https://auth.example/device and the code ABCD-1234"
echo "$@ in $CODEX_HOME" >&2
exit ${CODEX_EXIT:-0}
"""


@pytest.fixture
def person(tmp_path: Path) -> Path:
    home = tmp_path / "person"
    home.mkdir()
    return home


def toolrelay(person: Path, *arguments: str, given: str = "", **variables: str) -> Result:
    """Run a command for a person whose home is empty at first."""
    environ = {"HOME": str(person), "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **variables}
    if "TOOLRELAY_CODEX" not in environ:
        environ["TOOLRELAY_CODEX"] = binary_path()
    done = subprocess.run(
        [*PROGRAM, *arguments], cwd=person, env=environ, input=given, capture_output=True, text=True, timeout=60, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def recorder(tmp_path: Path) -> str:
    path = tmp_path / "codex"
    path.write_text(RECORDER)
    path.chmod(0o755)
    return str(path)


def test_e4_api_key_signs_in_and_out_and_is_never_printed(person: Path) -> None:
    auth = person / ".codex" / "auth.json"
    results = [toolrelay(person, "codex", "status")]
    assert results[0].code == 1
    assert "sign-in: none; sign in with `toolrelay codex login`\n" in results[0].out
    results.append(toolrelay(person, "codex", "login", "--with-api-key", given=f"{KEY}\n"))
    assert results[-1].code == 0, results[-1]
    assert results[-1].out == f"The sign-in is in {auth}\n"
    assert json.loads(auth.read_text())["OPENAI_API_KEY"] == KEY
    assert auth.stat().st_mode & 0o777 == 0o600
    results.append(toolrelay(person, "codex", "status"))
    assert results[-1].code == 0
    assert "sign-in: with an API key\n" in results[-1].out
    copy = person / "data" / "codex" / "auth.json"  # as a gateway leaves it
    copy.parent.mkdir(parents=True)
    copy.write_bytes(auth.read_bytes())
    results.append(toolrelay(person, "codex", "logout", "--data-dir", "data"))
    assert results[-1].code == 0
    assert not auth.exists()
    assert not copy.exists()
    assert [result for result in results if KEY[8:] in result.out + result.err] == []


def test_e4_sign_in_goes_to_the_codex_home_of_the_environment(person: Path) -> None:
    own = person / "own"
    assert toolrelay(person, "codex", "login", "--with-api-key", given=KEY, CODEX_HOME=str(own)).code == 0
    assert (own / "auth.json").exists()
    assert not (person / ".codex" / "auth.json").exists()


def test_e4_sign_in_is_a_file_where_the_configuration_says_keyring(person: Path) -> None:
    folder = person / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text('cli_auth_credentials_store = "keyring"\n')
    assert toolrelay(person, "codex", "login", "--with-api-key", given=KEY).code == 0
    assert (folder / "auth.json").exists()


def test_e4_empty_api_key_is_an_error(person: Path) -> None:
    code, out, err = toolrelay(person, "codex", "login", "--with-api-key", given="\n")
    assert (code, out) == (1, "")
    assert err.endswith("toolrelay: Codex did not sign in.\n")


def test_e4_commands_do_not_need_a_valid_configuration(person: Path) -> None:
    (person / "toolrelay.toml").write_text("models = 5")
    assert toolrelay(person, "codex", "login", "--with-api-key", given=KEY).code == 0


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [((), "login"), (("--device-auth",), "login --device-auth"), (("--with-api-key",), "login --with-api-key")],
)
def test_e4_output_of_the_binary_is_shown_as_it_is(person: Path, recorder: str, arguments: tuple[str, ...], passed: str) -> None:
    code, out, err = toolrelay(person, "codex", "login", *arguments, TOOLRELAY_CODEX=recorder)
    assert code == 0
    assert out.startswith("https://auth.example/device and the code ABCD-1234\n")
    assert err == f'{passed} -c cli_auth_credentials_store="file" in {person / ".codex"}\n'


def test_e4_failure_of_the_binary_is_the_exit_code(person: Path, recorder: str) -> None:
    for command in ("login", "logout"):
        code, _, err = toolrelay(person, "codex", command, TOOLRELAY_CODEX=recorder, CODEX_EXIT="3")
        assert code == 1
        assert "toolrelay: Codex did not sign " in err


def test_e4_missing_binary_is_named(person: Path) -> None:
    for command in ("login", "logout", "status"):
        code, out, err = toolrelay(person, "codex", command, TOOLRELAY_CODEX="/nowhere/codex")
        assert (code, out) == (2, "")
        assert "TOOLRELAY_CODEX: /nowhere/codex is not a program that can be run" in err


def test_e4_two_ways_of_signing_in_are_refused(person: Path, recorder: str) -> None:
    code, _, err = toolrelay(person, "codex", "login", "--device-auth", "--with-api-key", TOOLRELAY_CODEX=recorder)
    assert code == 2
    assert "choose one of --device-auth and --with-api-key" in err


def test_e4_status_of_an_account_shows_no_token(person: Path, recorder: str) -> None:
    tokens = {"id_token": "id-secret", "access_token": "access-secret", "refresh_token": "refresh-secret", "account_id": "acc"}
    (person / ".codex").mkdir()
    (person / ".codex" / "auth.json").write_text(json.dumps({"tokens": tokens, "last_refresh": "2026-01-01T00:00:00Z"}))
    code, out, err = toolrelay(person, "codex", "status", TOOLRELAY_CODEX=recorder)
    assert (code, err) == (0, "")
    assert "sign-in: with ChatGPT\n" in out
    assert "secret" not in out


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"tokens": 5}', '{"OPENAI_API_KEY": ""}', "\0"])
def test_e4_unusable_sign_in_counts_as_none(person: Path, recorder: str, content: str) -> None:
    (person / ".codex").mkdir()
    (person / ".codex" / "auth.json").write_text(content)
    code, out, err = toolrelay(person, "codex", "status", TOOLRELAY_CODEX=recorder)
    assert (code, err) == (1, "")
    assert "sign-in: none" in out
