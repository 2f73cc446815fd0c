"""`toolrelay keys`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.cli.commands import PROGRAM, Run, configure
from tests.gateway import Gateway, running
from tests.upstream import Upstream, reply
from toolrelay.config import load

DEMO = '[models.demo]\nprovider = "demo"\n'


def test_new_key_is_printed_with_its_configuration_block(run: Run) -> None:
    code, out, err = run("keys", "new", 'Zoë\'s "laptop"', "--models", "fast", "--models", "home-*")
    key, _, block = out.partition("\n")
    assert code == 0
    assert re.fullmatch(r"tr-[A-Za-z0-9_-]{40}", key)
    assert key not in block + err
    configure(block)
    (settings,) = load(None, {}).keys
    assert settings.name == 'Zoë\'s "laptop"'
    assert settings.sha256 == hashlib.sha256(key.encode()).hexdigest()
    assert settings.models == ("fast", "home-*")


def test_new_key_without_models_may_use_every_model(run: Run) -> None:
    out = run("keys", "new", "me").out
    assert tomllib.loads(out.partition("\n")[2])["keys"][0]["models"] == ["*"]


def test_new_keys_differ(run: Run) -> None:
    assert run("keys", "new", "me").out != run("keys", "new", "me").out


@pytest.mark.parametrize("name", ["", " ", "a\nb", " a"])
def test_invalid_key_name_is_refused(run: Run, name: str) -> None:
    code, out, err = run("keys", "new", name)
    assert (code, out) == (2, "")
    assert "expected a name" in err


@pytest.mark.parametrize("given", ["tr-key", "tr-key\n", "tr-key\r\n"])
def test_hash_ignores_a_trailing_line_break(run: Run, given: str) -> None:
    assert run("keys", "hash", given=given) == (0, hashlib.sha256(b"tr-key").hexdigest() + "\n", "")


def test_hash_of_empty_input_is_refused(run: Run) -> None:
    code, out, err = run("keys", "hash", given="\n")
    assert (code, out) == (2, "")
    assert "expected a key, found nothing" in err


# Keys of the store


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running(DEMO) as gateway:
        yield gateway


@pytest.fixture(params=["running", "stopped"])
def where(request: pytest.FixtureRequest, gateway: Gateway, tmp_path: Path) -> list[str]:
    """Options that name a running gateway, and a data directory without one."""
    if request.param == "running":
        return ["--port", str(gateway.port), "--data-dir", str(gateway.data_dir)]
    return ["--port", "1", "--data-dir", str(tmp_path / "data")]


def listed(run: Run, where: list[str], *flags: str) -> dict[str, dict[str, object]]:
    code, out, _ = run("keys", "list", "--json", *flags, *where)
    assert code == 0
    return {key["name"]: key for key in json.loads(out)["keys"]}


def test_keys_are_created_listed_rotated_and_revoked(run: Run, where: list[str]) -> None:
    options = ["--approve", "--models", "fast", "--models", "x-*", "--toolsets", "mine", "--requests-per-minute", "7"]
    code, out, err = run("keys", "create", "laptop", *options, *where)
    assert code == 0, err
    assert re.fullmatch(r"tr-[A-Za-z0-9_-]{40}\n", out)
    assert out.strip() not in err
    assert "every client needs one" in err
    made = listed(run, where)["laptop"]
    assert (
        made
        | {
            "source": "store",
            "approve": True,
            "models": ["fast", "x-*"],
            "toolsets": ["mine"],
            "requests_per_minute": 7,
        }
        == made
    )
    code, rotated, _ = run("keys", "rotate", "laptop", *where)
    assert (code, rotated == out, len(rotated)) == (0, False, len(out))
    code, nothing, err = run("keys", "revoke", str(made["id"]), *where)
    assert (code, nothing) == (0, "")
    assert "The key laptop is revoked." in err
    assert listed(run, where) == {}
    assert listed(run, where, "--all")["laptop"]["revoked_at"] is not None
    code, nothing, err = run("keys", "create", "laptop", *where)
    assert (code, nothing) == (1, "")
    assert "is taken" in err


@pytest.mark.parametrize("command", ["rotate", "revoke"])
def test_unknown_key_is_reported(run: Run, where: list[str], command: str) -> None:
    code, out, err = run("keys", command, "nobody", *where)
    assert (code, out) == (1, "")
    assert "There is no such key" in err


@pytest.mark.parametrize("name", ["", " a", "a\nb", "x" * 101])
def test_invalid_name_is_refused_by_create(run: Run, where: list[str], name: str) -> None:
    code, out, err = run("keys", "create", name, *where)
    assert (code, out) == (1, "")
    assert "toolrelay: The " in err


def test_table_shows_controls_of_a_name_as_escapes(run: Run, where: list[str]) -> None:
    name = "evil\u202ename"
    assert run("keys", "create", name, *where).code == 0
    out = run("keys", "list", *where).out
    assert out.startswith("NAME ")
    assert "evil\\u202ename" in out
    assert "\u202e" not in out
    assert run("keys", "revoke", name, *where).code == 0
    assert "There are no keys" in run("keys", "list", *where).out


def test_without_a_gateway_the_store_is_changed_and_the_gateway_knows_the_key(run: Run, tmp_path: Path) -> None:
    where = ["--port", "1", "--data-dir", str(tmp_path / "data")]
    assert run("keys", "list", *where).code == 0
    assert not (tmp_path / "data").exists(), "reading creates nothing"
    code, out, err = run("keys", "create", "early", *where)
    assert code == 0
    assert "No gateway answers" in err
    assert not any(out.strip().encode() in path.read_bytes() for path in (tmp_path / "data").iterdir())
    with running(DEMO, folder=tmp_path) as gateway:
        assert gateway.get("/v1/models").status_code == 401
        assert gateway.get("/v1/models", authorization=f"Bearer {out.strip()}").status_code == 200
        where = ["--port", str(gateway.port), "--data-dir", str(tmp_path / "data")]
        code, _, err = run("keys", "revoke", "early", *where)
        assert code == 0
        assert "No gateway answers" not in err
        assert gateway.get("/v1/models").status_code == 200


def test_last_key_of_a_gateway_that_others_reach_is_not_revoked(run: Run, tmp_path: Path) -> None:
    configure('[server]\nhost = "192.0.2.1"\n')
    where = ["--data-dir", str(tmp_path / "data")]
    assert run("keys", "create", "only", *where).code == 0
    code, _, err = run("keys", "revoke", "only", *where)
    assert code == 1
    assert "This is the last key" in err


def test_keys_are_not_created_where_nothing_is_kept(run: Run, tmp_path: Path) -> None:
    configure('[store]\nrecord = "none"\n')
    code, out, err = run("keys", "create", "x", "--port", "1", "--data-dir", str(tmp_path / "data"))
    assert (code, out) == (1, "")
    assert "would be lost" in err


def test_key_of_the_file_is_listed_and_not_changed(run: Run, tmp_path: Path) -> None:
    configure(f'[[keys]]\nname = "filed"\nsha256 = "{"0" * 64}"\n')
    where = ["--port", "1", "--data-dir", str(tmp_path / "data")]
    assert listed(run, where)["filed"]["source"] == "file"
    code, _, err = run("keys", "revoke", "filed", *where)
    assert code == 1
    assert "is in the configuration file" in err


def test_key_of_the_file_with_the_name_of_a_stored_one_is_listed_and_that_one_is_revoked(run: Run, tmp_path: Path) -> None:
    where = ["--port", "1", "--data-dir", str(tmp_path / "toolrelay")]
    assert run("keys", "create", "twice", *where).code == 0
    configure(f'[[keys]]\nname = "twice"\nsha256 = "{"0" * 64}"\n')
    code, out, _ = run("keys", "list", *where)
    assert (code, out.count("twice")) == (0, 2)
    assert run("keys", "revoke", "twice", *where).code == 0


def test_shell_completes_names(run: Run, tmp_path: Path) -> None:
    for name in ("laptop", "lamp", "phone"):
        assert run("keys", "create", name, "--data-dir", str(tmp_path / "data"), "--port", "1").code == 0
    words = f"toolrelay keys revoke --port 1 --data-dir {tmp_path / 'data'} la"
    environ = {**os.environ, "_TOOLRELAY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "7"}
    done = subprocess.run(PROGRAM, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["laptop", "lamp"]


def test_list_names_a_data_directory_in_which_no_gateway_has_run(run: Run, tmp_path: Path) -> None:
    configure(DEMO)
    code, out, err = run("keys", "list", "--data-dir", str(tmp_path / "nowhere"))
    assert (code, out) == (0, "There are no keys: every program on this machine may use the gateway.\n")
    assert (
        err
        == f"There is no store in {tmp_path / 'nowhere'}. If the gateway has another data directory, name it with --data-dir.\n"
    )


def test_program_that_never_answers_on_the_port_does_not_hold_up_the_keys(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolrelay.cli._gateway.GatewayProbe.timeout", 0.1)
    with running(DEMO, folder=tmp_path):
        pass
    with socket.create_server(("127.0.0.1", 0)) as silent:
        configure(DEMO)
        port = str(silent.getsockname()[1])
        assert run("keys", "list", "--data-dir", str(tmp_path / "data"), "--port", port).code == 0


def test_data_directory_of_another_user_is_reported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(DEMO)
    folder = tmp_path / "theirs"

    def stat(self: Path, **_: object) -> NoReturn:  # root may read everything
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.exists", stat)
    code, out, err = run("keys", "list", "--data-dir", str(folder))
    assert (code, out) == (1, "")
    assert (
        err == f"toolrelay: {folder}/toolrelay.db cannot be read: Permission denied. Run this as the user who runs the gateway.\n"
    )


def test_console_recognises_another_program_on_the_port(run: Run, tmp_path: Path) -> None:
    with running(DEMO, folder=tmp_path):
        pass
    with Upstream(reply(b"<html>", status=501)) as other:
        configure(DEMO)
        code, out, err = run("console", "--data-dir", str(tmp_path / "data"), "--port", str(other.port))
    assert (code, out) == (1, "")
    assert "answered with status 501, and not as a gateway of Toolrelay does. Is this its address?" in err
