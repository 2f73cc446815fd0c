"""`toolrelay probe`: which way of calling tools a model follows best."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package above

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolrelay.cli._output import (
    MISUSED,
    NO_CALL,
    UNREACHABLE,
    WRONG_CONFIGURATION,
    CommandError,
    ConfigFile,
    examples,
    print_configuration_error,
    print_table,
)
from toolrelay.errors import ConfigurationError, ToolrelayError

if TYPE_CHECKING:
    from toolrelay.cli.probe.measuring import Measurement
    from toolrelay.settings import ModelSettings, Settings

INTERRUPTED = 130
EXAMPLES = examples(
    "toolrelay probe home",
    "toolrelay probe home --dialects native,hermes,sealed",
    "toolrelay probe home --all --json > home.json",
)


def _complete_model(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of models, for the shell's completion."""
    from toolrelay.config import from_environment

    try:
        names = list(from_environment(ctx.params.get("config")).models)
    except ToolrelayError:
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


def _complete_dialects(incomplete: str) -> list[str]:
    from toolrelay.dialects.base import discover

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in ("auto", "native", *sorted(discover())) if name.startswith(last)]


def probe(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.", autocompletion=_complete_model)],
    *,
    config: ConfigFile = None,
    dialects: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Try these, with commas between: auto, native or dialects. Default: native, the model's own and common ones.",
            autocompletion=_complete_dialects,
            show_default=False,
        ),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Try every dialect. These are many requests.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="Time for one answer.")] = 120,
) -> None:
    """Try ways of calling tools on a model, and say which it follows best.

    Each way (native, or a dialect for models that print their calls) gets five tasks: one call, the choice between two tools,
    an answer without a call, nested arguments with other letters than English ones, and the use of a tool's result. Each is one
    request, which may cost money; how many there are is said first. Tools are not run. Ctrl-C stops, and shows what was
    measured.

    Exit codes: 0 the model made calls in one way at least, 1 the configuration is wrong, 2 the model does not answer, 3 it made
    no call, 130 interrupted.
    """
    import asyncio

    from toolrelay.cli.probe.measuring import Measurement, choose_ways, may_cost
    from toolrelay.config import from_environment

    try:
        settings = from_environment(config)
        chosen = _find_model(settings, model)
        ways = _read_dialects(dialects) if dialects else choose_ways(chosen, everything=everything)
        if dialects and everything:
            raise CommandError("--dialects names some, --all means every one: leave one of them out", MISUSED)
        measurement = Measurement(settings, model, ways, timeout)
        cost = " This may cost money." if may_cost(chosen) else ""
        typer.echo(f"{model}: {len(ways)} ways, {measurement.requests} requests at most.{cost}", err=True)
        is_interrupted = False
        try:
            asyncio.run(_run(measurement))
        except KeyboardInterrupt:
            is_interrupted = True
    except ConfigurationError as error:
        print_configuration_error(error)
        raise typer.Exit(WRONG_CONFIGURATION) from None
    _print(chosen, measurement, as_json=as_json, is_interrupted=is_interrupted)
    raise typer.Exit(_exit_code(measurement, is_interrupted=is_interrupted))


def _find_model(settings: Settings, name: str) -> ModelSettings:
    from toolrelay.setting_types import did_you_mean

    if name not in settings.models:
        hint = did_you_mean(name, settings.models) or f"; there are {', '.join(settings.models)}"
        raise CommandError(f"there is no model {name}{hint}", MISUSED)
    return settings.models[name]


def _read_dialects(names: str) -> tuple[str, ...]:
    from toolrelay.dialects.base import discover
    from toolrelay.setting_types import did_you_mean

    known = ("auto", "native", *sorted(discover()))
    chosen = tuple(dict.fromkeys(name for part in names.split(",") if (name := part.strip())))
    for name in chosen:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise CommandError(f"there is no dialect {name}{hint}", MISUSED)
    if not chosen:
        raise CommandError("--dialects needs at least one name", MISUSED)
    return chosen


async def _run(measurement: Measurement) -> None:
    import sys

    with typer.progressbar(length=measurement.requests, file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:

        def advance(tasks: int, way: str) -> None:
            bar.label = way
            bar.update(tasks)

        await measurement.run(advance)


def _print(settings: ModelSettings, measurement: Measurement, *, as_json: bool, is_interrupted: bool) -> None:
    from toolrelay.cli._text import pretty_json
    from toolrelay.cli.probe import report

    ways = measurement.ways
    if as_json:
        typer.echo(pretty_json(report.as_json(settings, ways, is_interrupted=is_interrupted)))
        return
    if is_interrupted:
        done = sum(len(way.outcomes) for way in ways)
        typer.echo(f"interrupted after {done} of {measurement.requests} requests", err=True)
    if not ways:
        return
    print_table(report.table_rows(ways))
    lines = list(report.problem_lines(ways))
    if lines:
        typer.echo("\n" + "\n".join(lines))
    if measurement.is_given_up:
        typer.echo("\nThe model does not answer: `toolrelay check` says more.")
    else:
        typer.echo(f"\n{report.advice(settings, ways)}")


def _exit_code(measurement: Measurement, *, is_interrupted: bool) -> int:
    from toolrelay.cli.probe.measuring import find_best

    if is_interrupted:
        return INTERRUPTED
    if measurement.is_given_up:
        return UNREACHABLE
    return 0 if find_best(measurement.ways) is not None else NO_CALL
