"""Signing in with a browser: codes, cookies, origins, revocation."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests.approving import TIMEOUT_SECONDS, Approver, Asking, chat_text
from tests.durable import Workshop
from tests.gateway import Gateway, running
from tests.tool_rounds import Round, play
from tests.upstream import Upstream
from toolrelay.runtime.approver import load_or_create_approver_token
from toolrelay.runtime.keys import KeyRing
from toolrelay.settings import KeySettings, StoreSettings
from toolrelay.stores.base import Store, open_store
from toolrelay.web.auth import Authenticator, Identity, credential_of
from toolrelay.web.sessions import CODE_SECONDS, COOKIE, MAX_CODES, MAX_USER_AGENT, SESSION_SECONDS, Codes, Sessions

DEMO = '[models.demo]\nprovider = "demo"\n'
ALLOWED = "http://localhost:1"  # an origin that may use the gateway, but not the session
LIMIT = 30


def key(name: str, *, approve: bool = False) -> str:
    digest = sha256(name.encode()).hexdigest()
    return f'[[keys]]\nname = "{name}"\nsha256 = "{digest}"\napprove = {str(approve).lower()}\n'


class Browser(httpx.Client):
    """Sends what a browser sends with requests of the gateway's own pages."""

    def __init__(self, gateway: Gateway) -> None:
        self.own = {"origin": gateway.url, "sec-fetch-site": "same-origin"}
        super().__init__(base_url=gateway.url, timeout=60)

    def sign_in(self, secret: str) -> httpx.Response:
        return self.post("/console/sign-in", data={"key": secret}, headers=self.own)

    def open(self, code: str, **headers: str) -> httpx.Response:
        return self.get("/console/sign-in", params={"code": code}, headers=headers)

    def sessions(self) -> list[dict[str, object]]:
        response = self.get("/console/sessions")
        assert response.status_code == 200, response.text
        found: list[dict[str, object]] = response.json()["sessions"]
        return found


def new_code(gateway: Gateway) -> str:
    token = (gateway.data_dir / "approver.token").read_text().strip()
    response = gateway.post("/console/codes", None, authorization=f"Bearer {token}")
    assert response.status_code == 200, response.text
    return str(response.json()["code"])


@pytest.fixture(scope="module")
def open_gateway() -> Iterator[Gateway]:
    with running(f'[server]\ncors_origins = ["{ALLOWED}"]\n{DEMO}') as gateway:
        yield gateway


@pytest.fixture(scope="module")
def keyed() -> Iterator[Gateway]:
    with running(key("ada", approve=True) + key("bob") + DEMO) as gateway:
        yield gateway


@pytest.fixture
def browser(open_gateway: Gateway) -> Iterator[Browser]:
    """A browser that is signed in by a code."""
    with Browser(open_gateway) as browser:
        assert browser.open(new_code(open_gateway)).status_code == 303
        yield browser


# Codes and sessions by themselves


def test_code_works_once() -> None:
    codes = Codes()
    code = codes.make()
    assert len(code) >= 22  # 128 bits
    assert [codes.redeem(code), codes.redeem(code), codes.redeem("")] == [True, False, False]


def test_code_expires() -> None:
    now = 0.0
    codes = Codes(lambda: now)
    early, late = codes.make(), codes.make()
    now = CODE_SECONDS - 1
    assert codes.redeem(early)
    now = CODE_SECONDS
    assert not codes.redeem(late)


def test_oldest_code_is_dropped_if_there_are_too_many() -> None:
    codes = Codes()
    made = [codes.make() for _ in range(MAX_CODES + 1)]
    assert [codes.redeem(code) for code in made] == [False] + [True] * MAX_CODES


ADA = KeySettings(name="ada", sha256=sha256(b"ada").hexdigest(), approve=True)


