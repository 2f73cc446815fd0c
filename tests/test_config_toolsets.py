"""Tables of toolsets in the configuration, and who may use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import config_files
from tests.config_files import HASH, Write, problems
from toolrelay.config import load
from toolrelay.toolsets.python import PythonSettings

# pytest finds fixtures by the names of the module.
empty_directory, write = config_files.empty_directory, config_files.write

MINE = "[toolsets.mine]\nkind = 'python'\nmodule = 'm'\napproval = 'never'\n"


def test_toolset_gets_the_settings_of_its_kind(write: Write, tmp_path: Path) -> None:
    settings = load(write(f"{MINE}prefix = 'my_'\nmax_concurrent = 3\n"), {})
    assert settings.toolsets == {
        "mine": PythonSettings(name="mine", kind="python", module="m", approval="never", prefix="my_", max_concurrent=3)
    }
    assert settings.environment.config_dir == tmp_path


def test_directory_of_the_file_is_absolute(write: Write, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write(MINE, "deep/other.toml")
    assert load("deep/other.toml", {}).environment.config_dir == tmp_path / "deep"


def test_without_a_file_there_is_no_such_directory() -> None:
    assert load(None, {}).environment.config_dir is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("toolsets = 5", "toolsets: expected tables [toolsets.NAME], found a number"),
        ("[toolsets.a]\nmodule = 'm'", "toolsets.a.kind: missing; expected one of python, vault"),
        (
            "[toolsets.a]\nkind = 'pyhton'\nmodule = 5",
            'toolsets.a.kind: expected one of python, vault, found "pyhton"; did you mean python?',
        ),
        (
            "[toolsets.a]\nkind = 'mcp'\ncommand = ['x']",
            'toolsets.a.kind: "mcp" is not available in this version yet; available today: "python", "vault"',
        ),
        ("[toolsets.a]\nkind = 'python'\napproval = 'never'", "toolsets.a.module: missing; expected a string"),
        (f"{MINE}modul = 'm'", "toolsets.mine.modul: unknown key; did you mean module?"),
        (f"{MINE}name = 'm'", "toolsets.mine.name: unknown key"),
        (f"{MINE}max_concurrent = 0", "toolsets.mine.max_concurrent: expected a whole number above 0, found 0"),
        (f"{MINE}allow = 'a'", 'toolsets.mine.allow: expected a list of strings, found "a"'),
        (
            "[toolsets.a]\nkind = 'python'\nmodule = 'm'\napproval = 'no'",
            'toolsets.a.approval: expected "always", "never", or a table of them by tool: {file_read = "always"}, found "no"',
        ),
        (
            f"{MINE}[models.a]\nprovider = 'demo'\ntoolsets = ['mine', 'mnie']",
            'models.a.toolsets: there is no toolset "mnie"; did you mean mine?',
        ),
        (
            "[models.a]\nprovider = 'demo'\ntoolsets = ['vault']",
            'models.a.toolsets: there is no toolset "vault"; write [toolsets.vault], or remove it here',
        ),
        (
            f"{MINE}[[keys]]\nname = 'me'\nsha256 = '{HASH}'\ntoolsets = ['min', 'm*']",
            'keys.me.toolsets: there is no toolset "min"; did you mean mine?',
        ),
    ],
)
def test_mistake_in_toolsets_is_reported(write: Write, text: str, problem: str) -> None:
    assert problems(write(text)) == [f"toolrelay.toml: {problem}"]


@pytest.mark.parametrize("approval", ["", "approval = 'always'", "approval = {f = 'never'}"])
def test_toolset_may_ask(write: Write, approval: str) -> None:
    text = f"[toolsets.mine]\nkind = 'python'\nmodule = 'm'\n{approval}"
    assert load(write(text), {}).toolsets["mine"].needs_approval("g")


@pytest.mark.parametrize(
    ("approval", "asks"), [("always", True), ("never", False), ({"f": "never"}, False), ({"g": "never"}, True)]
)
def test_tool_needs_approval_unless_the_settings_say_never(approval: object, *, asks: bool) -> None:  # bug 48
    settings = PythonSettings(kind="python", module="m", approval=approval)  # type: ignore[arg-type]  # a value of each type
    assert settings.needs_approval("f") is asks


def test_name_that_both_declare_belongs_to_the_client_unless_the_file_says_otherwise(write: Write) -> None:
    settings = load(write('[models.a]\nprovider = "demo"\n[models.b]\nprovider = "demo"\nsame_name = "gateway"\n'), {})
    assert [model.same_name for model in settings.models.values()] == ["client", "gateway", "client"]  # the last is demo
    assert problems(write('[models.a]\nprovider = "demo"\nsame_name = "both"')) == [
        'toolrelay.toml: models.a.same_name: expected one of client, gateway, found "both"'
    ]
