"""The command line: one module per command.

A command imports what it needs when it runs, so that `--version`, `--help` and shell completion load only typer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from toolrelay import __version__
from toolrelay.cli import approvals, chat, check, codex, console, init, keys, probe, pull, replay, serve, store, tools
from toolrelay.cli._output import FAILED, MISUSED, CommandError, examples, print_configuration_error
from toolrelay.errors import ConfigurationError, StoreError

# Without markup the help is plain text, and rich is not imported.
application = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "toolrelay serve               start with the demo model on http://127.0.0.1:8787",
        "toolrelay init                write a configuration file",
        "toolrelay chat                talk with a model in the terminal",
        "toolrelay check               check the configuration and the models' servers",
        "toolrelay keys create laptop  make a key for a client",
    ),
)
application.command(epilog=serve.EXAMPLES)(serve.serve)
application.command(epilog=init.EXAMPLES)(init.init)
application.command(epilog=chat.EXAMPLES)(chat.chat)
application.command(epilog=console.EXAMPLES)(console.console)
application.command(epilog=check.EXAMPLES)(check.check)
application.command(epilog=probe.EXAMPLES)(probe.probe)
application.command(epilog=tools.EXAMPLES)(tools.tools)
application.command(epilog=pull.EXAMPLES)(pull.pull)
application.command(epilog=replay.EXAMPLES)(replay.replay)
application.add_typer(approvals.application, name="approvals")
application.add_typer(keys.application, name="keys", help="Create, list, rotate and revoke keys of clients.")
application.add_typer(codex.application, name="codex", help="Sign in to Codex and out, and show who is signed in.")
application.add_typer(store.application, name="store", help="Prune or export what was recorded.")


def _print_version(requested: bool) -> None:  # noqa: FBT001 -- typer passes it by position
    if requested:
        typer.echo(f"toolrelay {__version__}")
        raise typer.Exit


@application.callback()
def toolrelay(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Real tool calling for every client on every model."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    try:
        application(args=arguments, prog_name="toolrelay")
    except ConfigurationError as error:
        print_configuration_error(error)
        sys.exit(MISUSED)
    except CommandError as error:
        typer.echo(f"toolrelay: {error.message}", err=True)
        sys.exit(error.code)
    except StoreError as error:
        typer.echo(f"toolrelay: {error.message}", err=True)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
