"""What the gateway is told, frozen. config.py makes it of TOML and environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, structs

from toolrelay import _expectations as expect
from toolrelay.errors import ConfigurationError

CORS_ORIGINS = ("app://obsidian.md", "capacitor://localhost", "http://localhost")
PROVIDERS: Final = (
    "openai", "anthropic", "gemini", "openrouter", "ollama", "lmstudio", "vllm", "llamacpp", "codex", "local", "demo",
    "compatible",
)  # fmt: skip

_Provider = Annotated[str, Meta(extra={"choices": PROVIDERS})]


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: expect.Host = "127.0.0.1"
    port: expect.Port = 8787
    keepalive_seconds: expect.SecondsOrOff = 15
    send_timeout_seconds: expect.Seconds = 60
    max_body_bytes: expect.Positive = 16 * 1024 * 1024
    cors_origins: expect.Origins = CORS_ORIGINS
    log_content: bool = False


class StoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str = "sqlite"


class RedisSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str = ""


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    requests_per_minute: expect.Count = 0
    concurrent_turns: expect.Positive = 2048


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: expect.Name
    sha256: expect.Sha256
    approve: bool = False
    models: tuple[str, ...] = ("*",)
    toolsets: tuple[str, ...] = ()
    requests_per_minute: expect.Count = 0


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`name` is the table's own; `model` is the provider's name for it."""

    name: str = ""
    provider: _Provider
    model: str = ""
    base_url: expect.BaseUrl = ""
    wire: str = ""
    api_key: str = ""
    tool_calling: str = "auto"
    toolsets: tuple[str, ...] = ()
    cutoff: Literal["off", "first", "burst"] = "burst"
    on_bad_call: Literal["", "pass", "retry", "text", "fail"] = ""
    approval: Literal["hold", "return"] = "hold"
    client_style: Literal["openai", "use_tool"] = "openai"
    use_tool_order: Literal["tools_first", "as_is"] = "tools_first"
    no_result_seconds: expect.SecondsOrOff = 0
    rails: tuple[Literal["apply_patch", "web_search", "web_search_asked"], ...] = ()
    rails_dir: str = ""
    status: Literal["silent", "text"] = "silent"
    max_tool_result_bytes: expect.Positive = 262144
    approval_expiry_seconds: expect.Seconds = 3600
    max_tool_rounds: expect.Count = 10
    timeout_seconds: expect.Seconds = 300

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        masked = structs.replace(self, api_key="***" if self.api_key else "")
        return list(structs.asdict(masked).items())

    def __repr__(self) -> str:
        return f"ModelSettings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class Surroundings(Struct, frozen=True, kw_only=True):
    """Where the gateway runs. Its environment may hold anything, and is never shown."""

    data_dir: Path
    environ: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Surroundings(data_dir={self.data_dir!r})"


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`toolsets` are kept as they were written, because each kind of toolset knows its own keys."""

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    redis: RedisSettings = RedisSettings()
    limits: LimitSettings = LimitSettings()
    keys: tuple[KeySettings, ...] = ()
    models: dict[str, ModelSettings] = {}
    toolsets: dict[str, dict[str, Any]] = {}
    config_file: str = ""
    tools_off: bool = False
    surroundings: Surroundings = Surroundings(data_dir=Path("data"))
    log: Literal["json", "text"] = "json"
    log_level: str = "info"


def check_binding(settings: Settings) -> None:
    """Without keys anyone who can reach the port can spend the providers' money: then only this machine may reach it."""
    host = settings.server.host
    if not (settings.keys or is_loopback(host)):
        raise ConfigurationError(
            f"{file_mark(settings)}server.host: {host} is not a loopback address; binding to it needs at least one [[keys]] "
            "entry in the configuration file. Make one with `toolrelay keys new NAME`, or bind to 127.0.0.1."
        )


def file_mark(settings: Settings) -> str:
    """What an error begins with that is found only after the file was read."""
    return f"{settings.config_file}: " if settings.config_file else ""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
