"""The dialog about one question in a terminal: allow, edit, pick files, deny, remember."""

from __future__ import annotations

import os
import re
import select
import termios
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from toolrelay.cli._gateway import RefusedError
from toolrelay.cli._output import CommandError
from toolrelay.cli.approvals.answers import Editor, Remember, allow, deny, describe_answer, edit, pick_files
from toolrelay.cli.approvals.client import Client, Question
from toolrelay.cli.approvals.display import MAX_LINES, files_of, print_choices, print_question

MAX_LINE_BYTES = 65536
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


class QuestionDialog:
    """Asks a person. `wakers` are file descriptors of what may happen meanwhile.

    `on_wake` is called with those that are readable, and returns whether it printed something. What it raises ends the dialog.
    """

    def __init__(
        self,
        client: Client,
        console: Console,
        editor: str,
        *,
        source: int,
        wakers: Sequence[int],
        on_wake: Callable[[Sequence[int]], bool],
    ) -> None:
        self._client = client
        self._console = console
        self._editor = Editor(editor, self._confirm, self._pause)
        self._input = source
        self._wakers = tuple(wakers)
        self._on_wake = on_wake
        self._typed = b""

    def show(self, question: Question) -> None:
        """Print a question, and forget what was typed before: it is not about this question."""
        self._console.print()
        print_question(self._console, question, max_lines=MAX_LINES)
        termios.tcflush(self._input, termios.TCIFLUSH)
        self._typed = b""

    def converse(self, question: Question) -> str | None:
        """Ask until the question is answered or skipped. Return what was answered in words, or None if it was skipped."""
        remember = Remember()
        has_files = bool(files_of(question))
        words = ("allow", "edit", "deny", "skip", "remember", "view", *(("pick",) if has_files else ()))
        pick = "[p]ick files  " if has_files else ""
        while True:
            menu = f"[a]llow  [e]dit  {pick}[d]eny  [s]kip  [v]iew all  [r]emember: {_describe(remember)} > "
            typed = self.ask(menu).lower()
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
                    reason = self.ask("Reason, which the model is told (Enter: none) > ")
                    answered = deny(self._client, question, remember, reason or None)
                case "remember":
                    remember = self._ask_remember(question)
                case "view":
                    print_question(self._console, question)
                case "skip":
                    return None
                case _:
                    self.say("Type one of the letters in brackets.")
            if answered is not None:
                return describe_answer(answered, remember)

    def _edit(self, question: Question, remember: Remember) -> Question | None:
        try:
            answered = edit(self._client, question, remember, None, self._editor)
        except RefusedError:
            raise
        except CommandError as error:
            self.say(error.message)
            return None
        if answered is None:
            self.say("Nothing was answered.")
        return answered

    def _pick(self, question: Question, remember: Remember) -> Question | None:
        files = files_of(question)
        chosen = {file.path for file in files}
        while True:
            print_choices(self._console, files, chosen)
            typed = self.ask("Numbers tick and untick (1 3-5), * all, 0 none; [a]llow those with x, [b]ack > ").lower()
            match typed:
                case "b" | "back":
                    return None
                case "a" | "allow" if chosen:
                    arguments = pick_files(question, sorted(chosen))
                    return allow(self._client, question, arguments, remember, None)
                case "a" | "allow":
                    self.say("No file is ticked. Go back, and deny the question instead.")
                case "*":
                    chosen = {file.path for file in files}
                case "0":
                    chosen = set()
                case _:
                    numbers = _numbers(typed, len(files))
                    if numbers is None:
                        self.say(f"Expected numbers from 1 to {len(files)}.")
                    else:
                        chosen ^= {files[number - 1].path for number in numbers}

    def _ask_remember(self, question: Question) -> Remember:
        conversation = "this [c]onversation, " if question["conversation"] is not None else ""
        typed = self.ask(f"Remember the answer: [o]nce, {conversation}[a]lways > ").lower()
        scopes = ["once", "always", *(["conversation"] if conversation else [])]
        scope = next((scope for scope in scopes if typed and scope.startswith(typed)), "once")
        if scope == "once":
            return Remember()
        typed = self.ask("For [a]ny arguments, or only the [s]ame > ").lower()
        return Remember(scope, same_arguments=not typed.startswith("a"))

    # The terminal

    def ask(self, prompt: str) -> str:
        """Return a line that the person types. Raise what `on_wake` raises."""
        self._print_prompt(prompt)
        while True:
            ready, _, _ = select.select([self._input, *self._wakers], [], [])
            woken = [waker for waker in self._wakers if waker in ready]
            if woken and self._on_wake(woken):
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

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def _confirm(self, question: str) -> bool:
        return self.ask(f"{question} [y/N] > ").lower() in ("y", "yes")

    def _pause(self, problem: str) -> bool:
        self.say(problem)
        return self.ask("Enter edits again, [c]ancels > ").lower() not in ("c", "cancel")


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
