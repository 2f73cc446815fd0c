"""The site: which pages need a key, and what becomes of errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tests.raw_client import encode_request
from tests.web.http.client import Client, connected_client
from toolrelay import log
from toolrelay.errors import ClientError, PolicyError
from toolrelay.runtime.keys import KeyRing
from toolrelay.settings import KeySettings
from toolrelay.web.access import Access
from toolrelay.web.auth import Authenticator
from toolrelay.web.http.server import Server
from toolrelay.web.router import Router
from toolrelay.web.site import Site, exchange_of, identify

MAX_BODY = 1000
KEY = KeySettings(name="mine", sha256=sha256(b"secret").hexdigest())
Page = Callable[[Request], Awaitable[Response]]


def make_router(
    routes: list[Route], open_routes: list[BaseRoute] | None = None, *, keys: tuple[KeySettings, ...] = ()
) -> tuple[Router, Site]:
    authenticator = Authenticator(KeyRing(keys), ["https://notes.example"])
    site = Site(routes=routes, open_routes=open_routes or [], access=Access(authenticator), max_body_bytes=MAX_BODY)

    async def endpoint(exchange: object) -> None:
        raise AssertionError("not asked for")

    return Router({"/things": endpoint}, site, authenticator), site


def ask(router: Router, method: str, path: str, *lines: str, body: bytes = b"") -> bytes:
    async def main() -> bytes:
        async with connected_client(router.handle, server=Server(router)) as client:
            client.send(encode_request(method, path, body, *lines, "connection: close"))
            return await client.read_rest()

    return asyncio.run(main())


async def say_name(request: Request) -> Response:
    return PlainTextResponse(str(identify(request).name))


async def say_path(request: Request) -> Response:
    return PlainTextResponse(exchange_of(request).path)


# Access


def test_page_that_is_not_open_needs_a_key() -> None:
    router, _ = make_router([Route("/name", say_name)], [Route("/open", say_path)], keys=(KEY,))
    refused = ask(router, "GET", "/v1/name")
    assert refused.startswith(b"HTTP/1.1 401 ")
    assert b"www-authenticate: Bearer\r\n" in refused
    assert b'"code":"missing_api_key"' in refused
    assert ask(router, "GET", "/v1/name", "x-api-key: secret").endswith(b"\r\n\r\nmine")
    assert ask(router, "GET", "/open").endswith(b"\r\n\r\n/open")


def test_page_without_keys_is_anonymous() -> None:
    router, _ = make_router([Route("/name", say_name)])
    assert ask(router, "GET", "/name").endswith(b"\r\n\r\nNone")
    assert ask(router, "GET", "/name", "origin: https://evil.example").startswith(b"HTTP/1.1 403 ")


def test_unknown_path_and_method_need_no_key() -> None:
    router, _ = make_router([Route("/name", say_name)], keys=(KEY,))
    assert ask(router, "GET", "/nowhere").startswith(b"HTTP/1.1 404 ")
    assert ask(router, "DELETE", "/name").startswith(b"HTTP/1.1 405 ")


# Methods


def test_methods_of_all_routes_with_the_path_are_allowed() -> None:
    routes = [
        Route("/things/{name}", say_name, methods=["GET"]),
        Route("/things/{name}", say_name, methods=["DELETE"]),
        Route("/things", say_name, methods=["GET"]),
    ]
    router, site = make_router(routes)
    assert site.methods("/things/a") == {"GET", "DELETE"}
    assert site.methods("/nowhere") == set()
    assert b"allow: DELETE, GET, HEAD, OPTIONS\r\n" in ask(router, "PUT", "/v1/things/a")
    assert b"allow: GET, HEAD, OPTIONS, POST\r\n" in ask(router, "PUT", "/v1/things"), "also those of an endpoint"
    assert b"allow: GET, HEAD, OPTIONS, POST\r\n" in ask(router, "OPTIONS", "/things")
    assert ask(router, "DELETE", "/v1/things/a").endswith(b"\r\n\r\nNone")
    assert ask(router, "GET", "/v1/things").endswith(b"\r\n\r\nNone")


def test_head_of_a_page_that_only_takes_post_is_a_405() -> None:
    router, _ = make_router([Route("/run", say_name, methods=["POST"])])
    assert ask(router, "HEAD", "/run").startswith(b"HTTP/1.1 405 ")


def test_files_are_mounted_without_a_key(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    router, _ = make_router([], [Mount("/static", StaticFiles(directory=tmp_path))], keys=(KEY,))
    assert ask(router, "GET", "/static/a.txt").endswith(b"\r\n\r\nhello")
    missing = ask(router, "GET", "/static/../b.txt")
    assert missing.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"not_found"' in missing
    assert ask(router, "POST", "/static/a.txt").startswith(b"HTTP/1.1 405 ")


# Errors


def failing(error: Exception) -> Router:
    async def page(_: Request) -> Response:
        raise error

    return make_router([Route("/fail", page)])[0]


def test_error_of_a_page_is_sent_in_openai_format() -> None:
    response = ask(failing(ClientError("No.", status=409, code="conflict", param="id", retry_after=1.2)), "GET", "/fail")
    assert response.startswith(b"HTTP/1.1 409 ")
    assert b"content-type: application/json\r\n" in response
    assert b"retry-after: 2\r\n" in response
    assert response.endswith(b'{"error":{"message":"No.","type":"invalid_request_error","param":"id","code":"conflict"}}')
    assert ask(failing(PolicyError("No.")), "GET", "/fail").startswith(b"HTTP/1.1 403 ")


def test_error_of_a_page_has_cors_headers() -> None:
    response = ask(failing(ClientError("No.")), "GET", "/fail", "origin: https://notes.example")
    assert b"access-control-allow-origin: https://notes.example\r\n" in response


def test_exception_of_starlette_is_sent_in_openai_format() -> None:
    response = ask(failing(HTTPException(418, "Short and stout.", {"x-a": "b"})), "GET", "/fail")
    assert response.startswith(b"HTTP/1.1 418 ")
    assert b"x-a: b\r\n" in response
    assert b'"message":"Short and stout."' in response


def test_unexpected_exception_is_a_500_without_details_and_is_logged_once() -> None:
    with log.captured() as lines:
        response = ask(failing(RuntimeError("the secret")), "GET", "/fail")
    assert response.startswith(b"HTTP/1.1 500 ")
    assert b'"code":"internal_error"' in response
    assert b"the secret" not in response
    [line] = lines
    assert line["event"] == "internal_error"
    assert line["path"] == "/fail"
    assert "the secret" in line["exception"]


@pytest.mark.parametrize(("size", "status"), [(MAX_BODY, 200), (MAX_BODY + 1, 413)])
def test_body_of_a_page_is_limited(size: int, status: int) -> None:
    async def page(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    router, _ = make_router([Route("/put", page, methods=["POST"])])
    assert ask(router, "POST", "/put", body=b"a" * size).startswith(f"HTTP/1.1 {status} ".encode())


def test_disconnect_during_the_body_is_not_logged() -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def page(request: Request) -> Response:
        asked.set()
        try:
            return PlainTextResponse(str(len(await request.body())))
        finally:
            ended.set()

    async def main() -> None:
        router, _ = make_router([Route("/put", page, methods=["POST"])])
        async with connected_client(router.handle, server=Server(router)) as client:
            client.send(encode_request("POST", "/put", b"abc")[:-1])
            await asyncio.wait_for(asked.wait(), 30)
            client.close()
            await asyncio.wait_for(ended.wait(), 30)

    with log.captured() as lines:
        asyncio.run(main())
    assert lines == []


def test_page_that_outlasts_the_shutdown_is_a_503() -> None:
    asked = asyncio.Event()

    async def page(_: Request) -> Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def main() -> bytes:
        router, _ = make_router([Route("/wait", page)])
        server = Server(router)
        client: Client
        async with connected_client(router.handle, server=server) as client:
            client.send(encode_request("GET", "/wait"))
            await asyncio.wait_for(asked.wait(), 30)
            await server.stop(0, asyncio.Event())
            return await client.read_rest()

    response = asyncio.run(main())
    assert response.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"shutting_down"' in response
