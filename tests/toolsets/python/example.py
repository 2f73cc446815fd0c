"""A toolset of kind `python` for the contract suite."""

from __future__ import annotations

from pathlib import Path

from toolrelay.settings import Environment
from toolrelay.toolsets.base import Toolset
from toolrelay.toolsets.python import KIND, PythonSettings

SOURCE = '''
import threading
from toolrelay import ToolContext, tool

@tool(idempotent=True)
def echo(text: str) -> str:
    """Return the text."""
    return text

@tool
def fail() -> str:
    """Raise an exception."""
    raise ValueError("as planned")

@tool
async def wait(context: ToolContext) -> str:
    """Report progress, then wait until it is cancelled."""
    import asyncio
    context.progress(1, 2, "waiting")
    await asyncio.Event().wait()
    return "never"
'''


def example_settings(directory: Path) -> PythonSettings:
    (directory / "example_tools.py").write_text(SOURCE, encoding="utf-8")
    return PythonSettings(name="example", kind="python", module="example_tools", approval="never")


def example(directory: Path) -> Toolset:
    """Return a toolset, not yet open, with the tools echo(text), fail() and wait()."""
    return KIND.open(example_settings(directory), Environment(data_dir=directory, config_dir=directory))
