"""A background response: start it, follow its stream in a thread, and follow it again when the connection breaks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any, NamedTuple, TypeAlias

from toolrelay.cli._gateway import EventStream, RefusedError, UnreachableError
from toolrelay.cli._output import CommandError
from toolrelay.cli.chat.client import ChatClient

JsonObject: TypeAlias = dict[str, Any]

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"})
FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 5.0
MAX_TRIES_SECONDS = 600.0  # then a gateway that is gone stays gone


class Received(NamedTuple):
    """An event of the stream."""

    event: JsonObject


class Lost(NamedTuple):
    message: str


class Restored(NamedTuple):
    pass


class Ended(NamedTuple):
    """The response as it is at its end."""

    response: JsonObject


class Broken(NamedTuple):
    """It cannot be followed any more, or never began."""

    error: CommandError


FollowerChange: TypeAlias = Received | Lost | Restored | Ended | Broken


class ResponseFollower:
    """Follows one response. `wake` is a file descriptor that is readable when there are changes.

    `revive` is called when nothing listens any more; it may start the gateway again.
    """

    def __init__(self, client: ChatClient, revive: Callable[[], None] | None = None) -> None:
        self.wake, self._waker = os.pipe()
        self.id: str | None = None
        self._client = client
        self._revive = revive
        self._changes: SimpleQueue[FollowerChange] = SimpleQueue()
        self._sequence = -1
        self._stream: EventStream | None = None
        self._has_ended = False
        self._wants_stop = False
        self._left = Flag()
        self._guard = Lock()
        self._is_closed = False
        os.set_blocking(self._waker, False)

    def start(self, body: JsonObject) -> None:
        request = {**body, "background": True, "stream": True}
        Thread(
            target=self._follow, args=(lambda: self._client.open_stream("POST", "/v1/responses", request),), daemon=True
        ).start()

    def resume(self, response: str) -> None:
        """Follow a response that runs already, from its beginning."""
        self.id = response
        Thread(target=self._follow, args=(self._again,), daemon=True).start()

    def take(self) -> list[FollowerChange]:
        """Return the changes since the last time."""
        os.read(self.wake, 65536)
        taken: list[FollowerChange] = []
        with suppress(Empty):
            while True:
                taken.append(self._changes.get_nowait())
        return taken

    def stop(self) -> None:
        """Cancel the response, now or as soon as it has begun."""
        self._wants_stop = True
        if self.id is not None:
            Thread(target=self._cancel, daemon=True).start()

    def leave(self) -> None:
        """Follow it no longer; it goes on."""
        self._left.set()
        if self._stream is not None:
            self._stream.close()

    def close(self) -> None:
        self.leave()
        with self._guard:
            self._is_closed = True
            os.close(self.wake)
            os.close(self._waker)

    def _cancel(self) -> None:
        with suppress(CommandError):  # its end, or the loss of the gateway, is seen in the stream
            response = self._client.cancel(str(self.id))
            if response.get("status") == "cancelled":
                self._end(response)
                self.leave()

    def _put(self, change: FollowerChange) -> None:
        with self._guard, suppress(BlockingIOError):  # a pipe that is full wakes as well
            if not self._is_closed:
                self._changes.put(change)
                os.write(self._waker, b".")

    def _end(self, response: JsonObject) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._put(Ended(response))

    def _again(self) -> EventStream:
        return self._client.open_response_stream(str(self.id), after=self._sequence)

    def _follow(self, begin: Callable[[], EventStream]) -> None:
        try:
            self._follow_stream(begin)
        except CommandError as error:
            if not self._has_ended:
                self._put(Broken(error))

    def _follow_stream(self, begin: Callable[[], EventStream]) -> None:
        open_stream, pause, waited, is_lost = begin, FIRST_PAUSE_SECONDS, 0.0, False
        while not self._left.is_set():
            problem: CommandError
            try:
                self._stream = open_stream()
                if is_lost:
                    self._put(Restored())
                    if self._wants_stop:
                        self.stop()
                pause, waited, is_lost = FIRST_PAUSE_SECONDS, 0.0, False
                for event in self._events(self._stream):
                    self._receive(event)
                    if self._has_ended:
                        return
                problem = UnreachableError("The gateway ended the stream.")
            except CommandError as error:
                problem = error
            may_pass = isinstance(problem, UnreachableError) or (
                isinstance(problem, RefusedError) and (problem.status == 429 or problem.status >= 500)
            )
            if self.id is None or not may_pass or waited >= MAX_TRIES_SECONDS:
                raise problem
            if not is_lost and not self._left.is_set() and not self._has_ended:
                self._put(Lost(problem.message))
                is_lost = True
            if self._revive is not None and isinstance(problem, UnreachableError) and problem.is_refused:
                self._revive()
            self._left.wait(pause)
            pause, waited = min(pause * 2, MAX_PAUSE_SECONDS), waited + pause
            open_stream = self._again

    def _events(self, stream: EventStream) -> Iterator[JsonObject]:
        for event in stream:
            if event is not None and event.data == "[DONE]":
                return
            if event is not None:
                yield self._client.decode(event.data)

    def _receive(self, event: JsonObject) -> None:
        sequence = event.get("sequence_number")
        if isinstance(sequence, int):
            if sequence <= self._sequence:
                return
            self._sequence = sequence
        response = event.get("response")
        if self.id is None and isinstance(response, dict) and isinstance(response.get("id"), str):
            self.id = response["id"]
            if self._wants_stop:
                self.stop()
        self._put(Received(event))
        if event.get("type") in ENDS:
            failed = {"status": "failed", "error": event.get("error") or {"message": event.get("message")}}
            self._end(response if isinstance(response, dict) else failed)
