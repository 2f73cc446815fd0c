"""A conversation in the terminal: the gateway behind it, its model, and one turn after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from toolrelay.cli._text import escape_controls
from toolrelay.cli.chat.answering import Answering, OpenQuestions, Outcome, QuestionAsker
from toolrelay.cli.chat.client import ChatClient, Item
from toolrelay.cli.chat.display import TerminalAnswer, describe_usage
from toolrelay.cli.chat.follower import ResponseFollower
from toolrelay.cli.chat.history import ChatHistory, title_of
from toolrelay.cli.chat.signals import EchoSwitch


class LeaveChat(Exception):  # noqa: N818 -- not an error
    """The person wants to leave."""


@dataclass
class ChatConnection:
    """The gateway that the chat talks to, and how to get it back. `list_tools` returns the tools of a model in words."""

    client: ChatClient
    questions: OpenQuestions | None
    ensure: Callable[[], str] | None
    revive: Callable[[], None] | None
    list_tools: Callable[[str], str]


@dataclass
class Chat:
    """A conversation, and how it goes on."""

    connection: ChatConnection
    history: ChatHistory
    console: Console
    asker: QuestionAsker
    model: str
    models: Sequence[str]
    conversation: str | None = None
    reasoning: str = ""
    echo: EchoSwitch = field(default_factory=lambda: EchoSwitch(sys.stdin.fileno()))

    @property
    def client(self) -> ChatClient:
        return self.connection.client

    def say(self, text: str, style: str = "dim") -> None:
        self.console.print(Text(escape_controls(text, keep="\n"), style=style))

    def ask(self, text: str) -> None:
        """Ask, and print the answer."""
        if self.connection.ensure is not None:
            self.connection.ensure()
        if self.conversation is None:
            self.conversation = self.client.create_conversation(title_of(text))
            self.history.save(self.conversation, title=title_of(text), model=self.model)
        item: Item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        body = {"model": self.model, "input": [item], "conversation": self.conversation}
        turn = ResponseFollower(self.client, self.connection.revive)
        turn.start(body)
        self.follow(turn)

    def resume(self, response: str) -> None:
        """Go on with a response that was left."""
        turn = ResponseFollower(self.client, self.connection.revive)
        turn.resume(response)
        self.follow(turn)

    def follow(self, turn: ResponseFollower) -> None:
        view = TerminalAnswer(self.console)
        answering = Answering(self.client, self.connection.questions, view, self.asker, self.echo)
        is_over = False
        try:
            outcome = answering.run(turn)
            is_over = outcome.response is not None
            self._report(outcome)
        finally:
            self.reasoning = view.summary.reasoning or self.reasoning
            if self.conversation is not None and turn.id is not None:
                self.history.save(self.conversation, running=None if is_over else turn.id, model=self.model)

    def _report(self, outcome: Outcome) -> None:
        response = outcome.response
        if response is None:
            self.say("Left. The answer goes on in the gateway: /history takes it up again.")
            return
        match response.get("status"):
            case "failed":
                self.say(failure_of(response), "red")
            case "cancelled":
                self.say("Stopped.")
            case "incomplete":
                self.say(f"Incomplete: {incompleteness_of(response)}.", "yellow")
        self.console.print()
        self.say(describe_usage(response, outcome.seconds))


def failure_of(response: dict[str, object]) -> str:
    error = response.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return escape_controls(str(message or "The answer failed."))


def incompleteness_of(response: dict[str, object]) -> str:
    details = response.get("incomplete_details")
    return escape_controls(str((details.get("reason") if isinstance(details, dict) else None) or "unknown"))
