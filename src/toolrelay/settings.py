"""Frozen settings of the gateway. config.py makes them from TOML, environment variables and flags."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from toolrelay.errors import ConfigurationError
from toolrelay.setting_types import (
    Approval,
    Count,
    DaysOrOff,
    Defaults,
    Host,
    Name,
    Origins,
    Port,
    Positive,
    Seconds,
    SecondsOrOff,
    ServiceUrl,
    Sha256,
    is_secret,
)

CORS_ORIGINS = ("app://obsidian.md", "capacitor://localhost", "http://localhost")


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: Host = "127.0.0.1"
    port: Port = 8787
    keepalive_seconds: SecondsOrOff = 15
    send_timeout_seconds: Seconds = 60
    max_body_bytes: Positive = 16 * 1024 * 1024
    cors_origins: Origins = CORS_ORIGINS
    log_content: bool = False
    demo: bool = True
    tls_cert: str = ""
    tls_key: str = ""

    @property
    def url(self) -> str:
        return f"{'https' if self.tls_cert else 'http'}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class StoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: ServiceUrl = "sqlite"
    record: Literal["tools", "all", "none"] = "tools"
    retention_days: DaysOrOff = 30


class RedisSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: ServiceUrl = ""


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    requests_per_minute: Count = 0
    concurrent_turns: Positive = 2048


LOCAL = "local"  # the owner of what clients without a key do; no key has this name


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    sha256: Sha256
    approve: bool = False
    models: tuple[str, ...] = ("*",)
    toolsets: tuple[str, ...] = ()
    requests_per_minute: Count = 0


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that every model has. A backend kind adds its own in a subclass.

    `name` is the name of the model's table; `model` is the provider's name for it.
    """

    name: str = ""
    provider: str
    model: str = ""
    tool_calling: str = "auto"
    toolsets: tuple[str, ...] = ()
    cutoff: Literal["off", "first", "burst"] = "burst"
    thinking: Literal["", "begun", "marked"] = ""
    on_bad_call: Literal["", "pass", "retry", "text", "fail"] = ""
    printed_calls: Literal["", "catch", "text"] = ""
    on_unsupported_tool: Literal["drop", "refuse"] = "drop"
    approval: Literal["hold", "return"] = "hold"
    client_style: Literal["openai", "use_tool"] = "openai"
    use_tool_order: Literal["tools_first", "as_is"] = "tools_first"
    no_result_seconds: SecondsOrOff = 0
    status: Literal["silent", "text"] = "silent"
    same_name: Literal["client", "gateway"] = "client"
    max_tool_result_bytes: Positive = 262144
    approval_expiry_seconds: Seconds = 3600
    max_tool_rounds: Count = 10
    timeout_seconds: Seconds = 300
    local: bool = False
    aliases: tuple[Name, ...] = ()
    fallbacks: tuple[str, ...] = ()
    fallback_cooldown_seconds: SecondsOrOff = 30
    defaults: Defaults = {}

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        secrets = {field.name for field in structs.fields(self) if is_secret(field.type)}
        return [(name, "***" if value and name in secrets else value) for name, value in structs.asdict(self).items()]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class ToolsetSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that every toolset has. A kind adds its own in a subclass. `name` is the name of the toolset's table."""

    name: str = ""
    kind: str
    approval: Approval = "always"
    timeout_seconds: Seconds = 10
    prefix: str = ""
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    parallel: bool = False
    max_concurrent: Positive = 16

    def needs_approval(self, tool: str) -> bool:
        """Return whether a person is asked before this tool runs. A tool that the table does not name needs it."""
        return (self.approval if isinstance(self.approval, str) else self.approval.get(tool, "always")) == "always"


class Environment(Struct, frozen=True, kw_only=True):
    """Where the gateway runs. `environ` and `tables` may contain secrets, so they are not in the representation.

    `config_dir` is the directory of the configuration file, `tables` are its contents.
    """

    data_dir: Path
    config_dir: Path | None = None
    environ: Mapping[str, str] = {}
    tables: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"Environment(data_dir={self.data_dir!r})"


class RecordSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where exchanges are recorded; empty: nowhere. `with_text`: as they are; otherwise their content is masked."""

    folder: str = ""
    with_text: bool = False


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    redis: RedisSettings = RedisSettings()
    limits: LimitSettings = LimitSettings()
    keys: tuple[KeySettings, ...] = ()
    models: dict[str, ModelSettings] = {}
    toolsets: dict[str, ToolsetSettings] = {}
    config_file: str = ""
    tools_off: bool = False
    environment: Environment = Environment(data_dir=Path("data"))
    recording: RecordSettings = RecordSettings()
    log: Literal["json", "text"] = "json"
    log_level: str = "info"


def check_binding(settings: Settings, *, has_stored_keys: Callable[[Settings], bool] = lambda _: False) -> None:
    """Refuse to listen beyond loopback without keys: anyone who reaches the port could spend the providers' money."""
    host = settings.server.host
    if not (settings.keys or is_loopback(host) or has_stored_keys(settings)):
        raise ConfigurationError(
            f"{file_prefix(settings)}server.host: {host} is not a loopback address; binding to it needs at least one [[keys]] "
            "entry in the configuration file. Make one with `toolrelay keys new NAME`, or one for the store with `toolrelay keys "
            "create NAME`, or bind to 127.0.0.1."
        )


def file_prefix(settings: Settings) -> str:
    """Return the prefix of an error message that is raised after the file was read."""
    return f"{settings.config_file}: " if settings.config_file else ""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
