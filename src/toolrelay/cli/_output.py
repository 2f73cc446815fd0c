"""Exit codes, common options, and formatting of help texts and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from toolrelay.errors import ConfigurationError

FAILED = 1
WRONG_CONFIGURATION = 1
UNREACHABLE = 2
MISUSED = 2
NO_CALL = 3

ConfigFile = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="Configuration file. Default: $TOOLRELAY_CONFIG, else ./toolrelay.toml."),
]

DataDirectory = Annotated[
    str | None, typer.Option("--data-dir", metavar="DIRECTORY", help="Directory for state. Default: ~/.local/share/toolrelay.")
]


class CommandError(Exception):
    """The end of a command, with a message for the user and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def examples(*lines: str) -> str:
    r"""Format the examples at the end of a help text. Click does not rewrap a paragraph that begins with \b."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def print_configuration_error(error: ConfigurationError) -> None:
    lines = error.message.splitlines()
    typer.echo("\n".join(("toolrelay: the configuration is wrong:", *(f"  {line}" for line in lines))), err=True)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
