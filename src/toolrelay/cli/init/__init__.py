"""`toolrelay init`: asks four questions and writes a configuration file."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from toolrelay.cli._output import MISUSED, CommandError, examples

if TYPE_CHECKING:
    from pathlib import Path

    from toolrelay.cli.init.plan import Plan

EXAMPLES = examples(
    "toolrelay init",
    "toolrelay init --yes                                     the demo model, this machine only",
    "toolrelay init --yes --provider ollama --model qwen3:8b --vault ~/Notes",
    "toolrelay init --yes --provider openai --model gpt-6-mini --key-variable OPENAI_API_KEY",
)


class Connect(StrEnum):
    LOCAL = "local"
    KEY = "key"


def _complete_provider(incomplete: str) -> list[str]:
    from toolrelay.cli.init.plan import list_providers

    return [name for name in list_providers() if name.startswith(incomplete)]


def init(
    *,
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Provider of the model.", autocompletion=_complete_provider, show_default=False),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The provider's name for the model.")] = None,
    base_url: Annotated[str | None, typer.Option(metavar="URL", help="Address of the model's server.")] = None,
    key_variable: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the provider's API key. The key is never written."),
    ] = None,
    vault: Annotated[str | None, typer.Option(metavar="FOLDER", help="Obsidian vault that the model may search.")] = None,
    connect: Annotated[
        Connect | None,
        typer.Option(help="local: only this machine. key: other machines too, with a key that is made.", show_default=False),
    ] = None,
    config: Annotated[str, typer.Option("--config", "-c", metavar="FILE", help="File to write.")] = "toolrelay.toml",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: what is not given has its default.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write a configuration file.

    Asks for the model, its key or server, an Obsidian vault, and who may connect. Each answer can be given as an option instead.
    """
    from pathlib import Path

    from toolrelay.cli.init import writing
    from toolrelay.cli.init.questions import Given, ask_plan

    path = Path(config)
    if path.exists() and not force:
        raise CommandError(f"{path} exists. --force replaces it, --config names another file.", MISUSED)
    if not yes and not sys.stdin.isatty():
        raise CommandError("There is no terminal to ask at. Use --yes, with options for what is not the default.", MISUSED)
    given = Given(provider, model, base_url, key_variable, vault, None if connect is None else connect.value)
    try:
        plan, key = ask_plan(given, asks=not yes)
    except EOFError:
        typer.echo(err=True)
        raise CommandError("Nothing was written.") from None
    text = plan.render()
    writing.write(path, text, plan.key_variable, replaces=force)
    _report(plan, path, text, key)


def _report(plan: Plan, path: Path, text: str, key: str) -> None:
    """Show what was written, and what comes next."""
    import shlex

    from toolrelay.config import read_environment

    typer.echo(f"\n{text}")
    typer.echo(f"Wrote {path}.")
    option = "" if str(path) == "toolrelay.toml" else f" --config {shlex.quote(str(path))}"
    if key:
        typer.echo(f"\nThe key, which is shown only now:\n{key}\nHere: export TOOLRELAY_KEY={key}")
    if plan.key_variable and not read_environment().get(plan.key_variable):
        typer.echo(f"\nFirst set the provider's key: export {plan.key_variable}=…")
    if plan.provider == "local" and (problem := _find_model_problem(plan, path)):
        typer.echo(f"\nFirst: {problem}")
    start = f"toolrelay serve{option}" if key else f"toolrelay chat{option}"
    typer.echo(f"\nNext: {start}")


def _find_model_problem(plan: Plan, path: Path) -> str:
    """Return what to do before a local model can be used, or nothing. Its file may come later."""
    from toolrelay.backends.local.model_files import find_model_file
    from toolrelay.config import process_environment
    from toolrelay.errors import ConfigurationError
    from toolrelay.settings import Environment

    try:
        find_model_file(plan.name, plan.model, Environment(data_dir=process_environment(None).data_dir, config_dir=path.parent))
    except ConfigurationError as error:
        return error.message
    return ""
