"""What `toolrelay check` is told of Codex. The sign-ins are made up: nobody is asked whether they are good."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.backends.codex.stage import binary_path, surveyed
from toolrelay.backends.codex.settings import CodexSettings
from toolrelay.backends.codex.status import SIGN_IN, Status, status
from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment

ACCOUNT = CodexSettings(name="mine", provider="codex", model="gpt-5.5")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Codex home of a person who is not the one who runs the tests."""
    home = tmp_path / "person"
    home.mkdir()
    monkeypatch.setenv("CODEX_HOME", str(home))
    monkeypatch.setenv("TOOLRELAY_CODEX", binary_path())
    return home


def told(tmp_path: Path, settings: CodexSettings) -> Status:
    found = asyncio.run(status(settings, Environment(data_dir=tmp_path / "data", environ=dict(os.environ))))
    assert not list((tmp_path / "data").rglob("home-*"))
    return found


def test_a_provider_of_ones_own_needs_no_sign_in(tmp_path: Path) -> None:
    found = told(tmp_path, replace(ACCOUNT, base_url="http://127.0.0.1:9/v1"))
    assert found.account == "the provider at http://127.0.0.1:9/v1"
    assert found.problem == ""
    assert found.version.count(".") == 2
    assert found.models


def test_a_key_is_not_shown(tmp_path: Path) -> None:
    found = told(tmp_path, replace(ACCOUNT, api_key="sk-secret"))
    assert found.account == "OpenAI, with the key of api_key"
    assert "sk-secret" not in repr(found)


def test_without_a_sign_in_it_says_how_to_get_one(tmp_path: Path) -> None:
    assert told(tmp_path, ACCOUNT).problem == SIGN_IN


def test_a_sign_in_and_an_unknown_model_are_told(tmp_path: Path, own_home: Path) -> None:
    (own_home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "sk-made-up"}))
    found = told(tmp_path, ACCOUNT)
    assert (found.account, found.problem) == ("signed in with an API key", "")
    found = told(tmp_path, replace(ACCOUNT, model="gpt-0"))
    assert "gpt-0" in found.problem
    assert found.models[0] in found.problem


def test_a_binary_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLRELAY_CODEX", "/bin/echo")
    assert "does not look like Codex" in told(tmp_path, ACCOUNT).problem
    monkeypatch.setenv("TOOLRELAY_CODEX", "/nowhere/codex")
    with pytest.raises(ConfigurationError, match="TOOLRELAY_CODEX"):
        asyncio.run(status(ACCOUNT, Environment(data_dir=tmp_path, environ=dict(os.environ))))


def test_models_that_the_documents_name_are_ones_that_codex_knows() -> None:
    root = Path(__file__).parent.parent.parent
    pages = [root / "docs" / "codex.md", root / "docs" / "obsidian-copilot.md", root / "toolrelay.example.toml"]
    named = {
        name
        for page in pages
        for name in re.findall(r'^#?provider = "codex"\n#?model = "([^"]+)"', page.read_text(), re.MULTILINE)
    }
    assert named
    assert named <= {entry["slug"] for entry in surveyed().catalog}
