"""`x-request-id` equals the turn token in the log and in the ids of the response, and refused requests have one, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from itertools import product
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.raw_client import RawClient, encode_request
from tests.transcripts.requests import request
from tests.transcripts.scenarios import Combination, Subject, subjects
from tests.transcripts.scripted_upstream import ScriptedUpstream
from tests.transcripts.session import PATHS

KEY = "sk-of-a-client"
AUTHORIZATION = f"authorization: Bearer {KEY}"
CONFIG = f"""
[server]
max_body_bytes = 20000
[[keys]]
name = "client"
sha256 = "{sha256(KEY.encode()).hexdigest()}"
"""
MODELS = ("native", "hermes")
SUBJECTS: dict[str, Subject] = subjects()


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(upstream: ScriptedUpstream) -> Iterator[Gateway]:
    tables = "".join(SUBJECTS[name].tables(upstream.url) for name in MODELS)
    with running(CONFIG + tables, environ={"TOOLRELAY_LOG": "json"}) as gateway:
        yield gateway


def logged(gateway: Gateway, token: str) -> list[Any]:
    lines = (json.loads(line) for line in gateway.log().splitlines())
    return [line for line in lines if line.get("turn") == token]


def token_of(headers: dict[str, str]) -> str:
    name, _, token = headers["x-request-id"].partition("_")
    assert name == "req"
    assert token
    return token


@pytest.mark.parametrize(("model", "wire", "stream"), list(product(MODELS, PATHS, (True, False))))
def test_request_id_of_an_answer_is_the_token_of_its_turn(
    gateway: Gateway, upstream: ScriptedUpstream, model: str, wire: str, *, stream: bool
) -> None:
    wanted = Combination("two_calls", wire, "auto", "retry", parallel=True, stream=stream)
    scenario = next(one for one, combination in SUBJECTS[model].combinations() if combination == wanted)
    upstream.play(scenario.script)
    with RawClient(gateway.port) as client:
        body = request(wanted, scenario, SUBJECTS[model].model(wanted))
        reply = client.post(PATHS[wire], body, AUTHORIZATION).reply()
        client.get("/v1/models", AUTHORIZATION).reply()  # its answer comes after the turn's last log line
    token, text = token_of(reply.headers), reply.body.decode()
    assert reply.status == 200
    assert ("chatcmpl-" if wire == "chat" else "resp_") + token in text
    lines = logged(gateway, token)
    calls = [line["call_id"] for line in lines if "call_id" in line]
    assert len(calls) == 2
    assert all(identity.startswith(f"call_{token}") and identity in text for identity in calls)
    assert [line["status"] for line in lines if line["event"] == "turn"] == [200]


NO_MODEL = b'{"model":"x","messages":[{"role":"user","content":"Hi"}]}'
REFUSED = {
    "bad JSON": (encode_request("POST", PATHS["chat"], b"{", AUTHORIZATION), 400),
    "bad JSON on Responses": (encode_request("POST", PATHS["responses"], b"{", AUTHORIZATION), 400),
    "no such model": (encode_request("POST", PATHS["chat"], NO_MODEL, AUTHORIZATION), 404),
    "no key": (encode_request("POST", PATHS["chat"], b"{}"), 401),
    "wrong key": (encode_request("POST", PATHS["responses"], b"{}", "authorization: Bearer no"), 401),
    "too large": (encode_request("POST", PATHS["chat"], b" " * 20001, AUTHORIZATION), 413),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_request_has_an_id_that_is_logged(gateway: Gateway, name: str) -> None:
    sent, status = REFUSED[name]
    with RawClient(gateway.port) as client:
        reply = client.send(sent).reply()
    assert reply.status == status
    lines = logged(gateway, token_of(reply.headers))
    assert [(line["event"], line["status"]) for line in lines] == [("refused", status)]


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/v1/chat/completions", 405)])
def test_unknown_path_or_method_has_an_id(gateway: Gateway, path: str, status: int) -> None:
    with RawClient(gateway.port) as client:
        reply = client.get(path, AUTHORIZATION).reply()
    assert reply.status == status
    assert token_of(reply.headers)


def test_invalid_http_request_has_an_id(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        reply = client.send(b"What is this?\r\n\r\n").reply()
    assert reply.status == 400
    assert token_of(reply.headers)
