"""`toolrelay check`."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

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
from toolrelay.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolrelay.backends.base import HealthReport
    from toolrelay.cli.trials import Trial
    from toolrelay.settings import ModelSettings, Settings

CONNECT_SECONDS = 5.0
EXAMPLES = examples(
    "toolrelay check",
    "toolrelay check --config /etc/toolrelay.toml --offline",
    "toolrelay check --try fast",
)
_TRIAL_HEADER = ("MODEL", "ANSWERED", "TOOL CALL", "SIMULATED", "FIRST", "SECONDS", "WHAT TO CHANGE")
_HEADER = ("MODEL", "PROVIDER", "MODEL THERE", "WIRE", "BASE URL", "KEY", "SERVER")


def check(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="With --try: these models only.", show_default=False)
    ] = None,
    *,
    config: ConfigFile = None,
    with_trial: Annotated[
        bool, typer.Option("--try", help="Ask each model one question that needs a tool. This may cost money.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not connect to the models' servers.")] = False,
) -> None:
    """Check the configuration, the toolsets and the models' servers.

    Opens the toolsets, which imports modules of tools. Prints each model with its provider, wire and base URL, and whether a
    key is set, never the key. Asks each server for its list of models, and says if the model is not in it.

    With --try each model, or each that is named, is asked one question with one tool. The table says whether it answered, whether
    its call was native or read from its text, what the gateway simulated, the seconds until its first word and its end,
    and what to change.

    Exit codes: 0 all is well, 1 the configuration is wrong, 2 a server or a model does not answer, 3 with --try: a model
    answered, but not with the call.
    """
    from toolrelay.app import open_models
    from toolrelay.config import from_environment
    from toolrelay.runtime.keys import load_key_ring
    from toolrelay.settings import check_binding, file_prefix
    from toolrelay.web.tls import load_server_context

    try:
        settings = from_environment(config)
        keys = load_key_ring(settings)
        keys.check_names(file_prefix(settings))
        check_binding(settings, has_stored_keys=lambda _: bool(keys))
        load_server_context(settings)
        _check_names(settings, models or [], with_trial=with_trial, offline=offline)
        open_models(settings)  # as `serve` does, so that both refuse the same
        tools = _open_tools(settings)
    except ConfigurationError as error:
        print_configuration_error(error)
        raise typer.Exit(WRONG_CONFIGURATION) from None
    if with_trial:
        raise typer.Exit(_try_models(settings, models or _configured_names(settings)))
    reports = {} if offline else _health_reports(settings)
    _print_models(settings, reports, keys=len(keys), tools=tools)
    for note in (*dict.fromkeys(note for report in reports.values() for note in report.notes), *_suspicious_keys(settings)):
        typer.echo(f"note: {note}", err=True)
    raise typer.Exit(UNREACHABLE if any(report.problem for report in reports.values()) else 0)


def _open_tools(settings: Settings) -> int:
    """Open and close the toolsets. Return the number of their tools."""
    import asyncio
    import contextlib
    import sys

    from toolrelay.runtime.gateway_tools import GatewayTools

    async def count(opened: GatewayTools) -> int:
        await opened.open()
        await opened.close()
        return len(opened.tools)

    if not settings.toolsets:
        return 0
    with contextlib.redirect_stdout(sys.stderr):  # a module may print
        return asyncio.run(count(GatewayTools(settings)))


def _print_models(settings: Settings, reports: dict[str, HealthReport], *, keys: int, tools: int) -> None:
    typer.echo(f"configuration: {settings.config_file or 'no file, the defaults'}")
    typer.echo(f"keys: {keys or 'none, loopback only'}")
    if settings.toolsets:
        typer.echo("tools: turned off by TOOLRELAY_TOOLS=off" if settings.tools_off else f"tools: {tools}")
    typer.echo()
    print_table([_HEADER, *(_row(settings.models[name], reports.get(name)) for name in _configured_names(settings))])


def _configured_names(settings: Settings) -> list[str]:
    """Return the names of the models, without a demo model that nobody named."""
    named = settings.environment.tables.get("models") or settings.models
    return [name for name in settings.models if name in named]


def _check_names(settings: Settings, models: list[str], *, with_trial: bool, offline: bool) -> None:
    from toolrelay.setting_types import did_you_mean

    if models and not with_trial:
        raise CommandError(f"models are named only with --try: toolrelay check --try {' '.join(models)}", MISUSED)
    if offline and with_trial:
        raise CommandError("--try asks models, --offline does not connect to them: leave one of them out", MISUSED)
    for name in models:
        if name not in settings.models:
            hint = did_you_mean(name, settings.models) or f"; there are {', '.join(settings.models)}"
            raise CommandError(f"there is no model {name}{hint}", MISUSED)


def _try_models(settings: Settings, names: list[str]) -> int:
    """Print a row for each model. Return the exit code."""
    import asyncio

    from toolrelay.app import open_models
    from toolrelay.cli.trials import try_model

    async def try_all() -> list[Trial]:
        models = open_models(settings)
        try:
            return [await try_model(models[name]) for name in names]
        finally:
            for model in models.values():
                await model.backend.close()

    trials = asyncio.run(try_all())
    print_table([_TRIAL_HEADER, *map(_trial_row, trials)])
    if not all(each.answered for each in trials):
        return UNREACHABLE
    return 0 if all(each.is_good for each in trials) else NO_CALL


def _trial_row(trial: Trial) -> tuple[str, ...]:
    simulated = ", ".join(trial.simulated) or ("nothing" if trial.answered else "-")
    first = "-" if trial.first_seconds is None else f"{trial.first_seconds:.1f}"
    answered = "yes" if trial.answered else "NO"
    return trial.model, answered, trial.call, simulated, first, f"{trial.seconds:.1f}", trial.advice or "nothing"


def _row(model: ModelSettings, report: HealthReport | None) -> tuple[str, ...]:
    """Format one model. Its backend decides which columns it has."""
    wire = getattr(model, "wire", "-")
    base_url = getattr(model, "base_url", "") or "-"
    key = ("yes" if model.api_key else "no") if hasattr(model, "api_key") else "-"
    if report is None:
        server = "built in" if model.provider == "demo" else "not tried"
    else:
        server = f"NO: {report.problem}" if report.problem else report.summary
    return model.name, model.provider, model.model, wire, base_url, key, server


def _health_reports(settings: Settings) -> dict[str, HealthReport]:
    """Check every model that has a server: with its backend's own check, if there is one, else by asking for its models."""
    import asyncio

    from toolrelay.backends.base import HealthReport, discover
    from toolrelay.backends.http import HttpSettings
    from toolrelay.backends.providers import PROVIDERS
    from toolrelay.cli._servers import ask_servers

    kinds = discover()

    async def inspect_all() -> dict[str, HealthReport]:
        reports: dict[str, HealthReport] = {}
        for name, model in settings.models.items():
            inspect = kinds[PROVIDERS[model.provider].backend].inspect
            if inspect is None:
                continue
            try:
                reports[name] = await inspect(model, settings.environment)
            except ConfigurationError as error:
                reports[name] = HealthReport(problem=error.message)
        return reports

    reports = asyncio.run(inspect_all())
    others = {name: model for name, model in settings.models.items() if name not in reports and isinstance(model, HttpSettings)}
    return reports | ask_servers(others, settings.environment, CONNECT_SECONDS)


def _suspicious_keys(settings: Settings) -> Iterator[str]:
    """Describe each [[keys]] pattern that matches no model, which is allowed but probably a mistake."""
    from fnmatch import fnmatchcase

    from toolrelay.setting_types import did_you_mean, quote_key

    for key in settings.keys:
        for pattern in key.models:
            if not any(fnmatchcase(name, pattern) for name in settings.models):
                hint = did_you_mean(pattern, settings.models)
                yield f"keys.{quote_key(key.name)}.models: no model here is called {pattern}{hint}"
