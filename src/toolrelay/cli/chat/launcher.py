"""The gateway behind the chat: finds it, or starts one that all chats share and that the last of them stops."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias

from toolrelay.cli._gateway import GatewayClient, GatewayProbe, UnreachableError, configured_url, split_url
from toolrelay.cli._output import MISUSED, UNREACHABLE, CommandError
from toolrelay.cli._text import escape_controls
from toolrelay.runtime.data_directory import protect_data_directory
from toolrelay.settings import Settings, is_loopback
from toolrelay.web.tls import make_own_client_context

Health: TypeAlias = Literal["ready", "draining", "none"]

FOLDER = "chat"  # in the data directory
READY_SECONDS = 60.0
STOP_SECONDS = 15.0  # then a second signal stops running turns
KILL_SECONDS = 15.0
MAX_LOG_BYTES = 5_000_000  # a longer log begins anew with the next gateway
_POLL_SECONDS = 0.05
_READY = "Toolrelay is ready at "


def open_folder(settings: Settings) -> Path:
    """Return the chat's folder in the data directory, for this user only."""
    data_dir = settings.environment.data_dir
    protect_data_directory(data_dir)
    folder = data_dir / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CommandError(
            f"{folder} cannot be made: {error.strerror}. Name another directory with --data-dir.", MISUSED
        ) from None
    return folder


