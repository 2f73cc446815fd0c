"""The pages of the console and their files.

They contain no data and need no key: scripts load the data from the API, which authenticates each request. Without keys, a
foreign host is refused here as everywhere.
"""

from __future__ import annotations

from contextlib import suppress

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from toolrelay import __version__
from toolrelay.errors import ClientError
from toolrelay.web.auth import Authenticator
from toolrelay.web.console.assets import FOLDERS, Asset, load_assets
from toolrelay.web.sign_in import redirect_code
from toolrelay.web.site import exchange_of

PAGES = {
    "/": "chat.html",
    "/approvals-inbox": "inbox.html",
    "/traces": "traces.html",
    "/usage": "usage.html",
    "/settings": "settings.html",
}

_PREFIX = "/console/"
_POLICY = (
    "default-src 'none'; "
    "script-src 'self'; "
    "style-src 'self'; "
    "img-src 'self' data: blob:; "
    "connect-src 'self'; "
    "form-action 'self'; "
    "frame-ancestors 'none'; "
    "base-uri 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with "no-referrer" the scripts' POSTs would say `Origin: null`
    "cache-control": "no-cache",  # the browser asks each time, and gets a 304
}


class _ConsoleRoute(Route):
    """A page that is not below /v1."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.NONE, {}) if scope.get("root_path") else super().matches(scope)


def make_console_routes(authenticator: Authenticator) -> list[Route]:
    environment = Environment(
        loader=PackageLoader("toolrelay.web.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    pages = {path: environment.get_template(name).render(version=__version__) for path, name in PAGES.items()}
    assets = load_assets()

    def check_host(request: Request) -> None:
        with suppress(ClientError):  # no key is needed; without keys a foreign host or origin raises PolicyError
            authenticator.identify(exchange_of(request).headers)

    async def show_page(request: Request) -> Response:
        check_host(request)
        return redirect_code(request) or HTMLResponse(pages[request.url.path], headers=HEADERS)

    async def send_asset(request: Request) -> Response:
        check_host(request)
        asset = assets.get(request.url.path.removeprefix(_PREFIX))
        if asset is None:
            raise ClientError(f"There is no file {request.url.path}.", status=404, code="not_found")
        return _respond(asset, request)

    folders = [f"{_PREFIX}{folder}/{{path:path}}" for folder in FOLDERS]
    return [*(_ConsoleRoute(path, show_page) for path in PAGES), *(_ConsoleRoute(path, send_asset) for path in folders)]


def _respond(asset: Asset, request: Request) -> Response:
    headers = {**HEADERS, "content-type": asset.content_type, "etag": asset.etag, "vary": "accept-encoding"}
    if asset.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.compressed, headers={**headers, "content-encoding": "gzip"})
    return Response(asset.body, headers=headers)
