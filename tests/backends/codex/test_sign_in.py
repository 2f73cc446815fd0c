"""Sync of the user's sign-in with the gateway's copy."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.backends.codex.app_server import MODEL, binary_path, probed_binary, run_turn
from tests.backends.codex.upstream import refuses, says
from tests.upstream import Upstream, reply
from toolrelay import log
from toolrelay.backends.codex import pool as codex_pool
from toolrelay.backends.codex.binary import CodexBinary
from toolrelay.backends.codex.home import CodexHome
from toolrelay.backends.codex.pool import ProcessPool
from toolrelay.backends.codex.settings import CodexLocation
from toolrelay.backends.codex.sign_in import SignIn


def auth(refresh: str = "r1", *, account: str = "a", at: str = "2026-01-01T00:00:00Z", **more: Any) -> bytes:
    tokens = {"id_token": _token(), "access_token": _token(), "refresh_token": refresh, "account_id": account}
    return json.dumps({"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": at, **more}).encode()


def _token() -> str:
    account = {"chatgpt_plan_type": "plus", "chatgpt_account_id": "a", "chatgpt_user_id": "u"}
    claims = {"email": "a@example.org", "exp": 4102444800, "https://api.openai.com/auth": account}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims)]
    return ".".join([*parts, "c2ln"])


class AuthFiles:
    """The user's file and the shared copy."""

    def __init__(self, folder: Path, user: bytes | None) -> None:
        self.user = folder / "own" / "auth.json"
        self.user.parent.mkdir()
        if user is not None:
            self.user.write_bytes(user)
        self.sign_in = SignIn(str(self.user), str(folder / "codex"))
        self.shared = self.sign_in.shared_file

    def same(self, content: bytes) -> bool:
        return self.user.read_bytes() == self.shared.read_bytes() == content


def test_sign_in_is_copied_privately(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, auth())
    assert not files.sign_in.sync()
    assert files.same(auth())
    assert stat.S_IMODE(files.shared.stat().st_mode) == 0o600


def test_refreshed_sign_in_is_copied_both_ways(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, auth())
    files.sign_in.sync()
    files.shared.write_bytes(auth("r2", at="2026-01-02T00:00:00.5Z"))
    assert not files.sign_in.sync()
    assert files.same(auth("r2", at="2026-01-02T00:00:00.5Z"))
    files.user.write_bytes(auth("r3", at="2026-01-02T00:00:00.51Z"))
    assert not files.sign_in.sync()
    assert files.same(auth("r3", at="2026-01-02T00:00:00.51Z"))


def test_refresh_before_a_crash_is_copied_at_the_next_start(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, auth())
    files.shared.parent.mkdir()
    files.shared.write_bytes(auth("r2", at="2026-01-02T00:00:00Z"))
    files.sign_in.sync()
    assert files.same(auth("r2", at="2026-01-02T00:00:00Z"))


def test_users_account_wins_even_if_older(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, auth())
    files.sign_in.sync()
    files.shared.write_bytes(auth("r2", at="2026-03-01T00:00:00Z"))
    files.user.write_bytes(auth("r9", account="b", at="2026-02-01T00:00:00Z"))
    assert files.sign_in.sync()
    assert files.same(auth("r9", account="b", at="2026-02-01T00:00:00Z"))


def test_signing_out_removes_the_copy(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, auth())
    files.sign_in.sync()
    files.user.unlink()
    files.shared.write_bytes(auth("r2", at="2026-03-01T00:00:00Z"))
    assert files.sign_in.sync()
    assert not files.shared.exists()
    assert not files.user.exists()


def test_changed_api_key_changes_the_owner(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, b'{"OPENAI_API_KEY":"one"}')
    assert not files.sign_in.sync()
    files.user.write_bytes(b'{"OPENAI_API_KEY":"two"}')
    assert files.sign_in.sync()
    assert files.same(b'{"OPENAI_API_KEY":"two"}')


def test_every_sync_of_the_same_copy_reports_a_new_owner(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, auth())
    other = SignIn(str(files.user), str(files.shared.parent))
    files.sign_in.sync()
    other.sync()
    files.user.write_bytes(auth("r9", account="b"))
    assert files.sign_in.sync()
    assert other.sync()


@pytest.mark.parametrize("half", [b"", b'{"tokens": {', b"\xff", b"[]"])
def test_incomplete_file_is_not_copied(tmp_path: Path, half: bytes) -> None:
    files = AuthFiles(tmp_path, auth())
    files.sign_in.sync()
    files.shared.write_bytes(half)
    assert not files.sign_in.sync()
    assert files.user.read_bytes() == auth()
    files.shared.write_bytes(auth("r2", at="2026-01-02T00:00:00Z"))
    files.sign_in.sync()
    assert files.same(auth("r2", at="2026-01-02T00:00:00Z"))
    files.user.write_bytes(half)
    assert not files.sign_in.sync()
    assert files.shared.read_bytes() == auth("r2", at="2026-01-02T00:00:00Z")


