"""Load the configuration file, environment variables and flags into Settings. Only this module reads os.environ."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from toolrelay.backends.base import discover as discover_backends
from toolrelay.backends.providers import PROVIDERS, default_wire
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.errors import ConfigurationError
from toolrelay.route_checks import find_route_problems
from toolrelay.setting_types import (
    BaseUrl,
    Host,
    Name,
    Port,
    accepts,
    choices,
    describe_kind,
    describe_type,
    describe_value,
    did_you_mean,
    format_value,
    is_for_later,
    is_hidden,
    is_secret,
    quote_key,
)
from toolrelay.settings import (
    LOCAL,
    Environment,
    KeySettings,
    LimitSettings,
    ModelSettings,
    RedisSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    ToolsetSettings,
)
from toolrelay.toolsets.base import discover as discover_toolsets

DEFAULT_FILE: Final = "toolrelay.toml"

# The values that this version supports, for keys that will have more in a later one. Other values are refused, not ignored.
# To add a feature, delete its line or add its value. Providers and wires that are not available yet are in backends/providers.py.
NOT_YET: Final[dict[str, tuple[object, ...]]] = {
    "store.url": ("sqlite",),
    "redis.url": ("",),
}

LATER_TOOLSETS: Final = ("mcp",)  # kinds that a later version will have

# Settings that cannot be set in the file, and where they are set.
NOT_IN_FILE: Final = {
    "config_file": "--config or TOOLRELAY_CONFIG",
    "data_dir": "--data-dir",
    "environment": "--data-dir",
    "tools_off": "TOOLRELAY_TOOLS=off",
    "recording": "--record",
    "log": "TOOLRELAY_LOG",
    "log_level": "TOOLRELAY_LOG_LEVEL",
}

_LogLevel = Literal["debug", "info", "warning", "error"]


def from_environment(
    path: str | None = None, *, host: str | None = None, port: int | None = None, data_dir: str | None = None
) -> Settings:
    """Load the settings of this process. The arguments are its flags."""
    return load(path, os.environ, host=host, port=port, data_dir=data_dir, stderr_is_tty=sys.stderr.isatty())


def read_environment() -> Mapping[str, str]:
    """Return the variables of this process, for commands that need others than the settings do."""
    return os.environ


def process_environment(data_dir: str | None = None) -> Environment:
    """Return where this process runs, without reading a configuration file. `data_dir` is its flag."""
    return Environment(data_dir=Path(_data_dir(data_dir, os.environ)), environ=dict(os.environ))


def load(
    path: str | None,
    environ: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | None = None,
    stderr_is_tty: bool = False,
) -> Settings:
    """Combine defaults, file, environment and flags; each overrides the ones before it."""
    file, tables = _load_tables(path, environ)
    directory = Path(_data_dir(data_dir, environ))
    settings = FileReader(file, environ).read(with_defaults(tables, has_file=bool(file), data_dir=directory))
    if not settings.models:
        raise ConfigurationError(f"{file}: models: there is none, and server.demo is false: nothing could be served")
    server = settings.server
    if host is not None:
        server = structs.replace(server, host=_checked("--host", host, Host))
    if port is not None:
        server = structs.replace(server, port=_checked("--port", port, Port))
    return structs.replace(
        settings,
        server=server,
        tools_off=_variable(environ, "TOOLRELAY_TOOLS", Literal["on", "off"], "on") == "off",
        environment=Environment(data_dir=directory, config_dir=_config_dir(file), environ=dict(environ), tables=tables),
        log=_variable(environ, "TOOLRELAY_LOG", Literal["json", "text"], "text" if stderr_is_tty else "json"),
        log_level=_variable(environ, "TOOLRELAY_LOG_LEVEL", _LogLevel, "info"),
    )


def with_defaults(tables: Mapping[str, Any], *, has_file: bool, data_dir: Path) -> dict[str, Any]:
    """Add the demo model, unless it is turned off. If there is no file, it has the toolsets that have a sample, and the models
    that have one are beside it.
    """
    models, server = tables.get("models"), tables.get("server")
    is_off = isinstance(server, Mapping) and server.get("demo") is False
    if is_off or (models and (not isinstance(models, Mapping) or "demo" in models)):
        return dict(tables)
    if models:
        return {**tables, "models": {**models, "demo": {"provider": "demo"}}}
    if has_file:
        return {**tables, "models": {"demo": {"provider": "demo", "toolsets": []}}}
    toolsets = {name: {"kind": name, **kind.sample} for name, kind in discover_toolsets().items() if kind.sample}
    samples = ((name, kind.sample(data_dir)) for name, kind in discover_backends().items() if kind.sample is not None)
    offered = {name: dict(table) for name, table in samples if table is not None}
    return {**tables, "toolsets": toolsets, "models": {"demo": {"provider": "demo", "toolsets": [*toolsets]}, **offered}}


_T = TypeVar("_T", bound=Struct)
_V = TypeVar("_V", str, int)


class FileReader:
    """Converts the tables of one file. Collects all problems, so that they are reported together."""

    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self.file = file
        self.environ = environ
        self.kinds = discover_backends()
        self.toolset_kinds = discover_toolsets()
        self.problems: list[str] = []

    def add_problem(self, path: str, problem: str) -> None:
        self.problems.append(f"{self.file}: {path}: {problem}" if self.file else f"{path}: {problem}")

    def read(self, raw: dict[str, Any]) -> Settings:
        """Convert a whole file, or raise ConfigurationError with every problem in it."""
        values: dict[str, Any] = {
            "server": self.read_table(raw.get("server", {}), ServerSettings, "server"),
            "store": self.read_table(raw.get("store", {}), StoreSettings, "store"),
            "redis": self.read_table(raw.get("redis", {}), RedisSettings, "redis"),
            "limits": self.read_table(raw.get("limits", {}), LimitSettings, "limits"),
            "keys": self.read_keys(raw.get("keys", [])),
            "models": {name: self.read_model(name, table) for name, table in self.named_tables(raw, "models")},
            "toolsets": {name: self.read_toolset(name, table) for name, table in self.named_tables(raw, "toolsets")},
        }
        self.check_toolset_names(values["models"], values["keys"], values["toolsets"])
        self.check_sharing(values["models"], values["toolsets"])
        self.problems += [f"{self.file}: {each}" if self.file else each for each in find_route_problems(values["models"])]
        for name in raw:
            if name not in values:
                self.add_problem(quote_key(name), _describe_unknown_section(name, values.keys()))
        if self.problems:
            raise ConfigurationError("\n".join(self.problems))
        return Settings(**values, config_file=self.file)

    def named_tables(self, raw: dict[str, Any], section: str) -> Iterator[tuple[str, dict[str, Any]]]:
        tables = raw.get(section, {})
        if not isinstance(tables, dict):
            self.add_problem(section, f"expected tables [{section}.NAME], found {describe_kind(tables)}")
            return
        for name, table in tables.items():
            path = f"{section}.{quote_key(name)}"
            if not accepts(Name, name):
                self.add_problem(path, f"expected {describe_type(Name)}")
            elif not isinstance(table, dict):
                self.add_problem(path, f"expected a table [{section}.NAME], found {describe_kind(table)}")
            else:
                yield name, table

    def read_table(
        self, raw: object, settings_type: type[_T], path: str, section: str = "", *, defaults: Mapping[str, Any] | None = None
    ) -> _T | None:
        """Convert one table. `section` is its name in NOT_YET, if not `path`; `defaults` are for missing keys."""
        if not isinstance(raw, dict):
            self.add_problem(path, f"expected a table, found {describe_kind(raw)}")
            return None
        problems_before = len(self.problems)
        types = _key_types(settings_type)
        values = dict(defaults or {})
        for key, value in raw.items():
            if key in types:
                values[key] = self.read_value(f"{path}.{key}", value, types[key], NOT_YET.get(f"{section or path}.{key}"))
            else:
                self.add_problem(f"{path}.{quote_key(key)}", f"unknown key{did_you_mean(key, types)}")
        for field in structs.fields(settings_type):
            if field.required and field.name not in values:
                self.add_problem(f"{path}.{field.name}", f"missing; expected {describe_type(types[field.name])}")
        return settings_type(**values) if len(self.problems) == problems_before else None

    def read_value(self, path: str, value: object, value_type: Any, working: tuple[object, ...] | None) -> object:  # noqa: ANN401 -- a type form
        """Convert one value. `working` are the values that this version supports, if not all that the type accepts."""
        if not accepts(value_type, value):
            hint = _missing_scheme(value) if value_type == BaseUrl else ""
            self.add_problem(path, f"expected {describe_type(value_type)}, found {describe_value(value_type, value)}{hint}")
            return None
        converted: object = msgspec.convert(value, value_type)
        if is_for_later(value_type, converted):
            working = choices(value_type)
        if working is not None and converted not in working:
            found = "this value" if is_hidden(value_type) else format_value(value)
            available = ", ".join(format_value(each) for each in working if each != "") or '""'
            self.add_problem(path, f"{found} is not available in this version yet; available today: {available}")
        if is_secret(value_type) and isinstance(converted, str):
            return self.read_secret(path, converted)
        return converted

    def read_secret(self, path: str, written: str) -> str:
        """Return the secret itself, from an environment variable if `written` names one. Problems never quote it."""
        if not written.startswith("env:"):
            secret, source = written, "the key"
        else:
            variable = written.removeprefix("env:")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
                # Not quoted: it may be the secret itself.
                self.add_problem(path, "expected env:NAME, where NAME is an environment variable's (letters, digits and _)")
                return ""
            secret, source = self.environ.get(variable, "").strip(), f"the environment variable {variable}"
            if not secret:
                self.add_problem(path, f"{source} is not set, or empty; set it before the start")
        if re.search(r"[^\x21-\x7e]", secret):
            self.add_problem(path, f"{source} holds blanks or other characters that no API key has")
        return secret

    def read_model(self, name: str, raw: dict[str, Any]) -> ModelSettings | None:
        """Convert a model's table. The preset of its provider decides which backend's keys it may have, and their defaults."""
        path = f"models.{quote_key(name)}"
        if "provider" not in raw and (inner := next((key for key in raw if isinstance(raw[key], dict)), None)) is not None:
            problem = f'unknown key; if the model is called {name}.{inner}, write its name in quotes: [models."{name}.{inner}"]'
            self.add_problem(f"{path}.{quote_key(inner)}", problem)
            return None
        provider = raw.get("provider")
        preset = PROVIDERS.get(provider) if isinstance(provider, str) else None
        kind = self.kinds.get(preset.backend) if preset else None
        settings_type: type[ModelSettings] = kind.settings if kind else ModelSettings
        table: dict[str, Any] = {}
        for key, value in raw.items():
            providers = self.providers_with(key)
            if providers and value in ("", []):
                continue  # an empty value means the default
            if not providers or key in settings_type.__struct_fields__:
                table[key] = value
            elif kind:  # else the provider is wrong, which is reported below
                others = ", ".join(providers)
                self.add_problem(f"{path}.{key}", f'provider "{provider}" has no such setting; providers that have it: {others}')
        defaults = {"base_url": preset.base_url, "wire": default_wire(preset, table), "local": preset.is_local} if preset else {}
        defaults = {key: value for key, value in defaults.items() if value and key in settings_type.__struct_fields__}
        model = self.read_table(table, settings_type, path, "models", defaults=defaults)
        if model is None:
            return None
        self.check_tool_calling(f"{path}.tool_calling", model.tool_calling)
        return structs.replace(model, name=name, model=model.model or name)

    def providers_with(self, key: str) -> list[str]:
        """Return the providers whose models have this key, or nothing if every model has it."""
        if key in ModelSettings.__struct_fields__:
            return []
        kinds = {name for name, kind in self.kinds.items() if key in kind.settings.__struct_fields__}
        return [name for name, preset in PROVIDERS.items() if preset.backend in kinds]

    def check_tool_calling(self, path: str, value: str) -> None:
        dialects = sorted(discover_dialects())
        allowed = ["auto", "native", "off", *dialects]
        if value not in allowed:
            found = format_value(value) + did_you_mean(value, allowed)
            self.add_problem(path, f"expected auto, native, off or a dialect ({', '.join(dialects)}), found {found}")

    def read_toolset(self, name: str, raw: dict[str, Any]) -> ToolsetSettings | None:
        """Convert a toolset's table. Its kind decides which further keys it may have."""
        path = f"toolsets.{quote_key(name)}"
        kind = self.toolset_kinds.get(raw["kind"]) if isinstance(raw.get("kind"), str) else None
        if kind is None:  # then only this is reported: nobody knows the other keys
            return self.read_table({key: raw[key] for key in raw if key == "kind"}, ToolsetSettings, path, "toolsets")
        settings_type: type[ToolsetSettings] = kind.settings
        toolset = self.read_table(raw, settings_type, path, "toolsets")
        if toolset is None:
            return None
        return structs.replace(toolset, name=name)

    def check_toolset_names(
        self, models: Mapping[str, ModelSettings | None], keys: Sequence[KeySettings], toolsets: Collection[str]
    ) -> None:
        """Report toolsets of models and keys that do not exist. A key may have patterns, which need not match."""
        wanted = [(f"models.{quote_key(name)}", each) for name, model in models.items() if model for each in model.toolsets]
        wanted += [(f"keys.{quote_key(key.name)}", each) for key in keys for each in key.toolsets if not set("*?[") & set(each)]
        for path, name in wanted:
            if name not in toolsets:
                hint = did_you_mean(name, toolsets) or f"; write [toolsets.{quote_key(name)}], or remove it here"
                self.add_problem(f"{path}.toolsets", f"there is no toolset {format_value(name)}{hint}")

    def check_sharing(self, models: Mapping[str, ModelSettings | None], toolsets: Mapping[str, ToolsetSettings | None]) -> None:
        """A client that gets the question as an item cannot be asked about results: they would have left already."""
        asking = {name for name, toolset in toolsets.items() if getattr(toolset, "share", "") == "ask"}
        for name, model in models.items():
            found = sorted(asking.intersection(model.toolsets)) if model is not None and model.approval == "return" else []
            if found:
                problem = f'"return" is not possible with the toolset {quote_key(found[0])}, which has share = "ask"'
                self.add_problem(f"models.{quote_key(name)}.approval", problem)

    def read_keys(self, raw: object) -> tuple[KeySettings, ...]:
        if not isinstance(raw, list):
            self.add_problem("keys", f"expected a list of tables, each begun with [[keys]], found {describe_kind(raw)}")
            return ()
        keys: list[KeySettings] = []
        for index, table in enumerate(raw):
            name = table.get("name") if isinstance(table, dict) else None
            path = f"keys.{quote_key(name)}" if isinstance(name, str) and name else f"keys[{index}]"
            key = self.read_table(table, KeySettings, path, "keys")
            if key is None:
                continue
            key = structs.replace(key, sha256=key.sha256.lower())
            if key.name == LOCAL:
                self.add_problem(
                    f"{path}.name", f'"{LOCAL}" is the owner of what clients without a key store; expected another name'
                )
            if any(key.name == other.name for other in keys):
                self.add_problem(f"{path}.name", "an earlier [[keys]] entry has this name; expected one of its own")
            if same := next((other for other in keys if other.sha256 == key.sha256), None):
                self.add_problem(f"{path}.sha256", f"this is the key of keys.{quote_key(same.name)}; expected one of its own")
            keys.append(key)
        return tuple(keys)


