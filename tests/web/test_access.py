"""Rate limits as clients see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, ClientApi, error_members
from tests.raw_client import RawClient, Reply, encode_request
from toolrelay.errors import ToolrelayError
from toolrelay.runtime.keys import KeyRing
from toolrelay.runtime.limits import RateLimiter
from toolrelay.settings import KeySettings
from toolrelay.web.access import Access
from toolrelay.web.auth import Authenticator
from toolrelay.web.http.exchange import Exchange

LIMIT = 5
HEADERS = ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")
CHAT = CLIENT_APIS["openai_chat"]


def key(name: str, limit: int = 0) -> str:
    return f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\nrequests_per_minute = {limit}\n'


def ask(gateway: Gateway, method: str, path: str, *lines: str, body: object = None) -> Reply:
    encoded = b"" if body is None else json.dumps(body).encode()
    with RawClient(gateway.port) as client:
        return client.send(encode_request(method, path, encoded, *lines)).reply(to=method)


def demo(api: ClientApi, **members: Any) -> dict[str, Any]:
    return api.request_body(**members) | {"model": "demo"}


@pytest.fixture
def limited() -> Iterator[Gateway]:
    """A gateway without keys, which accepts LIMIT requests per minute."""
    with running(f"[limits]\nrequests_per_minute = {LIMIT}\n") as gateway:
        yield gateway


def test_every_kind_of_request_counts_against_the_address(limited: Gateway, api: ClientApi) -> None:
    replies = [
        ask(limited, "POST", api.path, body=demo(api)),
        ask(limited, "POST", api.path, body=demo(api, stream=True)),
        ask(limited, "POST", api.path, body={}),
        ask(limited, "GET", "/v1/models"),
        ask(limited, "GET", "/v1/models/nowhere"),
        ask(limited, "POST", api.path, body=demo(api)),
        ask(limited, "GET", "/models/"),
        ask(limited, "GET", "/v1/"),
        ask(limited, "HEAD", "/v1/models"),
        ask(limited, "DELETE", "/v1/responses/resp_1"),
    ]
    assert [reply.status for reply in replies] == [200, 200, 400, 200, 404] + [429] * 5
    assert [reply.headers[HEADERS[0]] for reply in replies] == [str(LIMIT)] * 10
    assert [int(reply.headers[HEADERS[1]]) for reply in replies] == [4, 3, 2, 1, 0] + [0] * 5
    for reply in replies:
        assert 0 < float(reply.headers[HEADERS[2]].removesuffix("s")) <= 60
        assert ("retry-after" in reply.headers) == (reply.status == 429)
    refused = replies[5]
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["content-type"] == "application/json"
    error = error_members(refused.json())
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "this address" in error["message"]


def test_monitoring_preflights_and_unknown_paths_have_no_limit(limited: Gateway) -> None:
    paths = [("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics"), ("OPTIONS", "/v1/models"), ("GET", "/nowhere")]
    for _ in range(LIMIT + 1):
        for method, path in paths:
            reply = ask(limited, method, path)
            assert reply.status in (200, 204, 404)
            assert not [name for name in HEADERS if name in reply.headers]
    assert ask(limited, "GET", "/v1/models").headers[HEADERS[1]] == str(LIMIT - 1)


def test_refused_request_is_not_read_and_is_logged(limited: Gateway) -> None:
    for _ in range(LIMIT):
        ask(limited, "GET", "/v1/models")
    with RawClient(limited.port) as client:
        client.send(encode_request("POST", CHAT.path).replace(b"length: 0", b"length: 1000"))
        assert client.reply().status == 429
    limited.stop()
    [line] = [json.loads(line) for line in limited.log().splitlines()]
    assert (line["event"], line["status"], line["code"]) == ("refused", 429, "rate_limit_exceeded")


def test_foreign_page_does_not_use_up_the_limit_of_the_address(limited: Gateway) -> None:
    """A page in the user's browser has the user's address."""
    statuses = [ask(limited, "GET", "/v1/models", "origin: https://evil.example").status for _ in range(LIMIT + 1)]
    assert statuses == [403] * LIMIT + [429]
    assert ask(limited, "GET", "/v1/models").headers[HEADERS[1]] == str(LIMIT - 1)


def test_allowed_origin_may_read_the_headers(limited: Gateway) -> None:
    with RawClient(limited.port) as client:
        client.get("/v1/models", "origin: app://obsidian.md")
        head = client.read_until(b"\r\n\r\n").decode()
    exposed = ",".join(line.partition(":")[2] for line in head.splitlines() if line.startswith("access-control-expose-headers:"))
    assert {*HEADERS, "x-request-id", "retry-after"} <= {name.strip() for name in exposed.split(",")}


def test_keys_have_their_own_limits() -> None:
    config = f"[limits]\nrequests_per_minute = {LIMIT}\n" + key("general") + key("small", 1) + key("large", 2 * LIMIT)
    with running(config) as gateway:
        statuses = {
            name: [ask(gateway, "GET", "/v1/models", f"x-api-key: {name}").status for _ in range(2 * LIMIT + 1)]
            for name in ("general", "small", "large")
        }
        refused = ask(gateway, "POST", CHAT.path, "authorization: Bearer small", body=demo(CHAT))
    assert {name: each.count(200) for name, each in statuses.items()} == {"general": LIMIT, "small": 1, "large": 2 * LIMIT}
    assert {each[-1] for each in statuses.values()} == {429}
    assert refused.status == 429
    assert refused.headers[HEADERS[0]] == "1"
    assert "this key" in refused.json()["error"]["message"]


def test_failed_authentication_counts_against_the_address_and_not_the_key() -> None:
    with running(f"[limits]\nrequests_per_minute = {LIMIT}\n" + key("mine")) as gateway:
        statuses = [
            ask(gateway, "GET", "/v1/models", *lines).status
            for lines in [("x-api-key: wrong",), ()] * LIMIT  # both kinds together
        ]
        valid = ask(gateway, "GET", "/v1/models", "x-api-key: mine")
    assert statuses == [401] * LIMIT + [429] * LIMIT
    assert valid.status == 200
    assert valid.headers[HEADERS[1]] == str(LIMIT - 1)


def test_key_without_a_limit_beside_one_with_a_limit_gets_no_headers() -> None:
    with running(key("free") + key("small", 1)) as gateway:
        replies = [ask(gateway, "GET", "/v1/models", "x-api-key: free") for _ in range(3)]
        wrong = [ask(gateway, "GET", "/v1/models", "x-api-key: wrong") for _ in range(3)]
        small = [ask(gateway, "GET", "/v1/models", "x-api-key: small").status for _ in range(2)]
    assert [reply.status for reply in replies] == [200] * 3
    assert [reply.status for reply in wrong] == [401] * 3
    assert not [name for reply in replies + wrong for name in HEADERS if name in reply.headers]
    assert small == [200, 429]


def test_response_without_limits_has_no_rate_limit_headers(gateway: Gateway) -> None:
    assert not [name for name in ask(gateway, "GET", "/v1/models").headers if name.startswith("x-ratelimit")]


class _Channel:
    """A channel of a client with this address."""

    write_paused = False
    server_address = None
    is_tls = False

    def __init__(self, host: str | None) -> None:
        self.client_address = None if host is None else (host, 1)

    def write(self, data: bytes) -> None:
        raise AssertionError("nothing is written")

    def drain(self) -> asyncio.Future[None]:
        raise AssertionError("nothing is written")

    def resume_reading(self) -> None:
        raise AssertionError("nothing is read")


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        (None, None, True),
    ],
)
@pytest.mark.parametrize("keys", [(), (KeySettings(name="mine", sha256="0" * 64),)], ids=["no keys", "wrong key"])
def test_networks_share_a_limit(first: str | None, second: str | None, keys: tuple[KeySettings, ...], *, is_same: bool) -> None:
    async def main() -> list[int]:
        access = Access(Authenticator(KeyRing(keys)), RateLimiter(clock=lambda: 0.0), requests_per_minute=1)
        statuses = []
        for host in (first, second):
            try:
                await access.admit(Exchange(_Channel(host), "GET", "/", {b"x-api-key": b"wrong"}, "test"))
                statuses.append(200)
            except ToolrelayError as error:
                statuses.append(error.status)
        return statuses

    expected = 401 if keys else 200
    assert asyncio.run(main()) == [expected, 429 if is_same else expected]
