"""The health report for `toolrelay check`. The sign-ins are made up; nothing checks them."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.backends.codex.app_server import binary_path, probed_binary
from toolrelay.backends.base import HealthReport
from toolrelay.backends.codex.settings import CodexSettings
from toolrelay.backends.codex.status import NOT_SIGNED_IN, inspect
from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment

ACCOUNT = CodexSettings(name="mine", provider="codex", model="gpt-5.5")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty Codex home instead of the real one."""
    home = tmp_path / "person"
    home.mkdir()
    monkeypatch.setenv("CODEX_HOME", str(home))
    monkeypatch.setenv("TOOLRELAY_CODEX", binary_path())
    return home


def report_of(tmp_path: Path, settings: CodexSettings) -> HealthReport:
    found = asyncio.run(inspect(settings, Environment(data_dir=tmp_path / "data", environ=dict(os.environ))))
    assert not list((tmp_path / "data").rglob("home-*"))
    return found


def test_custom_provider_needs_no_sign_in(tmp_path: Path) -> None:
    found = report_of(tmp_path, replace(ACCOUNT, base_url="http://127.0.0.1:9/v1"))
    assert re.fullmatch(r"Codex [\d.]+, the provider at http://127\.0\.0\.1:9/v1", found.summary)
    assert found.problem == ""
    assert "gpt-5.5" in found.notes[0]


def test_api_key_is_not_shown(tmp_path: Path) -> None:
    found = report_of(tmp_path, replace(ACCOUNT, api_key="sk-secret"))
    assert found.summary.endswith(", OpenAI, with the key of api_key")
    assert "sk-secret" not in repr(found)


def test_missing_sign_in_is_reported(tmp_path: Path) -> None:
    assert report_of(tmp_path, ACCOUNT).problem == NOT_SIGNED_IN


def test_unknown_model_is_reported(tmp_path: Path, own_home: Path) -> None:
    (own_home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "sk-made-up"}))
    found = report_of(tmp_path, ACCOUNT)
    assert found.summary.endswith(", signed in with an API key")
    assert found.problem == ""
    found = report_of(tmp_path, replace(ACCOUNT, model="gpt-0"))
    assert "gpt-0" in found.problem
    assert "gpt-5.5" in found.problem


def test_unusable_binary_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLRELAY_CODEX", "/bin/echo")
    with pytest.raises(ConfigurationError, match="does not look like Codex"):
        report_of(tmp_path, ACCOUNT)
    monkeypatch.setenv("TOOLRELAY_CODEX", "/nowhere/codex")
    with pytest.raises(ConfigurationError, match="TOOLRELAY_CODEX"):
        report_of(tmp_path, ACCOUNT)


def test_models_in_the_docs_are_in_the_catalog() -> None:
    root = Path(__file__).parents[3]
    pages = [root / "docs" / "codex.md", root / "docs" / "obsidian-copilot.md", root / "toolrelay.example.toml"]
    named = {
        name
        for page in pages
        for name in re.findall(r'^#?provider = "codex"\n#?model = "([^"]+)"', page.read_text(), re.MULTILINE)
    }
    assert named
    assert named <= {entry["slug"] for entry in probed_binary().catalog}
