"""`toolrelay tools`, and what `check` says about toolsets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import HASH, Run, configure

SOURCE = '''
from toolrelay import tool
print("noise")

@tool(idempotent=True, timeout_seconds=2.5)
def get_weather(city: str) -> str:
    """Return the weather.

    Only for today.
    """

@tool
def get_time() -> str: ...
'''
TABLES = """
[toolsets.mine]
kind = "python"
module = "cli_tools"
approval = "never"
prefix = "my_"
[models.demo]
provider = "demo"
toolsets = ["mine"]
[models.plain]
provider = "demo"
"""
KEYS = f"""
[[keys]]
name = "me"
sha256 = "{HASH}"
toolsets = ["m*"]
[[keys]]
name = "you"
sha256 = "{HASH[::-1]}"
"""
SCHEMA = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}'


@pytest.fixture(autouse=True)
def module(tmp_path: Path) -> Iterator[Path]:
    path, modules = list(sys.path), set(sys.modules)
    file = tmp_path / "cli_tools.py"
    file.write_text(SOURCE)
    yield file
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "cli_tools":
            del sys.modules[name]


def test_tools_are_listed_with_schema_and_access(run: Run) -> None:
    configure(TABLES + KEYS)
    code, out, err = run("tools")
    assert (code, err) == (0, "noise\n")
    assert out.splitlines() == [
        "toolset mine (python)",
        "  models: demo",
        "  keys: me",
        "",
        "  my_get_weather (approval never, time-out 2.5 s, idempotent)",
        "    Return the weather.",
        "",
        "    Only for today.",
        f"    {SCHEMA}",
        "",
        "  my_get_time (approval never, time-out 10 s)",
        '    {"type":"object","properties":{},"required":[],"additionalProperties":false}',
    ]


def test_json_has_everything(run: Run) -> None:
    configure(TABLES)
    code, out, _ = run("tools", "--json")
    listed = json.loads(out)
    assert code == 0
    assert listed["tools_off"] is False
    (toolset,) = listed["toolsets"]
    assert (toolset["name"], toolset["kind"], toolset["models"], toolset["keys"]) == ("mine", "python", ["demo"], [])
    assert toolset["tools"][0] == {
        "name": "my_get_weather",
        "description": "Return the weather.\n\nOnly for today.",
        "approval": "never",
        "timeout_seconds": 2.5,
        "idempotent": True,
        "parallel": False,
        "parameters": json.loads(SCHEMA),
    }


@pytest.mark.parametrize("setting", ['tool_calling = "off"', "max_tool_rounds = 0"])
def test_model_that_is_never_offered_a_tool_is_not_listed(run: Run, setting: str) -> None:
    configure(f'{TABLES}\n[models.other]\nprovider = "demo"\ntoolsets = ["mine"]\n{setting}\n')
    assert "  models: demo\n" in run("tools").out


def test_without_keys_everyone_on_this_machine_may_use_them(run: Run) -> None:
    configure(TABLES)
    assert "  keys: no keys are configured: everyone on this machine\n" in run("tools").out


def test_tools_that_are_turned_off_are_listed_with_a_note(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(TABLES)
    monkeypatch.setenv("TOOLRELAY_TOOLS", "off")
    code, out, _ = run("tools")
    assert code == 0
    assert out.startswith("TOOLRELAY_TOOLS=off: all of these tools are turned off.\n\ntoolset mine")
    assert json.loads(run("tools", "--json").out)["tools_off"] is True
    assert "tools: turned off by TOOLRELAY_TOOLS=off\n" in run("check").out


def test_without_toolsets_the_documentation_is_named(run: Run) -> None:
    configure('[models.demo]\nprovider = "demo"\n')
    assert run("tools").out.startswith("There are no toolsets. Add a [toolsets.NAME] table")


def test_without_a_file_the_tools_of_the_sample_vault_are_listed(run: Run) -> None:
    out = run("tools").out
    assert out.startswith("toolset vault (vault)\n  models: demo\n")
    assert "vault_search (approval always" in out


def test_check_counts_the_tools(run: Run) -> None:
    configure(TABLES)
    code, out, err = run("check")
    assert (code, err) == (0, "noise\n")
    assert "\ntools: 2\n" in out


@pytest.mark.parametrize(("command", "expected"), [("check", 1), ("tools", 2), ("serve", 2)])
@pytest.mark.parametrize("source", ["raise ValueError", "from toolrelay import tool\n@tool\ndef f(x): ..."])
def test_bad_module_is_a_configuration_error(run: Run, module: Path, command: str, expected: int, source: str) -> None:
    module.write_text(source)
    configure(TABLES)
    code, out, err = run(command)
    assert (code, out) == (expected, "")
    assert err.startswith("toolrelay: the configuration is wrong:\n  toolrelay.toml: toolsets.mine: ")
    assert f"{module}, line " in err
