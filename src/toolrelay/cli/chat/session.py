"""The chat at a terminal: reads questions and commands until the person leaves."""

from __future__ import annotations

from functools import partial

from toolrelay import __version__
from toolrelay.cli._gateway import RefusedError, UnreachableError
from toolrelay.cli._output import CommandError
from toolrelay.cli.chat.commands import COMMANDS, complete, run_command
from toolrelay.cli.chat.conversation import Chat, LeaveChat
from toolrelay.cli.chat.prompt import Prompt

LEAVE = "Ctrl-C again or Ctrl-D leaves. /help lists the commands."


def run_session(chat: Chat) -> None:
    """Read and answer until the person leaves."""
    chat.say(f"toolrelay {__version__}, model {chat.model} at {chat.client.url}. /help lists the commands, Ctrl-D leaves.")
    prompt = Prompt([f"/{name}" for name in COMMANDS], partial(complete, chat), chat.history.load_inputs())
    was_interrupted = False
    while True:
        try:
            text = prompt.read()
        except EOFError:
            return
        except KeyboardInterrupt:
            if was_interrupted:
                return
            was_interrupted = True
            chat.say(LEAVE)
            continue
        was_interrupted = False
        if not text:
            continue
        chat.history.add_input(text)
        try:
            if text.startswith("/") and not text.startswith("//"):
                run_command(chat, text)
            else:
                chat.ask(text.removeprefix("/") if text.startswith("//") else text)
        except LeaveChat:
            return
        except KeyboardInterrupt:
            chat.say("Stopped.")
        except CommandError as error:
            _report_error(chat, error)


def _report_error(chat: Chat, error: CommandError) -> None:
    chat.say(error.message, "red")
    if isinstance(error, RefusedError) and error.status == 404 and chat.conversation is not None:
        chat.say("/new begins a new conversation.")
    if isinstance(error, UnreachableError):
        chat.say("Ask again to try again: the arrow up brings back what you typed.")
