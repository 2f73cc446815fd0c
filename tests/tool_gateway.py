"""A gateway with tools of its own, in front of any model."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gateway import Gateway, running

TOOLSETS = """
[toolsets.mine]
kind = "python"
module = "loop_tools"
approval = "never"
allow = ["get_*"]

[toolsets.odd]
kind = "python"
module = "loop_tools"
approval = "never"
allow = ["big", "hang", "wait"]
timeout_seconds = 30
"""

_MODULE = '''
import asyncio
from pathlib import Path

from toolrelay import tool

HERE = Path(__file__).parent


def note(run: str) -> None:
    with (HERE / "runs").open("a") as file:
        file.write(f"{run}\\n")


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    note(f"get_weather {city}")
    return f"18 degrees in {city}"


@tool
def get_time(city: str) -> str:
    """The time in a city."""
    note(f"get_time {city}")
    return f"noon in {city}"


@tool
def big(size: int) -> str:
    """Return many letters."""
    note(f"big {size}")
    return "x" * size


@tool
def wait() -> str:
    """Wait until the test writes into the pipe."""
    note("wait")
    return (HERE / "pipe").read_text()


@tool
async def hang() -> str:
    """Never return."""
    note("hang")
    await asyncio.Event().wait()
    return ""
'''


_HI = {"role": "user", "content": "Hi"}


class ToolGateway:
    """A running gateway. Its tools note their runs in a file, and `wait` returns what is written into the pipe."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.gateway = gateway
        self._folder = folder

    def runs(self) -> list[str]:
        """Return the runs since the last time this was called."""
        path = self._folder / "runs"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def release(self, result: str) -> None:
        """Let the tool `wait` return this result."""
        (self._folder / "pipe").write_text(result)


@contextlib.contextmanager
def running_tools(config: str, *, environ: dict[str, str] | None = None) -> Iterator[ToolGateway]:
    """Start the gateway with the toolsets of TOOLSETS."""
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory(prefix="toolrelay-tools-") as name:
        folder = Path(name)
        (folder / "loop_tools.py").write_text(_MODULE)
        os.mkfifo(folder / "pipe")
        paths = {"PYTHONPATH": f"{root}{os.pathsep}{folder}"}
        with running(config + TOOLSETS, environ={**paths, **(environ or {})}) as gateway:
            yield ToolGateway(gateway, folder)


def second_request(name: str, answer: dict[str, Any]) -> list[Any]:
    """What the client sends back: the answer, and the result of its own call."""
    if name == "anthropic_messages":
        result = {"type": "tool_result", "tool_use_id": answer["content"][-1]["id"], "content": "r"}
        return [_HI, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": [result]}]
    if name == "openai_chat":
        message = answer["choices"][0]["message"]
        return [_HI, message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "r"}]
    items = [item for item in answer["output"] if item["type"] != "mcp_call"]
    (call,) = (item for item in items if item["type"] == "function_call")
    return [_HI, *items, {"type": "function_call_output", "call_id": call["call_id"], "output": "r"}]
