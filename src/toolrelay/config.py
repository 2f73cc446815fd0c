"""TOML and environment into frozen Settings; the only reader of os.environ."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, structs

from toolrelay import _expectations as expect
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.errors import ConfigurationError
from toolrelay.settings import (
    KeySettings,
    LimitSettings,
    ModelSettings,
    RedisSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    Surroundings,
)
from toolrelay.wires.base import discover as discover_wires

DEFAULT_FILE: Final = "toolrelay.toml"

# What the contract promises and this version does not do yet: for each key, the values that do work. Any other value is refused,
# because a setting that is read and then ignored is a lie. Whoever builds a feature deletes its line, or adds its value.
NOT_YET: Final[dict[str, tuple[object, ...]]] = {
    "store.url": ("sqlite",),
    "redis.url": ("",),
    "limits.requests_per_minute": (0,),
    "keys.approve": (False,),
    "keys.toolsets": ((),),
    "keys.requests_per_minute": (0,),
    "models.provider": ("openai", "openrouter", "ollama", "lmstudio", "vllm", "llamacpp", "codex", "demo", "compatible"),
    "models.toolsets": ((),),
    "models.approval": ("hold",),
    "models.status": ("silent",),
    "models.approval_expiry_seconds": (3600,),
    "models.max_tool_rounds": (10,),
    "toolsets": (),
}

# Words for `wire` that the contract has and no wire yet: one that exists brings its word along.
LATER_WIRES: Final = ("anthropic", "gemini")

# What only a model that is reached over HTTP has.
_REACHED: Final = ("base_url", "wire", "api_key")

# Values that may hold a secret, or a key pasted where its hash belongs: an error says what sort of value it is, never the value.
_UNSHOWN: Final = frozenset({"api_key", "sha256", "url", "base_url"})

# Settings that have no place in the file, for those who look for them there.
_ELSEWHERE: Final = {
    "config_file": "--config or TOOLRELAY_CONFIG",
    "data_dir": "--data-dir",
    "surroundings": "--data-dir",
    "tools_off": "TOOLRELAY_TOOLS=off",
    "log": "TOOLRELAY_LOG",
    "log_level": "TOOLRELAY_LOG_LEVEL",
}

_LogLevel = Literal["debug", "info", "warning", "error"]


def from_environment(
    path: str | None = None, *, host: str | None = None, port: int | None = None, data_dir: str | None = None
) -> Settings:
    """The settings of this process; what is given here stands above everything else."""
    return load(path, os.environ, host=host, port=port, data_dir=data_dir, stderr_is_tty=sys.stderr.isatty())


def load(
    path: str | None,
    environ: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | None = None,
    stderr_is_tty: bool = False,
) -> Settings:
    """Defaults, then the file, then the environment, then the flags: the later wins."""
    settings = _read_file(path, environ)
    server = settings.server
    if host is not None:
        server = structs.replace(server, host=_flag("--host", host, expect.Host))
    if port is not None:
        server = structs.replace(server, port=_flag("--port", port, expect.Port))
    return structs.replace(
        settings,
        server=server,
        models=settings.models or {"demo": ModelSettings(name="demo", provider="demo", model="demo")},
        tools_off=_variable(environ, "TOOLRELAY_TOOLS", Literal["on", "off"], "on") == "off",
        surroundings=Surroundings(data_dir=Path(_data_dir(data_dir, environ)), environ=dict(environ)),
        log=_variable(environ, "TOOLRELAY_LOG", Literal["json", "text"], "text" if stderr_is_tty else "json"),
        log_level=_variable(environ, "TOOLRELAY_LOG_LEVEL", _LogLevel, "info"),
    )


_T = TypeVar("_T", bound=Struct)
_V = TypeVar("_V", str, int)


class _Reading:
    """One file being read. What is wrong is collected, so that it can be mended in one go."""

    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self.file = file
        self.environ = environ
        self.problems: list[str] = []

    def complain(self, where: str, what: str) -> None:
        self.problems.append(f"{self.file}: {where}: {what}")

    def settings(self, raw: dict[str, Any]) -> Settings:
        values: dict[str, Any] = {
            "server": self.table(raw.get("server", {}), ServerSettings, "server"),
            "store": self.table(raw.get("store", {}), StoreSettings, "store"),
            "redis": self.table(raw.get("redis", {}), RedisSettings, "redis"),
            "limits": self.table(raw.get("limits", {}), LimitSettings, "limits"),
            "keys": self.keys(raw.get("keys", [])),
            "models": {name: self.model(name, table) for name, table in self.named_tables(raw, "models")},
            "toolsets": dict(self.named_tables(raw, "toolsets")),
        }
        for name in values["toolsets"] if "toolsets" in NOT_YET else ():
            self.complain(f"toolsets.{expect.quoted(name)}", "a toolset is not available in this version yet")
        for name in raw:
            if name not in values:
                self.complain(expect.quoted(name), _unknown_section(name, values.keys()))
        if self.problems:
            raise ConfigurationError("\n".join(self.problems))
        return Settings(**values, config_file=self.file)

    def named_tables(self, raw: dict[str, Any], section: str) -> Iterator[tuple[str, dict[str, Any]]]:
        found = raw.get(section, {})
        if not isinstance(found, dict):
            self.complain(section, f"expected tables [{section}.NAME], found {expect.kind_of(found)}")
            return
        for name, table in found.items():
            if not expect.fits(name, expect.Name):
                self.complain(f"{section}.{expect.quoted(name)}", f"expected {expect.in_words(expect.Name)}")
            elif not isinstance(table, dict):
                self.complain(
                    f"{section}.{expect.quoted(name)}", f"expected a table [{section}.NAME], found {expect.kind_of(table)}"
                )
            else:
                yield name, table

    def table(self, raw: object, kind: type[_T], where: str, rule: str = "", **given: object) -> _T | None:
        """`rule` is the table's place in NOT_YET, if not its own name; `given` are fields that do not come from the file."""
        if not isinstance(raw, dict):
            self.complain(where, f"expected a table, found {expect.kind_of(raw)}")
            return None
        before = len(self.problems)
        fields = {field.name: field for field in structs.fields(kind) if field.name not in given}
        values: dict[str, Any] = dict(given)
        for key, value in raw.items():
            if key in fields:
                values[key] = self.value(where, key, value, fields[key].type, NOT_YET.get(f"{rule or where}.{key}"))
            else:
                self.complain(f"{where}.{expect.quoted(key)}", f"unknown key{expect.did_you_mean(key, fields)}")
        for name, field in fields.items():
            if field.required and name not in raw:
                self.complain(f"{where}.{name}", f"missing; expected {expect.in_words(field.type)}")
        return kind(**values) if len(self.problems) == before else None

    def value(self, where: str, key: str, value: object, kind: Any, works: tuple[object, ...] | None) -> object:  # noqa: ANN401 -- a type form
        if not expect.fits(value, kind):
            found = expect.kind_of(value) if key in _UNSHOWN else expect.found(value, kind)
            self.complain(f"{where}.{key}", f"expected {expect.in_words(kind)}, found {found}")
            return None
        converted: object = msgspec.convert(value, kind)
        if works is not None and converted not in works:
            found = "this value" if key in _UNSHOWN else expect.shown(value)
            today = ", ".join(expect.shown(each) for each in works if each != "") or '""'
            self.complain(f"{where}.{key}", f"{found} is not available in this version yet; available today: {today}")
        return converted

    def model(self, name: str, raw: dict[str, Any]) -> ModelSettings | None:
        where = f"models.{expect.quoted(name)}"
        written = raw.get("api_key")
        key = self.api_key(f"{where}.api_key", written) if isinstance(written, str) else ""
        if isinstance(word := raw.get("wire"), str) and raw.get("provider") != "demo":
            self.wire(f"{where}.wire", word)
        model = self.table(raw, ModelSettings, where, "models", name=name)
        if model is None:
            return None
        self.tool_calling(f"{where}.tool_calling", model.tool_calling)
        if model.provider == "demo":
            for field in filter(raw.get, _REACHED):
                self.complain(f"{where}.{field}", "the demo model has none")
        if model.provider != "codex":
            for field in filter(raw.get, ("rails", "rails_dir")):
                self.complain(f"{where}.{field}", "only a codex model has rails")
        if model.provider == "compatible" and not model.base_url:
            self.complain(f"{where}.base_url", f'missing; provider "compatible" needs {expect.in_words(expect.BaseUrl)}')
        try:
            urlsplit(model.base_url).port  # noqa: B018 -- raises where the port is no port
        except ValueError:
            self.complain(f"{where}.base_url", f"expected {expect.in_words(expect.BaseUrl)}; its address or port cannot be read")
        return structs.replace(model, model=model.model or name, api_key=key)

    def wire(self, where: str, word: str) -> None:
        if not word:
            return
        words = sorted(wire.word for wire in discover_wires().values())
        if word in words:
            return
        if word in LATER_WIRES:
            today = ", ".join(map(expect.shown, words))
            self.complain(where, f"{expect.shown(word)} is not available in this version yet; available today: {today}")
        else:
            found = expect.shown(word) + expect.did_you_mean(word, words)
            self.complain(where, f"expected one of {', '.join(words)}, found {found}")

    def tool_calling(self, where: str, word: str) -> None:
        if word in ("auto", "native", "off"):
            return
        words = sorted(discover_dialects())
        if word not in words:
            found = expect.shown(word) + expect.did_you_mean(word, ["auto", "native", "off", *words])
            self.complain(where, f"expected auto, native, off or a dialect ({', '.join(words)}), found {found}")

    def api_key(self, where: str, written: str) -> str:
        """The key itself: it must not get into a message."""
        if not written.startswith("env:"):
            key, source = written, "the key"
        else:
            variable = written.removeprefix("env:")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
                # Not shown: it may be the key itself.
                self.complain(where, "expected env:NAME, where NAME is an environment variable's (letters, digits and _)")
                return ""
            key, source = self.environ.get(variable, "").strip(), f"the environment variable {variable}"
            if not key:
                self.complain(where, f"{source} is not set, or empty; set it before the start")
        if re.search(r"[^\x21-\x7e]", key):
            self.complain(where, f"{source} holds blanks or other characters that no API key has")
        return key

    def keys(self, raw: object) -> tuple[KeySettings, ...]:
        if not isinstance(raw, list):
            self.complain("keys", f"expected a list of tables, each begun with [[keys]], found {expect.kind_of(raw)}")
            return ()
        keys: list[KeySettings] = []
        for index, table in enumerate(raw):
            name = table.get("name") if isinstance(table, dict) else None
            where = f"keys.{expect.quoted(name)}" if isinstance(name, str) and name else f"keys[{index}]"
            key = self.table(table, KeySettings, where, "keys")
            if key is None:
                continue
            key = structs.replace(key, sha256=key.sha256.lower())
            if any(key.name == other.name for other in keys):
                self.complain(f"{where}.name", "an earlier [[keys]] entry has this name; expected one of its own")
            if twin := next((other for other in keys if other.sha256 == key.sha256), None):
                self.complain(f"{where}.sha256", f"this is the key of keys.{expect.quoted(twin.name)}; expected one of its own")
            keys.append(key)
        return tuple(keys)


