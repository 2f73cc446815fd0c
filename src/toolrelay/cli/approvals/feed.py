"""The questions of a gateway as they change, also over restarts of the gateway."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Thread
from typing import NamedTuple, TypeAlias

from toolrelay.cli._gateway import RefusedError, UnreachableError
from toolrelay.cli._output import CommandError
from toolrelay.cli.approvals.client import Client, Event, Question

FIRST_DELAY_SECONDS = 0.25
MAX_DELAY_SECONDS = 10.0
STABLE_SECONDS = 5.0  # a connection that lasted so long was a good one


class ConnectionLost(NamedTuple):
    message: str


class ConnectionRestored(NamedTuple):
    pass


class Failed(NamedTuple):
    """The gateway refuses this client. Nothing follows."""

    error: CommandError


Change: TypeAlias = Event | ConnectionLost | ConnectionRestored | Failed


class Feed:
    """Follows the events of a gateway in a thread. `wake` is a file descriptor that is readable when there are changes.

    What is open already comes first, as `asked`. Nothing is reported twice; what was missed while the connection was lost is
    reported after it is restored.
    """

    def __init__(self, client: Client) -> None:
        self.wake, self._waker = os.pipe()
        self._client = client
        self._changes: SimpleQueue[Change] = SimpleQueue()
        self._open: dict[str, Question] = {}
        self._closed = Flag()

    def start(self) -> None:
        """Connect. Raise CommandError if the gateway does not answer or refuses."""
        stream = self._connect()
        Thread(target=self._follow, args=(stream,), daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def take(self) -> list[Change]:
        """Return the changes since the last time."""
        os.read(self.wake, 65536)
        taken: list[Change] = []
        with suppress(Empty):
            while True:
                taken.append(self._changes.get_nowait())
        return taken

    def _put(self, change: Change) -> None:
        self._changes.put(change)
        os.write(self._waker, b".")

    def _follow(self, stream: Iterator[Event | None]) -> None:
        delay = 0.0
        while not self._closed.is_set():
            since = time.monotonic()
            try:
                for event in stream:
                    if event is not None:
                        self._note(event)
            except CommandError as error:
                problem = error
            if time.monotonic() - since >= STABLE_SECONDS:
                delay = 0.0
            found = self._reconnect(problem, delay)
            if found is None:
                return
            stream, delay = found, min(max(FIRST_DELAY_SECONDS, 2 * delay), MAX_DELAY_SECONDS)

    def _reconnect(self, problem: CommandError, delay: float) -> Iterator[Event | None] | None:
        """Try until the gateway answers. A connection that is back at once is not worth a word."""
        is_reported = False
        while not self._closed.wait(delay):
            try:
                stream = self._connect()
            except RefusedError as error:
                if error.status in (401, 403):
                    self._put(Failed(error))
                    return None
                problem = error
            except CommandError as error:
                problem = error
            else:
                if is_reported:
                    self._put(ConnectionRestored())
                return stream
            if not is_reported:
                self._put(ConnectionLost(problem.message))
                is_reported = True
            delay = min(max(FIRST_DELAY_SECONDS, 2 * delay), MAX_DELAY_SECONDS)
        return None

    def _connect(self) -> Iterator[Event | None]:
        """Open the stream, then compare with what is open: so nothing is missed in between."""
        stream = self._client.events()
        if next(stream, None) is not None:
            raise UnreachableError(f"What answers at {self._client.url} is not a gateway of this version.")
        listed = {question["id"]: question for question in self._client.list_questions()}
        for missing in [question for id_, question in self._open.items() if id_ not in listed]:
            self._note(self._find_end(missing))
        for question in listed.values():
            self._note(Event("asked", question))
        return stream

    def _find_end(self, question: Question) -> Event:
        try:
            question = self._client.retrieve(question["id"])
        except RefusedError as error:
            if error.status != 404:
                raise
            question = {**question, "status": "withdrawn"}
        status = question["status"]
        names = {"pending": "asked", "expired": "expired", "withdrawn": "withdrawn"}
        return Event(names.get(status, "answered"), question)

    def _note(self, event: Event) -> None:
        name = event.question["id"]
        if event.name == "asked":
            is_known = name in self._open
            self._open[name] = event.question
            if is_known:
                return
        else:
            self._open.pop(name, None)
        self._put(event)
