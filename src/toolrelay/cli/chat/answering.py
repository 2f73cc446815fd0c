"""Runs a turn: shows its answer, asks about its tools, and stops it on Ctrl-C."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple, Protocol, TypeAlias

from rich.console import Console
from rich.text import Text

from toolrelay.cli._gateway import RefusedError
from toolrelay.cli._output import CommandError
from toolrelay.cli.approvals.answers import Remember, deny, summarize
from toolrelay.cli.approvals.client import Event, Question
from toolrelay.cli.approvals.dialog import QuestionDialog
from toolrelay.cli.approvals.display import describe_end
from toolrelay.cli.approvals.feed import Failed, Feed
from toolrelay.cli.chat.client import ChatClient
from toolrelay.cli.chat.display import REFRESH_SECONDS, AnswerView
from toolrelay.cli.chat.follower import Broken, Ended, FollowerChange, Lost, Received, ResponseFollower, Restored
from toolrelay.cli.chat.signals import EchoSwitch, Interrupts

JsonObject: TypeAlias = dict[str, Any]

CHANGED = "The question before this one ended elsewhere: this is another one. Enter goes on > "
LOST = "The connection to the gateway is lost. Trying to take up the answer again; Ctrl-C stops."
RESTORED = "Connected again."
SILENT = "Still waiting. If a tool needs an approval, somebody else must give it: this key may not."
SILENCE_SECONDS = 15.0
NOBODY = "Nobody could be asked."


class Outcome(NamedTuple):
    """How a turn ended. None as `response`: it was left, and may go on."""

    response: JsonObject | None
    seconds: float


class QuestionEndedError(Exception):
    """The question on the screen ended elsewhere, or with its turn."""


class InterruptedQuestionError(Exception):
    """Ctrl-C was pressed."""


class OpenQuestions:
    """The open questions of all turns, as the feed tells them."""

    def __init__(self, feed: Feed) -> None:
        self.wake = feed.wake
        self._feed = feed
        self._open: dict[str, Question] = {}

    def take(self) -> tuple[list[Question], list[str]]:
        """Take note of changes. Return the questions that ended elsewhere, and problems."""
        ended: list[Question] = []
        problems: list[str] = []
        for change in self._feed.take():
            match change:
                case Event("asked", question):
                    self._open[question["id"]] = question
                case Event(_, question):
                    ended += [question] if self.forget(question) else []
                case Failed(error):
                    problems.append(error.message)
        return ended, problems

    def of_turn(self, response: str | None) -> list[Question]:
        return [each for each in self._open.values() if response is not None and response == f"resp_{each['turn']}"]

    def forget(self, question: Question) -> bool:
        """Return whether the question was open."""
        return self._open.pop(question["id"], None) is not None


class QuestionAsker(Protocol):
    """Gets questions of the turn answered."""

    def ask(self, question: Question, answering: Answering) -> None: ...


class Answering:
    """One turn in front of a person, or of nobody."""

    def __init__(
        self, client: ChatClient, questions: OpenQuestions | None, view: AnswerView, asker: QuestionAsker, echo: EchoSwitch
    ) -> None:
        self.client = client
        self.view = view
        self.echo = echo
        self.skipped: set[str] = set()
        self._asker = asker
        self._questions = questions
        self._current: str | None = None
        self._pending: list[FollowerChange] = []
        self._stops = 0

    def run(self, turn: ResponseFollower) -> Outcome:
        """Follow the turn to its end. Raise CommandError if it never began or cannot be followed any more."""
        self._turn = turn
        started = time.monotonic()
        with closing(turn), Interrupts() as self._interrupts, self.echo.quiet():
            try:
                response = self._follow()
            finally:
                self.view.finish()
        return Outcome(response, time.monotonic() - started)

    @property
    def wakers(self) -> list[int]:
        return [self._turn.wake, self._interrupts.wake, *([] if self._questions is None else [self._questions.wake])]

    def _follow(self) -> JsonObject | None:
        heard = time.monotonic()
        while True:
            ready, _, _ = select.select(self.wakers, [], [], REFRESH_SECONDS)
            if self._turn.wake in ready:
                heard = time.monotonic()
            elif self._questions is None and time.monotonic() - heard > SILENCE_SECONDS:
                self.view.note(SILENT)
                heard = float("inf")
            self._take(ready)
            if self._stops > 1:
                return None
            changes, self._pending = self._pending, []
            for change in changes:
                match change:
                    case Received(event):
                        self.view.handle(event)
                    case Lost():
                        self.view.note(LOST)
                    case Restored():
                        self.view.note(RESTORED)
                    case Ended(response):
                        return response
                    case Broken(error):
                        raise error
            self.view.refresh()
            question = next((each for each in self._open_questions() if each["id"] not in self.skipped), None)
            if question is not None:
                self._ask(question)

    def _open_questions(self) -> list[Question]:
        return [] if self._questions is None else self._questions.of_turn(self._turn.id)

    def _ask(self, question: Question) -> None:
        self.view.pause()
        self._current = question["id"]
        self.echo.set_echo(is_on=True)
        try:
            self._asker.ask(question, self)
        except (QuestionEndedError, InterruptedQuestionError):
            pass  # it was said already
        except CommandError as error:
            self.view.note(error.message)
            self._look_again(question)
        finally:
            self._current = None
            self.echo.set_echo(is_on=False)

    def _look_again(self, question: Question) -> None:
        """Forget a question that could not be answered because it has ended."""
        try:
            is_open = self.client.retrieve(question["id"])["status"] == "pending"
        except RefusedError as error:
            is_open = error.status != 404
        except CommandError:
            return
        if not is_open:
            self.settle(question)

    def settle(self, question: Question) -> None:
        """Note that the question needs no answer any more."""
        if self._questions is not None:
            self._questions.forget(question)

    def on_wake(self, ready: Sequence[int]) -> bool:
        """Take note of what happens while a question is on the screen."""
        notices = self._take(ready)
        if notices:
            self.view.note("")
        for notice in notices:
            self.view.note(notice)
        if self._stops:
            raise InterruptedQuestionError
        has_ended = any(isinstance(change, Ended | Broken) for change in self._pending)
        if has_ended or self._current not in [each["id"] for each in self._open_questions()]:
            raise QuestionEndedError
        return bool(notices)

    def _take(self, ready: Sequence[int]) -> list[str]:
        """Read what the wakers have. Return what is to be said about questions."""
        if self._turn.wake in ready:
            self._pending += self._turn.take()
        if self._interrupts.wake in ready and self._interrupts.take():
            self._stop()
        if self._questions is None or self._questions.wake not in ready:
            return []
        ended, notices = self._questions.take()
        ours = [question for question in ended if self._turn.id == f"resp_{question['turn']}"]
        notices += [f"{summarize(question)} is {describe_end(question)}." for question in ours]
        if self._current is None:
            for notice in notices:
                self.view.note(notice)
            return []
        return notices

    def _stop(self) -> None:
        self._stops += 1
        if self._current is not None:
            self.view.note("")  # the line of the prompt
        if self._stops == 1:
            self.view.note("Stopping. Ctrl-C again leaves the answer to the gateway.")
            self._turn.stop()


class TerminalAsker:
    """Asks at a terminal."""

    def __init__(self, console: Console, source: int, editor: str) -> None:
        self._console = console
        self._source = source
        self._editor = editor
        self._has_changed = False

    def ask(self, question: Question, answering: Answering) -> None:
        dialog = QuestionDialog(
            answering.client,
            self._console,
            self._editor,
            source=self._source,
            wakers=answering.wakers,
            on_wake=answering.on_wake,
        )
        dialog.show(question)
        try:
            if self._has_changed:
                dialog.ask(CHANGED)
                self._has_changed = False
            answered = dialog.converse(question)
        except QuestionEndedError:
            self._has_changed = True
            raise
        except EOFError:
            self._console.print()  # the line of the prompt
            answered = None
        if answered is None:
            answering.skipped.add(question["id"])
            answered = "Skipped. The answer waits until somebody answers: in the console, or with toolrelay approvals."
        else:
            answering.settle(question)
        self._console.print(Text(answered, style="dim"))


class AbsentAsker:
    """Denies, because nobody can be asked, or waits until somebody answers elsewhere."""

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits

    def ask(self, question: Question, answering: Answering) -> None:
        answering.skipped.add(question["id"])
        if self._waits:
            answering.view.note(
                f"waiting for an approval of {summarize(question)}. Answer in the console, or with toolrelay approvals."
            )
            return
        try:
            deny(answering.client, question, Remember(), NOBODY)
        except RefusedError as error:
            answering.view.note(error.message)
            return
        answering.settle(question)
        answering.view.note(
            f"denied, because nobody can be asked here: {summarize(question)}. --wait-for-approval waits for an answer elsewhere."
        )
