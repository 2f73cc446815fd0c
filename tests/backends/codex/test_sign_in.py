"""The sign-in that is borrowed: refreshed by either side, whole at every moment, and the person's own in the end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.backends.codex.stage import MODEL, answer, binary_path, surveyed
from tests.backends.codex.upstream import refuses, says
from tests.upstream import Upstream, reply
from toolrelay import log
from toolrelay.backends.codex import pool as codex_pool
from toolrelay.backends.codex.binary import Binary
from toolrelay.backends.codex.home import CodexLocation, Home
from toolrelay.backends.codex.pool import Pool
from toolrelay.backends.codex.sign_in import SignIn


def auth(refresh: str = "r1", *, account: str = "a", at: str = "2026-01-01T00:00:00Z", **more: Any) -> bytes:
    tokens = {"id_token": _token(), "access_token": _token(), "refresh_token": refresh, "account_id": account}
    return json.dumps({"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": at, **more}).encode()


def _token() -> str:
    account = {"chatgpt_plan_type": "plus", "chatgpt_account_id": "a", "chatgpt_user_id": "u"}
    claims = {"email": "a@example.org", "exp": 4102444800, "https://api.openai.com/auth": account}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims)]
    return ".".join([*parts, "c2ln"])


class Both:
    """The person's file and ours."""

    def __init__(self, folder: Path, theirs: bytes | None) -> None:
        self.theirs = folder / "own" / "auth.json"
        self.theirs.parent.mkdir()
        if theirs is not None:
            self.theirs.write_bytes(theirs)
        self.sign_in = SignIn(str(self.theirs), str(folder / "codex"))
        self.ours = self.sign_in.ours

    def same(self, content: bytes) -> bool:
        return self.theirs.read_bytes() == self.ours.read_bytes() == content


def test_the_sign_in_is_copied_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    both = Both(tmp_path, auth())
    assert not both.sign_in.sync()
    assert both.same(auth())
    assert stat.S_IMODE(both.ours.stat().st_mode) == 0o600


def test_what_codex_refreshed_goes_back_and_what_the_person_refreshed_comes_here(tmp_path: Path) -> None:
    both = Both(tmp_path, auth())
    both.sign_in.sync()
    both.ours.write_bytes(auth("r2", at="2026-01-02T00:00:00.5Z"))
    assert not both.sign_in.sync()
    assert both.same(auth("r2", at="2026-01-02T00:00:00.5Z"))
    both.theirs.write_bytes(auth("r3", at="2026-01-02T00:00:00.51Z"))
    assert not both.sign_in.sync()
    assert both.same(auth("r3", at="2026-01-02T00:00:00.51Z"))


def test_what_was_refreshed_before_a_crash_goes_back_at_the_next_start(tmp_path: Path) -> None:
    both = Both(tmp_path, auth())
    both.ours.parent.mkdir()
    both.ours.write_bytes(auth("r2", at="2026-01-02T00:00:00Z"))
    both.sign_in.sync()
    assert both.same(auth("r2", at="2026-01-02T00:00:00Z"))


def test_the_account_that_the_person_signed_in_to_counts_however_old(tmp_path: Path) -> None:
    both = Both(tmp_path, auth())
    both.sign_in.sync()
    both.ours.write_bytes(auth("r2", at="2026-03-01T00:00:00Z"))
    both.theirs.write_bytes(auth("r9", account="b", at="2026-02-01T00:00:00Z"))
    assert both.sign_in.sync()
    assert both.same(auth("r9", account="b", at="2026-02-01T00:00:00Z"))


def test_signing_out_is_followed_and_never_undone(tmp_path: Path) -> None:
    both = Both(tmp_path, auth())
    both.sign_in.sync()
    both.theirs.unlink()
    both.ours.write_bytes(auth("r2", at="2026-03-01T00:00:00Z"))
    assert both.sign_in.sync()
    assert not both.ours.exists()
    assert not both.theirs.exists()


def test_another_key_is_another_sign_in(tmp_path: Path) -> None:
    both = Both(tmp_path, b'{"OPENAI_API_KEY":"one"}')
    assert not both.sign_in.sync()
    both.theirs.write_bytes(b'{"OPENAI_API_KEY":"two"}')
    assert both.sign_in.sync()
    assert both.same(b'{"OPENAI_API_KEY":"two"}')


def test_whoever_keeps_the_same_copy_hears_of_a_new_sign_in_too(tmp_path: Path) -> None:
    both = Both(tmp_path, auth())
    other = SignIn(str(both.theirs), str(both.ours.parent))
    both.sign_in.sync()
    other.sync()
    both.theirs.write_bytes(auth("r9", account="b"))
    assert both.sign_in.sync()
    assert other.sync()


