"""The line editor of the chat: several lines, history, completion of commands and models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.utils import is_dumb_terminal

from toolrelay.cli._text import replace_undecodable

MAX_INPUT = 4_000_000  # characters; the gateway's own limit is server.max_body_bytes


class _Commands(Completer):
    """Completes a command at the beginning, and the argument of those that have choices."""

    def __init__(self, commands: Sequence[str], choices: Callable[[str], Iterable[str]]) -> None:
        self._commands = commands
        self._choices = choices

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 -- the interface
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        command, blank, argument = text.partition(" ")
        found = self._choices(command) if blank else self._commands
        typed = argument if blank else command
        for each in found:
            if each.startswith(typed):
                yield Completion(each, start_position=-len(typed))


class Prompt:
    def __init__(self, commands: Sequence[str], choices: Callable[[str], Iterable[str]], inputs: Sequence[str]) -> None:
        """`inputs` are those of before, the oldest first."""
        self._session: PromptSession[str] | None = None
        if is_dumb_terminal():
            return
        self._session = PromptSession(
            history=InMemoryHistory(inputs),
            completer=_Commands(commands, choices),
            complete_while_typing=False,
            multiline=True,
            key_bindings=_key_bindings(),
            prompt_continuation=". ",
            enable_suspend=True,
        )

    def read(self) -> str:
        """Return what was typed. Raise KeyboardInterrupt for Ctrl-C without text, and EOFError for Ctrl-D."""
        text = _read_plainly() if self._session is None else self._session.prompt("> ")
        return replace_undecodable(text).strip()[:MAX_INPUT]


def _read_plainly() -> str:
    """Read lines from a terminal that can do nothing else."""
    lines = [input("> ")]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input(". "))
    return "\n".join(lines)


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")  # Alt-Enter
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return bindings
