"""The commands of the prompt: what follows a slash."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from toolrelay.cli._output import CommandError
from toolrelay.cli._text import escape_controls
from toolrelay.cli.chat.client import Item
from toolrelay.cli.chat.conversation import Chat, LeaveChat
from toolrelay.cli.chat.display import is_call
from toolrelay.cli.chat.export import text_of, to_markdown
from toolrelay.cli.chat.history import HistoryEntry
from toolrelay.cli.chat.markdown import SafeMarkdown

MAX_LISTED = 20
MAX_SHOWN_ITEMS = 6  # of a conversation that is taken up
MAX_SHOWN_CHARACTERS = 20_000


class ChatCommand(NamedTuple):
    arguments: str
    help: str
    run: Callable[[Chat, str], None]


def run_command(chat: Chat, text: str) -> None:
    name, _, argument = text.removeprefix("/").partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise CommandError(f"There is no command /{escape_controls(name)}. /help lists them; // begins a message with a slash.")
    command.run(chat, argument.strip())


def complete(chat: Chat, command: str) -> Iterable[str]:
    """Return the choices of a command's argument."""
    return chat.models if command == "/model" else ()


def _help(chat: Chat, _: str) -> None:
    lines = [(f"/{name} {command.arguments}".strip(), command.help) for name, command in COMMANDS.items()]
    lines += [
        ("Alt-Enter", "or a backslash at the end of a line: a new line"),
        ("Ctrl-C", "stop the answer"),
        ("Ctrl-D", "leave"),
    ]
    width = max(len(left) for left, right in lines) + 2
    for left, right in lines:
        chat.console.print(Text.assemble((left.ljust(width), "bold"), right))


def _new(chat: Chat, _: str) -> None:
    chat.conversation = None
    chat.reasoning = ""
    chat.say("A new conversation begins with your next message.")


def _model(chat: Chat, argument: str) -> None:
    chat.models = chat.client.list_models()
    if not argument:
        for number, name in enumerate(chat.models, 1):
            mark = "*" if name == chat.model else " "
            chat.say(f"{mark} {number}  {name}", "bold" if name == chat.model else "none")
        chat.say("/model NAME or its number chooses another one.")
        return
    is_number = argument.isdecimal() and argument not in chat.models and 1 <= int(argument[:6]) <= len(chat.models)
    name = chat.models[int(argument) - 1] if is_number else argument
    if name not in chat.models:
        raise CommandError(f"There is no model {escape_controls(argument)}. /model lists them.")
    chat.model = name
    chat.say(f"The model is {name} now.")


def _tools(chat: Chat, _: str) -> None:
    chat.say(chat.connection.list_tools(chat.model), "none")


def _history(chat: Chat, argument: str) -> None:
    entries = chat.history.list_entries()[:MAX_LISTED]
    if not argument:
        _list_history(chat, entries)
        return
    if not argument.isdecimal() or not 1 <= int(argument[:6]) <= len(entries):
        raise CommandError(f"Expected a number from 1 to {len(entries)}." if entries else "There is no earlier conversation.")
    entry = entries[int(argument) - 1]
    items = chat.client.load_items(entry.id)
    chat.conversation = entry.id
    chat.reasoning = ""
    if entry.model in chat.models:
        chat.model = entry.model
    chat.say(f"{entry.title}, with the model {chat.model}:")
    token = (entry.running or "").removeprefix("resp_")
    _show_items(chat, [item for item in items if not token or token not in str(item.get("id"))])
    if entry.running is not None:
        chat.resume(entry.running)


def _list_history(chat: Chat, entries: list[HistoryEntry]) -> None:
    if not entries:
        chat.say("There is no earlier conversation.")
        return
    for number, entry in enumerate(entries, 1):
        mark = "*" if entry.id == chat.conversation else " "
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        running = " (not finished)" if entry.running else ""
        chat.console.print(
            Text.assemble(f"{mark} {number:2}  ", (f"{when}  ", "dim"), escape_controls(entry.title), (running, "yellow"))
        )
    chat.say("/history NUMBER takes one up again.")


def _show_items(chat: Chat, items: list[Item]) -> None:
    shown = [item for item in items if text_of(item) and item.get("type") == "message"]
    if len(shown) > MAX_SHOWN_ITEMS:
        chat.say(f"… {len(shown) - MAX_SHOWN_ITEMS} earlier messages: /export writes all of them.")
    for item in shown[-MAX_SHOWN_ITEMS:]:
        text = text_of(item)[-MAX_SHOWN_CHARACTERS:]
        chat.console.print()
        if item.get("role") == "user":
            chat.say(f"> {text}", "bold")
        else:
            chat.console.print(SafeMarkdown(text))
    calls = sum(is_call(item) for item in items)
    if calls:
        chat.say(f"Tools ran {calls} times." if calls > 1 else "A tool ran once.")


def _export(chat: Chat, argument: str) -> None:
    if chat.conversation is None:
        raise CommandError("There is nothing to export yet.")
    entry = chat.history.find(chat.conversation)
    title = entry.title if entry is not None else "Conversation"
    name = re.sub(r"[^\w -]", "", title).strip()[:60] or "conversation"
    try:
        path = Path(argument).expanduser() if argument else Path(f"{name}.md")
        content = to_markdown(title, chat.client.load_items(chat.conversation))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(content)
    except FileExistsError:
        raise CommandError(f"{escape_controls(str(path))} exists. Name another file: /export FILE.") from None
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"{escape_controls(argument or name)} cannot be written: {escape_controls(reason)}.") from None
    chat.say(f"Wrote {path}.")


def _reasoning(chat: Chat, _: str) -> None:
    chat.say(chat.reasoning or "The last answer has no reasoning.")


def _quit(_chat: Chat, _: str) -> None:
    raise LeaveChat


COMMANDS = {
    "model": ChatCommand("[NAME]", "list the models, or choose one", _model),
    "tools": ChatCommand("", "list the tools of the model", _tools),
    "history": ChatCommand("[NUMBER]", "list earlier conversations, or take one up", _history),
    "export": ChatCommand("[FILE]", "write the conversation as Markdown", _export),
    "reasoning": ChatCommand("", "show the reasoning of the last answer", _reasoning),
    "new": ChatCommand("", "begin a new conversation", _new),
    "help": ChatCommand("", "list the commands", _help),
    "quit": ChatCommand("", "leave", _quit),
}
