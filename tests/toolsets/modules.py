"""Modules of tools, written beside a configuration file. What importing them changes is undone."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

WriteModule = Callable[..., str]
HEAD = "from toolrelay import ToolContext, ToolError, tool\n"


@pytest.fixture
def write_module(tmp_path: Path) -> Iterator[WriteModule]:
    """Return a function that writes a module into the test's directory and returns its name."""
    path, modules = list(sys.path), set(sys.modules)

    def write(source: str, name: str = "my_tools", *, head: str = HEAD) -> str:
        (tmp_path / f"{name}.py").write_text(head + textwrap.dedent(source), encoding="utf-8")
        return name

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
