"""One process with llama.cpp's server: its start, its address, and its end.

It runs as long as its standard input is open. The kernel closes that when the gateway exits for any reason, so no process is left
behind. It has a session of its own: a Ctrl-C in the gateway's terminal does not reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import signal
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from toolrelay import log
from toolrelay.backends.local import llama_server
from toolrelay.backends.local.settings import DEFAULT_CONTEXT, LocalSettings, default_threads
from toolrelay.errors import BackendError

EXIT_SECONDS = 2.0
MAX_STDERR_BYTES = 16 * 1024  # of what it says until it is ready: later lines may quote a prompt, and are dropped
MAX_LINE_BYTES = 64 * 1024

_CAUSE = re.compile(rb"^[\d.]+ E (?:\S+ +)?[\w():~ ]*?: (.+)$", re.MULTILINE)


class _Ready(Struct):
    """The line that the process prints when it is ready, or when it is not going to be."""

    address: str = ""
    has_guidance: bool = False
    error: str = ""


class LlamaProcess:
    """A running process. `key` is what its server accepts: other programs on this machine cannot use it.

    `has_guidance`: see llama_wire.
    """

    def __init__(self, process: asyncio.subprocess.Process, key: str) -> None:
        self.key = key
        self.address = ""
        self.has_guidance = False
        self._process = process
        self._stderr = bytearray()
        self._is_ready = False
        self._reading = asyncio.create_task(self._read_stderr())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    def describe_end(self) -> str:
        """Say how the process ended, for an error message."""
        code = self._process.returncode or 0
        if code == -signal.SIGKILL:
            return "was killed (signal 9: by someone, or by the system for lack of memory)"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    async def load(self, line: bytes, path: Path, seconds: float) -> None:
        """Send the options and wait until the model is loaded. Raise BackendError if it cannot be."""
        try:
            async with asyncio.timeout(seconds):
                ready = await self._exchange(line)
                if not ready.address:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(self._reading), EXIT_SECONDS)
        except TimeoutError:
            raise BackendError(
                f"llama.cpp did not load {path.name} within {seconds:g} seconds (timeout_seconds).",
                status=504,
                code="upstream_timeout",
            ) from None
        if not ready.address:
            await self.wait(EXIT_SECONDS)  # its exit code is the cause if it printed none
            found = _CAUSE.search(self._stderr)
            cause = found[1].decode(errors="replace")[:300] if found else ready.error or self.describe_end()
            raise BackendError(f"llama.cpp cannot load {path.name}: {cause}", status=503, code="model_not_loaded")
        self.address, self.has_guidance, self._is_ready = ready.address, ready.has_guidance, True
        self._stderr.clear()

    async def _exchange(self, line: bytes) -> _Ready:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("the process has pipes")
        try:
            stdin.write(line)
            await stdin.drain()
            return msgspec.json.decode(await stdout.readline() or b"{}", type=_Ready)
        except (OSError, ValueError):  # it ended, or printed something else
            return _Ready()

    async def wait(self, seconds: float) -> bool:
        """Return whether the process has ended, after at most this time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._process.wait()), seconds)
        return not self.is_running

    async def close(self) -> None:
        """End the process, even if the caller is cancelled while waiting."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await self.wait(EXIT_SECONDS)
        finally:
            if self.is_running:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
        await self._process.wait()
        await self._reading

    async def _read_stderr(self) -> None:
        stderr = self._process.stderr
        while stderr is not None and (data := await stderr.read(MAX_STDERR_BYTES)):
            if not self._is_ready:
                self._stderr = (self._stderr + data)[:MAX_STDERR_BYTES]


async def start_process(settings: LocalSettings, path: Path) -> LlamaProcess:
    """Start a process and load the model, or raise BackendError. A failure leaves nothing behind."""
    options = {
        "model": str(path),
        "name": settings.name,
        "key": secrets.token_urlsafe(24),
        "context_length": settings.context_length or DEFAULT_CONTEXT,
        "threads": settings.threads or default_threads(),
        "parallel": settings.parallel,
    }
    spawn = asyncio.create_task(
        asyncio.create_subprocess_exec(
            sys.executable,
            llama_server.__file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
        )
    )
    try:
        # Not to be cancelled halfway: uvloop would leave a process that nobody waits for.
        process = LlamaProcess(await asyncio.shield(spawn), str(options["key"]))
    except OSError as error:
        raise BackendError(f"The process of the local model cannot be started: {error.strerror}.", status=503) from None
    except asyncio.CancelledError:
        await asyncio.wait([spawn])
        if spawn.exception() is None:
            await LlamaProcess(spawn.result(), "").close()
        raise
    try:
        await process.load(msgspec.json.encode(options) + b"\n", path, settings.timeout_seconds)
    except BaseException:
        await process.close()
        raise
    log.info("local_model_loaded", model=settings.name, file=path.name, pid=process.pid, threads=options["threads"])
    return process
