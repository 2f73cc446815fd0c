"""What is refused before a request reaches an endpoint or a page: ambiguous headers, wrong hosts, foreign web pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.gateway import Gateway, running
from tests.model_server import ClientApi
from tests.raw_client import RawClient, Reply, encode_request

KEY = "tr-a-key"
KEYS = f'[[keys]]\nname = "mine"\nsha256 = "{sha256(KEY.encode()).hexdigest()}"\n'
BEARER = f"authorization: Bearer {KEY}"
PAGES = ["/v1/models", "/", "/healthz", "/readyz", "/metrics", "/v1/responses/resp_1", "/nowhere"]
OBSIDIAN = "origin: app://obsidian.md"
CROSS_SITE = ("sec-fetch-site: cross-site", "sec-fetch-mode: cors", "sec-fetch-dest: empty")
LINK = ("sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: document")


@pytest.fixture(scope="module")
def keyed() -> Iterator[Gateway]:
    """A gateway with a key."""
    with running(KEYS) as gateway:
        yield gateway


def send(gateway: Gateway, head: str, body: bytes = b"", *, to: str = "GET") -> Reply:
    """Send a head line by line as it is written, and a body."""
    lines = [*head.splitlines(), f"content-length: {len(body)}", "", ""]
    with RawClient(gateway.port) as client:
        return client.send("\r\n".join(lines).encode("latin-1") + body).reply(to=to)


def ask(gateway: Gateway, method: str, path: str, *lines: str, body: object = None) -> Reply:
    encoded = b"" if body is None else json.dumps(body).encode()
    with RawClient(gateway.port) as client:
        return client.send(encode_request(method, path, encoded, *lines)).reply(to=method)


def outcome(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.json()["error"]["code"]


def demo(api: ClientApi) -> dict[str, object]:
    return api.request_body() | {"model": "demo"}


# Host

MALFORMED = [
    "",
    "[::1].evil.example",
    "[::1]evil",
    "[::1",
    "[::1]:",
    "[::1]:80:80",
    "[::1%25lo]",
    "[127.0.0.1]",
    "[localhost]",
    "[1:2:3]",
    "[]",
    "::1",
    "localhost:80@evil",
    "localhost@evil.example",
    "user:secret@localhost",
    "@localhost",
    "localhost:",
    "localhost:99999",
    "localhost:65536",
    "localhost:080000",
    "localhost:-1",
    "localhost:+80",
    "localhost: 80",
    "localhost:80:80",
    "localhost:http",
    "local host",
    "localhost evil.example",
    "localhost,evil.example",
    "localhost, localhost",
    "localhost/",
    "localhost/@evil",
    "localhost?",
    "localhost#",
    "localhost\\evil",
    "http://localhost",
    "localhost%2eevil.example",
    "localhost\t80",
    "localhost:\xb2",
    "l\xf6calhost",
    "a" * 300,
]


@pytest.mark.parametrize("host", MALFORMED)
def test_malformed_host_is_a_400_on_every_page(gateway: Gateway, keyed: Gateway, host: str) -> None:
    for path in ("/v1/models", "/", "/metrics"):
        head = f"GET {path} HTTP/1.1\nhost: {host}"
        assert outcome(send(gateway, head)) == (400, "invalid_host")
        assert outcome(send(keyed, f"{head}\n{BEARER}")) == (400, "invalid_host")


@pytest.mark.parametrize("host", ["", "[::1].evil.example", "localhost:80@evil", "localhost:99999"])
def test_malformed_host_is_a_400_on_every_endpoint(gateway: Gateway, api: ClientApi, host: str) -> None:
    reply = ask(gateway, "POST", api.path, f"host: {host}", body=demo(api))
    assert outcome(reply) == (400, "invalid_host")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("lines", [[], ["host: localhost", "host: localhost"], ["Host: localhost", "hOST: evil.example"]])
def test_missing_or_repeated_host_is_a_400_on_every_path(gateway: Gateway, path: str, lines: list[str]) -> None:
    reply = send(gateway, "\n".join([f"GET {path} HTTP/1.1", *lines]))
    assert outcome(reply) == (400, "repeated_header" if lines else "invalid_host")


@pytest.mark.parametrize("lines", [[], ["host: localhost", "x-a: b", "host: localhost"]])
def test_missing_or_repeated_host_is_a_400_on_every_endpoint(gateway: Gateway, api: ClientApi, lines: list[str]) -> None:
    reply = send(gateway, "\n".join([f"POST {api.path} HTTP/1.1", *lines]), json.dumps(demo(api)).encode())
    assert outcome(reply) == (400, "repeated_header" if lines else "invalid_host")


def test_host_of_a_refused_request_is_not_remembered(gateway: Gateway) -> None:
    for _ in range(2):
        assert outcome(ask(gateway, "GET", "/v1/models", "host: evil.example:80")) == (403, "foreign_host")
        assert outcome(ask(gateway, "GET", "/v1/models", "host: localhost:70000")) == (400, "invalid_host")
        assert ask(gateway, "GET", "/healthz", "host: evil.example:80").status == 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1.evil.example", "127.0.0.1.", "localhost.", "127.1", "0x7f.0.0.1", "2130706433", "[::2]"]
)
def test_host_that_only_resembles_loopback_is_foreign(gateway: Gateway, host: str) -> None:
    assert outcome(ask(gateway, "GET", "/v1/models", f"host: {host}")) == (403, "foreign_host")


@pytest.mark.parametrize(
    "host", ["gateway.example", "my_gateway:8787", "192.168.1.5:80", "[fe80::1]:8787", "xn--bcher-kva.example"]
)
def test_with_keys_every_well_formed_host_is_accepted(keyed: Gateway, host: str) -> None:
    assert ask(keyed, "GET", "/v1/models", f"host: {host}", BEARER).status == 200


# Absolute targets


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://evil.example/v1/models", "localhost"),
        ("http://localhost/v1/models", "localhost:80"),
        ("http://localhost@evil.example/v1/models", "localhost"),
        ("http://evil.example@localhost/v1/models", "localhost"),
        ("http://evil.example?/v1/models", "localhost"),
        ("HTTP://evil.example/v1/models", "localhost"),
        ("foo://evil.example/v1/models", "localhost"),
    ],
)
def test_absolute_target_with_another_host_is_a_400(gateway: Gateway, target: str, host: str) -> None:
    assert outcome(send(gateway, f"GET {target} HTTP/1.1\nhost: {host}")) == (400, "invalid_host")


def test_absolute_target_of_an_endpoint_with_another_host_is_a_400(gateway: Gateway, api: ClientApi) -> None:
    head = f"POST http://evil.example{api.path} HTTP/1.1\nhost: localhost"
    assert outcome(send(gateway, head, json.dumps(demo(api)).encode())) == (400, "invalid_host")


@pytest.mark.parametrize(("version", "status"), [("1.1", 403), ("1.0", 403)])
def test_absolute_target_with_its_own_foreign_host_is_refused(gateway: Gateway, version: str, status: int) -> None:
    head = f"GET http://evil.example/v1/models HTTP/{version}\nhost: evil.example"
    assert outcome(send(gateway, head)) == (status, "foreign_host")


@pytest.mark.parametrize("target", ["http://evil.example/v1/models", "http://localhost/v1/models"])
def test_absolute_target_without_a_host_header_is_a_400(gateway: Gateway, target: str) -> None:
    assert outcome(send(gateway, f"GET {target} HTTP/1.0")) == (400, "invalid_host")


@pytest.mark.parametrize("target", ["http://localhost:80/v1/models", "http://LOCALHOST:80/v1/models?a=http://evil.example"])
def test_absolute_target_with_the_same_host_is_accepted(gateway: Gateway, target: str) -> None:
    assert send(gateway, f"GET {target} HTTP/1.1\nhost: localhost:80").status == 200


# Repeated headers


@pytest.mark.parametrize("name", ["origin", "authorization", "x-api-key", "sec-fetch-site"])
@pytest.mark.parametrize("values", [("app://obsidian.md", "app://obsidian.md"), ("", "https://evil.example")])
def test_repeated_header_is_a_400_everywhere(gateway: Gateway, api: ClientApi, name: str, values: tuple[str, str]) -> None:
    first, second = values
    lines = (f"{name}: {first}", "x-between: 1", f"{name.title()}: {second}")
    replies = [ask(gateway, "GET", path, *lines) for path in PAGES]
    replies += [ask(gateway, method, api.path, *lines, body=demo(api)) for method in ("POST", "OPTIONS", "PUT")]
    for reply in replies:
        assert outcome(reply) == (400, "repeated_header")
        assert f"'{name}'" in reply.json()["error"]["message"]
        assert "access-control-allow-origin" not in reply.headers


def test_two_keys_are_a_400_whichever_is_valid(keyed: Gateway) -> None:
    for lines in ([BEARER, "authorization: Bearer wrong"], ["authorization: Bearer wrong", BEARER], [BEARER, BEARER]):
        reply = ask(keyed, "GET", "/v1/models", *lines)
        assert outcome(reply) == (400, "repeated_header")
        assert KEY not in reply.body.decode()


def test_other_repeated_headers_are_accepted(gateway: Gateway) -> None:
    assert ask(gateway, "GET", "/v1/models", "accept: a/b", "accept: */*", "cookie: a=1", "cookie: b=2").status == 200


# Foreign web pages


def test_cross_site_request_is_refused_everywhere(gateway: Gateway, keyed: Gateway, api: ClientApi) -> None:
    for lines in (CROSS_SITE, (*CROSS_SITE, "origin: https://evil.example"), (*CROSS_SITE, "origin: null")):
        replies = [ask(gateway, "GET", path, *lines) for path in PAGES]
        replies += [ask(gateway, method, api.path, *lines, body=demo(api)) for method in ("POST", "OPTIONS")]
        replies.append(ask(keyed, "POST", api.path, *lines, BEARER, body=demo(api)))
        for reply in replies:
            assert outcome(reply) == (403, "cross_site")
            assert reply.json()["error"]["type"] == "permission_error"
            assert "server.cors_origins" in reply.json()["error"]["message"]
            assert not [name for name in reply.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("origin", ["app://obsidian.md", "capacitor://localhost"])
def test_cross_site_request_of_an_allowed_origin_is_accepted(
    gateway: Gateway, keyed: Gateway, api: ClientApi, origin: str
) -> None:
    lines = (*CROSS_SITE, f"origin: {origin}")
    for reply in (
        ask(gateway, "POST", api.path, *lines, body=demo(api)),
        ask(gateway, "GET", "/v1/models", *lines),
        ask(keyed, "POST", api.path, *lines, BEARER, body=demo(api)),
    ):
        assert reply.status == 200
        assert reply.headers["access-control-allow-origin"] == origin


def test_cross_site_preflight_of_an_allowed_origin_is_accepted(gateway: Gateway, keyed: Gateway, api: ClientApi) -> None:
    for each in (gateway, keyed):
        reply = ask(each, "OPTIONS", api.path, *CROSS_SITE, OBSIDIAN, "access-control-request-method: POST")
        assert reply.status == 204
        assert "POST" in reply.headers["access-control-allow-methods"]


def test_cross_site_request_is_accepted_from_any_origin_with_a_wildcard(api: ClientApi) -> None:
    with running('[server]\ncors_origins = ["*"]\n') as gateway:
        assert ask(gateway, "POST", api.path, *CROSS_SITE, "origin: https://chat.example", body=demo(api)).status == 200
        assert outcome(ask(gateway, "GET", "/v1/models", *CROSS_SITE)) == (403, "cross_site"), "no origin"


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/"])
def test_link_from_another_site_opens_the_welcome_page(gateway: Gateway, path: str) -> None:
    reply = ask(gateway, "GET", path, *LINK)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("method", "path", "lines"),
    [
        ("GET", "/v1/models", LINK),
        ("GET", "/v1/responses/resp_1", LINK),
        ("GET", "/metrics", LINK),
        ("POST", "/", LINK),
        ("GET", "/", ("sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: iframe")),
        ("GET", "/", ("sec-fetch-site: cross-site", "sec-fetch-mode: no-cors", "sec-fetch-dest: image")),
        ("GET", "/", ("sec-fetch-site: cross-site",)),
    ],
)
def test_other_navigation_from_another_site_is_refused(gateway: Gateway, method: str, path: str, lines: tuple[str, ...]) -> None:
    assert outcome(ask(gateway, method, path, *lines)) == (403, "cross_site")


def test_form_of_another_site_is_refused(gateway: Gateway, api: ClientApi) -> None:
    lines = (*LINK, "origin: https://evil.example", "content-type: text/plain")
    assert outcome(ask(gateway, "POST", api.path, *lines, body=demo(api))) == (403, "cross_site")


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_own_page_and_address_bar_are_accepted(gateway: Gateway, api: ClientApi, site: str) -> None:
    assert ask(gateway, "GET", "/v1/models", f"sec-fetch-site: {site}").status == 200
    lines = ("host: localhost:8787", "origin: http://localhost:8787", f"sec-fetch-site: {site}")
    assert ask(gateway, "POST", api.path, *lines, body=demo(api)).status == 200


# After a refusal


def test_refused_request_is_logged_and_its_body_is_not_the_next_request(api: ClientApi) -> None:
    with running() as gateway:
        with RawClient(gateway.port) as client:
            client.send(encode_request("POST", api.path, b"GET / HTTP/1.1\r\n\r\n", "host: localhost:80@evil"))
            assert client.reply().status == 400
            assert client.get("/healthz").reply().status == 200
        ask(gateway, "GET", "/v1/models", *CROSS_SITE)
        assert gateway.stop() == 0
        lines = [json.loads(line) for line in gateway.log().splitlines()]
    assert [(line["event"], line["status"], line["code"]) for line in lines] == [
        ("refused", 400, "invalid_host"),
        ("refused", 403, "cross_site"),
    ]
