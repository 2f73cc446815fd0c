"""TOML and environment into frozen Settings; the only reader of os.environ."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

CORS_ORIGINS = ("app://obsidian.md", "capacitor://localhost", "http://localhost")


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = 8787
    keepalive_seconds: float = 15
    max_body_bytes: int = 16 * 1024 * 1024
    cors_origins: tuple[str, ...] = CORS_ORIGINS
    log_content: bool = False


class StoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str = "sqlite"


class RedisSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str = ""


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    requests_per_minute: int = 0
    concurrent_turns: int = 2048


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    sha256: str
    approve: bool = False
    models: tuple[str, ...] = ("*",)
    toolsets: tuple[str, ...] = ()
    requests_per_minute: int = 0


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`name` is the table's own; `model` is the provider's name for it."""

    name: str = ""
    provider: str
    model: str = ""
    base_url: str = ""
    wire: Literal["", "chat", "responses", "anthropic", "gemini"] = ""
    api_key: str = ""
    tool_calling: str = "auto"
    toolsets: tuple[str, ...] = ()
    cutoff: Literal["off", "first", "burst"] = "burst"
    on_bad_call: Literal["", "pass", "retry", "text", "fail"] = ""
    approval: Literal["hold", "return"] = "hold"
    client_style: Literal["openai", "use_tool"] = "openai"
    use_tool_order: Literal["tools_first", "as_is"] = "tools_first"
    no_result_seconds: float = 0
    rails: tuple[str, ...] = ()
    rails_dir: str = ""
    status: Literal["silent", "text"] = "silent"
    max_tool_result_bytes: int = 262144
    approval_expiry_seconds: float = 3600
    max_tool_rounds: int = 10
    timeout_seconds: float = 300


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    redis: RedisSettings = RedisSettings()
    limits: LimitSettings = LimitSettings()
    keys: tuple[KeySettings, ...] = ()
    models: dict[str, ModelSettings] = {}
    tools_off: bool = False
    data_dir: str = ""
    log: Literal["json", "text"] = "json"
    log_level: str = "info"
