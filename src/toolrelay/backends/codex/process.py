"""One app-server process: its pending calls and the channels of its threads.

It runs as long as its standard input is open. The kernel closes that when the gateway exits for any reason, so no process is left
behind. It has a session of its own: a Ctrl-C in the gateway's terminal does not reach it, and its children can be killed with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

from toolrelay import __version__, log
from toolrelay.backends.codex.errors import OVERLOADED, CodexError
from toolrelay.backends.codex.home import CodexHome
from toolrelay.backends.codex.rpc import (
    LineReader,
    MalformedLine,
    Notification,
    RpcId,
    RpcMessage,
    RpcReply,
    ServerRequest,
    encode_line,
)
from toolrelay.backends.codex.server_requests import encode_refusal
from toolrelay.backends.codex.settings import CodexLocation
from toolrelay.core.json import JsonObject

RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # seconds before an overloaded process is asked again
START_SECONDS = 20.0
EXIT_SECONDS = 1.0
MAX_STDERR_BYTES = 2000  # of a line, or of all that a process writes before it is ready

_LOG_LINE = re.compile(rb"\S+ +([A-Z]+ +[\w:.]*\w)")

INITIALIZE_PARAMS: JsonObject = {
    "clientInfo": {"name": "toolrelay", "title": "Toolrelay", "version": __version__},
    "capabilities": {
        "experimentalApi": True,
        "requestAttestation": False,
        "optOutNotificationMethods": ["thread/started", "account/rateLimits/updated"],
    },
}


class Channel:
    """The messages of one thread, in batches as they arrived.

    It is created when the reply that names the thread is read, so no message can arrive before it. Closing it interrupts a
    running turn and refuses all unanswered requests. `running_turn` is set by the reply to turn/start already: the turn has to
    be interrupted even if none of its messages has arrived.
    """

    def __init__(self, process: AppServerProcess, thread_id: str) -> None:
        self.thread_id = thread_id
        self._process = process
        self._batch: list[Notification | ServerRequest] = []
        self._unanswered: dict[RpcId, ServerRequest] = {}
        self.running_turn = ""
        self._wakeup = asyncio.Event()
        self._is_closed = False

    async def next(self) -> list[Notification | ServerRequest]:
        while not self._batch:
            if self._process.end_reason is not None:
                raise self._process.ended_error()
            if self._is_closed:
                raise CodexError("The channel is closed")
            self._wakeup.clear()
            await self._wakeup.wait()
        batch, self._batch = self._batch, []
        return batch

    def answer(self, request: ServerRequest, result: JsonObject) -> None:
        """Send a result, unless the request was answered or is no longer waiting."""
        if self._unanswered.pop(request.id, None) is not None:
            self._process.send(encode_line({"id": request.id, "result": result}))

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._process.channels.pop(self.thread_id, None)
        if self.running_turn:  # before the refusals: otherwise the model would see them and continue
            self._process.interrupt(self.thread_id, self.running_turn)
        for request in self._unanswered.values():
            self._process.refuse(request)
        self._unanswered.clear()
        self._batch.clear()
        self.wake()

    def push(self, message: Notification | ServerRequest) -> None:
        self._batch.append(message)
        match message:
            case ServerRequest(request_id):
                self._unanswered[request_id] = message
            case Notification("turn/started", {"turn": {"id": str(turn_id)}}):
                self.running_turn = turn_id
            case Notification("turn/completed"):
                self.running_turn = ""
            case Notification("serverRequest/resolved", {"requestId": int() | str() as request_id}):
                self._unanswered.pop(request_id, None)

    def wake(self) -> None:
        self._wakeup.set()


class _RpcCall(NamedTuple):
    """A pending request of ours. `threads` receives the id of a thread that its reply opens."""

    method: str
    params: JsonObject
    threads: set[str] | None
    reply: asyncio.Future[JsonObject]


class AppServerProcess(asyncio.SubprocessProtocol):
    """`end_reason` is None while the process runs; `on_end` is called once.

    `thread_count` counts all threads ever opened, because the process never frees one. `is_unresponsive`: a call timed out.
    """

    def __init__(self, location: CodexLocation, home: CodexHome, on_end: Callable[[], None] = lambda: None) -> None:
        self.channels: dict[str, Channel] = {}
        self.end_reason: str | None = None
        self.thread_count = 0
        self.is_unresponsive = False
        self.home = home
        self._is_ready = False
        self._location = location
        self._on_end = on_end
        self._reader = LineReader()
        self._stderr = b""
        self._calls: dict[RpcId, _RpcCall] = {}
        self._ids = itertools.count(1)
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        return self._transport.get_pid() if self._transport is not None else 0

    async def start(self) -> None:
        """Start the binary and initialize the connection. A failure leaves nothing behind."""
        # Strict, because otherwise it ignores an invalid configuration and runs with its defaults: all tools on.
        command, environ = (self._location.binary, "app-server", "--strict-config"), self.home.environ(self._location)
        loop = asyncio.get_running_loop()
        spawn = loop.create_task(
            loop.subprocess_exec(lambda: self, *command, env=environ, cwd=self.home.work_dir, start_new_session=True)
        )
        try:
            # Not to be cancelled halfway: uvloop would leave a process that nobody waits for.
            await asyncio.shield(spawn)
            await self.call("initialize", INITIALIZE_PARAMS, within=START_SECONDS)
        except BaseException as error:
            await asyncio.wait([spawn])
            await self.close()
            match error:
                case OSError():
                    raise CodexError(f"Codex cannot be started: {error.strerror}", is_gone=True) from None
                case CodexError():  # no conversation was sent yet, so its stderr quotes none
                    raise CodexError(f"Codex did not start: {self._startup_error() or error.message}", is_gone=True) from None
            raise
        self.send(encode_line({"method": "initialized"}))
        self._is_ready = True

    async def call(self, method: str, params: JsonObject, *, within: float, threads: set[str] | None = None) -> JsonObject:
        """Return the result. Retry while the process is overloaded."""
        delays = iter(RETRY_DELAYS)
        try:
            async with asyncio.timeout(within):
                while True:
                    try:
                        return await self._send_call(method, params, threads)
                    except CodexError as error:
                        if error.code != OVERLOADED or (delay := next(delays, None)) is None:
                            raise
                    await asyncio.sleep(delay)
        except TimeoutError:
            self.is_unresponsive = True
            raise CodexError(f"Codex did not answer {method} within {within:g} seconds") from None

    def _send_call(self, method: str, params: JsonObject, threads: set[str] | None = None) -> asyncio.Future[JsonObject]:
        if self.end_reason is not None:
            raise self.ended_error()
        call = _RpcCall(method, params, threads, asyncio.get_running_loop().create_future())
        call_id = next(self._ids)
        self._calls[call_id] = call
        self.send(encode_line({"id": call_id, "method": method, "params": params}))
        return call.reply

    def interrupt(self, thread_id: str, turn_id: str, delays: tuple[float, ...] = RETRY_DELAYS) -> None:
        """Stop a turn without waiting for the reply. Retry while the process is overloaded."""
        if self.end_reason is not None:
            return

        def retry_if_overloaded(reply: asyncio.Future[JsonObject]) -> None:
            error = reply.exception()
            if isinstance(error, CodexError) and error.code == OVERLOADED and delays:
                reply.get_loop().call_later(delays[0], self.interrupt, thread_id, turn_id, delays[1:])

        params: JsonObject = {"threadId": thread_id, "turnId": turn_id}
        self._send_call("turn/interrupt", params).add_done_callback(retry_if_overloaded)

    def send(self, line: bytes) -> None:
        if self._stdin is None or self.end_reason is not None:
            return
        if self._stdin.is_closing():  # a killed process may close its input before its output ends
            self._end("has ended")
        else:
            self._stdin.write(line)

    def refuse(self, request: ServerRequest) -> None:
        if self.end_reason is None:
            log.info("codex_refused", method=request.method, pid=self.pid)
            self.send(encode_refusal(request))

    def ended_error(self) -> CodexError:
        return CodexError(f"The Codex app-server {self.end_reason or 'has ended'}", is_gone=True)

    def channel(self, thread_id: str) -> Channel:
        return self.channels.setdefault(thread_id, Channel(self, thread_id))

    def resident_bytes(self) -> int:
        """Return the resident memory, or 0 where the system has no /proc."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1]) * resource.getpagesize()
        except (OSError, IndexError, ValueError):
            return 0

    async def close(self) -> None:
        """End the process and remove its home, even if the caller is cancelled while waiting."""
        self._end("was closed")
        if self._transport is None or self._stdin is None:
            self.home.remove()
            return
        self._stdin.close()
        try:
            await asyncio.wait([self._exited], timeout=EXIT_SECONDS)
        finally:
            self._kill()
        await asyncio.wait([self._exited])

    def _kill(self) -> None:
        """Kill the whole group, including children."""
        if self._transport is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), signal.SIGKILL)

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._dispatch(self._reader.feed(data))
        else:
            self._read_stderr(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 -- the loop's signature
        if fd == 1:
            self._end("has ended")
            self._kill()  # it may still run, but is useless without its output

    def process_exited(self) -> None:
        self._end("has ended")
        self._kill()  # its children
        if self._transport is not None:
            log.debug("codex_ended", pid=self.pid, code=self._transport.get_returncode())
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- as above
        self.home.remove()
        if not self._exited.done():
            self._exited.set_result(None)

    def _end(self, reason: str) -> None:
        if self.end_reason is not None:
            return
        self.end_reason = reason
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.reply.done():
                call.reply.set_exception(self.ended_error())
        for channel in self.channels.values():
            channel.wake()
        self._on_end()

    def _dispatch(self, messages: list[RpcMessage]) -> None:
        touched: dict[Channel, None] = {}
        for message in messages:
            match message:
                case Notification(_, params) | ServerRequest(_, _, params):
                    channel = self.channels.get(cast("str", params.get("threadId")))
                    if channel is not None:
                        channel.push(message)
                        touched[channel] = None
                    elif isinstance(message, ServerRequest):
                        self.refuse(message)
                case RpcReply():
                    self._resolve(message)
                case MalformedLine(reason, size):
                    log.warning("codex_line_malformed", reason=reason, bytes=size, pid=self.pid)
        for channel in touched:
            channel.wake()

    def _resolve(self, reply: RpcReply) -> None:
        call = self._calls.pop(reply.id, None)
        if call is None:
            return
        match call.method, reply.result:
            case (("thread/start" | "thread/resume" | "thread/fork"), {"thread": {"id": str(thread_id)}}):
                self.thread_count += 1
                if not call.reply.done() and call.threads is not None:
                    call.threads.add(thread_id)
                    self.channel(thread_id)
            case "turn/start", {"turn": {"id": str(turn_id)}}:
                thread_id = cast("str", call.params["threadId"])
                channel = self.channels.get(thread_id)
                if channel is None or call.reply.done():  # nobody waits for this turn any more
                    self.interrupt(thread_id, turn_id)
                else:
                    channel.running_turn = turn_id
        if call.reply.done():
            return
        if reply.error is not None:
            call.reply.set_exception(CodexError(reply.error.message, code=reply.error.code))
        else:
            call.reply.set_result(reply.result)

    def _read_stderr(self, data: bytes) -> None:
        """Log only the source of each line once the process is ready: its text may quote a conversation."""
        if not self._is_ready:
            self._stderr = (self._stderr + data)[:MAX_STDERR_BYTES]
            return
        *lines, rest = (self._stderr + data).split(b"\n")
        self._stderr = rest[:MAX_STDERR_BYTES]
        for line in lines:
            found = _LOG_LINE.match(line)
            log.debug("codex_said", pid=self.pid, what=found[1].decode() if found else None, bytes=len(line))

    def _startup_error(self) -> str:
        """Return its stderr before the start failed, without warnings that are not the cause."""
        text = self._stderr.decode(errors="replace").partition("Stack backtrace")[0]
        return " ".join(line.strip() for line in text.splitlines() if line and "bubblewrap" not in line and "PATH" not in line)
