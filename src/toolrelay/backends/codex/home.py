"""A home that is Codex's alone: generated, private, with everything turned off, thrown away together with its process.

Two things take the built-in tools away, and each alone leaves some: the features in config.toml, and a catalog of one model that
has no use for any tool. The catalog starts from the binary's own entry for the model, where there is one, because that knows its
reasoning levels and what it can see.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Container, Mapping
from pathlib import Path

from msgspec import Struct

from toolrelay import log
from toolrelay.backends.codex.binary import Binary, find_binary
from toolrelay.backends.codex.settings import CodexSettings
from toolrelay.core.json import Json, JsonObject
from toolrelay.settings import Environment

KEY_VARIABLE = "TOOLRELAY_CODEX_KEY"
PROVIDER = "toolrelay"
OPENAI_URL = "https://api.openai.com/v1"
STREAM_IDLE_MS = 300_000
LONGEST_CONTEXT = 100_000_000  # so that Codex never shortens a conversation by itself: whether it fits is for the provider to say
MARK_BYTES = 4096  # room for the sentence that says that a result was cut

FEATURES = (
    "shell_tool", "unified_exec", "shell_snapshot", "view_image", "apps", "plugins", "remote_plugin", "plugin_sharing", "hooks",
    "goals", "multi_agent", "image_generation", "browser_use", "browser_use_external", "computer_use", "in_app_browser",
    "tool_suggest", "skill_search", "skill_mcp_dependency_install", "sleep_tool", "code_mode_host", "guardian_approval",
    "workspace_dependencies", "api_key_model_discovery", "enable_request_compression", "unbounded_connection_retries",
    "plugin_discovery_prefetch",
)  # fmt: skip

# What the gateway's own environment may say that a process needs to reach its provider. No PATH: it has nothing to start.
PASSED_ON = (
    "LANG", "LC_ALL", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "CODEX_CA_CERTIFICATE",
)  # fmt: skip

_LEVELS = ("minimal", "low", "medium", "high", "xhigh")


class CodexLocation(Struct, frozen=True, kw_only=True):
    """All that the processes of one model need to know.

    `folder` is where homes are made, `binary` the path of Codex, `sign_in` the auth.json of the person's own home. With a
    `base_url` the model is a custom provider's, with an `api_key` alone OpenAI's, with neither the signed-in account's.
    `patches`: the model is offered apply_patch, on threads that have an environment. `environ` is the gateway's own
    environment, of which a process gets what PASSED_ON names.
    """

    folder: str
    binary: str
    model: str
    base_url: str = ""
    api_key: str = ""
    sign_in: str = ""
    most_result_bytes: int = 262144
    patches: bool = False
    environ: Mapping[str, str] = {}

    @property
    def is_account(self) -> bool:
        return not (self.base_url or self.api_key)

    def __repr__(self) -> str:
        return f"CodexLocation(folder={self.folder!r}, binary={self.binary!r}, model={self.model!r}, base_url={self.base_url!r})"


def location_for(settings: CodexSettings, environment: Environment) -> CodexLocation:
    """Where the processes of one model live, and whose model it is. All models share the folder, and in it the sign-in."""
    environ = environment.environ
    own_home = Path(environ.get("CODEX_HOME") or "~/.codex").expanduser()
    return CodexLocation(
        folder=str(environment.data_dir / "codex"),
        binary=find_binary(environ.get("TOOLRELAY_CODEX", ""), environ.get("PATH")),
        model=settings.model or settings.name,
        base_url=settings.base_url,
        api_key=settings.api_key,
        sign_in=str(own_home / "auth.json"),
        most_result_bytes=settings.max_tool_result_bytes,
        patches="apply_patch" in settings.rails,
        environ=environ,
    )


class Home:
    """One process's CODEX_HOME and working directory. Its lock, which dies with the gateway, says that it is in use."""

    def __init__(self, folder: str) -> None:
        root = Path(folder)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)
        made = Path(tempfile.mkdtemp(prefix="new-", dir=root))
        self._lock = os.open(made / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Under this name it may be taken for stale, so it is not called so before it is locked.
        self.folder = made.rename(root / made.name.replace("new-", "home-", 1))
        self.codex = self.folder / "codex"
        self.work = self.folder / "work"
        self.codex.mkdir(mode=0o700)
        self.work.mkdir(mode=0o700)

    def furnish(self, place: CodexLocation, binary: Binary, auth: Path | None = None) -> None:
        """Writes what Codex reads. `auth` is the one sign-in that all homes share."""
        catalog = self.codex / "models.json"
        _write(catalog, json.dumps({"models": [catalog_entry(place, binary.catalog)]}))
        _write(self.codex / "config.toml", config_text(place, binary.features, catalog))
        # Codex names itself to its provider by this, which should not change with every process.
        (self.codex / "installation_id").symlink_to(self.folder.with_name("installation_id"))
        if auth is not None:
            # The lock too: a refreshed token makes the one before it useless, so that only one process may refresh it.
            (self.codex / "auth.json").symlink_to(auth)
            (self.codex / "auth.lock").symlink_to(auth.with_name("auth.lock"))

    def environ(self, place: CodexLocation) -> dict[str, str]:
        """Nothing but what is needed. The key is here and in no file."""
        found = {name: place.environ[name] for name in PASSED_ON if name in place.environ}
        if place.base_url.startswith("http://"):  # Codex reads the certificates anew for every thread, needed or not
            found = {name: value for name, value in found.items() if not name.startswith("SSL_")}
        found.update(HOME=str(self.folder), CODEX_HOME=str(self.codex), TMPDIR=str(self.work), NO_COLOR="1")
        if place.api_key:
            found[KEY_VARIABLE] = place.api_key
        return found

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove_stale_homes(folder: str) -> int:
    """Removes what a gateway that was killed has left; a home that is in use is locked."""
    removed = 0
    for home in Path(folder).glob("home-*"):
        try:
            lock = os.open(home / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # it is just being made, or just being removed
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


def catalog_entry(place: CodexLocation, catalog: tuple[JsonObject, ...]) -> JsonObject:
    known = next((entry for entry in catalog if entry.get("slug") == place.model), None)
    return {
        **(_GENERIC | {"slug": place.model, "display_name": place.model} if known is None else known),
        "visibility": "list",
        "supported_in_api": True,
        "shell_type": "disabled",
        "apply_patch_tool_type": "freeform" if place.patches else None,
        "tool_mode": "direct",
        "use_responses_lite": False,
        "supports_search_tool": False,
        "experimental_supported_tools": [],
        "node_repl_disabled": True,
        "multi_agent_version": None,
        "model_messages": None,
        "availability_nux": None,
        "upgrade": None,
        "include_skills_usage_instructions": False,
        "include_plugin_usage_instructions": False,
        "include_apps_usage_instructions": False,
        "supports_parallel_tool_calls": True,
        "context_window": LONGEST_CONTEXT,
        "max_context_window": LONGEST_CONTEXT,
        "truncation_policy": {"mode": "bytes", "limit": place.most_result_bytes + MARK_BYTES},
    }


_GENERIC: JsonObject = {
    "description": "",
    "default_reasoning_level": "medium",
    "supported_reasoning_levels": [{"effort": level, "description": level} for level in _LEVELS],
    "priority": 1,
    "default_reasoning_summary": "none",
    "support_verbosity": True,
    "default_verbosity": None,
    "web_search_tool_type": "text",
    "input_modalities": ["text", "image"],
    "base_instructions": "",
}


def config_text(place: CodexLocation, features: Container[str], catalog: Path) -> str:
    """A key that the binary does not know would keep it from starting: so only the features that it has are turned off."""
    top: JsonObject = {
        "model": place.model,
        "model_provider": "openai" if place.is_account else PROVIDER,
        "model_catalog_json": str(catalog),
        "approval_policy": "never",
        "sandbox_mode": "read-only",
        "check_for_update_on_startup": False,
        "web_search": "disabled",
        "project_doc_max_bytes": 0,
        "include_environment_context": False,
        "include_permissions_instructions": False,
        "include_apps_instructions": False,
        "include_collaboration_mode_instructions": False,
        "allow_login_shell": False,
        "suppress_unstable_features_warning": True,
        "cli_auth_credentials_store": "file",
    }
    tables: dict[str, JsonObject] = {
        "analytics": {"enabled": False},
        "feedback": {"enabled": False},
        "history": {"persistence": "none"},
        "otel": {"exporter": "none", "trace_exporter": "none", "metrics_exporter": "none"},
        "skills": {"include_instructions": False},
        "skills.bundled": {"enabled": False},
        "agents": {"enabled": False, "interrupt_message": False},
        "memories": {"generate_memories": False, "use_memories": False},
        "tools.experimental_request_user_input": {"enabled": False},
        "features": {name: False for name in FEATURES if name in features},
    }
    if not place.is_account:
        tables[f"model_providers.{PROVIDER}"] = {
            "name": PROVIDER,
            "base_url": place.base_url or OPENAI_URL,
            "wire_api": "responses",
            **({"env_key": KEY_VARIABLE} if place.api_key else {}),
            "requires_openai_auth": False,
            "supports_websockets": False,
            "request_max_retries": 0,
            "stream_max_retries": 0,
            "stream_idle_timeout_ms": STREAM_IDLE_MS,
        }
    parts = [_assignments(top), *(f"[{name}]\n{_assignments(table)}" for name, table in tables.items())]
    return "\n".join(parts)


def _assignments(table: Mapping[str, Json]) -> str:
    return "".join(f"{name} = {_toml(value)}\n" for name, value in table.items())


def _toml(value: Json) -> str:
    # JSON's words for booleans, numbers and strings are TOML's too, but for this one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