def _key_types(settings_type: type[Struct]) -> dict[str, Any]:
    """Return the type of every key that a table of the file may have."""
    types = {field.name: field.type for field in structs.fields(settings_type)}
    if issubclass(settings_type, ToolsetSettings):
        del types["name"]  # the table's own name
        types["kind"] = Annotated[str, Meta(extra={"choices": tuple(sorted(discover_toolsets())), "later": LATER_TOOLSETS})]
    if issubclass(settings_type, ModelSettings):
        del types["name"]  # the table's own name
        types["provider"] = Annotated[str, Meta(extra={"choices": tuple(PROVIDERS)})]
    return types


def _load_tables(path: str | None, environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the name of the file, if there is one, and its tables."""
    variable = environ.get("TOOLRELAY_CONFIG", "")
    file = path or variable or (DEFAULT_FILE if Path(DEFAULT_FILE).is_file() else "")
    if not file:
        return "", {}
    origin = " (named by --config)" if path else " (named by TOOLRELAY_CONFIG)" if variable else ""
    try:
        # Editors on Windows may write a byte order mark, which TOML does not allow.
        return file, tomllib.loads(Path(file).expanduser().read_text(encoding="utf-8-sig"))
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


def _describe_unknown_section(name: str, sections: Collection[str]) -> str:
    if name in NOT_IN_FILE:
        return f"unknown key; it is set with {NOT_IN_FILE[name]}, not in the file"
    if name in ServerSettings.__struct_fields__:
        return f"unknown key; did you mean server.{name}?"
    return f"unknown key{did_you_mean(name, sections)}"


def _missing_scheme(value: object) -> str:
    """Return a hint for a URL such as localhost:1234/v1. It is not quoted: it may be a pasted key."""
    is_address = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9.-]+(:[0-9]{1,5}(/\S*)?|/\S*)", value) is not None
    return "; it lacks http:// or https:// at its beginning" if is_address else ""


def _checked(source: str, value: _V, value_type: Any) -> _V:  # noqa: ANN401 -- a type form
    if not accepts(value_type, value):
        raise ConfigurationError(f"{source}: expected {describe_type(value_type)}, found {describe_value(value_type, value)}")
    return value


def _variable(environ: Mapping[str, str], name: str, value_type: Any, default: str) -> Any:  # noqa: ANN401 -- a Literal and its value
    return _checked(name, environ.get(name, "").strip().lower() or default, value_type)


def _config_dir(file: str) -> Path | None:
    return Path(file).expanduser().absolute().parent if file else None


def _data_dir(flag: str | None, environ: Mapping[str, str]) -> str:
    if flag and not flag.startswith("~/"):
        return str(Path(flag).absolute())
    shared = Path(environ.get("XDG_DATA_HOME", ""))
    # The XDG specification says that a relative path is to be ignored.
    if not flag and shared.is_absolute():
        return str(shared / "toolrelay")
    try:
        home = environ.get("HOME") or Path.home()
    except RuntimeError:
        raise ConfigurationError("--data-dir: this user has no home directory; name a data directory") from None
    return str(Path(home, flag[2:]) if flag else Path(home, ".local", "share", "toolrelay"))
