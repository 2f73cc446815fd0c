"""The pages beside the API endpoints: models, health, metrics and a welcome page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from toolrelay import __version__
from toolrelay.errors import ClientError
from toolrelay.runtime.models import Model, find_model
from toolrelay.runtime.telemetry import Metrics
from toolrelay.web.auth import Authenticator
from toolrelay.web.sign_in import redirect_code
from toolrelay.web.site import exchange_of, identify
from toolrelay.wires.json import encode

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def make_routes(models: Mapping[str, Model], *, started: int) -> list[Route]:
    """Return the pages that need a key, if there are keys."""

    def describe(name: str, model: Model, request: Request) -> dict[str, object]:
        if _is_anthropic(request):
            since = datetime.fromtimestamp(started, UTC).isoformat().replace("+00:00", "Z")
            return {"id": name, "type": "model", "display_name": name, "created_at": since, "lifecycle": "active"}
        owner = f"toolrelay:{model.settings.provider}"
        return {"id": name, "object": "model", "created": started, "owned_by": owner, "name": name}  # name: for pickers

    async def list_models(request: Request) -> Response:
        identity = identify(request)
        usable = [(name, model) for name, model in models.items() if identity.may_use(name)]
        visible = [describe(each, model, request) for name, model in usable for each in (name, *model.settings.aliases)]
        if _is_anthropic(request):
            ends = {"first_id": visible[0]["id"] if visible else None, "last_id": visible[-1]["id"] if visible else None}
            return json_response({"data": visible, "has_more": False, **ends})
        return json_response({"object": "list", "data": visible})

    async def get_model(request: Request) -> Response:
        name = request.path_params["name"]
        return json_response(describe(name, find_model(models, name, identify(request).may_use), request))

    async def welcome(request: Request) -> Response:
        redirect = redirect_code(request)
        if redirect is not None:
            return redirect
        identity = identify(request)
        visible = [name for name in models if identity.may_use(name)]
        host = request.headers.get("host") or "127.0.0.1:8787"
        return HTMLResponse(_welcome_page(f"{request.url.scheme}://{host}", visible, with_key=identity.name is not None))

    return [
        Route("/models", list_models),
        Route("/models/{name:path}", get_model),
        Route("/", welcome),
    ]


def _is_anthropic(request: Request) -> bool:
    """Return whether the client speaks Anthropic's API, which has a list of models of its own form at the same path."""
    return "anthropic-version" in request.headers


def make_open_routes(metrics: Metrics, authenticator: Authenticator, *, is_ready: Callable[[], bool]) -> list[Route]:
    """Return the pages for monitoring. They need no key and have no limit."""

    async def health(_: Request) -> Response:
        return json_response({"status": "ok", "version": __version__})

    async def readiness(_: Request) -> Response:
        status, word = (200, "ready") if is_ready() else (503, "draining")
        return json_response({"status": word}, status)

    async def expose_metrics(request: Request) -> Response:
        with suppress(ClientError):  # no key is needed; without keys a foreign origin raises PolicyError
            authenticator.identify(exchange_of(request).headers)
        return Response(metrics.exposition(), headers={"content-type": _METRICS_TYPE})

    return [Route("/healthz", health), Route("/readyz", readiness), Route("/metrics", expose_metrics)]


def json_response(value: object, status: int = 200) -> Response:
    return Response(encode(value), status, {"content-type": "application/json"})


def _example_command(url: str, model: str, *, with_key: bool) -> str:
    """Return a shell command. URL and model name are quoted: the client chooses the one, the configuration the other."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    lines = [f"curl {shlex.quote(f'{url}/v1/chat/completions')}", "-H 'content-type: application/json'"]
    if with_key:
        lines.append("-H 'authorization: Bearer YOUR_KEY'")
    return " \\\n  ".join([*lines, f"-d {shlex.quote(json.dumps(body))}"])


def _welcome_page(url: str, models: Sequence[str], *, with_key: bool) -> str:
    example = ""
    if models:
        example = f"<h2>Try it</h2>\n<pre>{escape(_example_command(url, models[0], with_key=with_key))}</pre>\n"
    names = "".join(f"<li><code>{escape(name)}</code></li>" for name in models)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Toolrelay</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font: 16px/1.55 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1.25rem; }}
  pre {{ padding: 1rem; overflow-x: auto; border: 1px solid #8886; border-radius: .5rem; }}
  code, pre {{ font-family: ui-monospace, monospace; font-size: .9em; }}
</style>
<h1>Toolrelay {escape(__version__)}</h1>
<p>The gateway is running. Point any client of the OpenAI API at <code>{escape(url)}/v1</code>.</p>
<h2>Models</h2>
<ul>{names}</ul>
{example}<p><a href="/v1/models">models</a> · <a href="/healthz">health</a> · <a href="/metrics">metrics</a></p>
"""
