"""Upstreams behind a proxy: a tunnel for https, whole URLs for http."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.backends.http.plain_wire import DONE, WIRE, collect, failure, settings_for
from tests.backends.http.pools import Run
from tests.upstream import Upstream, stream
from toolrelay.backends.http import HttpBackend
from toolrelay.backends.http.origin import Origin
from toolrelay.backends.http.proxy import find_proxy
from toolrelay.core.events import StreamEvent
from toolrelay.core.profiles import Profile
from toolrelay.errors import ConfigurationError

ANSWER = stream(b"[DONE]\n")
SECRET = b64encode(b"me:p@ss").decode()


def origin(host: str = "api.example", port: int = 443, *, secure: bool = True) -> Origin:
    return Origin(secure=secure, host=host, port=port)


@pytest.mark.parametrize(
    "environ", [{"HTTPS_PROXY": "http://p:3128"}, {"https_proxy": "p:3128", "HTTPS_PROXY": "http://other:1"}]
)
def test_variable_names_the_proxy_of_its_scheme(environ: dict[str, str]) -> None:
    proxy = find_proxy(origin(), environ)
    assert proxy is not None
    assert (proxy.host, proxy.port, proxy.authorization) == ("p", 3128, "")
    assert find_proxy(origin(port=80, secure=False), environ) is None


def test_credentials_are_sent_and_not_shown() -> None:
    proxy = find_proxy(origin(port=80, secure=False), {"HTTP_PROXY": "http://me:p%40ss@[::1]:8080"})
    assert proxy is not None
    assert (proxy.header, proxy.address) == (f"proxy-authorization: Basic {SECRET}\r\n", "[::1]:8080")
    assert "p@ss" not in repr(proxy)
    assert SECRET not in repr(proxy)


@pytest.mark.parametrize(
    "no_proxy", ["*", "api.example", "example", ".example", "*.example", "x, api.example:443", "a b API.EXAMPLE"]
)
def test_no_proxy_excludes_the_host(no_proxy: str) -> None:
    assert find_proxy(origin(), {"HTTPS_PROXY": "p:1", "NO_PROXY": no_proxy}) is None


@pytest.mark.parametrize("no_proxy", ["", ",", "pi.example", "ample", "api.example:80", "api.example.org"])
def test_no_proxy_of_others_does_not_count(no_proxy: str) -> None:
    assert find_proxy(origin(), {"HTTPS_PROXY": "p:1", "no_proxy": no_proxy}) is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_has_no_proxy(host: str) -> None:
    assert find_proxy(origin(host), {"HTTPS_PROXY": "p:1"}) is None


@pytest.mark.parametrize("value", ["socks5://p:1", "https://p:1", "http://:1", "http://p:99999", "http://p q:1", "http://[:1"])
def test_other_values_are_refused_without_quoting_them(value: str) -> None:
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY: expected a proxy") as refused:
        find_proxy(origin(), {"HTTPS_PROXY": value})
    assert value not in refused.value.message


def backend_behind(port: int, url: str, context: ssl.SSLContext | None = None, credentials: str = "") -> HttpBackend:
    proxy = f"http://{credentials}127.0.0.1:{port}"
    return HttpBackend(
        settings_for(url), WIRE, Profile(), context=context, environ={"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}, backoff=()
    )


async def ask_once(backend: HttpBackend) -> list[StreamEvent]:
    try:
        return await collect(backend)
    finally:
        await backend.close()


def test_request_to_http_has_the_whole_url(run: Run) -> None:
    with Upstream(ANSWER) as proxy:
        backend = backend_behind(proxy.port, "http://model.example:8000/v1", credentials="me:p%40ss@")
        assert run(ask_once(backend)) == [DONE]
        asked = proxy.requests[0]
    assert asked.path.startswith("http://model.example:8000/v1/")
    assert asked.headers["host"] == "model.example:8000"
    assert asked.headers["proxy-authorization"] == f"Basic {SECRET}"


class Tunnels:
    """A proxy that connects every tunnel to one port, or answers CONNECT with something else."""

    def __init__(self, target: int, answer: bytes = b"HTTP/1.1 200 Connection established\r\nvia: x\r\n\r\n") -> None:
        self.heads: list[bytes] = []
        self._target = target
        self._answer = answer

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[int]:
        tasks: list[asyncio.Task[None]] = []

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.append(asyncio.create_task(self._serve(reader, writer)))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close in the loop's next iteration

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self._answer)
        if b" 200 " not in self._answer:
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(pipe(reader, back), pipe(there, writer))
        finally:
            writer.transport.abort()
            back.transport.abort()


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


def client_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False  # the certificate is for 127.0.0.1, which has no proxy
    return context


def test_request_to_https_goes_through_a_tunnel_that_is_reused(
    run: Run, certificate: Path, server_context: ssl.SSLContext
) -> None:
    async def main(upstream: Upstream) -> Tunnels:
        tunnels = Tunnels(upstream.port)
        async with tunnels.listen() as port:
            backend = backend_behind(port, "https://model.example/v1", client_context(certificate), "me:p%40ss@")
            for _ in range(3):
                assert await collect(backend) == [DONE]
            await backend.close()
        return tunnels

    with Upstream(ANSWER, context=server_context) as upstream:
        tunnels = run(main(upstream))
        assert [request.path.startswith("/v1/") for request in upstream.requests] == [True] * 3
        assert all("proxy-authorization" not in request.headers for request in upstream.requests)
    head = f"CONNECT model.example:443 HTTP/1.1\r\nhost: model.example:443\r\nproxy-authorization: Basic {SECRET}\r\n\r\n"
    assert tunnels.heads == [head.encode()]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "answered CONNECT with status 407"),
        (b"HTTP/1.1 502 x\r\ncontent-length: 5\r\n\r\nhello", "answered CONNECT with status 502"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "did not answer CONNECT in HTTP/1.1"),
        (b"", "did not answer CONNECT in HTTP/1.1"),
        (b"x" * 20_000, "did not answer CONNECT in HTTP/1.1"),
    ],
)
def test_proxy_that_refuses_is_named(run: Run, answer: bytes, reason: str) -> None:
    async def main() -> str:
        async with Tunnels(0, answer).listen() as port:
            backend = backend_behind(port, "https://model.example/v1", credentials="me:p%40ss@")
            return failure(await ask_once(backend)).message.replace(str(port), "PORT")

    expected = f"The model's server at model.example:443 cannot be reached: the proxy at 127.0.0.1:PORT {reason}."
    assert run(main()) == expected


def test_proxy_that_is_not_there_is_named(run: Run) -> None:
    with Upstream(ANSWER) as closed:
        port = closed.port
    error = failure(run(ask_once(backend_behind(port, "https://model.example/v1"))))
    assert error.message.endswith(f"cannot be reached: Connection refused (through the proxy at 127.0.0.1:{port}).")