@pytest.mark.parametrize("half", [b"", b'{"tokens": {', b"\xff", b"[]"])
def test_half_a_file_goes_nowhere(tmp_path: Path, half: bytes) -> None:
    both = Both(tmp_path, auth())
    both.sign_in.sync()
    both.ours.write_bytes(half)
    assert not both.sign_in.sync()
    assert both.theirs.read_bytes() == auth()
    both.ours.write_bytes(auth("r2", at="2026-01-02T00:00:00Z"))
    both.sign_in.sync()
    assert both.same(auth("r2", at="2026-01-02T00:00:00Z"))
    both.theirs.write_bytes(half)
    assert not both.sign_in.sync()
    assert both.ours.read_bytes() == auth("r2", at="2026-01-02T00:00:00Z")


def test_a_copy_that_stays_half_is_made_again(tmp_path: Path) -> None:
    both = Both(tmp_path, auth())
    both.sign_in.sync()
    both.ours.write_bytes(b'{"tok')
    both.sign_in.sync()
    both.sign_in.sync()
    assert both.same(auth())


def test_the_persons_file_is_whole_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(tmp_path, auth())
    both.sign_in.sync()
    both.ours.write_bytes(auth("r2", at="2026-01-02T00:00:00Z"))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with log.captured() as lines:
        assert not both.sign_in.sync()
    assert [line["event"] for line in lines] == ["codex_sign_in_failed"]
    assert both.theirs.read_bytes() == auth()
    assert os.listdir(both.theirs.parent) == ["auth.json"]  # noqa: PTH208 -- the names are what is meant
    monkeypatch.undo()
    both.sign_in.sync()
    assert both.same(auth("r2", at="2026-01-02T00:00:00Z"))


def test_a_file_that_is_a_link_stays_one(tmp_path: Path) -> None:
    both = Both(tmp_path, None)
    real = tmp_path / "real.json"
    real.write_bytes(auth())
    both.theirs.symlink_to(real)
    both.sign_in.sync()
    both.ours.write_bytes(auth("r2", at="2026-01-02T00:00:00Z"))
    both.sign_in.sync()
    assert both.theirs.is_symlink()
    assert real.read_bytes() == auth("r2", at="2026-01-02T00:00:00Z")


def test_a_token_that_the_real_codex_refreshes_reaches_the_persons_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Both(tmp_path, auth())
    renewed = {"id_token": _token(), "access_token": _token(), "refresh_token": "r2"}

    async def main() -> None:
        # Once refused it reads the file again, refused again it refreshes.
        refused = refuses(401, "expired")
        with Upstream(refused, refused, says("Hi")) as provider, Upstream(reply(json.dumps(renewed).encode())) as accounts:
            monkeypatch.setattr(codex_pool, "Home", _on_loopback(provider, accounts))
            place = CodexLocation(folder=str(tmp_path / "codex"), binary=binary_path(), model=MODEL, sign_in=str(both.theirs))
            pool = Pool(place, size=1)
            pool._binary = await asyncio.to_thread(surveyed)
            async with pool.lease() as lease:
                assert await answer(lease) == "Hi"
            await pool.close()
            assert [request.path for request in accounts.requests if request.method == "POST"] == ["/oauth/token"]

    asyncio.run(main())
    found = json.loads(both.theirs.read_bytes())
    assert found["tokens"]["refresh_token"] == "r2"
    assert found["last_refresh"] > "2026-01-01"
    assert both.ours.read_bytes() == both.theirs.read_bytes()


def _on_loopback(provider: Upstream, accounts: Upstream) -> type[Home]:
    """A home as every other, with the account's own servers replaced by scripted ones."""
    block = f'name = "x"\nbase_url = "{provider.url}/v1"\nrequires_openai_auth = true\nsupports_websockets = false\n'

    class LoopbackHome(Home):
        def furnish(self, place: CodexLocation, binary: Binary, auth: Path | None = None) -> None:
            super().furnish(place, binary, auth)
            config = self.codex / "config.toml"
            text = config.read_text().replace('model_provider = "openai"', 'model_provider = "x"')
            config.write_text(f'chatgpt_base_url = "{accounts.url}/backend-api/"\n{text}\n[model_providers.x]\n{block}')

        def environ(self, place: CodexLocation) -> dict[str, str]:
            return {**super().environ(place), "CODEX_REFRESH_TOKEN_URL_OVERRIDE": f"{accounts.url}/oauth/token"}

    return LoopbackHome


def test_processes_that_know_another_sign_in_are_replaced(tmp_path: Path) -> None:
    both = Both(tmp_path, b'{"auth_mode":"apikey","OPENAI_API_KEY":"one"}')

    async def main() -> None:
        place = CodexLocation(folder=str(tmp_path / "codex"), binary=binary_path(), model=MODEL, sign_in=str(both.theirs))
        pool = Pool(place, size=1)
        pool._binary = await asyncio.to_thread(surveyed)
        async with pool.lease() as lease:
            first = lease._process
            found: Any = await lease.call("account/read", {})
            assert found["account"]["type"] == "apiKey"
        both.theirs.unlink()
        async with pool.lease() as lease:
            assert lease._process is not first
            found = await lease.call("account/read", {})
            assert found["account"] is None
        await pool.close()

    asyncio.run(main())
