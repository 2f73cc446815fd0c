"""`toolrelay chat "question"`: one answer, for a person or for a script."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TextIO

from toolrelay.cli._output import FAILED, MISUSED, CommandError
from toolrelay.cli._text import replace_undecodable
from toolrelay.cli.chat.answering import AbsentAsker, Answering, QuestionAsker, TerminalAsker
from toolrelay.cli.chat.conversation import ChatConnection, failure_of, incompleteness_of
from toolrelay.cli.chat.display import (
    AnswerView,
    CollectedAnswer,
    PlainAnswer,
    TerminalAnswer,
    describe_usage,
    open_chat_console,
)
from toolrelay.cli.chat.follower import ResponseFollower
from toolrelay.cli.chat.history import title_of
from toolrelay.cli.chat.signals import EchoSwitch

MAX_STDIN_BYTES = 8_000_000
INTERRUPTED = 130


class ScriptOptions(NamedTuple):
    as_json: bool
    waits: bool
    editor: str


def read_question(question: str | None) -> str:
    """Return the question, followed by what comes through a pipe."""
    parts = [] if question is None else [replace_undecodable(question)]
    if sys.stdin is not None and not sys.stdin.isatty():
        given = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
        if len(given) > MAX_STDIN_BYTES:
            raise CommandError(f"Standard input is longer than {MAX_STDIN_BYTES:,} bytes.", MISUSED)
        parts.append(given.decode("utf-8", "replace"))
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    if not text:
        raise CommandError('There is no question. Give one: toolrelay chat "question".', MISUSED)
    return text


def answer_once(connection: ChatConnection, model: str, text: str, conversation: str | None, options: ScriptOptions) -> str:
    """Print the answer to one question. Return the conversation's id. Raise CommandError if the answer failed."""
    client = connection.client
    conversation = conversation or client.create_conversation(title_of(text))
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    turn = ResponseFollower(client, connection.revive)
    view = _open_view(as_json=options.as_json)
    with _open_terminal() as terminal:
        asker: QuestionAsker = AbsentAsker(waits=options.waits)
        if terminal is not None:
            asker = TerminalAsker(open_chat_console(terminal), terminal.fileno(), options.editor)
        answering = Answering(client, connection.questions, view, asker, EchoSwitch(terminal.fileno() if terminal else None))
        turn.start({"model": model, "input": [item], "conversation": conversation})
        try:
            response, seconds = answering.run(turn)
        except BaseException:
            if turn.id is not None:
                with suppress(CommandError):
                    client.cancel(turn.id)
            raise
    if response is None:
        raise CommandError("Left. The answer goes on in the gateway.", INTERRUPTED)
    if options.as_json:
        members = {"text": view.summary.text, "status": response.get("status"), "model": model, "conversation": conversation}
        more = {"response": turn.id, "usage": response.get("usage"), "tools": view.summary.tools, "error": response.get("error")}
        print(json.dumps(members | more, ensure_ascii=True), flush=True)  # noqa: T201 -- the output of the command
    elif isinstance(view, TerminalAnswer):
        view.note(f"\n{describe_usage(response, seconds)}")
    _check(response)
    return conversation


def _check(response: dict[str, object]) -> None:
    match response.get("status"):
        case "completed":
            return
        case "cancelled":
            raise CommandError("The answer was stopped.", INTERRUPTED)
        case "incomplete":
            raise CommandError(f"The answer is incomplete: {incompleteness_of(response)}.", FAILED)
        case _:
            raise CommandError(failure_of(response), FAILED)


def _open_view(*, as_json: bool) -> AnswerView:
    if as_json:
        return CollectedAnswer()
    return TerminalAnswer(open_chat_console()) if sys.stdout.isatty() else PlainAnswer(sys.stdout)


@contextmanager
def _open_terminal() -> Iterator[TextIO | None]:
    """Yield the terminal of the person, also if input or output go elsewhere. None: there is none."""
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        yield None
        return
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as terminal:
        yield terminal
