"""One app-server: its process, the calls that wait for it, and the threads that are listened to.

It lives as long as its standard input is open, which the kernel closes when the gateway ends, however that ends: so none is left
behind. It has a session of its own, so that a Ctrl-C in the gateway's terminal does not reach it, and so that what it may have
started can be ended with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import cast

from toolrelay import __version__, log
from toolrelay.backends.codex.home import CodexLocation, Home
from toolrelay.backends.codex.json_access import refusal
from toolrelay.backends.codex.rpc import (
    Fault,
    Id,
    LineReader,
    Malformed,
    Message,
    Notification,
    Result,
    ServerRequest,
    encode_notification,
    encode_request,
    encode_result,
)
from toolrelay.core.json import JsonObject

OVERLOADED = -32001
BACKOFF = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
START_SECONDS = 20.0
LEAVE_SECONDS = 1.0
MOST_SAID = 2000

_LOG_LINE = re.compile(rb"\S+ +([A-Z]+ +[\w:.]*\w)")

HELLO: JsonObject = {
    "clientInfo": {"name": "toolrelay", "title": "Toolrelay", "version": __version__},
    "capabilities": {
        "experimentalApi": True,
        "requestAttestation": False,
        "optOutNotificationMethods": ["thread/started", "account/rateLimits/updated"],
    },
}


class CodexError(Exception):
    """`code` is the one of JSON-RPC, if the app-server refused; `gone`: its process has ended."""

    def __init__(self, message: str, *, code: int | None = None, gone: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.gone = gone


class Channel:
    """The messages of one thread, in batches as they came.

    It exists from the moment in which the reply that names the thread is read, so that no message can come before it. Closing
    it interrupts a turn that still runs and refuses what was asked and not answered.
    """

    def __init__(self, process: Process, thread_id: str) -> None:
        self.thread_id = thread_id
        self._process = process
        self._batch: list[Notification | ServerRequest] = []
        self._unanswered: dict[Id, ServerRequest] = {}
        self._running = ""
        self._awaited: asyncio.Future[None] | None = None
        self._closed = False

    async def next(self) -> list[Notification | ServerRequest]:
        while not self._batch:
            if self._process.ended is not None:
                raise self._process.gone()
            if self._closed:
                raise CodexError("The channel is closed")
            self._awaited = asyncio.get_running_loop().create_future()
            try:
                await self._awaited
            finally:
                self._awaited = None
        batch, self._batch = self._batch, []
        return batch

    def answer(self, request: ServerRequest, result: JsonObject) -> None:
        """A request that was answered already, or that the process no longer waits for, is let be."""
        if self._unanswered.pop(request.id, None) is not None:
            self._process.send(encode_result(request.id, result))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._process.channels.pop(self.thread_id, None)
        if self._running:  # first, or the model would be told of the refusals and go on
            self._process.interrupt(self.thread_id, self._running)
        for request in self._unanswered.values():
            self._process.refuse(request)
        self._unanswered.clear()
        self._batch.clear()
        self.wake()

    def begin(self, turn_id: str) -> None:
        """A turn runs. Its first message says so too, but whoever leaves before that must not leave it running."""
        self._running = turn_id

    def put(self, message: Notification | ServerRequest) -> None:
        self._batch.append(message)
        if isinstance(message, ServerRequest):
            self._unanswered[message.id] = message
            return
        match message:
            case Notification("turn/started", {"turn": {"id": str(turn_id)}}):
                self.begin(turn_id)
            case Notification("turn/completed"):
                self._running = ""
            case Notification("serverRequest/resolved", {"requestId": int() | str() as request_id}):
                self._unanswered.pop(request_id, None)

    def wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)


class _Call:
    """A request of ours that is under way. `threads` gets the id of a thread that its reply opens."""

    __slots__ = ("method", "params", "reply", "threads")

    def __init__(self, method: str, params: JsonObject, threads: set[str] | None) -> None:
        self.method = method
        self.params = params
        self.threads = threads
        self.reply: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()


class Process(asyncio.SubprocessProtocol):
    """`ended` is None while it lives, then why it no longer does; `on_end` is told once.

    `threads` counts those that it was ever asked for, because it never frees one. `is_slow`: it left a call without an answer.
    """

    def __init__(self, place: CodexLocation, home: Home, on_end: Callable[[], None] = lambda: None) -> None:
        self.channels: dict[str, Channel] = {}
        self.ended: str | None = None
        self.threads = 0
        self.is_slow = False
        self._is_ready = False
        self._place = place
        self._home = home
        self._on_end = on_end
        self._reader = LineReader()
        self._said = b""
        self._calls: dict[Id, _Call] = {}
        self._last_id = 0
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        return self._transport.get_pid() if self._transport is not None else 0

    @property
    def work(self) -> str:
        return str(self._home.work)

    async def start(self) -> None:
        """Starts the binary and shakes hands. What goes wrong leaves nothing behind."""
        spawned = asyncio.create_task(self._spawn())
        try:
            # Not to be cancelled halfway: uvloop would leave a process that nobody waits for.
            await asyncio.shield(spawned)
            await self.call("initialize", HELLO, within=START_SECONDS)
        except BaseException as error:
            await asyncio.wait([spawned])
            await self.close()
            match error:
                case OSError():
                    raise CodexError(f"Codex cannot be started: {error.strerror}", gone=True) from None
                case CodexError():  # nothing was said to it yet, so its own words quote nobody
                    raise CodexError(f"Codex did not start: {self._complaint() or error.message}", gone=True) from None
            raise
        self.send(encode_notification("initialized"))
        self._is_ready = True

    async def _spawn(self) -> None:
        # Strict, because otherwise it answers a configuration that it cannot read by running with its own: all tools on.
        await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            self._place.binary,
            "app-server",
            "--strict-config",
            env=self._home.environ(self._place),
            cwd=self.work,
            start_new_session=True,
        )

    async def call(self, method: str, params: JsonObject, *, within: float, threads: set[str] | None = None) -> JsonObject:
        """The result, after as many tries as an overloaded process needs."""
        pauses = iter(BACKOFF)
        try:
            async with asyncio.timeout(within):
                while True:
                    try:
                        return await self._ask(_Call(method, params, threads))
                    except CodexError as error:
                        if error.code != OVERLOADED or (pause := next(pauses, None)) is None:
                            raise
                    await asyncio.sleep(pause)
        except TimeoutError:
            self.is_slow = True
            raise CodexError(f"Codex did not answer {method} within {within:g} seconds") from None

    async def _ask(self, call: _Call) -> JsonObject:
        if self.ended is not None:
            raise self.gone()
        self._calls[self._next_id()] = call
        self.send(encode_request(self._last_id, call.method, call.params))
        return await call.reply

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def interrupt(self, thread_id: str, turn_id: str, pauses: tuple[float, ...] = BACKOFF) -> None:
        """Without waiting for what it says to that, unless it is overloaded: nobody else would stop the turn."""
        if self.ended is not None:
            return
        params: JsonObject = {"threadId": thread_id, "turnId": turn_id}
        call = self._calls[self._next_id()] = _Call("turn/interrupt", params, None)
        self.send(encode_request(self._last_id, call.method, params))

        def look(reply: asyncio.Future[JsonObject]) -> None:
            error = reply.exception()
            if isinstance(error, CodexError) and error.code == OVERLOADED and pauses:
                reply.get_loop().call_later(pauses[0], self.interrupt, thread_id, turn_id, pauses[1:])

        call.reply.add_done_callback(look)

    def send(self, line: bytes) -> None:
        if self._stdin is None or self.ended is not None:
            return
        if self._stdin.is_closing():  # a process that was killed may close its input before its output ends
            self._end("has ended")
        else:
            self._stdin.write(line)

    def refuse(self, request: ServerRequest) -> None:
        if self.ended is None:
            log.info("codex_refused", method=request.method, pid=self.pid)
            self.send(refusal(request))

    def gone(self) -> CodexError:
        return CodexError(f"The Codex app-server {self.ended or 'has ended'}", gone=True)

    def channel(self, thread_id: str) -> Channel:
        channel = self.channels.get(thread_id)
        if channel is None:
            channel = self.channels[thread_id] = Channel(self, thread_id)
        return channel

    def resident_bytes(self) -> int:
        """How much memory it holds; 0 where the system does not say."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1]) * resource.getpagesize()
        except (OSError, IndexError, ValueError):
            return 0

    async def close(self) -> None:
        """Ends it for certain, and its home with it. Whoever is cancelled while waiting for that has seen to it all the same."""
        self._end("was closed")
        if self._stdin is not None:
            self._stdin.close()
        try:
            if self._transport is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LEAVE_SECONDS):
                        await asyncio.shield(self._exited)
        finally:
            self.kill()
            if self._transport is None:
                self._home.remove()
        if self._transport is not None:
            await asyncio.shield(self._finished)

    def kill(self) -> None:
        """The whole group, so that nothing stays which it may have started."""
        if self._transport is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), signal.SIGKILL)

    # What follows is called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._take(self._reader.feed(data))
        else:
            self._hear(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 -- the loop's signature
        if fd == 1:
            self._end("has ended")
            self.kill()  # one that closed its output and lives on is of no use

    def process_exited(self) -> None:
        self._end("has ended")
        self.kill()  # its children, if it has any
        if not self._exited.done():
            self._exited.set_result(None)
        if self._transport is not None:
            log.debug("codex_ended", pid=self.pid, code=self._transport.get_returncode())
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- as above
        self._home.remove()
        if not self._finished.done():
            self._finished.set_result(None)

    def _end(self, reason: str) -> None:
        if self.ended is not None:
            return
        self.ended = reason
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.reply.done():
                call.reply.set_exception(self.gone())
        for channel in self.channels.values():
            channel.wake()
        self._on_end()

    def _take(self, messages: list[Message]) -> None:
        touched: dict[Channel, None] = {}
        for message in messages:
            match message:
                case Notification(_, params) | ServerRequest(_, _, params):
                    channel = self.channels.get(cast("str", params.get("threadId")))
                    if channel is not None:
                        channel.put(message)
                        touched[channel] = None
                    elif isinstance(message, ServerRequest):
                        self.refuse(message)
                case Result():
                    self._resolve(message)
                case Fault(identity, code, text):
                    call = self._calls.pop(identity, None)
                    if call is not None and not call.reply.done():
                        call.reply.set_exception(CodexError(text, code=code))
                case Malformed(reason, size):
                    log.warning("codex_line_malformed", reason=reason, bytes=size, pid=self.pid)
        for channel in touched:
            channel.wake()

    def _resolve(self, message: Result) -> None:
        call = self._calls.pop(message.id, None)
        if call is None:
            return
        match call.method, message.result:
            case (("thread/start" | "thread/resume" | "thread/fork"), {"thread": {"id": str(thread_id)}}):
                self.threads += 1
                if not call.reply.done() and call.threads is not None:
                    call.threads.add(thread_id)
                    self.channel(thread_id)
            case "turn/start", {"turn": {"id": str(turn_id)}}:
                thread_id = cast("str", call.params["threadId"])
                channel = self.channels.get(thread_id)
                if channel is None or call.reply.done():  # nobody waits for this turn any more
                    self.interrupt(thread_id, turn_id)
                else:
                    channel.begin(turn_id)
        if not call.reply.done():
            call.reply.set_result(message.result)

    def _hear(self, data: bytes) -> None:
        """Its log. Once it is ready only where a line comes from is told, because what it says may quote a conversation."""
        if not self._is_ready:
            self._said = (self._said + data)[:MOST_SAID]
            return
        *lines, rest = (self._said + data).split(b"\n")
        self._said = rest[:MOST_SAID]
        for line in lines:
            found = _LOG_LINE.match(line)
            log.debug("codex_said", pid=self.pid, what=found[1].decode() if found else None, bytes=len(line))

    def _complaint(self) -> str:
        """What it said before it gave up, without what is no complaint."""
        said = self._said.decode(errors="replace").partition("Stack backtrace")[0]
        return " ".join(line.strip() for line in said.splitlines() if line and "bubblewrap" not in line and "PATH" not in line)
