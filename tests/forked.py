"""Gateway processes that are forked from one that has imported the code, which takes most of the time of a start."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from multiprocessing.reduction import DupFd
from pathlib import Path

from toolrelay.cli import main

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.preloaded", __name__])
_PATHS = (*sys.path,)


class ForkedProcess:
    """`toolrelay` with these arguments, as if the command had been executed. Has what tests use of `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], *, stderr: int, cwd: Path, env: Mapping[str, str]) -> None:
        ours, theirs = os.pipe()
        self.stdout = TextIOWrapper(os.fdopen(ours, "rb"))
        output = _Descriptor(theirs), _Descriptor(stderr)
        self._process = _CONTEXT.Process(target=_run, args=(arguments, cwd, dict(env), *output))
        self._process.start()
        os.close(theirs)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("toolrelay", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Descriptor:
    """A file descriptor that is duplicated when it is pickled."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[object, tuple[object]]:
        return _detach, (DupFd(self.number),)


def _detach(duplicate: object) -> int:
    number: int = duplicate.detach()  # type: ignore[attr-defined]  # its class is not public
    return number


def _run(arguments: Sequence[str], cwd: Path, env: Mapping[str, str], stdout: int, stderr: int) -> None:
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    folders = env["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [str(cwd), *folders, *_PATHS]
    for customized in filter(Path.exists, (Path(folder) / "sitecustomize.py" for folder in folders)):
        runpy.run_path(str(customized))
    sys.argv = ["toolrelay", *arguments]
    try:
        main(arguments)
    finally:
        atexit._run_exitfuncs()  # multiprocessing does not
