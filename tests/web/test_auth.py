"""Authentication with and without keys."""

from __future__ import annotations

import contextlib
import hmac
import json
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.gateway import Gateway, running
from tests.model_server import KEY, ClientApi, ModelServer, configuration, error_members, whole
from tests.raw_client import RawClient, Reply, encode_request
from toolrelay.errors import ClientError
from toolrelay.runtime.keys import KeyRing
from toolrelay.settings import KeySettings
from toolrelay.web import auth

PLAIN = "tr-a-key-for-everything"
LIMITED = "tr-a-key-for-some-models"
UNICODE = "tr-clé-ключ"


def key(name: str, secret: str, models: str) -> str:
    return f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(secret.encode()).hexdigest()}"\nmodels = {models}\n'


KEYS = key("all", PLAIN, '["*"]') + key("some", LIMITED, '["demo-*", "[no]ne"]') + key("odd", UNICODE, '["*"]')
MODELS = '[models.demo-1]\nprovider = "demo"\n[models.demo]\nprovider = "demo"\n'


@pytest.fixture(scope="module")
def guarded(model_server: ModelServer) -> Iterator[Gateway]:
    """A gateway with keys. Its models are fast, demo and demo-1."""
    with running(configuration(model_server, before=KEYS + MODELS)) as gateway:
        yield gateway


def ask(gateway: Gateway, method: str, path: str, *lines: str, body: object = None) -> Reply:
    encoded = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
    with RawClient(gateway.port) as client:
        return client.send(encode_request(method, path, encoded, *lines)).reply(to=method)


def error_of(reply: Reply) -> tuple[int, str, str]:
    found = error_members(reply.json())
    return reply.status, found["type"], found["code"]


# With keys


@pytest.mark.parametrize(
    "lines",
    [
        [f"authorization: Bearer {PLAIN}"],
        [f"Authorization: bearer   {PLAIN} "],
        [f"x-api-key: {PLAIN}"],
        ["authorization: Basic dXNlcjpwYXNz", f"x-api-key: {PLAIN}"],
        ["authorization: Bearer ", f"x-api-key: {PLAIN}"],
        [f"authorization: Bearer {UNICODE}"],
    ],
)
def test_valid_key_is_accepted(guarded: Gateway, model_server: ModelServer, api: ClientApi, lines: list[str]) -> None:
    model_server.enqueue(whole())
    assert ask(guarded, "POST", api.path, *lines, body=api.request_body()).status == 200
    assert ask(guarded, "GET", "/v1/models", *lines).status == 200


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([], "missing_api_key"),
        (["authorization: Bearer"], "missing_api_key"),
        (["authorization: Bearer  "], "missing_api_key"),
        ([f"authorization: Basic {PLAIN}"], "missing_api_key"),
        (["x-api-key: "], "missing_api_key"),
        ([f"authorization: Bearer {PLAIN}x"], "invalid_api_key"),
        ([f"authorization: Bearer {sha256(PLAIN.encode()).hexdigest()}"], "invalid_api_key"),
        ([f"authorization: Bearer {PLAIN.upper()}"], "invalid_api_key"),
        (["x-api-key: nonsense"], "invalid_api_key"),
        (["authorization: Bearer wrong", f"x-api-key: {PLAIN}"], "invalid_api_key"),
    ],
)
def test_missing_or_wrong_key_is_refused(guarded: Gateway, api: ClientApi, lines: list[str], code: str) -> None:
    for reply in (
        ask(guarded, "POST", api.path, *lines, body=api.request_body()),
        ask(guarded, "GET", "/v1/models", *lines),
        ask(guarded, "GET", "/v1/models/demo", *lines),
        ask(guarded, "GET", "/v1/responses/resp_1", *lines),
    ):
        assert error_of(reply) == (401, "invalid_request_error", code)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert PLAIN not in reply.body.decode()


def test_wrong_key_is_refused_before_the_body_is_read(guarded: Gateway, api: ClientApi) -> None:
    with RawClient(guarded.port) as client:
        client.send(encode_request("POST", api.path).replace(b"length: 0", b"length: 1000000"))
        assert client.reply().status == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_health_and_metrics_need_no_key(guarded: Gateway, path: str) -> None:
    assert ask(guarded, "GET", path).status == 200


def test_key_sees_and_uses_only_its_own_models(guarded: Gateway, api: ClientApi) -> None:
    line = f"authorization: Bearer {LIMITED}"
    listed = ask(guarded, "GET", "/v1/models", line).json()["data"]
    assert [model["id"] for model in listed] == ["demo-1"]
    assert ask(guarded, "POST", api.path, line, body=api.request_body() | {"model": "demo-1"}).status == 200
    assert ask(guarded, "GET", "/v1/models/demo-1", line).status == 200
    for hidden in ("demo", "fast"):
        refused = ask(guarded, "POST", api.path, line, body=api.request_body() | {"model": hidden})
        nowhere = f"{hidden[:-1]}x"
        unknown = ask(guarded, "POST", api.path, line, body=api.request_body() | {"model": nowhere})
        assert error_of(refused) == error_of(unknown) == (404, "invalid_request_error", "model_not_found")
        messages = [reply.json()["error"]["message"] for reply in (refused, unknown)]
        assert messages[0].replace(f"'{hidden}'", f"'{nowhere}'") == messages[1]
        assert ask(guarded, "GET", f"/v1/models/{hidden}", line).status == 404


