"""Checks of the models' aliases and fallbacks against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from toolrelay.setting_types import did_you_mean, format_value, quote_key
from toolrelay.settings import ModelSettings


def find_route_problems(models: Mapping[str, ModelSettings | None]) -> Iterator[str]:
    """Yield what is wrong, each with its key. Models that could not be read are None."""
    alias_owners: dict[str, str] = {}
    for name, model in models.items():
        if model is None:
            continue
        path = f"models.{quote_key(name)}"
        for alias in model.aliases:
            if alias in models:
                yield f"{path}.aliases: {format_value(alias)} is the name of a model; expected another name"
            elif alias in alias_owners:
                owner = quote_key(alias_owners[alias])
                yield f"{path}.aliases: {format_value(alias)} is an alias of models.{owner} already; expected another name"
            alias_owners.setdefault(alias, name)
        for place, fallback in enumerate(model.fallbacks):
            yield from (f"{path}.fallbacks: {problem}" for problem in _fallback_problems(models, name, model, place, fallback))


def _fallback_problems(
    models: Mapping[str, ModelSettings | None], name: str, model: ModelSettings, place: int, fallback: str
) -> Iterator[str]:
    shown, other = format_value(fallback), models.get(fallback)
    if fallback not in models:
        yield f"there is no model {shown}{did_you_mean(fallback, models) or '; name other models of this file'}"
    elif fallback == name:
        yield f"{shown} is this model itself; expected other models"
    elif fallback in model.fallbacks[:place]:
        yield f"{shown} is named twice"
    elif model.local and other is not None and not other.local:
        yield f"{shown} is not local, and this model may see private notes; only models with local = true can stand in for it"
