"""Configuration files for tests, written into an empty directory, and the problems that loading reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from toolrelay.config import load
from toolrelay.errors import ConfigurationError

HASH = "4f8e0b7c3a1d5e2f6b9c8d7a0e1f2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c"
Write = Callable[..., str]


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a configuration file into the current directory and returns its name."""

    def write(text: str, name: str = "toolrelay.toml") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write


def problems(path: str | None, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(path, environ or {})
    return str(caught.value).splitlines()
