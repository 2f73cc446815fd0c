"""`toolrelay approvals watch`: asks a person about each question as it comes, or prints events as JSON lines."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Sequence
from contextlib import suppress

import typer
from rich.console import Console
from rich.text import Text

from toolrelay.cli._gateway import RefusedError
from toolrelay.cli._output import CommandError
from toolrelay.cli._text import escape_controls
from toolrelay.cli.approvals.answers import summarize
from toolrelay.cli.approvals.client import Client, Event, Question
from toolrelay.cli.approvals.dialog import MAX_LINE_BYTES, QuestionDialog
from toolrelay.cli.approvals.display import describe_end, open_console
from toolrelay.cli.approvals.feed import Change, ConnectionLost, ConnectionRestored, Failed, Feed

CHANGED = "The question before this one ended elsewhere: this is another one. Enter goes on > "
LOST = "The connection to the gateway is lost. Trying again until it answers."
RESTORED = "Connected again."
WAITING = "Waiting for the next one; Ctrl-C ends."


def watch(client: Client, editor: str) -> None:
    """Follow the questions until the person ends it."""
    feed = Feed(client)
    feed.start()
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            _Watch(client, feed, open_console(), editor).run()
        else:
            _print_events(feed)
    finally:
        feed.close()


def _print_events(feed: Feed) -> None:
    while True:
        for change in feed.take():
            match change:
                case Event(name, question):
                    line = json.dumps({"event": name, "approval": question}, ensure_ascii=False)
                    typer.echo(escape_controls(line))
                case ConnectionLost():
                    typer.echo(f"toolrelay: {LOST}", err=True)
                case ConnectionRestored():
                    typer.echo(f"toolrelay: {RESTORED}", err=True)
                case Failed(error):
                    raise error


class _EndedError(Exception):
    """The question on the screen ended without an answer from here."""


class _FailedError(Exception):
    """The gateway refuses this client from now on."""

    def __init__(self, error: CommandError) -> None:
        super().__init__(error.message)
        self.error = error


class _Watch:
    """One question is on the screen at a time; the others wait."""

    def __init__(self, client: Client, feed: Feed, console: Console, editor: str) -> None:
        self._client = client
        self._feed = feed
        self._console = console
        self._input = sys.stdin.fileno()
        self._dialog = QuestionDialog(
            client,
            console,
            editor,
            source=self._input,
            wakers=[feed.wake],
            on_wake=lambda _: self._note(feed.take()),
        )
        self._open: dict[str, Question] = {}
        self._skipped: set[str] = set()
        self._answered: set[str] = set()  # here, so that their events are no news
        self._current: str | None = None
        self._has_changed = False  # under the person's hands, who may be typing an answer to the question before

    def run(self) -> None:
        is_idle = False
        try:
            while True:
                question = next((each for id_, each in self._open.items() if id_ not in self._skipped), None)
                if question is not None:
                    is_idle = False
                    self._handle(question)
                    continue
                if not is_idle and not self._has_news():
                    skipped = f"{len(self._open)} skipped, no other question is open." if self._open else "No question is open."
                    self._say(f"{skipped} {WAITING}")
                    is_idle = True
                self._wait()
        except EOFError:
            self._console.print()
        except _FailedError as failure:
            raise failure.error from None
        except KeyboardInterrupt:
            self._console.print()
            raise

    # Changes

    def _has_news(self) -> bool:
        return bool(select.select([self._feed.wake], [], [], 0)[0])

    def _wait(self) -> None:
        """Wait for news. What is typed meanwhile is meant for no question."""
        ready, _, _ = select.select([self._input, self._feed.wake], [], [])
        if self._feed.wake in ready:
            self._note(self._feed.take())
        elif not os.read(self._input, MAX_LINE_BYTES):
            raise EOFError

    def _note(self, changes: Sequence[Change]) -> bool:
        """Take note of changes. Return whether something was printed. Raise _EndedError if the current question ended."""
        notices: list[str] = []
        for change in changes:
            match change:
                case Event("asked", question):
                    self._open[question["id"]] = question
                    self._answered.discard(question["id"])
                case Event(_, question):
                    notices += self._note_end(question)
                case ConnectionLost():
                    notices.append(LOST)
                case ConnectionRestored():
                    notices.append(RESTORED)
                case Failed(error):
                    raise _FailedError(error)
        if notices and self._current is not None:
            self._console.print()  # the line of the prompt
        for notice in notices:
            self._say(notice)
        if self._current is not None and self._current not in self._open:
            raise _EndedError
        return bool(notices)

    def _note_end(self, question: Question) -> list[str]:
        name = question["id"]
        was_open = self._open.pop(name, None) is not None
        self._skipped.discard(name)
        if name in self._answered:
            self._answered.discard(name)
            return []
        return [f"{summarize(question)} is {describe_end(question)}."] if was_open else []

    # A question

    def _handle(self, question: Question) -> None:
        self._current = question["id"]
        self._dialog.show(question)
        try:
            if self._has_changed:
                self._dialog.ask(CHANGED)
                self._has_changed = False
            answered = self._dialog.converse(question)
            if answered is None:
                self._skipped.add(question["id"])
            else:
                self._open.pop(question["id"], None)
                self._answered.add(question["id"])
                self._say(answered)
        except _EndedError:
            self._has_changed = True
        except RefusedError as error:
            if error.status in (401, 403):
                raise
            self._say(error.message)
            self._look_again(question)
        except CommandError as error:
            self._say(error.message)
        finally:
            self._current = None

    def _look_again(self, question: Question) -> None:
        """Forget a question whose answer was refused, unless it is still open: its turn may be about to go on."""
        with suppress(CommandError):
            if self._client.retrieve(question["id"])["status"] != "pending":
                self._open.pop(question["id"], None)

    def _say(self, text: str) -> None:
        self._console.print(Text(text))
