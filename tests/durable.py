"""A gateway with tools that write down each run, and what is left of a turn after its process was killed."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import httpx

from tests.gateway import Gateway, running
from tests.model_server import configuration
from tests.upstream import Upstream

TIMEOUT_SECONDS = 60  # only a test that hangs reaches it
TERMINAL = ("response.completed", "response.failed", "response.incomplete", "response.cancelled")

TOOLS = '''
import os
import time
from pathlib import Path

from toolrelay import ToolContext, tool

FOLDER = Path(__file__).parent


def write(line: str, name: str = "runs") -> None:
    file = os.open(FOLDER / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\\n".encode())
    os.close(file)


@tool
def once(number: int) -> str:
    """Do what must not be repeated."""
    write(f"once {number}")
    time.sleep(0.005)
    return f"once {number} is done"


@tool(idempotent=True)
def again(number: int) -> str:
    """Do what may be repeated."""
    write(f"again {number}")
    time.sleep(0.005)
    return f"again {number} is done"


@tool
def big() -> str:
    """Return much."""
    return "x" * 200_000


@tool(timeout_seconds=60)
def wait(context: ToolContext) -> str:
    """Wait for the file `go`."""
    write("wait")
    while not (FOLDER / "go").exists():
        if context.cancelled:
            write("cancelled")
            return "cancelled"
        time.sleep(0.005)
    return "waited"
'''

TOOLSET = """
[toolsets.mine]
kind = "python"
module = "durable_tools"
approval = {approval}
"""


class Workshop:
    """A folder with configuration, tools and data, in which gateways run one after the other, on one port."""

    def __init__(
        self, folder: Path, upstream: Upstream, *, config: str = "", model: str = "", program: str = "", approval: str = "never"
    ) -> None:
        self.folder = folder
        model = f'toolsets = ["mine"]\nmax_tool_rounds = 20\n{model}'
        self._config = configuration(
            upstream,
            before=config + TOOLSET.replace("{approval}", approval if approval.startswith("{") else f'"{approval}"'),
            model=model,
        )
        self._port = 0
        self._program = program
        self.database = folder / "data" / "toolrelay.db"
        (folder / "durable_tools.py").write_text(TOOLS)

    def start(self) -> AbstractContextManager[Gateway]:
        return running(self._config, folder=self.folder, flags=("--port", str(self._port)), program=self._program)

    def keep_port(self, gateway: Gateway) -> None:
        self._port = gateway.port

    def kill(self, gateway: Gateway) -> None:
        """Kill it with SIGKILL. The next one gets its port."""
        self.keep_port(gateway)
        gateway.process.kill()
        gateway.process.wait()

    def lines(self, name: str = "runs") -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def await_line(self, line: str) -> None:
        """Wait until a tool has written this line."""
        self.await_that(lambda: line in self.lines(), self.lines)

    def await_that(self, condition: Callable[[], bool], describe: Callable[[], object]) -> None:
        until = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < until, describe()
            time.sleep(0.005)

    def let_go(self) -> None:
        """End the runs of `wait`."""
        (self.folder / "go").touch()

    def clear(self) -> None:
        """Forget the runs so far."""
        for name in ("runs", "go"):
            (self.folder / name).unlink(missing_ok=True)

    def steps(self, turn: str) -> list[dict[str, Any]]:
        with closing(self._database()) as database:
            rows = database.execute("SELECT data FROM steps WHERE turn = ? ORDER BY seq", (turn,))
            return [json.loads(data) for (data,) in rows]

    def statuses(self) -> list[str]:
        with closing(self._database()) as database:
            return [status for (status,) in database.execute("SELECT status FROM turns ORDER BY created_at, id")]

    def last_turn(self) -> str:
        with closing(self._database()) as database:
            (turn,) = database.execute("SELECT id FROM turns ORDER BY created_at DESC").fetchone()
            return str(turn)

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)


def read_events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream up to its end mark, or until the connection breaks."""
    try:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))
    except httpx.TransportError:
        return
