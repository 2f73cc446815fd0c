"""Checks of the models' servers for `toolrelay check`: whether they answer, and whether they list the model."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from threading import Thread
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from toolrelay.backends.base import HealthReport
from toolrelay.errors import ToolrelayError
from toolrelay.setting_types import did_you_mean, quote_key

if TYPE_CHECKING:
    from toolrelay.backends.http import HttpSettings
    from toolrelay.settings import Environment

MAX_NAMES = 100_000
MAX_LISTED = 8
_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/embeddings", "/messages", "/models")


class _Listing(Struct, frozen=True, kw_only=True):
    """A server's answer to GET /models. `problem` says why there is none; `names` is None if it is no list of models."""

    problem: str = ""
    status: int = 0
    names: tuple[str, ...] | None = None
    is_key_refused: bool = False
    lacking: str = ""  # the list is at /v1/models, below a base_url without /v1


def ask_servers(models: Mapping[str, HttpSettings], environment: Environment, seconds: float) -> dict[str, HealthReport]:
    """Ask each server for its models, at the same time. Return a report of each model."""
    # Daemon threads, which do not keep the process alive: a DNS lookup cannot be given a timeout.
    listings = {_source(model): _Listing(problem=f"no answer within {seconds:g} s") for model in models.values()}
    asked = {_source(model): model for model in models.values()}
    threads = [Thread(target=_ask, args=(model, environment, seconds, listings), daemon=True) for model in asked.values()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: _report(name, model, listings[_source(model)]) for name, model in models.items()}


def _source(model: HttpSettings) -> tuple[str, str]:
    return model.base_url, model.api_key


def _ask(model: HttpSettings, environment: Environment, seconds: float, listings: dict[tuple[str, str], _Listing]) -> None:
    async def fetch() -> _Listing:
        from toolrelay.backends.http import open_backend

        backend = open_backend(model, environment)
        try:
            async with asyncio.timeout(seconds):
                status, body = await backend.list_models()
                names = _names(body) if status == 200 else None
                version = backend.wire.version_path
                if names is None and not model.base_url.rstrip("/").endswith(version):
                    other, rest = await backend.list_models(version)
                    if other == 200 and _names(rest) is not None:
                        return _Listing(status=status, lacking=version)
                is_refused = status in (401, 403) or (
                    status >= 400 and backend.wire.decode_error(status, body).code == "upstream_auth"
                )
                return _Listing(status=status, names=names, is_key_refused=is_refused)
        finally:
            await backend.close()

    try:
        listings[_source(model)] = asyncio.run(fetch())
    except TimeoutError:
        return
    except ToolrelayError as error:
        reason = error.message.rpartition("cannot be reached: ")[2].rstrip(".")
        listings[_source(model)] = _Listing(problem=reason[:1].lower() + reason[1:])


def _names(body: bytes) -> tuple[str, ...] | None:
    """Return the names in a list of models, in any of the shapes that servers use."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if isinstance(value, dict):
        value = value.get("data", value.get("models"))
    if not isinstance(value, list):
        return None
    entries = [entry for entry in value[:MAX_NAMES] if isinstance(entry, dict)]
    return tuple(name for entry in entries for key in ("id", "name", "model") if isinstance(name := entry.get(key), str))


def _report(name: str, model: HttpSettings, listing: _Listing) -> HealthReport:
    base_url, setting = model.base_url.rstrip("/"), f"models.{quote_key(name)}"
    endpoint = next((end for end in _ENDPOINTS if base_url.endswith(end)), "")
    if endpoint:
        return HealthReport(problem=f"{setting}.base_url ends with an endpoint; write {base_url.removesuffix(endpoint)}")
    if listing.problem:
        return HealthReport(problem=listing.problem)
    if listing.lacking:
        return HealthReport(problem=f"{setting}.base_url lacks {listing.lacking}; write {base_url}{listing.lacking}")
    if listing.is_key_refused:
        problem = "refuses the key" if model.api_key else f"wants a key; set {setting}.api_key"
        return HealthReport(problem=f"{problem} (status {listing.status})")
    if listing.names is None:
        return HealthReport(summary=f"answers, without a list of models (status {listing.status})")
    if _is_listed(model.model, listing.names):
        return HealthReport(summary="answers")
    return HealthReport(summary="answers, does not list the model", notes=(_unlisted(setting, model, listing.names),))


def _is_listed(model: str, names: tuple[str, ...]) -> bool:
    """Ollama adds `:latest` to names without a tag."""
    return any(name in (model, f"{model}:latest", f"models/{model}") for name in names)


def _unlisted(setting: str, model: HttpSettings, names: tuple[str, ...]) -> str:
    found = list(dict.fromkeys(names))
    shown = ", ".join(found[:MAX_LISTED]) + (f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else "")
    hint = did_you_mean(model.model, found) or (f"; it has {shown}" if found else "; its list is empty")
    return f"{setting}.model: the server does not list {model.model}{hint}"
