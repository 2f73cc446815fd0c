"""`toolrelay approvals`: see and answer the questions of a running gateway."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from toolrelay.cli._output import MISUSED, CommandError, ConfigFile, DataDirectory, examples

if TYPE_CHECKING:
    from toolrelay.cli.approvals.answers import Remember
    from toolrelay.cli.approvals.client import Client

MAX_COMPLETION = 40  # characters of a question in the shell's list


class Scope(StrEnum):
    ONCE = "once"
    CONVERSATION = "conversation"
    ALWAYS = "always"


class _ListByDefault(TyperGroup):
    """`toolrelay approvals` without a command is `toolrelay approvals list`, also with its options."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override] # typer's own Context
        is_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if is_list and not ctx.resilient_parsing else args)


application = typer.Typer(
    cls=_ListByDefault,
    rich_markup_mode=None,
    epilog=examples(
        "toolrelay approvals                   list the open questions",
        "toolrelay approvals watch             answer questions as they come",
        "toolrelay approvals allow             allow the only open question",
        "toolrelay approvals deny 8c0000        deny the one whose id begins or ends so",
    ),
)


@application.callback()
def approvals() -> None:
    """See and answer the questions of the gateway.

    Asks the gateway of the configuration file, or of --url. Its approver's token is read from the data directory; where keys are
    configured, set TOOLRELAY_KEY to a key with approve = true. Without a command: list.
    """


def _connect(url: str | None, key: str | None, config: str | None, data_dir: str | None) -> Client:
    from toolrelay.cli.approvals.client import connect

    return connect(url=url, key=key, config=config, data_dir=data_dir)


def _complete_question(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the open questions for the shell's completion. Without a gateway there are none."""
    from toolrelay.errors import ConfigurationError

    given: dict[str, Any] = {name: ctx.params.get(name) for name in ("url", "key", "config", "data_dir")}
    try:
        from toolrelay.cli._text import shorten
        from toolrelay.cli.approvals.answers import summarize

        questions = _connect(**given).list_questions()
    except (CommandError, ConfigurationError):
        return []
    found = [question for question in questions if str(question["id"]).startswith(incomplete)]
    return [(question["id"], shorten(summarize(question), MAX_COMPLETION)) for question in found]


Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="URL of the gateway. Default: server.host and server.port.", show_default=False),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        envvar="TOOLRELAY_KEY",
        help="Key with approve = true. Default: approver.token in the data directory.",
        show_default=False,
    ),
]
QuestionId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="Id of the question, or its beginning or end. Default, or -: the only one that is open.",
        autocompletion=_complete_question,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Reason of the answer. A denied model is told it.")]
RememberScope = Annotated[
    Scope, typer.Option("--remember", help="For how long the answer counts: see `toolrelay approvals rules`.")
]
SameArguments = Annotated[bool, typer.Option("--same-arguments", help="Remember the answer only for the same arguments.")]
EditorCommand = Annotated[
    str,
    typer.Option("--editor", metavar="COMMAND", envvar=["VISUAL", "EDITOR"], help="Editor for arguments.", show_default=False),
]


