"""The report of `toolrelay probe`: a table, or JSON, and the line to write into the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from toolrelay.backends.providers import PROVIDERS
from toolrelay.cli.probe.measuring import NATIVE, WayOutcome, find_best
from toolrelay.cli.probe.tasks import TASKS
from toolrelay.setting_types import quote_key
from toolrelay.settings import ModelSettings

_HEADER = ("TOOL CALLING", *(task.name.upper() for task in TASKS), "PASSED", "SECONDS")


def table_rows(ways: Sequence[WayOutcome]) -> list[tuple[str, ...]]:
    best = find_best(ways)
    rows = [_HEADER]
    for way in ways:
        outcomes = {outcome.task: outcome for outcome in way.outcomes}
        cells = [
            "-" if (found := outcomes.get(task.name)) is None else "error" if found.failed else "no" if found.problem else "yes"
            for task in TASKS
        ]
        mark = " *" if best is way else ""
        rows.append((f"{way.tool_calling}{mark}", *cells, f"{way.passed} of {len(TASKS)}", f"{way.seconds:.1f}"))
    return rows


def problem_lines(ways: Sequence[WayOutcome]) -> Iterator[str]:
    for way in ways:
        yield from (f"{way.tool_calling}, {each.task}: {each.problem}" for each in way.outcomes if each.problem)


def suggestion(settings: ModelSettings, ways: Sequence[WayOutcome]) -> str:
    """Return the line to write, or nothing if the best way is the one that is used."""
    best = find_best(ways)
    if best is None or best.tool_calling == settings.tool_calling:
        return ""
    if best.tool_calling == NATIVE and settings.tool_calling == "auto" and PROVIDERS[settings.provider].profile.takes_tools:
        return ""
    return f'tool_calling = "{best.tool_calling}"'


def advice(settings: ModelSettings, ways: Sequence[WayOutcome]) -> str:
    """Say in words what to do."""
    best = find_best(ways)
    if best is None:
        return "The model made no call in any of these ways: a larger model, or --all for more of them, may help."
    line = suggestion(settings, ways)
    found = f"Best: {best.tool_calling}, {best.passed} of {len(TASKS)}."
    if not line:
        return f'{found} Nothing to change: tool_calling = "{settings.tool_calling}" uses it.'
    return f"{found} Write into the configuration:\n\n[models.{quote_key(settings.name)}]\n{line}"


def as_json(settings: ModelSettings, ways: Sequence[WayOutcome], *, is_interrupted: bool) -> dict[str, Any]:
    best = find_best(ways)
    return {
        "model": settings.name,
        "tool_calling": settings.tool_calling,
        "best": None if best is None else best.tool_calling,
        "suggestion": suggestion(settings, ways) or None,
        "interrupted": is_interrupted,
        "ways": [
            {
                "tool_calling": way.tool_calling,
                "passed": way.passed,
                "of": len(TASKS),
                "seconds": round(way.seconds, 3),
                "tasks": [
                    {
                        "task": each.task,
                        "passed": not each.problem,
                        "problem": each.problem or None,
                        "answered": not each.failed,
                        "seconds": round(each.seconds, 3),
                    }
                    for each in way.outcomes
                ],
            }
            for way in ways
        ],
    }