def with_store(tmp_path: Path, story: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        store = open_store(StoreSettings(), tmp_path)
        await store.open()
        try:
            await story(store)
        finally:
            await store.close()

    asyncio.run(main())


def test_session_expires_and_ends_with_its_key(tmp_path: Path) -> None:
    now = 1000.0

    async def story(store: Store) -> None:
        def sessions(*keys: KeySettings) -> Sessions:
            return Sessions(store, Authenticator(KeyRing(keys)), lambda: now)

        nonlocal now
        first = sessions(ADA)
        credential = credential_of(bytes.fromhex(ADA.sha256))
        token, row = await first.begin(Identity(key="ada", name="ada", may_approve=True), credential, "x" * 1000 + "\n")
        assert len(row.user_agent) == MAX_USER_AGENT
        headers = {b"cookie": f"a=b; {COOKIE}={token}; c".encode()}
        found = await first.find(headers)
        assert found is not None
        assert (found[0].name, found[0].may_approve, found[0].session_id) == ("ada", True, row.id)
        changed = KeySettings(name="ada", sha256=sha256(b"new").hexdigest(), approve=True)
        assert await sessions(changed).find(headers) is None
        assert await sessions().find(headers) is None
        demoted = await sessions(KeySettings(name="ada", sha256=ADA.sha256)).find(headers)
        assert demoted is not None
        assert not demoted[0].may_approve
        assert await first.find({b"cookie": headers[b"cookie"] + f"; {COOKIE}=other".encode()}) is None
        now += SESSION_SECONDS
        assert await first.find(headers) is None

    with_store(tmp_path, story)


def test_token_is_not_in_the_database(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        token, _ = await Sessions(store, Authenticator(KeyRing())).begin(Identity(), "", "")
        tokens.append(token)

    tokens: list[str] = []
    with_store(tmp_path, story)
    assert not any(tokens[0].encode() in path.read_bytes() for path in tmp_path.iterdir())


def test_revocation_counts_although_a_session_is_cached_and_being_read(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        sessions = Sessions(store, Authenticator(KeyRing()))
        token, row = await sessions.begin(Identity(may_approve=True), "", "")
        headers = {b"cookie": f"{COOKIE}={token}".encode()}
        await asyncio.gather(sessions.find(headers), sessions.revoke(row.id))
        assert await sessions.find(headers) is None

    with_store(tmp_path, story)


# Signing in by code


def test_code_begins_a_session_with_a_strict_cookie(open_gateway: Gateway) -> None:
    with Browser(open_gateway) as browser:
        code = new_code(open_gateway)
        redirect = browser.get("/", params={"code": code})
        assert (redirect.status_code, redirect.headers["location"]) == (303, f"/console/sign-in?code={code}")
        response = browser.get(redirect.headers["location"])
        assert (response.status_code, response.headers["location"]) == (303, "/")
        name, *attributes = response.headers["set-cookie"].split("; ")
        assert re.fullmatch(r"toolrelay_session=[\w-]{43}", name)
        assert sorted(each.lower() for each in attributes) == ["httponly", "max-age=2592000", "path=/", "samesite=strict"]
        assert browser.get("/approvals").status_code == 200
        again = httpx.get(f"{open_gateway.url}/console/sign-in", params={"code": code})
        assert (again.status_code, "set-cookie" in again.headers) == (401, False)
        assert "toolrelay console" in again.text


def test_cookie_is_secure_behind_tls(open_gateway: Gateway) -> None:
    with Browser(open_gateway) as browser:
        response = browser.open(new_code(open_gateway), **{"x-forwarded-proto": "https"})
    assert "; Secure" in response.headers["set-cookie"]


def test_link_of_another_site_gets_a_page_that_goes_on(open_gateway: Gateway) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    with Browser(open_gateway) as browser:
        code = new_code(open_gateway)
        assert browser.get("/", params={"code": code}, headers=link).status_code == 303
        framed = browser.open(code, **(link | {"sec-fetch-dest": "iframe"}))
        assert framed.status_code == 403
        response = browser.open(code, **link)
    assert (response.status_code, "set-cookie" in response.headers) == (200, True)
    assert '<meta http-equiv="refresh" content="0; url=/">' in response.text


def test_previews_do_not_use_up_the_code(open_gateway: Gateway) -> None:
    with Browser(open_gateway) as browser:
        code = new_code(open_gateway)
        assert browser.head("/console/sign-in", params={"code": code}).status_code == 204
        assert browser.open(code, **{"sec-purpose": "prefetch"}).status_code == 204
        assert browser.open(code).status_code == 303


def test_token_that_the_browser_had_is_never_taken_over(open_gateway: Gateway, browser: Browser) -> None:
    planted = "A" * 43
    with Browser(open_gateway) as victim:
        victim.cookies.set(COOKIE, planted)
        response = victim.open(new_code(open_gateway))
        assert planted not in response.headers["set-cookie"]
    before = browser.cookies[COOKIE]
    assert browser.open(new_code(open_gateway)).status_code == 303
    assert browser.cookies[COOKIE] != before
    assert httpx.get(f"{open_gateway.url}/approvals", cookies={COOKIE: before}).status_code == 401


@pytest.mark.parametrize("authorization", ["", "Bearer wrong"])
def test_codes_need_the_approvers_token(open_gateway: Gateway, browser: Browser, authorization: str) -> None:
    headers = browser.own | ({"authorization": authorization} if authorization else {})
    assert browser.post("/console/codes", headers=headers).status_code == 401


def test_code_signs_the_operator_in_on_a_gateway_with_keys(keyed: Gateway) -> None:
    with Browser(keyed) as browser:
        assert browser.open(new_code(keyed)).status_code == 303
        assert browser.get("/approvals").status_code == 200
        assert [each["id"] for each in browser.get("/v1/models").json()["data"]] == ["demo"]
        (own,) = [each for each in browser.sessions() if each["current"]]
        assert (own["key"], own["may_approve"]) == ("local", True)
        assert browser.get("/api/keys").status_code == 200
        assert browser.post("/console/sign-out", headers=browser.own).status_code == 303


@pytest.mark.parametrize("secret", ["ada", "bob"])
def test_key_gets_no_code(keyed: Gateway, secret: str) -> None:
    response = keyed.post("/console/codes", None, authorization=f"Bearer {secret}")
    assert (response.status_code, response.json()["error"]["code"]) == (403, "not_an_operator")


def test_gateway_that_other_machines_reach_has_no_codes_and_no_local_sessions(tmp_path: Path) -> None:
    with running(key("ada") + DEMO, folder=tmp_path) as gateway, Browser(gateway) as browser:
        browser.open(new_code(gateway))
        cookies = {COOKIE: browser.cookies[COOKIE]}
        assert httpx.get(f"{gateway.url}/v1/models", cookies=cookies).status_code == 200
    with running(key("ada") + DEMO, folder=tmp_path, flags=("--host", "0.0.0.0")) as gateway:
        url = f"http://127.0.0.1:{gateway.port}"
        token = (gateway.data_dir / "approver.token").read_text().strip()
        response = httpx.post(f"{url}/console/codes", headers={"authorization": f"Bearer {token}"})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "key_required")
        assert httpx.get(f"{url}/v1/models", cookies=cookies).status_code == 401
        assert httpx.get(f"{url}/api/keys", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_ready_line_has_a_code_on_a_terminal_only(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "toolrelay", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, cwd=tmp_path) as process:
        os.close(theirs)
        try:
            line = b""
            while not line.endswith(b"\n"):
                line += os.read(ours, 1024)
            found = re.fullmatch(r"Toolrelay is ready at (http://127\.0\.0\.1:(\d+)/\?code=[\w-]{43})", line.decode().strip())
            assert found is not None
            with httpx.Client() as client:
                assert client.get(found[1], follow_redirects=True).status_code == 200
                assert client.get(f"http://127.0.0.1:{found[2]}/approvals").status_code == 200
        finally:
            process.terminate()
            os.close(ours)


def test_console_command_prints_an_address_that_signs_in(open_gateway: Gateway, tmp_path: Path) -> None:
    def console(*flags: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "toolrelay", "console", "--port", str(open_gateway.port), *flags]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    done = console("--data-dir", str(open_gateway.data_dir))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{open_gateway.url}/?code=")
    with httpx.Client() as client:
        client.get(done.stdout.strip(), follow_redirects=True)
        assert client.get(f"{open_gateway.url}/approvals").status_code == 200
    missing = console("--data-dir", str(tmp_path / "other"))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "is not the data directory" in missing.stderr
    load_or_create_approver_token(tmp_path / "other")
    other = console("--data-dir", str(tmp_path / "other"))
    assert (other.returncode, other.stdout) == (1, "")
    assert "This is not the approver's token" in other.stderr
    elsewhere = console("--host", "192.0.2.1", "--data-dir", str(tmp_path / "other"))
    assert (elsewhere.returncode, elsewhere.stdout) == (2, "")


# Where the session counts


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": ALLOWED},
        {"origin": "null"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-site", "origin": "SELF"},
        {},
    ],
)
@pytest.mark.parametrize("path", ["/approvals/appr_1", "/v1/chat/completions", "/console/sign-out"])
def test_state_changing_request_of_another_origin_is_refused(browser: Browser, path: str, headers: dict[str, str]) -> None:
    sent = {name: browser.own["origin"] if value == "SELF" else value for name, value in headers.items()}
    response = browser.post(path, json={"verdict": "allow"}, headers=sent)
    assert response.status_code == 403, response.text
    assert browser.get("/approvals").status_code == 200, "still signed in"


@pytest.mark.parametrize("headers", [{"origin": ALLOWED}, {"sec-fetch-site": "same-site"}])
def test_reading_request_of_another_origin_has_no_session(browser: Browser, headers: dict[str, str]) -> None:
    assert browser.get("/approvals", headers=headers).status_code == 401
    assert browser.get("/console/sessions", headers=headers).status_code == 401
    assert browser.get("/v1/models", headers=headers).status_code == 200, "as without a session"


@pytest.mark.parametrize("headers", [{"origin": "SELF"}, {"sec-fetch-site": "same-origin"}])
def test_request_of_an_own_page_is_accepted(browser: Browser, headers: dict[str, str]) -> None:
    sent = {name: browser.own["origin"] if value == "SELF" else value for name, value in headers.items()}
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
    assert browser.post("/v1/chat/completions", json=body, headers=sent).status_code == 200
    assert browser.post("/approvals/none", json={"verdict": "allow"}, headers=sent).status_code == 404
    assert browser.get("/approvals", headers={"sec-fetch-site": "none"}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "path", ["/approvals", "/console/sign-in", "/console/sign-in?code=x", "/console/codes", "/console/sign-out"]
)
def test_foreign_host_is_refused(browser: Browser, method: str, path: str) -> None:
    headers = {"host": "evil.example", "origin": "http://evil.example", "sec-fetch-site": "same-origin"}
    response = browser.request(method, path, headers=headers)
    assert response.status_code in (403, 405)
    assert "set-cookie" not in response.headers


def test_authorization_counts_instead_of_the_cookie(keyed: Gateway) -> None:
    with Browser(keyed) as browser:
        assert browser.sign_in("ada").status_code == 303
        assert browser.get("/approvals").status_code == 200
        assert browser.get("/approvals", headers={"authorization": "Bearer bob"}).status_code == 403
        assert browser.get("/approvals", headers={"authorization": "Bearer wrong"}).status_code == 401


# Signing in with a key


def test_sign_in_page_cannot_be_framed_and_runs_no_script(keyed: Gateway, open_gateway: Gateway) -> None:
    for gateway, content in ((keyed, '<input id="key" name="key" type="password"'), (open_gateway, "toolrelay console")):
        page = gateway.get("/console/sign-in")
        assert page.status_code == 200
        assert content in page.text
        assert page.headers["content-security-policy"] == (
            "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        )
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"
        assert "<script" not in page.text
    assert keyed.get("/console/sign-in.css").headers["content-type"] == "text/css; charset=utf-8"


def test_wrong_key_is_a_401_page(keyed: Gateway) -> None:
    with Browser(keyed) as browser:
        for secret in ("wrong", "", "é"):
            response = browser.sign_in(secret)
            assert (response.status_code, "set-cookie" in response.headers) == (401, False)
            assert 'role="alert"' in response.text
        assert browser.post("/console/sign-in", json={"key": "ada"}, headers=browser.own).status_code == 415
        foreign = browser.post("/console/sign-in", data={"key": "ada"}, headers={"origin": "http://evil.example"})
        assert (foreign.status_code, "set-cookie" in foreign.headers) == (403, False)


def test_wrong_keys_count_against_the_rate_limit() -> None:
    with running(f"[limits]\nrequests_per_minute = {LIMIT}\n" + key("ada") + DEMO) as gateway, Browser(gateway) as browser:
        statuses = [browser.sign_in("wrong").status_code for _ in range(LIMIT + 1)]
        assert statuses == [401] * LIMIT + [429]
        assert browser.sign_in("wrong").headers["retry-after"]
        assert browser.sign_in("ada").status_code == 303


def test_session_of_a_key_has_the_rights_of_the_key(keyed: Gateway) -> None:
    with Browser(keyed) as ada, Browser(keyed) as bob:
        assert ada.get("/v1/models").status_code == 401
        assert [ada.sign_in("ada").status_code, bob.sign_in("bob").status_code] == [303, 303]
        assert ada.get("/approvals").status_code == 200
        refused = bob.get("/approvals")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_an_approver")
        made = ada.post("/v1/responses", json={"model": "demo", "input": "Hello"}, headers=ada.own).json()
        assert ada.get(f"/v1/responses/{made['id']}").status_code == 200
        assert keyed.get(f"/v1/responses/{made['id']}", authorization="Bearer ada").status_code == 200
        assert bob.get(f"/v1/responses/{made['id']}").status_code == 404


def test_session_answers_a_question(tmp_path: Path) -> None:
    rounds = play(Round(calls=(("once", {"number": 1}),)), Round(text=("Done.",)))
    with (
        Upstream(rounds) as upstream,
        Workshop(tmp_path, upstream, approval="always").start() as gateway,
        Browser(gateway) as browser,
    ):
        browser.open(new_code(gateway))
        reply = Asking(gateway).chat()
        question = Approver(gateway).question()
        assert browser.post(f"/approvals/{question['id']}", json={"verdict": "allow"}).status_code == 403, (
            "it may be a foreign page"
        )
        answered = browser.post(f"/approvals/{question['id']}", json={"verdict": "allow"}, headers=browser.own)
        assert (answered.status_code, answered.json()["answered_by"]) == (200, "local")
        assert chat_text(reply.result(TIMEOUT_SECONDS)) == "Done."


# The end of sessions


def test_stream_of_events_ends_with_its_session() -> None:
    with running(f"[server]\nkeepalive_seconds = 0.05\n{DEMO}") as gateway, Browser(gateway) as browser:
        browser.open(new_code(gateway))
        with browser.stream("GET", "/approvals/events") as events:
            lines = events.iter_lines()
            assert next(lines).startswith(":")
            assert browser.post("/console/sign-out", headers=browser.own).status_code == 303
            assert all(not line or line.startswith(":") for line in lines)


def test_signing_out_ends_the_session(browser: Browser) -> None:
    token = browser.cookies[COOKIE]
    response = browser.post("/console/sign-out", headers=browser.own)
    assert (response.status_code, response.headers["location"]) == (303, "/console/sign-in")
    assert "Max-Age=0" in response.headers["set-cookie"]
    assert COOKIE not in browser.cookies
    browser.cookies.set(COOKIE, token)
    assert browser.get("/approvals").status_code == 401


def test_sessions_are_listed_and_revoked_at_once(keyed: Gateway) -> None:
    with Browser(keyed) as ada, Browser(keyed) as bob:
        ada.sign_in("ada")
        bob.sign_in("bob")
        assert {each["key"] for each in bob.sessions()} == {"bob"}
        (own,) = [each for each in bob.sessions() if each["current"]]
        assert (own["may_approve"], str(own["user_agent"]).startswith("python-httpx")) == (False, True)
        (of_ada,) = [each for each in ada.sessions() if each["current"]]
        assert {each["key"] for each in ada.sessions()} == {"ada"}, "an approver sees only its own, too"
        assert bob.delete(f"/console/sessions/{of_ada['id']}", headers=bob.own).status_code == 404
        assert bob.delete(f"/console/sessions/{own['id']}").status_code == 403, "it may be a foreign page"
        assert ada.delete(f"/console/sessions/{own['id']}", headers=ada.own).status_code == 404
        operator = {"authorization": f"Bearer {(keyed.data_dir / 'approver.token').read_text().strip()}"}
        listed = httpx.get(f"{keyed.url}/console/sessions", headers=operator).json()["sessions"]
        assert {each["key"] for each in listed} == {"ada", "bob"}
        assert httpx.delete(f"{keyed.url}/console/sessions/{own['id']}", headers=operator).status_code == 200
        assert bob.get("/v1/models").status_code == 401
        assert httpx.delete(f"{keyed.url}/console/sessions/{own['id']}", headers=operator).status_code == 404


def test_sessions_are_not_shown_to_anonymous_clients(open_gateway: Gateway) -> None:
    assert open_gateway.get("/console/sessions").status_code == 401
    assert httpx.delete(f"{open_gateway.url}/console/sessions/x").status_code == 401


def test_session_outlives_a_restart_and_ends_with_its_key(tmp_path: Path) -> None:
    with running(key("ada", approve=True) + DEMO, folder=tmp_path) as gateway, Browser(gateway) as browser:
        browser.sign_in("ada")
        cookies = {COOKIE: browser.cookies[COOKIE]}
    with running(key("ada", approve=True) + DEMO, folder=tmp_path) as gateway:
        assert httpx.get(f"{gateway.url}/approvals", cookies=cookies).status_code == 200
    with running(key("bob", approve=True) + DEMO, folder=tmp_path) as gateway:
        assert httpx.get(f"{gateway.url}/approvals", cookies=cookies).status_code == 401