@application.command("list", epilog=examples("toolrelay approvals list", "toolrelay approvals list --all --json"))
def list_questions(
    *,
    everything: Annotated[bool, typer.Option("--all", help="List answered questions too, the last 1000.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """List the open questions, the oldest first."""
    from toolrelay.cli.approvals.display import open_console, print_questions

    questions = _connect(url, key, config, data_dir).list_questions(None if everything else "pending")
    if as_json:
        _print_json({"approvals": questions})
    elif questions:
        print_questions(open_console(), questions, with_answers=everything)
    else:
        typer.echo("No question was asked yet." if everything else "No question is open.")


@application.command("show", epilog=examples("toolrelay approvals show", "toolrelay approvals show appr_4f01 --json"))
def show_question(
    *,
    question: QuestionId = None,
    as_json: AsJson = False,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Show all about a question: what would run, with which arguments and files, and who would see the result."""
    from toolrelay.cli.approvals.answers import find_question
    from toolrelay.cli.approvals.display import open_console, print_question

    found = find_question(_connect(url, key, config, data_dir), question)
    if as_json:
        _print_json(found)
    else:
        print_question(open_console(), found)


@application.command(
    "allow",
    epilog=examples(
        "toolrelay approvals allow",
        'toolrelay approvals allow appr_4f01 --arguments \'{"city": "Oslo"}\'',
        "toolrelay approvals allow appr_4f01 --files Trips/Rome.md --files Trips/Oslo.md",
        "toolrelay approvals allow appr_4f01 --remember always --same-arguments",
    ),
)
def allow_question(
    *,
    question: QuestionId = None,
    arguments: Annotated[str | None, typer.Option(metavar="JSON", help="Run with these arguments instead.")] = None,
    files: Annotated[
        list[str] | None, typer.Option("--files", metavar="PATH", help="Allow only this file of the question. Repeatable.")
    ] = None,
    remember: RememberScope = Scope.ONCE,
    same_arguments: SameArguments = False,
    reason: Reason = None,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Allow a call, as it is or with other arguments or fewer files."""
    from toolrelay.cli.approvals import answers

    if arguments is not None and files:
        raise CommandError("--arguments and --files exclude each other.", MISUSED)
    scope = _remember(remember, same_arguments=same_arguments)
    try:
        edited = None if arguments is None else answers.decode_arguments(arguments)
    except ValueError as error:
        raise CommandError(f"--arguments: {error}.", MISUSED) from None
    client = _connect(url, key, config, data_dir)
    found = answers.find_question(client, question)
    if files:
        edited = answers.pick_files(found, files)
    answered = answers.allow(client, found, edited, scope, reason)
    typer.echo(answers.describe_answer(answered, scope))


@application.command(
    "edit",
    epilog=examples(
        "toolrelay approvals edit appr_4f01",
        "VISUAL=nano toolrelay approvals edit",
    ),
)
def edit_question(
    *,
    question: QuestionId = None,
    remember: RememberScope = Scope.ONCE,
    same_arguments: SameArguments = False,
    reason: Reason = None,
    editor: EditorCommand = "",
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Edit the arguments of a call as JSON, then allow it.

    Arguments that are refused are edited again. An empty file leaves the question open.
    """
    from toolrelay.cli.approvals import answers
    from toolrelay.cli.approvals.display import describe_end

    scope = _remember(remember, same_arguments=same_arguments)
    client = _connect(url, key, config, data_dir)
    found = answers.find_question(client, question)
    if found["status"] != "pending":
        raise CommandError(f"The question is {describe_end(found)} already.")
    answered = answers.edit(client, found, scope, reason, answers.Editor(editor, _confirm, _pause))
    typer.echo("Nothing was answered." if answered is None else answers.describe_answer(answered, scope))


@application.command(
    "deny",
    epilog=examples(
        "toolrelay approvals deny appr_4f01 --reason 'Not these notes.'",
        "toolrelay approvals deny --remember always",
    ),
)
def deny_question(
    *,
    question: QuestionId = None,
    reason: Reason = None,
    remember: RememberScope = Scope.ONCE,
    same_arguments: SameArguments = False,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Deny a call. The model is told, and goes on without it."""
    from toolrelay.cli.approvals import answers

    scope = _remember(remember, same_arguments=same_arguments)
    client = _connect(url, key, config, data_dir)
    answered = answers.deny(client, answers.find_question(client, question), scope, reason)
    typer.echo(answers.describe_answer(answered, scope))


@application.command(
    "watch",
    epilog=examples(
        "toolrelay approvals watch",
        "toolrelay approvals watch | jq .approval.tool",
    ),
)
def watch_questions(
    *,
    editor: EditorCommand = "",
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Answer questions as they come, one at a time, until Ctrl-C.

    Shows what is open already first, and goes on when the gateway restarts. If input or output is not a terminal, it answers
    nothing and prints each event as a line of JSON.
    """
    from toolrelay.cli.approvals.watch import watch

    watch(_connect(url, key, config, data_dir), editor)


@application.command("rules", epilog=examples("toolrelay approvals rules", "toolrelay approvals rules --json"))
def list_rules(
    *,
    as_json: AsJson = False,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """List the remembered answers, the oldest first."""
    from toolrelay.cli.approvals.display import open_console, print_rules

    rules = _connect(url, key, config, data_dir).list_rules()
    if as_json:
        _print_json({"rules": rules})
    elif rules:
        print_rules(open_console(), rules)
    else:
        typer.echo("No answer is remembered.")


@application.command("forget", epilog=examples("toolrelay approvals forget rule_21f2"))
def forget_rule(
    *,
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Id of a remembered answer, or its beginning.", show_default=False)],
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Delete a remembered answer: see `toolrelay approvals rules`."""
    from toolrelay.cli.approvals.answers import find_rule, summarize_rule

    client = _connect(url, key, config, data_dir)
    found = find_rule(client, rule)
    client.delete_rule(found["id"])
    typer.echo(f"Forgotten: {summarize_rule(found)}.")


def _remember(scope: Scope, *, same_arguments: bool) -> Remember:
    from toolrelay.cli.approvals.answers import Remember

    if same_arguments and scope is Scope.ONCE:
        raise CommandError("--same-arguments needs --remember conversation or always.", MISUSED)
    return Remember(scope.value, same_arguments)


def _print_json(value: Any) -> None:  # noqa: ANN401 -- JSON
    from toolrelay.cli._text import pretty_json

    typer.echo(pretty_json(value))


def _confirm(question: str) -> bool:
    """Ask on a terminal. Elsewhere the command itself was the answer."""
    return typer.confirm(question) if sys.stdin.isatty() else True


def _pause(problem: str) -> bool:
    typer.echo(problem, err=True)
    return typer.confirm("Edit again?", default=True) if sys.stdin.isatty() else True