def test_copy_that_stays_incomplete_is_replaced(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, auth())
    files.sign_in.sync()
    files.shared.write_bytes(b'{"tok')
    files.sign_in.sync()
    files.sign_in.sync()
    assert files.same(auth())


def test_failed_write_keeps_the_users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = AuthFiles(tmp_path, auth())
    files.sign_in.sync()
    files.shared.write_bytes(auth("r2", at="2026-01-02T00:00:00Z"))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with log.captured() as lines:
        assert not files.sign_in.sync()
    assert [line["event"] for line in lines] == ["codex_sign_in_failed"]
    assert files.user.read_bytes() == auth()
    assert os.listdir(files.user.parent) == ["auth.json"]  # noqa: PTH208 -- the names are what is meant
    monkeypatch.undo()
    files.sign_in.sync()
    assert files.same(auth("r2", at="2026-01-02T00:00:00Z"))


def test_symlinked_file_stays_a_link(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, None)
    real = tmp_path / "real.json"
    real.write_bytes(auth())
    files.user.symlink_to(real)
    files.sign_in.sync()
    files.shared.write_bytes(auth("r2", at="2026-01-02T00:00:00Z"))
    files.sign_in.sync()
    assert files.user.is_symlink()
    assert real.read_bytes() == auth("r2", at="2026-01-02T00:00:00Z")


def test_token_refreshed_by_codex_reaches_the_users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = AuthFiles(tmp_path, auth())
    renewed = {"id_token": _token(), "access_token": _token(), "refresh_token": "r2"}

    async def main() -> None:
        # Once refused it reads the file again, refused again it refreshes.
        refused = refuses(401, "expired")
        with Upstream(refused, refused, says("Hi")) as provider, Upstream(reply(json.dumps(renewed).encode())) as accounts:
            monkeypatch.setattr(codex_pool, "CodexHome", _on_loopback(provider, accounts))
            location = CodexLocation(folder=str(tmp_path / "codex"), binary=binary_path(), model=MODEL, auth_file=str(files.user))
            pool = ProcessPool(location, size=1, binary=await asyncio.to_thread(probed_binary))
            async with pool.lease() as lease:
                assert await run_turn(lease) == "Hi"
            await pool.close()
            assert [request.path for request in accounts.requests if request.method == "POST"] == ["/oauth/token"]

    asyncio.run(main())
    found = json.loads(files.user.read_bytes())
    assert found["tokens"]["refresh_token"] == "r2"
    assert found["last_refresh"] > "2026-01-01"
    assert files.shared.read_bytes() == files.user.read_bytes()


def _on_loopback(provider: Upstream, accounts: Upstream) -> type[CodexHome]:
    """Return a home whose account servers are scripted ones."""
    block = f'name = "x"\nbase_url = "{provider.url}/v1"\nrequires_openai_auth = true\nsupports_websockets = false\n'

    class LoopbackHome(CodexHome):
        def write_config(self, location: CodexLocation, binary: CodexBinary, auth: Path | None = None) -> None:
            super().write_config(location, binary, auth)
            config = self.codex_dir / "config.toml"
            text = config.read_text().replace('model_provider = "openai"', 'model_provider = "x"')
            config.write_text(f'chatgpt_base_url = "{accounts.url}/backend-api/"\n{text}\n[model_providers.x]\n{block}')

        def environ(self, location: CodexLocation) -> dict[str, str]:
            return {**super().environ(location), "CODEX_REFRESH_TOKEN_URL_OVERRIDE": f"{accounts.url}/oauth/token"}

    return LoopbackHome


def test_changed_sign_in_replaces_processes(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path, b'{"auth_mode":"apikey","OPENAI_API_KEY":"one"}')

    async def main() -> None:
        location = CodexLocation(folder=str(tmp_path / "codex"), binary=binary_path(), model=MODEL, auth_file=str(files.user))
        pool = ProcessPool(location, size=1, binary=await asyncio.to_thread(probed_binary))
        async with pool.lease() as lease:
            first = lease.process
            found: Any = await lease.call("account/read", {})
            assert found["account"]["type"] == "apiKey"
        files.user.unlink()
        async with pool.lease() as lease:
            assert lease.process is not first
            found = await lease.call("account/read", {})
            assert found["account"] is None
        await pool.close()

    asyncio.run(main())