def test_key_is_accepted_from_any_host_and_origin(guarded: Gateway) -> None:
    """A key is valid from any origin; the browser, not the gateway, keeps the response from the page."""
    lines = [f"authorization: Bearer {PLAIN}", "host: gateway.example", "origin: https://elsewhere.example"]
    reply = ask(guarded, "GET", "/v1/models", *lines)
    assert reply.status == 200
    assert "access-control-allow-origin" not in reply.headers


def test_keys_are_neither_logged_nor_sent(model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(whole())
    with running(configuration(model_server, before=KEYS), environ={"TOOLRELAY_LOG_LEVEL": "debug"}) as gateway:
        answers = [
            ask(gateway, "POST", api.path, f"authorization: Bearer {secret}", body=body)
            for secret in (PLAIN, "tr-a-key-that-is-wrong")
            for body in (api.request_body(), {"model": "nowhere", api.items: "Hi"})
        ]
        answers += [ask(gateway, "GET", path, f"x-api-key: {PLAIN}") for path in ("/", "/v1/models", "/metrics", "/nowhere")]
        assert gateway.stop() == 0
        log = gateway.log()
    assert '"key":"all"' in log, "the name of the key is logged"
    written = log + "".join(answer.body.decode() + str(answer.headers) for answer in answers)
    for secret in (PLAIN, "tr-a-key-that-is-wrong", KEY, sha256(PLAIN.encode()).hexdigest()):
        assert secret not in written


@pytest.mark.parametrize("secret", [PLAIN, LIMITED, "wrong"])
def test_every_key_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    """Comparison in constant time: compare_digest, once for every key."""
    compared: list[bytes] = []

    def compare(known: bytes, given: bytes) -> bool:
        compared.append(known)
        return known == given

    monkeypatch.setattr(hmac, "compare_digest", compare)
    known = [KeySettings(name=each, sha256=sha256(each.encode()).hexdigest()) for each in (PLAIN, LIMITED, UNICODE)]
    with contextlib.suppress(ClientError):
        auth.Authenticator(KeyRing(known)).identify({b"x-api-key": secret.encode()})
    assert len(compared) == 3


# Without keys


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8787", "localhost", "LocalHost:80", "[::1]", "[::1]:8787", "127.8.8.8:1"]
)
def test_without_keys_loopback_hosts_are_accepted(gateway: Gateway, api: ClientApi, host: str) -> None:
    assert ask(gateway, "GET", "/v1/models", f"host: {host}").status == 200
    assert ask(gateway, "POST", api.path, f"host: {host}", body=api.request_body() | {"model": "demo"}).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8787", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.1.5", "[fe80::1]"],
)
def test_without_keys_foreign_hosts_are_refused(gateway: Gateway, api: ClientApi, host: str) -> None:
    """With DNS rebinding, a browser takes a foreign page and the gateway for the same origin."""
    lines = (f"host: {host}", f"origin: http://{host}")
    for reply in (
        ask(gateway, "GET", "/v1/models", *lines),
        ask(gateway, "GET", "/", *lines),
        ask(gateway, "GET", "/metrics", *lines),
        ask(gateway, "POST", api.path, *lines, body=api.request_body()),
    ):
        assert error_of(reply) == (403, "permission_error", "foreign_host")
        assert b"`toolrelay keys new NAME`" in reply.body, "a Docker user must learn what to do"
        assert b"server.host" in reply.body


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "https://localhost:3000",
        "http://localhost:3000.evil.example",
        "http://localhost:",
        "http://evil.localhost:3000",
        "http://127.0.0.1:1",
        "null",
        "",
        "app://obsidian.md.evil.example",
        "http://[",
        "http://app://obsidian.md",
    ],
)
def test_without_keys_foreign_origins_are_refused(gateway: Gateway, api: ClientApi, origin: str) -> None:
    for reply in (
        ask(gateway, "POST", api.path, f"origin: {origin}", body=api.request_body()),
        ask(gateway, "GET", "/v1/models", f"origin: {origin}"),
    ):
        assert error_of(reply) == (403, "permission_error", "foreign_origin")
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "origin", ["app://obsidian.md", "capacitor://localhost", "http://localhost", "http://localhost:3000", "http://127.0.0.1:8787"]
)
def test_without_keys_obsidian_and_own_origins_are_accepted(gateway: Gateway, api: ClientApi, origin: str) -> None:
    lines = ("host: 127.0.0.1:8787", f"origin: {origin}")
    assert ask(gateway, "POST", api.path, *lines, body=api.request_body() | {"model": "demo"}).status == 200


def test_unneeded_key_is_ignored(gateway: Gateway, api: ClientApi) -> None:
    line = "authorization: Bearer not-needed"
    assert ask(gateway, "POST", api.path, line, body=api.request_body() | {"model": "demo"}).status == 200


def test_host_cache_is_bounded() -> None:
    authenticator = auth.Authenticator(KeyRing())
    for port in range(200):
        assert authenticator.identify({b"host": f"localhost:{port}".encode()}) is auth.ANONYMOUS
    assert len(authenticator._local_hosts) <= 64
