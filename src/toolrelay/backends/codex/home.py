"""The generated home of a Codex process: private, with every built-in tool turned off, and removed together with its process.

Two places turn the built-in tools off, and neither is enough alone: the features in config.toml, and a catalog of one model that
supports no tools. The catalog entry is based on the binary's own entry for the model, if there is one, because that has the
model's reasoning levels and input types.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Container
from pathlib import Path

from toolrelay import log
from toolrelay.backends.codex.binary import CodexBinary, probe_binary
from toolrelay.backends.codex.settings import CodexLocation
from toolrelay.core.json import JsonObject

KEY_VARIABLE = "TOOLRELAY_CODEX_KEY"
PROVIDER = "toolrelay"
OPENAI_URL = "https://api.openai.com/v1"
STREAM_IDLE_MS = 300_000
MAX_CONTEXT_TOKENS = 100_000_000  # Codex must never compact a conversation by itself: the provider decides whether it fits
TRUNCATION_NOTE_BYTES = 4096  # room for the note that a tool result was truncated

FEATURES = (
    "shell_tool", "unified_exec", "shell_snapshot", "view_image", "apps", "plugins", "remote_plugin", "plugin_sharing", "hooks",
    "goals", "multi_agent", "image_generation", "browser_use", "browser_use_external", "computer_use", "in_app_browser",
    "tool_suggest", "skill_search", "skill_mcp_dependency_install", "sleep_tool", "code_mode_host", "guardian_approval",
    "workspace_dependencies", "api_key_model_discovery", "enable_request_compression", "unbounded_connection_retries",
    "plugin_discovery_prefetch",
)  # fmt: skip

# Variables of the gateway's environment that a process needs to reach its provider. No PATH: it has nothing to start.
PASSED_VARIABLES = (
    "LANG", "LC_ALL", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "CODEX_CA_CERTIFICATE",
)  # fmt: skip

_DISABLED_SETTINGS = (
    "check_for_update_on_startup", "include_environment_context", "include_permissions_instructions",
    "include_apps_instructions", "include_collaboration_mode_instructions", "allow_login_shell", "analytics.enabled",
    "feedback.enabled", "skills.include_instructions", "skills.bundled.enabled", "agents.enabled", "agents.interrupt_message",
    "memories.generate_memories", "memories.use_memories", "tools.experimental_request_user_input.enabled",
)  # fmt: skip
_DISABLED_IN_CATALOG = (
    "use_responses_lite", "supports_search_tool", "include_skills_usage_instructions", "include_plugin_usage_instructions",
    "include_apps_usage_instructions",
)  # fmt: skip
_UNSET_IN_CATALOG = ("multi_agent_version", "model_messages", "availability_nux", "upgrade")
_REASONING_LEVELS = ("minimal", "low", "medium", "high", "xhigh")


class CodexHome:
    """The CODEX_HOME and working directory of one process. Its lock, which the gateway's exit releases, marks it as in use."""

    def __init__(self, folder: str) -> None:
        root = Path(folder)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)
        created = Path(tempfile.mkdtemp(prefix="new-", dir=root))
        self._lock = os.open(created / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Renamed only once it is locked: an unlocked home-* is removed as stale.
        self.folder = created.rename(root / created.name.replace("new-", "home-", 1))
        self.codex_dir = self.folder / "codex"
        self.work_dir = self.folder / "work"
        self.codex_dir.mkdir(mode=0o700)
        self.work_dir.mkdir(mode=0o700)

    def write_config(self, location: CodexLocation, binary: CodexBinary, auth_file: Path | None = None) -> None:
        """Write the files that Codex reads. All homes share one `auth_file`."""
        catalog = self.codex_dir / "models.json"
        _write(catalog, json.dumps({"models": [catalog_entry(location, binary.catalog)]}))
        _write(self.codex_dir / "config.toml", config_text(location, binary.features, catalog))
        # Codex sends this id to its provider. It should not change with every process.
        (self.codex_dir / "installation_id").symlink_to(self.folder.with_name("installation_id"))
        if auth_file is not None:
            # The lock as well: a refreshed token invalidates the previous one, so only one process may refresh it.
            (self.codex_dir / "auth.json").symlink_to(auth_file)
            (self.codex_dir / "auth.lock").symlink_to(auth_file.with_name("auth.lock"))

    def environ(self, location: CodexLocation) -> dict[str, str]:
        """Return the variables of the process. The API key is only here, in no file."""
        environ = {name: location.environ[name] for name in PASSED_VARIABLES if name in location.environ}
        if location.base_url.startswith("http://"):  # Codex would read the certificates for every thread
            environ = {name: value for name, value in environ.items() if not name.startswith("SSL_")}
        environ.update(HOME=str(self.folder), CODEX_HOME=str(self.codex_dir), TMPDIR=str(self.work_dir), NO_COLOR="1")
        if location.api_key:
            environ[KEY_VARIABLE] = location.api_key
        return environ

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove_stale_homes(folder: str) -> int:
    """Remove the homes that a killed gateway left. A home in use is locked."""
    removed = 0
    for home in Path(folder).glob("home-*"):
        try:
            lock = os.open(home / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # it is being removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(home, ignore_errors=True)
            removed += 1
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
    if removed:
        log.info("codex_homes_removed", count=removed)
    return removed


async def probe_location(location: CodexLocation) -> CodexBinary:
    """Probe the location's binary in a temporary home."""
    home = CodexHome(location.folder)
    try:
        return await asyncio.to_thread(probe_binary, location.binary, home.environ(location))
    finally:
        home.remove()


def catalog_entry(location: CodexLocation, catalog: tuple[JsonObject, ...]) -> JsonObject:
    known = next((entry for entry in catalog if entry.get("slug") == location.model), None)
    return {
        **(_GENERIC_ENTRY | {"slug": location.model, "display_name": location.model} if known is None else known),
        **dict.fromkeys(_DISABLED_IN_CATALOG, False),
        **dict.fromkeys(_UNSET_IN_CATALOG),
        "visibility": "list",
        "supported_in_api": True,
        "shell_type": "disabled",
        "apply_patch_tool_type": "freeform" if location.allows_patches else None,
        "tool_mode": "direct",
        "experimental_supported_tools": [],
        "node_repl_disabled": True,
        "supports_parallel_tool_calls": True,
        "context_window": MAX_CONTEXT_TOKENS,
        "max_context_window": MAX_CONTEXT_TOKENS,
        "truncation_policy": {"mode": "bytes", "limit": location.max_result_bytes + TRUNCATION_NOTE_BYTES},
    }


_GENERIC_ENTRY: JsonObject = {
    "description": "",
    "default_reasoning_level": "medium",
    "supported_reasoning_levels": [{"effort": level, "description": level} for level in _REASONING_LEVELS],
    "priority": 1,
    "default_reasoning_summary": "none",
    "support_verbosity": True,
    "default_verbosity": None,
    "web_search_tool_type": "text",
    "input_modalities": ["text", "image"],
    "base_instructions": "",
}


def config_text(location: CodexLocation, features: Container[str], catalog: Path) -> str:
    """Return config.toml. Codex does not start with an unknown key, so only features of this binary are turned off."""
    settings: JsonObject = {
        "model": location.model,
        "model_provider": "openai" if location.is_account else PROVIDER,
        "model_catalog_json": str(catalog),
        "approval_policy": "never",
        "sandbox_mode": "read-only",
        "web_search": "disabled",
        "project_doc_max_bytes": 0,
        "suppress_unstable_features_warning": True,
        "cli_auth_credentials_store": "file",
        **dict.fromkeys(_DISABLED_SETTINGS, False),
        **dict.fromkeys(("history.persistence", "otel.exporter", "otel.trace_exporter", "otel.metrics_exporter"), "none"),
        **{f"features.{name}": False for name in FEATURES if name in features},
    }
    if not location.is_account:
        provider: JsonObject = {
            "name": PROVIDER,
            "base_url": location.base_url or OPENAI_URL,
            "wire_api": "responses",
            **({"env_key": KEY_VARIABLE} if location.api_key else {}),
            "requires_openai_auth": False,
            "supports_websockets": False,
            "request_max_retries": 0,
            "stream_max_retries": 0,
            "stream_idle_timeout_ms": STREAM_IDLE_MS,
        }
        settings |= {f"model_providers.{PROVIDER}.{name}": value for name, value in provider.items()}
    # JSON's booleans, numbers and strings are valid TOML, except for DEL in a string.
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())
    return "".join(lines).replace("\x7f", "\\u007f")


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