def _read_file(path: str | None, environ: Mapping[str, str]) -> Settings:
    variable = environ.get("TOOLRELAY_CONFIG", "")
    file = path or variable or (DEFAULT_FILE if Path(DEFAULT_FILE).is_file() else "")
    if not file:
        return Settings()
    origin = " (named by --config)" if path else " (named by TOOLRELAY_CONFIG)" if variable else ""
    try:
        # Editors on Windows may begin a file with a byte order mark, which TOML does not know.
        raw = tomllib.loads(Path(file).expanduser().read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{file}: no such file{origin}. Write one, as toolrelay.example.toml shows, or name none to start with "
            "the demo model."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read{origin}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigurationError(f"{file}: line {line}: not UTF-8, which TOML has to be") from None
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).rstrip(")").rpartition(" (at ")
        raise ConfigurationError(f"{file}: {place}: not valid TOML: {reason}") from None
    return _Reading(file, environ).settings(raw)


def _unknown_section(name: str, sections: Collection[str]) -> str:
    if name in _ELSEWHERE:
        return f"unknown key; it is set with {_ELSEWHERE[name]}, not in the file"
    if name in ServerSettings.__struct_fields__:
        return f"unknown key; did you mean server.{name}?"
    return f"unknown key{expect.did_you_mean(name, sections)}"


def _flag(flag: str, value: _V, kind: Any) -> _V:  # noqa: ANN401 -- a type form
    if not expect.fits(value, kind):
        raise ConfigurationError(f"{flag}: expected {expect.in_words(kind)}, found {expect.found(value, kind)}")
    return value


def _variable(environ: Mapping[str, str], name: str, kind: Any, default: str) -> Any:  # noqa: ANN401 -- a Literal and its value
    value = environ.get(name, "").strip().lower() or default
    if not expect.fits(value, kind):
        raise ConfigurationError(f"{name}: expected {expect.in_words(kind)}, found {expect.found(value, kind)}")
    return value


def _data_dir(flag: str | None, environ: Mapping[str, str]) -> str:
    if flag and not flag.startswith("~/"):
        return str(Path(flag).absolute())
    shared = Path(environ.get("XDG_DATA_HOME", ""))
    # The XDG specification wants a relative path ignored.
    if not flag and shared.is_absolute():
        return str(shared / "toolrelay")
    try:
        home = environ.get("HOME") or Path.home()
    except RuntimeError:
        raise ConfigurationError("--data-dir: this user has no home directory; name a data directory") from None
    return str(Path(home, flag[2:]) if flag else Path(home, ".local", "share", "toolrelay"))
