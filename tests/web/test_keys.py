"""Keys that are made, rotated and revoked while the gateway runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.approving import TIMEOUT_SECONDS, Approver, Asking, chat_text
from tests.durable import Workshop
from tests.gateway import Gateway, running
from tests.tool_rounds import Round, play
from tests.upstream import Upstream
from toolrelay.runtime.keys import FOLLOW_SECONDS, KeyRing, NewKey
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import open_store
from toolrelay.web.sessions import COOKIE

DEMO = '[models.demo]\nprovider = "demo"\n[models.other]\nprovider = "demo"\n'
FILE_KEY = f'[[keys]]\nname = "filed"\nsha256 = "{sha256(b"filed").hexdigest()}"\napprove = true\n'
PATIENCE_SECONDS = 60  # only a test that fails reaches it


class Operator(httpx.Client):
    """Sends the token of the data directory."""

    def __init__(self, gateway: Gateway) -> None:
        token = (gateway.data_dir / "approver.token").read_text().strip()
        url = f"http://127.0.0.1:{gateway.port}"
        super().__init__(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60)

    def create(self, name: str, **members: Any) -> dict[str, Any]:
        response = self.post("/api/keys", json={"name": name, **members})
        assert response.status_code == 200, response.text
        made: dict[str, Any] = response.json()
        return made

    def refuse(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        response = self.request(method, path, **options)
        return response.status_code, response.json()["error"]["code"]


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


@pytest.fixture(scope="module")
def keyed() -> Iterator[Gateway]:
    with running(FILE_KEY + DEMO, environ={"TOOLRELAY_LOG_LEVEL": "debug"}) as gateway:
        yield gateway


@pytest.fixture
def operator(keyed: Gateway) -> Iterator[Operator]:
    with Operator(keyed) as operator:
        yield operator


def respond(gateway: Gateway, text: str, model: str = "demo") -> httpx.Response:
    return gateway.post("/v1/responses", {"model": model, "input": "Hello"}, **bearer(text))


# Creating


def test_first_key_closes_the_gateway_at_once_and_the_last_opens_it(tmp_path: Path) -> None:
    with running(DEMO, folder=tmp_path) as gateway, Operator(gateway) as operator:
        assert gateway.get("/v1/models").status_code == 200
        made = operator.create("laptop")
        assert "every client needs one" in made["notice"]
        assert gateway.get("/v1/models").status_code == 401
        assert gateway.get("/v1/models", **bearer(made["key"])).status_code == 200
        assert operator.create("second")["notice"] is None
    with running(DEMO, folder=tmp_path) as gateway, Operator(gateway) as operator:
        assert gateway.get("/v1/models", **bearer(made["key"])).status_code == 200, "after a restart"
        first, second = [key["id"] for key in operator.get("/api/keys").json()["keys"]]
        assert operator.delete(f"/api/keys/{first}").json()["notice"] is None
        assert "without one" in operator.delete(f"/api/keys/{second}").json()["notice"]
        assert gateway.get("/v1/models").status_code == 200


def test_key_has_its_rights_at_once(keyed: Gateway, operator: Operator) -> None:
    made = operator.create("limited", models=["oth*"], requests_per_minute=2)
    assert respond(keyed, made["key"]).status_code == 404
    assert respond(keyed, made["key"], "other").status_code == 200
    assert respond(keyed, made["key"], "other").status_code == 429
    assert keyed.get("/approvals", **bearer(operator.create("plain")["key"])).status_code == 403
    assert keyed.get("/approvals", **bearer(operator.create("boss", approve=True)["key"])).status_code == 200


def test_list_has_the_keys_of_the_file_and_of_the_store_without_hashes(keyed: Gateway, operator: Operator) -> None:
    made = operator.create("listed", toolsets=["mine"])
    respond(keyed, made["key"])
    listed = {key["name"]: key for key in operator.get("/api/keys").json()["keys"]}
    assert listed["filed"]["source"] == "file"
    own = listed["listed"]
    assert (own["id"], own["source"], own["toolsets"], own["models"]) == (made["id"], "store", ["mine"], ["*"])
    assert own["last_used_at"] >= own["created_at"]
    assert not {"sha256", "digest", "key"} & own.keys()


@pytest.mark.parametrize("name", ["local", "filed", "taken", "gone"])
def test_name_is_not_used_twice(operator: Operator, name: str) -> None:
    known = {key["name"]: key for key in operator.get("/api/keys").json()["keys"]}
    for needed in {"taken", "gone"} - known.keys():
        made = operator.create(needed)
        if needed == "gone":
            operator.delete(f"/api/keys/{made['id']}")
    assert operator.refuse("POST", "/api/keys", json={"name": name}) == (409, "key_name_taken")


def test_id_of_a_key_is_no_name_for_another(operator: Operator) -> None:
    made = operator.create("has an id")
    assert operator.refuse("POST", "/api/keys", json={"name": made["id"]}) == (409, "key_name_taken")


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"name": 1},
        {"name": ""},
        {"name": "x" * 101},
        {"name": "a", "is_operator": True},
        {"name": "a", "sha256": "0" * 64},
        {"name": "a", "models": "*"},
        {"name": "a", "models": ["*"] * 101},
        {"name": "a", "toolsets": ["x" * 201]},
        {"name": "a", "requests_per_minute": -1},
        {"name": "a", "requests_per_minute": 10**9},
    ],
)
def test_body_that_describes_no_key_is_refused(operator: Operator, body: Any) -> None:
    assert operator.refuse("POST", "/api/keys", json=body) == (400, "invalid_key")


@pytest.mark.parametrize("name", [" a", "a ", "a\nb", "a\x7fb"])
def test_name_with_blanks_around_it_or_controls_is_refused(operator: Operator, name: str) -> None:
    assert operator.refuse("POST", "/api/keys", json={"name": name}) == (400, "invalid_key_name")


def test_large_body_is_refused(operator: Operator) -> None:
    response = operator.post("/api/keys", content=b'{"name": "a"}' + b" " * 65_536)
    assert response.status_code == 400


# Rotating and revoking


def test_rotated_key_replaces_the_old_one_and_keeps_its_data(keyed: Gateway, operator: Operator) -> None:
    old = operator.create("turning")
    other = operator.create("stranger")["key"]
    made = respond(keyed, old["key"]).json()["id"]
    new = operator.post(f"/api/keys/{old['id']}/rotate").json()
    assert (new["id"], new["key"] != old["key"]) == (old["id"], True)
    assert keyed.get("/v1/models", **bearer(old["key"])).status_code == 401
    assert keyed.get(f"/v1/responses/{made}", **bearer(new["key"])).status_code == 200
    assert keyed.get(f"/v1/responses/{made}", **bearer(other)).status_code == 404
    assert keyed.get(f"/v1/responses/{made}", **bearer("filed")).status_code == 404


@pytest.mark.parametrize("change", ["rotate", "revoke"])
def test_changed_key_ends_its_sessions(keyed: Gateway, operator: Operator, change: str) -> None:
    made = operator.create(f"browser to {change}", approve=True)
    signed_in = httpx.post(f"{keyed.url}/console/sign-in", data={"key": made["key"]})
    cookies = {COOKIE: signed_in.cookies[COOKIE]}
    (own,) = [each for each in httpx.get(f"{keyed.url}/console/sessions", cookies=cookies).json()["sessions"] if each["current"]]
    assert own["key"] == made["name"]
    if change == "rotate":
        assert operator.post(f"/api/keys/{made['id']}/rotate").status_code == 200
    else:
        assert operator.delete(f"/api/keys/{made['id']}").status_code == 200
    assert httpx.get(f"{keyed.url}/v1/models", cookies=cookies).status_code == 401
    assert own["id"] not in [each["id"] for each in operator.get("/console/sessions").json()["sessions"]]


def test_revoked_key_ends_its_stream_of_events() -> None:
    with running(f"[server]\nkeepalive_seconds = 0.05\n{FILE_KEY}{DEMO}") as gateway, Operator(gateway) as operator:
        made = operator.create("watcher", approve=True)
        with httpx.stream("GET", f"{gateway.url}/approvals/events", headers=bearer(made["key"]), timeout=60) as events:
            lines = events.iter_lines()
            assert next(lines).startswith(":")
            operator.delete(f"/api/keys/{made['id']}")
            assert all(not line or line.startswith(":") for line in lines)


def test_revoked_key_cannot_be_changed(operator: Operator) -> None:
    made = operator.create("revoked")
    operator.delete(f"/api/keys/{made['id']}")
    assert operator.refuse("DELETE", f"/api/keys/{made['id']}") == (409, "key_revoked")
    assert operator.refuse("POST", f"/api/keys/{made['id']}/rotate") == (409, "key_revoked")


def test_keys_of_the_file_and_unknown_ones_cannot_be_changed(keyed: Gateway, operator: Operator) -> None:
    assert operator.refuse("DELETE", "/api/keys/filed") == (409, "key_of_file")
    assert operator.refuse("POST", "/api/keys/filed/rotate") == (409, "key_of_file")
    assert operator.refuse("DELETE", "/api/keys/key_0") == (404, "key_not_found")
    assert keyed.get("/v1/models", **bearer("filed")).status_code == 200


# Names for people


def test_question_of_a_key_names_it_and_its_rule_outlives_a_rotation(tmp_path: Path) -> None:
    call = Round(calls=(("once", {"number": 1}),))
    with (
        Upstream(play(call, Round(text=("Done.",)))) as upstream,
        Workshop(tmp_path, upstream, approval="always").start() as gateway,
        Operator(gateway) as operator,
    ):
        asker = operator.create("asker", toolsets=["mine"])
        boss = Approver(gateway, operator.create("boss", approve=True)["key"])
        reply = Asking(gateway, bearer(asker["key"])).chat()
        question = boss.question()
        assert question["key"] == "asker"
        assert boss.post(question["id"], verdict="allow", remember="always").json()["answered_by"] == "boss"
        assert chat_text(reply.result(TIMEOUT_SECONDS)) == "Done."
        assert [rule["key"] for rule in boss.get("/approvals/rules").json()["rules"]] == ["asker"]
        log = [line for line in gateway.log().splitlines() if "key_created" not in line]
        assert any('"event":"tool_run"' in line and '"key":"asker"' in line for line in log)
        assert any('"event":"approval"' in line and '"key":"asker"' in line for line in log)
        assert not any(asker["id"] in line for line in log)
        rotated = operator.post(f"/api/keys/{asker['id']}/rotate").json()["key"]
        again = Asking(gateway, bearer(rotated)).chat("Again.")
        assert chat_text(again.result(TIMEOUT_SECONDS)) == "Done.", "nobody was asked"
        assert sum('"event":"tool_run"' in line for line in gateway.log().splitlines()) == 2


# Who may


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("DELETE", "/x"), ("POST", "/x/rotate")])
def test_only_the_operator_may_see_and_change_keys(keyed: Gateway, operator: Operator, method: str, path: str) -> None:
    def ask(headers: dict[str, str], cookies: dict[str, str] | None = None) -> int:
        with httpx.Client(base_url=keyed.url, cookies=cookies) as client:
            return client.request(method, f"/api/keys{path}", json={"name": "x"}, headers=headers).status_code

    assert ask({}) == 401
    assert ask(bearer("filed")) == 403, "although it may approve"
    own = {"origin": keyed.url, "sec-fetch-site": "same-origin"}
    by_key = httpx.post(f"{keyed.url}/console/sign-in", data={"key": "filed"})
    assert ask(own, {COOKIE: by_key.cookies[COOKIE]}) == 403
    code = operator.post("/console/codes").json()["code"]
    by_code = {COOKIE: httpx.get(f"{keyed.url}/console/sign-in", params={"code": code}).cookies[COOKIE]}
    assert ask(own, by_code) in (200, 404)
    if method != "GET":
        assert ask({"origin": "http://evil.example"}, by_code) == 403
        assert ask({}, by_code) == 403, "it may be a foreign page"


def test_token_is_the_operator_but_answers_no_approvals(operator: Operator) -> None:
    assert operator.refuse("GET", "/approvals") == (403, "not_an_approver")
    assert operator.get("/v1/models").status_code == 200


def test_clients_of_a_gateway_without_keys_are_no_operators(gateway: Gateway) -> None:
    assert gateway.get("/api/keys").status_code == 401
    assert gateway.post("/api/keys", {"name": "x"}).json()["error"]["code"] == "missing_approver_token"


# Where keys are kept


def test_key_is_in_no_file_and_no_log_line(tmp_path: Path) -> None:
    with running(FILE_KEY + DEMO, folder=tmp_path, environ={"TOOLRELAY_LOG_LEVEL": "debug"}) as gateway:
        with Operator(gateway) as operator:
            made = operator.create("secretive")
            texts = [made["key"], operator.post(f"/api/keys/{made['id']}/rotate").json()["key"]]
            assert [respond(gateway, text).status_code for text in texts] == [401, 200]
        assert gateway.stop() == 0
        log = gateway.log()
    (turn,) = [line for line in log.splitlines() if '"event":"turn"' in line]
    assert '"key":"secretive"' in turn
    assert made["id"] not in turn
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for text in texts:
        assert not any(text.encode() in content for content in written)
        assert sha256(text.encode()).hexdigest() not in log


def test_last_use_is_kept_over_a_restart(tmp_path: Path) -> None:
    with running(FILE_KEY + DEMO, folder=tmp_path) as gateway, Operator(gateway) as operator:
        made = operator.create("used")
        respond(gateway, made["key"])
        assert gateway.stop() == 0
    with running(FILE_KEY + DEMO, folder=tmp_path) as gateway, Operator(gateway) as operator:
        (own,) = [key for key in operator.get("/api/keys").json()["keys"] if key["name"] == "used"]
        assert own["last_used_at"] >= own["created_at"]


def test_keys_are_refused_where_nothing_is_kept() -> None:
    with running(f'[store]\nrecord = "none"\n{DEMO}') as gateway, Operator(gateway) as operator:
        assert operator.refuse("POST", "/api/keys", json={"name": "x"}) == (409, "keys_not_kept")
        assert gateway.get("/v1/models").status_code == 200


async def change_store(folder: Path, name: str) -> str:
    """Create a key as another process does."""
    store = open_store(StoreSettings(), folder)
    await store.open()
    try:
        return (await KeyRing((), store).create(NewKey(name=name)))[0]
    finally:
        await store.close()


def test_change_by_another_process_counts_soon(keyed: Gateway) -> None:
    text = asyncio.run(change_store(keyed.data_dir, "from elsewhere"))
    until = time.monotonic() + PATIENCE_SECONDS
    while keyed.get("/v1/models", **bearer(text)).status_code != 200:
        assert time.monotonic() < until, f"not seen after more than {FOLLOW_SECONDS} s"


def test_gateway_that_others_reach_starts_with_keys_of_the_store_and_keeps_the_last(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is not a loopback address"):
        running(DEMO, folder=tmp_path, flags=("--host", "0.0.0.0")).__enter__()
    assert not (tmp_path / "data" / "toolrelay.db").exists()
    text = asyncio.run(change_store(tmp_path / "data", "remote"))
    with running(DEMO, folder=tmp_path, flags=("--host", "0.0.0.0")) as gateway, Operator(gateway) as operator:
        url = f"http://127.0.0.1:{gateway.port}/v1/models"
        assert [httpx.get(url).status_code, httpx.get(url, headers=bearer(text)).status_code] == [401, 200]
        (key,) = operator.get("/api/keys").json()["keys"]
        assert operator.refuse("DELETE", f"/api/keys/{key['id']}") == (409, "last_key")
        operator.create("spare")
        assert operator.delete(f"/api/keys/{key['id']}").status_code == 200
        assert httpx.get(url, headers=bearer(text)).status_code == 401


def test_file_with_the_name_of_a_stored_key_is_refused(tmp_path: Path) -> None:
    asyncio.run(change_store(tmp_path / "data", "filed"))
    with pytest.raises(AssertionError, match=r"toolrelay\.toml: keys\.filed\.name: a key of the store has this name"):
        running(FILE_KEY + DEMO, folder=tmp_path).__enter__()
