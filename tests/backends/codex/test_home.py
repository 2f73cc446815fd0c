"""The generated home: private, accepted by the real binary to the last key, and removed after use."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.backends.codex.app_server import KEY, binary_path, homes, probed_binary
from toolrelay.backends.codex.home import (
    FEATURES,
    KEY_VARIABLE,
    CodexHome,
    catalog_entry,
    config_text,
    remove_stale_homes,
)
from toolrelay.backends.codex.process import AppServerProcess
from toolrelay.backends.codex.settings import CodexLocation

LOCATION = CodexLocation(folder="/nowhere", binary="codex", model="m", base_url="http://127.0.0.1:9/v1", api_key=KEY)
KINDS = {
    "custom": LOCATION,
    "keyless": replace(LOCATION, api_key=""),
    "openai": replace(LOCATION, base_url=""),
    "account": replace(LOCATION, base_url="", api_key=""),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["m", 'a "quoted"\\ name \x7f\x01 – é\U0001f600', "gpt-6-astra"])
def test_real_binary_accepts_every_configuration_key(tmp_path: Path, kind: str, model: str) -> None:
    folder = tmp_path / 'a "folder" \\ é'
    location = replace(KINDS[kind], folder=str(folder), binary=binary_path(), model=model)

    async def main() -> Any:
        home = CodexHome(location.folder)
        home.write_config(location, await asyncio.to_thread(probed_binary))
        process = AppServerProcess(location, home)
        await process.start()  # strict: an unknown key would prevent the start
        try:
            found: Any = await process.call("config/read", {}, within=30)
            models: Any = await process.call("model/list", {}, within=30)
        finally:
            await process.close()
        return found["config"], [each["model"] for each in models["data"]]

    config, models = asyncio.run(main())
    assert config["model"] == model
    assert config["model_provider"] == ("openai" if kind == "account" else "toolrelay")
    assert config["web_search"] == "disabled"
    assert config["approval_policy"] == "never"
    assert config["sandbox_mode"] == "read-only"
    assert models == [model]


def test_every_default_feature_is_known() -> None:
    """A new feature of a newer binary fails here until somebody decides whether it may stay on."""
    harmless = {
        "analytics_plan_history", "api_key_cyber_access_programs", "auth_elicitation", "bedrock_setup_wizard",
        "browser_annotation_api", "browser_use_full_cdp_access", "cli_daybreak", "code_mode_interrupt", "collaboration_modes",
        "compaction_image_budget", "content_item_kinds", "daemon_auto_start", "fast_mode", "guardian_reuse_parent_compaction",
        "in_app_chat", "in_app_dictation", "in_app_local_automation", "in_app_updates", "in_app_voice", "incremental_tools",
        "instant_interrupt", "item_ids", "mcp_oauth_refresh_coordination", "mentions_v2", "prediction_preserve_parent_tools",
        "realtime_conversation", "reasoning_effort_override", "resize_all_images", "sqlite", "steer", "system_proxy_fallback",
        "terminal_resize_reflow", "tool_call_mcp_elicitation", "tool_search_always_defer_mcp_tools", "tui_app_server",
        "ultrafast_mode", "unified_exec_tty", "worktrees", "write_stdin_approval",
    }  # fmt: skip
    said = subprocess.run([binary_path(), "features", "list"], capture_output=True, text=True, check=True).stdout
    on = {line.split()[0] for line in said.splitlines() if line.split()[-1] == "true"}
    assert on - harmless - set(FEATURES) == set()


def test_only_existing_features_are_turned_off() -> None:
    config = tomllib.loads(config_text(LOCATION, {"shell_tool", "hooks", "something_new"}, Path("/m.json")))
    assert config["features"] == {"shell_tool": False, "hooks": False}


def test_provider_is_configured_unless_the_account_is_used() -> None:
    found = {kind: tomllib.loads(config_text(location, (), Path("/m.json"))) for kind, location in KINDS.items()}
    addresses = {kind: config.get("model_providers", {}).get("toolrelay", {}).get("base_url") for kind, config in found.items()}
    assert addresses == {
        "custom": "http://127.0.0.1:9/v1",
        "keyless": "http://127.0.0.1:9/v1",
        "openai": "https://api.openai.com/v1",
        "account": None,
    }
    assert found["custom"]["model_providers"]["toolrelay"]["env_key"] == KEY_VARIABLE
    assert "env_key" not in found["keyless"]["model_providers"]["toolrelay"]


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_survives_the_configuration(text: str) -> None:
    assert tomllib.loads(config_text(replace(LOCATION, model=text), (), Path("/m.json")))["model"] == text


def test_catalog_entry_of_a_known_model_loses_its_tools() -> None:
    known = next(entry for entry in probed_binary().catalog if entry["slug"] == "gpt-6-astra")
    assert known["tool_mode"] == "code_mode_only"
    entry = catalog_entry(replace(LOCATION, model="gpt-6-astra"), probed_binary().catalog)
    for name in ("slug", "supported_reasoning_levels", "default_reasoning_level", "input_modalities", "base_instructions"):
        assert entry[name] == known[name]
    tools = {"shell_type": "disabled", "apply_patch_tool_type": None, "tool_mode": "direct", "use_responses_lite": False}
    assert {name: entry[name] for name in tools} == tools


def test_truncation_limit_follows_max_result_bytes() -> None:
    entry: Any = catalog_entry(replace(LOCATION, max_result_bytes=5_000_000), ())
    assert entry["truncation_policy"]["mode"] == "bytes"
    assert entry["truncation_policy"]["limit"] >= 5_000_000


def test_home_is_private(tmp_path: Path) -> None:
    (tmp_path / "codex").mkdir(mode=0o755)
    home = CodexHome(str(tmp_path / "codex"))
    home.write_config(LOCATION, probed_binary())
    for path in (tmp_path / "codex", home.folder, home.codex_dir, home.work_dir):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for name in ("config.toml", "models.json"):
        assert stat.S_IMODE((home.codex_dir / name).stat().st_mode) == 0o600
        assert KEY not in (home.codex_dir / name).read_text()
    assert json.loads((home.codex_dir / "models.json").read_text())["models"][0]["slug"] == "m"
    home.remove()
    home.remove()
    assert homes(tmp_path / "codex") == []


def test_homes_share_sign_in_and_lock(tmp_path: Path) -> None:
    shared = tmp_path / "auth.json"
    shared.write_text("{}")
    for _ in range(2):
        home = CodexHome(str(tmp_path))
        home.write_config(KINDS["account"], probed_binary(), shared)
        assert (home.codex_dir / "auth.json").resolve() == shared
        assert (home.codex_dir / "auth.lock").resolve() == tmp_path / "auth.lock"
        home.remove()
    assert shared.exists()


def test_environ_contains_only_passed_variables(tmp_path: Path) -> None:
    home = CodexHome(str(tmp_path))
    given_environ = {"PATH": "/bin", "no_proxy": "x", "AWS_SECRET_ACCESS_KEY": "x", "HOME": "/root", "CODEX_HOME": "/root/.codex"}
    found = home.environ(replace(KINDS["account"], environ=given_environ))
    assert found == {
        "no_proxy": "x",
        "HOME": str(home.folder),
        "CODEX_HOME": str(home.codex_dir),
        "TMPDIR": str(home.work_dir),
        "NO_COLOR": "1",
    }
    assert home.environ(LOCATION)[KEY_VARIABLE] == KEY
    home.remove()


def test_location_repr_hides_the_key() -> None:
    assert KEY not in f"{LOCATION!r} {LOCATION}"


def test_only_homes_of_dead_gateways_are_removed(tmp_path: Path) -> None:
    program = f"from toolrelay.backends.codex.home import CodexHome; CodexHome({str(tmp_path)!r}); print(flush=True); input()"
    gateway = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert gateway.stdout is not None
    assert gateway.stdin is not None
    with gateway.stdout, gateway.stdin:
        gateway.stdout.readline()
        assert remove_stale_homes(str(tmp_path)) == 0
        assert len(homes(tmp_path)) == 1
        gateway.kill()
        gateway.wait()
    mine = CodexHome(str(tmp_path))
    assert remove_stale_homes(str(tmp_path)) == 1
    assert homes(tmp_path) == [mine.folder]
    mine.remove()
    assert remove_stale_homes(str(tmp_path / "missing")) == 0
