"""`toolrelay approvals watch`: asks a person about each question as it comes, or prints events as JSON lines."""

from __future__ import annotations

import json
import os
import re
import select
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress

import typer
from rich.console import Console
from rich.text import Text

from toolrelay.cli._gateway import RefusedError
from toolrelay.cli._output import CommandError
from toolrelay.cli.approvals.answers import Editor, Remember, allow, deny, describe_answer, edit, pick_files, summarize
from toolrelay.cli.approvals.client import Client, Event, Question
from toolrelay.cli.approvals.display import (
    MAX_LINES,
    describe_end,
    files_of,
    open_console,
    print_choices,
    print_question,
)
from toolrelay.cli.approvals.feed import Change, ConnectionLost, ConnectionRestored, Failed, Feed
from toolrelay.cli.approvals.text import escape_controls

MAX_LINE_BYTES = 65536
CHANGED = "The question before this one ended elsewhere: this is another one. Enter goes on > "
LOST = "The connection to the gateway is lost. Trying again until it answers."
RESTORED = "Connected again."
WAITING = "Waiting for the next one; Ctrl-C ends."
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


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
        self._editor = Editor(editor, self._confirm, self._pause)
        self._open: dict[str, Question] = {}
        self._skipped: set[str] = set()
        self._answered: set[str] = set()  # here, so that their events are no news
        self._current: str | None = None
        self._input = sys.stdin.fileno()
        self._typed = b""
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
        self._console.print()
        print_question(self._console, question, max_lines=MAX_LINES)
        termios.tcflush(self._input, termios.TCIFLUSH)  # what was typed before is not about this question
        self._typed = b""
        try:
            if self._has_changed:
                self._ask(CHANGED)
                self._has_changed = False
            self._converse(question)
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

    def _converse(self, question: Question) -> None:
        """Ask until the question is answered or skipped."""
        remember = Remember()
        has_files = bool(files_of(question))
        words = ("allow", "edit", "deny", "skip", "remember", "view", *(("pick",) if has_files else ()))
        pick = "[p]ick files  " if has_files else ""
        while True:
            menu = f"[a]llow  [e]dit  {pick}[d]eny  [s]kip  [v]iew all  [r]emember: {_describe(remember)} > "
            typed = self._ask(menu).lower()
            choice = next((word for word in words if typed in (word, word[0])), "")
            answered: Question | None = None
            match choice:
                case "allow":
                    answered = allow(self._client, question, None, remember, None)
                case "edit":
                    answered = self._edit(question, remember)
                case "pick":
                    answered = self._pick(question, remember)
                case "deny":
                    reason = self._ask("Reason, which the model is told (Enter: none) > ")
                    answered = deny(self._client, question, remember, reason or None)
                case "remember":
                    remember = self._ask_remember(question)
                case "view":
                    print_question(self._console, question)
                case "skip":
                    self._skipped.add(question["id"])
                    return
                case _:
                    self._say("Type one of the letters in brackets.")
            if answered is not None:
                self._open.pop(question["id"], None)
                self._answered.add(question["id"])
                self._say(describe_answer(answered, remember))
                return

    def _edit(self, question: Question, remember: Remember) -> Question | None:
        try:
            answered = edit(self._client, question, remember, None, self._editor)
        except RefusedError:
            raise
        except CommandError as error:
            self._say(error.message)
            return None
        if answered is None:
            self._say("Nothing was answered.")
        return answered

    def _pick(self, question: Question, remember: Remember) -> Question | None:
        files = files_of(question)
        chosen = {file.path for file in files}
        while True:
            print_choices(self._console, files, chosen)
            typed = self._ask("Numbers tick and untick (1 3-5), * all, 0 none; [a]llow those with x, [b]ack > ").lower()
            match typed:
                case "b" | "back":
                    return None
                case "a" | "allow" if chosen:
                    arguments = pick_files(question, sorted(chosen))
                    return allow(self._client, question, arguments, remember, None)
                case "a" | "allow":
                    self._say("No file is ticked. Go back, and deny the question instead.")
                case "*":
                    chosen = {file.path for file in files}
                case "0":
                    chosen = set()
                case _:
                    numbers = _numbers(typed, len(files))
                    if numbers is None:
                        self._say(f"Expected numbers from 1 to {len(files)}.")
                    else:
                        chosen ^= {files[number - 1].path for number in numbers}

    def _ask_remember(self, question: Question) -> Remember:
        conversation = "this [c]onversation, " if question["conversation"] is not None else ""
        typed = self._ask(f"Remember the answer: [o]nce, {conversation}[a]lways > ").lower()
        scopes = ["once", "always", *(["conversation"] if conversation else [])]
        scope = next((scope for scope in scopes if typed and scope.startswith(typed)), "once")
        if scope == "once":
            return Remember()
        typed = self._ask("For [a]ny arguments, or only the [s]ame > ").lower()
        return Remember(scope, same_arguments=not typed.startswith("a"))

    # The terminal

    def _ask(self, prompt: str) -> str:
        """Return a line that the person types. Raise _EndedError if the question ends meanwhile."""
        self._print_prompt(prompt)
        while True:
            ready, _, _ = select.select([self._input, self._feed.wake], [], [])
            if self._feed.wake in ready and self._note(self._feed.take()):
                self._print_prompt(prompt)
            if self._input in ready:
                line = self._read_line()
                if line is not None:
                    return line

    def _read_line(self) -> str | None:
        """Return the line that was typed, or None if it has not ended yet."""
        data = os.read(self._input, MAX_LINE_BYTES)
        if not data:
            raise EOFError
        self._typed += data
        line, end, rest = self._typed.partition(b"\n")
        if not end:
            return None
        self._typed = rest
        return line.decode(errors="replace").strip()

    def _print_prompt(self, prompt: str) -> None:
        self._console.file.write(prompt)
        self._console.file.flush()

    def _say(self, text: str) -> None:
        self._console.print(Text(text))

    def _confirm(self, question: str) -> bool:
        return self._ask(f"{question} [y/N] > ").lower() in ("y", "yes")

    def _pause(self, problem: str) -> bool:
        self._say(problem)
        return self._ask("Enter edits again, [c]ancels > ").lower() not in ("c", "cancel")


def _describe(remember: Remember) -> str:
    if remember.scope == "once":
        return "no"
    return f"{remember.scope}, {'the same' if remember.same_arguments else 'any'} arguments"


def _numbers(text: str, most: int) -> set[int] | None:
    """Return the numbers of a text such as `1 3-5`, or None if it is not such a text."""
    numbers: set[int] = set()
    for word in text.replace(",", " ").split():
        found = _RANGE.fullmatch(word)
        if found is None:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        if not 1 <= first <= last <= most:
            return None
        numbers.update(range(first, last + 1))
    return numbers or None
