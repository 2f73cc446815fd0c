"""The gateway as a process, for end-to-end tests."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import httpx

from tests.forked import ForkedProcess

TIMEOUT_SECONDS = 60  # only a test that hangs reaches it

Process: TypeAlias = "subprocess.Popen[str] | ForkedProcess"
RUNNING: list[Gateway] = []
"""The gateways that run now."""


class Gateway:
    """A running `toolrelay serve`."""

    def __init__(self, process: Process, url: str, log_path: Path, config: str = "") -> None:
        self.process = process
        self.config = config
        self.url = url
        self._log_path = log_path
        self._markers: set[str] = set()

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def data_dir(self) -> Path:
        return self._log_path.parent / "data"

    def log(self) -> str:
        """Return what was logged so far. While the process runs, its log level must be `info` or `debug`.

        A thread of the gateway writes the log, in order. So this sends a request that is refused, and waits for its line.
        """
        if self.process.poll() is not None:
            return self._without_markers(self._log_path.read_text())
        marker = self.post("/v1/chat/completions", {}).headers["x-request-id"].removeprefix("req_")
        self._markers.add(marker)
        until = time.monotonic() + TIMEOUT_SECONDS
        while marker not in (text := self._log_path.read_text()):
            assert time.monotonic() < until, f"no line of the request {marker} in the log: {text}"
        return self._without_markers(text)

    def _without_markers(self, text: str) -> str:
        return "".join(line for line in text.splitlines(keepends=True) if not any(marker in line for marker in self._markers))

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, headers=headers, timeout=60)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=60)

    def open_turns(self) -> int:
        [value] = re.findall("^toolrelay_turns_open (.*)$", self.get("/metrics").text, re.MULTILINE)
        return int(float(value))

    def await_no_turns(self) -> None:
        """Wait until all turns have ended. A turn whose client has gone may still be writing its record."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while count := self.open_turns():
            assert time.monotonic() < until, f"{count} turns are still open"

    def refuses_connections(self) -> bool:
        """Return whether it has stopped to listen."""
        try:
            self.get("/healthz")
        except httpx.ConnectError:
            return True
        except httpx.TransportError:  # it stopped while this request waited to be accepted
            return False
        return False

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


_ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = """
import sys
from toolrelay.config import from_environment
settings = from_environment(sys.argv[1], port=0, data_dir=sys.argv[2])
"""


@contextlib.contextmanager
def running(
    config: str | None = "",
    *,
    environ: dict[str, str] | None = None,
    flags: tuple[str, ...] = (),
    program: str = "",
    is_forked: bool = True,
    stderr: int | None = None,
    folder: Path | None = None,
) -> Iterator[Gateway]:
    """Start the gateway on a free port; stop it with SIGTERM. `config` None: it has no configuration file.

    Configuration, data directory (`data`) and log are in `folder`, by default a temporary one.
    `program` is Python code that runs instead of `toolrelay serve`, with the same `settings`. `is_forked` False: the command is
    executed, which takes longer. `stderr` is a file descriptor that replaces the file behind `log()`. The code is that of
    this directory, also if another one is installed.
    """
    given = environ or {}
    with contextlib.ExitStack() as stack:
        work = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolrelay-test-")))
        if config is not None:
            (work / "toolrelay.toml").write_text(config)
        log_path = work / "log"
        if program:
            arguments = ["-c", _PROGRAM + program, str(work / "toolrelay.toml"), str(work / "data")]
        else:
            arguments = ["-m", "toolrelay", "serve", *(() if config is None else ("--config", str(work / "toolrelay.toml")))]
            arguments += ["--port", "0", "--data-dir", str(work / "data"), *flags]
        with log_path.open("a") as log:
            python_path = f"{_ROOT / 'src'}{os.pathsep}{given.get('PYTHONPATH', _ROOT)}"
            environment = {**_clean_environ(), **given, "PYTHONPATH": python_path}
            errors = log.fileno() if stderr is None else stderr
            if is_forked and not program:
                process: Process = ForkedProcess(arguments[2:], stderr=errors, cwd=work, env=environment)
            else:
                command = [sys.executable, *arguments]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=work, env=environment)
        gateway = None
        try:
            gateway = Gateway(process, _await_ready(process, log_path), log_path, config or "")
            RUNNING.append(gateway)
            yield gateway
        finally:
            if gateway is not None:
                RUNNING.remove(gateway)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _await_ready(process: Process, log_path: Path) -> str:
    assert process.stdout is not None
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until:
        if select.select([process.stdout], [], [], 0.2)[0]:
            line = process.stdout.readline()
            if line.startswith("Toolrelay is ready at "):
                return line.rpartition(" ")[2].strip()
            if not line:
                break
    message = f"the gateway did not start (exit code {process.poll()}): {log_path.read_text()}"
    raise AssertionError(message)


def _clean_environ() -> dict[str, str]:
    return {
        key: value
        for key, value in os.environ.items()
        if not key.upper().endswith("_PROXY") and not key.startswith(("TOOLRELAY_", "OPENAI_", "ANTHROPIC_"))
    }


def behind(url: str) -> str:
    """Return a configuration: a model for each wire, by its name, reaches the model `demo` of the gateway at `url` over it."""
    return "".join(
        f'[models.{wire}]\nprovider = "compatible"\nbase_url = "{url}/v1"\nwire = "{wire}"\nmodel = "demo"\n'
        for wire in ("chat", "responses", "anthropic")
    )
