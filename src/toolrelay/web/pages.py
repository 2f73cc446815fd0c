"""The pages beside the API endpoints: models, health, metrics and a welcome page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape

from toolrelay import __version__
from toolrelay.errors import ClientError
from toolrelay.runtime.models import Model
from toolrelay.runtime.telemetry import Metrics
from toolrelay.web.auth import Authenticator
from toolrelay.web.http.exchange import JSON, Exchange
from toolrelay.web.router import Handler
from toolrelay.wires.json import encode

_PLAIN = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n"
_HTML = b"content-type: text/html; charset=utf-8\r\n"


def make_pages(
    models: Mapping[str, Model], metrics: Metrics, authenticator: Authenticator, *, started: int, is_ready: Callable[[], bool]
) -> dict[tuple[str, str], Handler]:
    def describe(name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": started, "owned_by": f"toolrelay:{models[name].settings.provider}"}

    async def list_models(exchange: Exchange) -> None:
        identity = authenticator.identify(exchange.headers)
        visible = [describe(name) for name in models if identity.may_use(name)]
        exchange.respond(200, JSON, encode({"object": "list", "data": visible}))

    async def get_model(exchange: Exchange) -> None:
        identity = authenticator.identify(exchange.headers)
        if exchange.path_suffix not in models or not identity.may_use(exchange.path_suffix):
            raise ClientError(
                f"The model {exchange.path_suffix!r} does not exist here.", status=404, code="model_not_found", param="model"
            )
        exchange.respond(200, JSON, encode(describe(exchange.path_suffix)))

    async def health(exchange: Exchange) -> None:
        exchange.respond(200, JSON, encode({"status": "ok", "version": __version__}))

    async def readiness(exchange: Exchange) -> None:
        status, word = (200, "ready") if is_ready() else (503, "draining")
        exchange.respond(status, JSON, encode({"status": word}))

    async def expose_metrics(exchange: Exchange) -> None:
        with suppress(ClientError):  # no key is needed; without keys a foreign origin raises PolicyError
            authenticator.identify(exchange.headers)
        exchange.respond(200, _PLAIN, metrics.exposition())

    async def no_stored_response(exchange: Exchange) -> None:
        authenticator.identify(exchange.headers)
        raise ClientError(
            f"No response with the id {exchange.path_suffix.partition('/')[0]!r}: this version of the gateway stores none.",
            status=404,
            code="response_not_found",
        )

    async def welcome(exchange: Exchange) -> None:
        identity = authenticator.identify(exchange.headers)
        visible = [name for name in models if identity.may_use(name)]
        host = (exchange.headers.get(b"host") or b"127.0.0.1:8787").decode("latin-1")
        body = _welcome_page(host, visible, with_key=identity.name is not None)
        exchange.respond(200, _HTML, body.encode())

    return {
        ("GET", "/models"): list_models,
        ("GET", "/models/"): get_model,
        ("GET", "/healthz"): health,
        ("GET", "/readyz"): readiness,
        ("GET", "/metrics"): expose_metrics,
        **{(method, "/responses/"): no_stored_response for method in ("GET", "POST", "DELETE")},
        ("GET", "/"): welcome,
    }


def _example_command(host: str, model: str, *, with_key: bool) -> str:
    """Return a shell command. Host and model name are quoted: the client chooses the one, the configuration the other."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    lines = [f"curl {shlex.quote(f'http://{host}/v1/chat/completions')}", "-H 'content-type: application/json'"]
    if with_key:
        lines.append("-H 'authorization: Bearer YOUR_KEY'")
    return " \\\n  ".join([*lines, f"-d {shlex.quote(json.dumps(body))}"])


def _welcome_page(host: str, models: Sequence[str], *, with_key: bool) -> str:
    example = ""
    if models:
        example = f"<h2>Try it</h2>\n<pre>{escape(_example_command(host, models[0], with_key=with_key))}</pre>\n"
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
<p>The gateway is running. Point any client of the OpenAI API at <code>http://{escape(host)}/v1</code>.</p>
<h2>Models</h2>
<ul>{names}</ul>
{example}<p><a href="/v1/models">models</a> · <a href="/healthz">health</a> · <a href="/metrics">metrics</a></p>
"""