class Launcher:
    """Starts and stops the gateway of a configuration.

    `gateway.json` in the chat's folder names the gateway that a chat started; that gateway holds a lock on the file as long as
    it lives. `users.lock` is held, shared, by every chat: who gets it alone is the last one.
    """

    def __init__(self, settings: Settings, options: list[str], say: Callable[[str], None]) -> None:
        """`options` are those of `toolrelay serve`: the configuration file and the data directory."""
        self._settings = settings
        self._options = options
        self._speak = say
        self._folder = open_folder(settings)
        self._log = self._folder / "gateway.log"
        self._lock = Lock()
        self._child: subprocess.Popen[str] | None = None
        os.close(os.open(self._folder / "gateway.json", os.O_RDWR | os.O_CREAT, 0o600))
        self._users = os.open(self._folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._users, fcntl.LOCK_SH)

    def ensure(self) -> str:
        """Return the URL of a gateway that is ready. Start one if none runs. Raise CommandError if that is not possible."""
        with self._lock:
            until = time.monotonic() + READY_SECONDS
            while time.monotonic() < until:
                url = self._find_url()
                health = "none" if url is None else check_health(url, make_own_client_context(self._settings))
                if url is not None and health == "ready":
                    if not self._is_running():
                        self._clear_record()  # it is not one that a chat started
                    return url
                if health == "none":
                    started = self._start()
                    if started is not None:
                        return started
                time.sleep(_POLL_SECONDS)
            raise CommandError(f"The gateway did not get ready. Its log: {self._log}", UNREACHABLE)

    def revive(self) -> None:
        """Start the gateway again if it was one that a chat had started, whose lock is free now that it is gone."""
        if self._read_record() and not self._is_running():
            with suppress(CommandError):
                self.ensure()

    def close(self) -> None:
        """Stop the gateway if a chat had started it and no other chat uses it."""
        with suppress(OSError):
            fcntl.flock(self._users, fcntl.LOCK_UN)
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._child is not None:
                    self._say("Another chat uses the gateway: it goes on, and stops with the last chat.")
                return
            self._stop()
        os.close(self._users)

    def _say(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._speak(text)

    def _find_url(self) -> str | None:
        """Return where the gateway is, or should be. None: nobody knows its port before it starts."""
        if self._settings.server.port != 0:
            return configured_url(self._settings)
        url = self._read_record().get("url") if self._is_running() else None
        return url if isinstance(url, str) else None

    def _is_running(self) -> bool:
        """Return whether the gateway of a chat runs: then it holds the lock."""
        if self._child is not None:
            self._child.poll()
        probe = os.open(self._folder / "gateway.json", os.O_RDWR)
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(probe)
        return False

    def _read_record(self) -> dict[str, Any]:
        try:
            found = json.loads((self._folder / "gateway.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _clear_record(self) -> None:
        with suppress(OSError):
            os.truncate(self._folder / "gateway.json", 0)

    def _start(self) -> str | None:
        """Start a gateway and return its URL. None: another chat is starting one."""
        host = self._settings.server.host
        if not is_loopback(host):
            url = configured_url(self._settings)
            raise CommandError(
                f"No gateway answers at {url}. It listens beyond this machine, so it is not started from here: toolrelay serve.",
                UNREACHABLE,
            )
        held = os.open(self._folder / "gateway.json", os.O_RDWR)
        try:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            self._say("Starting the gateway …")
            child = self._spawn(held)
            self._child = child
            os.ftruncate(held, 0)
            os.pwrite(held, json.dumps({"pid": child.pid}).encode(), 0)
            url = self._await_ready(child)
            os.pwrite(held, json.dumps({"pid": child.pid, "url": url}).encode(), 0)
        finally:
            os.close(held)
        self._say(f"Started the gateway at {url}; it stops with the chat. Its log: {self._log}")
        return url

    def _spawn(self, lock: int) -> subprocess.Popen[str]:
        is_long = self._log.exists() and self._log.stat().st_size > MAX_LOG_BYTES
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if is_long else 0)
        log = os.open(self._log, flags, 0o600)
        try:
            return subprocess.Popen(  # noqa: S603 -- this program itself
                [sys.executable, "-m", "toolrelay", "serve", *self._options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=[lock],
                start_new_session=True,  # Ctrl-C is for the answer, not for the gateway
            )
        finally:
            os.close(log)

    def _await_ready(self, child: subprocess.Popen[str]) -> str:
        until = time.monotonic() + READY_SECONDS
        if child.stdout is None:
            raise AssertionError
        while (left := until - time.monotonic()) > 0 and select.select([child.stdout], [], [], left)[0]:
            line = child.stdout.readline()
            if line.startswith(_READY):
                return line.removeprefix(_READY).strip()
            if not line:
                child.wait()
                break
        else:
            child.kill()
        raise CommandError(f"The gateway did not start.\n{self._last_log_lines()}\nIts log: {self._log}", UNREACHABLE)

    def _last_log_lines(self) -> str:
        with suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - 4000))
            lines = file.read().decode(errors="replace").splitlines()[-8:]
            return "\n".join(f"  {escape_controls(line)}" for line in lines)
        return ""

    def _stop(self) -> None:
        pid = self._read_record().get("pid")
        if not isinstance(pid, int) or not self._is_running():
            return
        self._say("Stopping the gateway …")
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            until = time.monotonic() + seconds
            with suppress(KeyboardInterrupt):  # an impatient Ctrl-C goes to the next step
                while time.monotonic() < until:
                    if not self._is_running():
                        self._clear_record()
                        return
                    time.sleep(_POLL_SECONDS)


def check_health(url: str, context: ssl.SSLContext | None = None) -> Health:
    """Return what a gateway says about itself. Raise CommandError if another program listens there."""
    client = GatewayProbe(url, None, context)
    try:
        health = client.request("GET", "/healthz")
        if not isinstance(health.get("version"), str) or health.get("status") != "ok":
            raise _foreign(url)
        return _check_readiness(client)
    except UnreachableError as error:
        if error.is_refused:
            return "none"
        raise _foreign(url) from None
    except CommandError:
        raise _foreign(url) from None


def _check_readiness(client: GatewayClient) -> Health:
    try:
        client.request("GET", "/readyz")
    except UnreachableError:
        return "draining"  # between two requests
    except CommandError:
        return "draining"
    return "ready"


def _foreign(url: str) -> CommandError:
    port = split_url(url).port
    return CommandError(
        f"Another program listens at {url}: it does not answer as a gateway of Toolrelay. Stop it, or choose another port: "
        f"port under [server] in toolrelay.toml (now {port}), or the gateway's address with --url.",
        UNREACHABLE,
    )
