"""`toolrelay chat`: talk with a model in the terminal, or ask one question from a script."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolrelay.cli._output import MISUSED, CommandError, ConfigFile, DataDirectory, examples

if TYPE_CHECKING:
    from toolrelay.cli.chat.client import ChatClient
    from toolrelay.cli.chat.connecting import GatewayOptions
    from toolrelay.cli.chat.history import ChatHistory
    from toolrelay.cli.chat.script import ScriptOptions

EXAMPLES = examples(
    "toolrelay chat                          talk with the first model",
    'toolrelay chat "What is a monad?"       ask one question',
    "toolrelay chat --model fast --continue  go on with the last conversation",
    'toolrelay chat --json "Name a colour" | jq -r .text',
    'toolrelay chat "Summarise this" < notes.md > summary.md',
)


def _complete_model(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the configured models for the shell's completion."""
    from toolrelay.config import from_environment
    from toolrelay.errors import ConfigurationError

    try:
        models = from_environment(ctx.params.get("config")).models
    except ConfigurationError:
        return []
    return [name for name in models if name.startswith(incomplete)]


def chat(
    *,
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help="A question. What comes through a pipe follows it.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="Default: the last one, else the first.", autocompletion=_complete_model
        ),
    ] = None,
    goes_on: Annotated[bool, typer.Option("--continue", help="Go on with the last conversation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON: text, usage, tools.")] = False,
    waits: Annotated[
        bool,
        typer.Option(
            "--wait-for-approval", help="Without a terminal: wait until somebody approves a tool elsewhere. Default: deny it."
        ),
    ] = False,
    editor: Annotated[
        str,
        typer.Option(
            "--editor", metavar="COMMAND", envvar=["VISUAL", "EDITOR"], help="Editor for arguments.", show_default=False
        ),
    ] = "",
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="URL of the gateway. Default: server.host and server.port.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            envvar="TOOLRELAY_KEY",
            help="API key. With approve = true it can answer questions about tools.",
            show_default=False,
        ),
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Talk with a model in the terminal.

    Starts the gateway if none runs, and stops it at the end. With a question, or with input from a pipe, it prints one answer:
    as plain text if the output is no terminal, with errors on standard error and an exit code other than 0.
    """
    from toolrelay.cli.chat.connecting import GatewayOptions
    from toolrelay.cli.chat.script import ScriptOptions, read_question
    from toolrelay.cli.chat.signals import exit_on_signals

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # whatever the locale can show
    is_session = question is None and sys.stdin is not None and sys.stdin.isatty()
    if is_session and not sys.stdout.isatty():
        raise CommandError('The chat needs a terminal. To ask one question: toolrelay chat "question".', MISUSED)
    if is_session and as_json:
        raise CommandError('--json needs a question: toolrelay chat --json "question".', MISUSED)
    text = None if is_session else read_question(question)
    exit_on_signals()
    options = GatewayOptions(url, key, config, data_dir)
    if text is None:
        _talk(options, model, editor, goes_on=goes_on)
    else:
        _answer(options, model, text, ScriptOptions(as_json, waits, editor), goes_on=goes_on)


def _talk(options: GatewayOptions, model: str | None, editor: str, *, goes_on: bool) -> None:
    from rich.text import Text

    from toolrelay.cli.chat.answering import TerminalAsker
    from toolrelay.cli.chat.connecting import connected
    from toolrelay.cli.chat.conversation import Chat
    from toolrelay.cli.chat.display import open_chat_console
    from toolrelay.cli.chat.session import run_session

    console = open_chat_console()
    with connected(options, lambda text: console.print(Text(text, style="dim"))) as (connection, history):
        models = connection.client.list_models()
        talk = Chat(
            connection=connection,
            history=history,
            console=console,
            asker=TerminalAsker(console, sys.stdin.fileno(), editor),
            model=_choose_model(connection.client, history, model, goes_on=goes_on),
            models=models,
            conversation=_last_conversation(history) if goes_on else None,
        )
        run_session(talk)


def _answer(options: GatewayOptions, model: str | None, text: str, script: ScriptOptions, *, goes_on: bool) -> None:
    from toolrelay.cli.chat.connecting import connected
    from toolrelay.cli.chat.history import title_of
    from toolrelay.cli.chat.script import answer_once

    is_seen = sys.stderr.isatty()
    with connected(options, lambda notice: typer.echo(notice, err=True) if is_seen else None) as (connection, history):
        chosen = _choose_model(connection.client, history, model, goes_on=goes_on)
        conversation = _last_conversation(history) if goes_on else None
        conversation = answer_once(connection, chosen, text, conversation, script)
        if sys.stdout.isatty():  # those of scripts would fill the list
            title = {} if goes_on else {"title": title_of(text)}
            history.save(conversation, model=chosen, **title)


def _choose_model(client: ChatClient, history: ChatHistory, wanted: str | None, *, goes_on: bool) -> str:
    """Return the wanted model, else the last used. A new conversation prefers a configured model to the demo model."""
    models = client.list_models()
    if wanted is not None:
        if wanted not in models:
            raise CommandError(f"There is no model {wanted!r}. There are: {', '.join(models)}.", MISUSED)
        return wanted
    if not models:
        raise CommandError("This key may use no model.")
    last = next((entry.model for entry in history.list_entries()), "")
    if last not in models or (last != models[0] and not goes_on and client.is_demo(last)):
        return models[0]
    return last


def _last_conversation(history: ChatHistory) -> str:
    last = next(iter(history.list_entries()), None)
    if last is None:
        raise CommandError("There is no earlier conversation. Leave out --continue.")
    return last.id
