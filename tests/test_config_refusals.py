"""Configuration files that are refused: mistakes, and values that only later versions support."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tests import config_files
from tests.config_files import HASH, Write, problems
from toolrelay import config
from toolrelay.backends.base import discover as discover_backends
from toolrelay.backends.http import HttpSettings
from toolrelay.backends.providers import PROVIDERS, Preset
from toolrelay.config import load
from toolrelay.errors import ConfigurationError
from toolrelay.settings import KeySettings, LimitSettings, ModelSettings, RedisSettings, ServerSettings, StoreSettings
from toolrelay.toolsets.base import discover as discover_toolsets
from toolrelay.wires.base import ProviderWire, discover_provider_wires

# pytest finds fixtures by the names of the module.
empty_directory, write = config_files.empty_directory, config_files.write

TABLES: dict[str, type[Struct]] = {
    "server": ServerSettings,
    "store": StoreSettings,
    "redis": RedisSettings,
    "limits": LimitSettings,
    "keys": KeySettings,
}
MODEL_KEYS = sorted({key for kind in discover_backends().values() for key in kind.settings.__struct_fields__})
TOOLSET_KEYS = sorted({key for kind in discover_toolsets().values() for key in kind.settings.__struct_fields__})


# Mistakes

_SERVERS = (
    "openai, anthropic, gemini, openrouter, ollama, lmstudio, vllm, llamacpp, groq, mistral, deepseek, together, xai, azure"
)
A_PROVIDER = f"one of {_SERVERS}, codex, local, demo, compatible"
HTTP_PROVIDERS = f"{_SERVERS}, compatible"
NO_SCHEME = "; it lacks http:// or https:// at its beginning"
A_URL = "an http:// or https:// URL with a valid host and port, without query or credentials"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\nport = 65536", "server.port: expected a whole number from 0 to 65535 (0: any free port), found 65536"),
        ('[server]\nport = "80"', 'server.port: expected a whole number from 0 to 65535 (0: any free port), found "80"'),
        ("[server]\nport = true", "server.port: expected a whole number from 0 to 65535 (0: any free port), found true"),
        ('[server]\nhost = ""', 'server.host: expected a host\'s name or address, found ""'),
        ("[server]\nmax_body_bytes = 0", "server.max_body_bytes: expected a whole number above 0, found 0"),
        ("[server]\nlog_content = 1", "server.log_content: expected true or false, found 1"),
        (
            '[server]\ncors_origins = ["https://a/b"]',
            'server.cors_origins: expected a list of origins such as "https://notes.example", without a path, found ["https://a/b"]',
        ),
        (
            "[server]\nkeepalive_seconds = -1",
            "server.keepalive_seconds: expected a number of seconds, 0 (off) or above, a year at most, found -1",
        ),
        ("[server]\nhots = 1", "server.hots: unknown key; did you mean host?"),
        ("[server]\nqqq = 1", "server.qqq: unknown key"),
        ("[limits]\nconcurrent_turns = 1.5", "limits.concurrent_turns: expected a whole number above 0, found 1.5"),
        (
            "[server]\nport = 2020-01-01",
            'server.port: expected a whole number from 0 to 65535 (0: any free port), found "2020-01-01"',
        ),
        ("limits = 5", "limits: expected a table, found a number"),
        ("[modles.a]", "modles: unknown key; did you mean models?"),
        ("port = 80", "port: unknown key; did you mean server.port?"),
        ('log = "json"', "log: unknown key; it is set with TOOLRELAY_LOG, not in the file"),
        ('data_dir = "x"', "data_dir: unknown key; it is set with --data-dir, not in the file"),
        ("models = 5", "models: expected tables [models.NAME], found a number"),
        ('[models." a"]\nprovider = "demo"', 'models." a": expected a name without blanks around it'),
        ('[models.a]\nprovider = "demo"\nname = "b"', "models.a.name: unknown key; did you mean same_name?"),
        (
            '[models.a]\nprovider = "demo"\ntimeout_second = 5',
            "models.a.timeout_second: unknown key; did you mean timeout_seconds?",
        ),
        (
            '[models."a.b"]\nprovider = "demo"\ntimeout_seconds = 0',
            'models."a.b".timeout_seconds: expected a number of seconds above 0, a year at most, found 0',
        ),
        (
            '[models.a]\nprovider = "demo"\ntimeout_seconds = inf',
            "models.a.timeout_seconds: expected a number of seconds above 0, a year at most, found Infinity",
        ),
        (
            '[models.a]\nprovider = "demo"\ntimeout_seconds = nan',
            "models.a.timeout_seconds: expected a number of seconds above 0, a year at most, found NaN",
        ),
        (
            '[models.a]\nprovider = "vllm"\nwire = "chta"',
            'models.a.wire: expected one of anthropic, chat, gemini, ollama, responses, found "chta"; did you mean chat?',
        ),
        (
            '[models.a]\nprovider = "OpenAL"',
            f'models.a.provider: expected {A_PROVIDER}, found "OpenAL"; did you mean openai?',
        ),
        ('[models.a]\nmodel = "b"', f"models.a.provider: missing; expected {A_PROVIDER}"),
        (
            '[models.a]\nprovider = "compatible"',
            f"models.a.base_url: missing; expected {A_URL}",
        ),
        (
            '[models.a]\nprovider = "openai"\nbase_url = "localhost:11434"',
            f"models.a.base_url: expected {A_URL}, found a string of 15 characters{NO_SCHEME}",
        ),
        (
            '[models.a]\nprovider = "openai"\nbase_url = "localhost:1234/v1"',
            f"models.a.base_url: expected {A_URL}, found a string of 17 characters{NO_SCHEME}",
        ),
        (
            '[models.gpt-4.1]\nprovider = "openai"',
            'models.gpt-4.1: unknown key; if the model is called gpt-4.1, write its name in quotes: [models."gpt-4.1"]',
        ),
        (
            '[models.a]\nprovider = "openai"\nbase_url = "http://h:99999/v1"',
            f"models.a.base_url: expected {A_URL}, found a string of 17 characters",
        ),
        (
            '[models.a]\nprovider = "openai"\nrails = ["web_search"]',
            'models.a.rails: provider "openai" has no such setting; providers that have it: codex',
        ),
        (
            '[models.a]\nprovider = "codex"\nwire = "chat"',
            f'models.a.wire: provider "codex" has no such setting; providers that have it: {HTTP_PROVIDERS}',
        ),
        (
            '[models.a]\nprovider = "codex"\nrails = ["shell"]',
            'models.a.rails: expected a list of any of apply_patch, web_search, web_search_asked, found ["shell"]',
        ),
        ('[models.a]\nprovider = "codex"\nrails_dri = "x"', "models.a.rails_dri: unknown key; did you mean rails_dir?"),
        ('[models.a]\nprovider = "openai"\nrails_dri = "x"', "models.a.rails_dri: unknown key"),
        (
            '[models.a]\nprovider = "opnai"\nbase_url = 5',
            f'models.a.provider: expected {A_PROVIDER}, found "opnai"; did you mean openai?',
        ),
        ("[keys]\nname = 1", "keys: expected a list of tables, each begun with [[keys]], found a table"),
        ("keys = [1]", "keys[0]: expected a table, found a number"),
        (
            f'[[keys]]\nname = "a"\nsha256 = "{HASH}"\nmodels = "fast"',
            'keys.a.models: expected a list of strings, found "fast"',
        ),
        (
            f'[[keys]]\nname = "local"\nsha256 = "{HASH}"',
            'keys.local.name: "local" is the owner of what clients without a key store; expected another name',
        ),
        (f'[[keys]]\nsha256 = "{HASH}"', "keys[0].name: missing; expected a name without blanks around it"),
        (
            f'[[keys]]\nname = "a"\nsha256 = "{HASH}"\n[[keys]]\nname = "a"\nsha256 = "{HASH[::-1]}"',
            "keys.a.name: an earlier [[keys]] entry has this name; expected one of its own",
        ),
        (
            f'[[keys]]\nname = "a"\nsha256 = "{HASH}"\n[[keys]]\nname = "b"\nsha256 = "{HASH.upper()}"',
            "keys.b.sha256: this is the key of keys.a; expected one of its own",
        ),
    ],
)
def test_mistake_is_reported_with_file_key_expected_and_found(write: Write, text: str, problem: str) -> None:
    assert problems(write(text)) == [f"toolrelay.toml: {problem}"]


def test_all_mistakes_of_a_file_are_reported_together(write: Write) -> None:
    text = """
        [server]
        port = -1
        hots = "x"
        [[keys]]
        name = "a"
        [models.fast]
        provider = "openai"
        api_key = "env:MISSING"
        approval = "ask"
        timeout_second = 1
        [toolsets.github]
        kind = "mcp"
    """
    assert [problem.split(": ")[1] for problem in problems(write(text))] == [
        "server.port",
        "server.hots",
        "keys.a.sha256",
        "models.fast.api_key",
        "models.fast.approval",
        "models.fast.timeout_second",
        "toolsets.github.kind",
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"port": 65536}, "--port: expected a whole number from 0 to 65535 (0: any free port), found 65536"),
        ({"host": "a b"}, '--host: expected a host\'s name or address, found "a b"'),
    ],
)
def test_invalid_flag_is_reported(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(None, {}, **flags)
    assert str(caught.value) == message


def test_missing_file_is_reported_with_its_origin() -> None:
    (by_flag,) = problems("none.toml")
    (by_variable,) = problems(None, {"TOOLRELAY_CONFIG": "none.toml"})
    assert by_flag.startswith("none.toml: no such file (named by --config). Write one, as toolrelay.example.toml shows")
    assert by_variable.startswith("none.toml: no such file (named by TOOLRELAY_CONFIG). ")


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert problems("folder") == ["folder: cannot be read (named by --config): Is a directory"]


def test_syntax_error_is_reported_with_its_line(write: Write) -> None:
    assert problems(write("[server]\nport = \n")) == ["toolrelay.toml: line 2, column 8: not valid TOML: Invalid value"]
    assert problems(write("[server")) == [
        "toolrelay.toml: end of document: not valid TOML: Expected ']' at the end of a table declaration"
    ]


def test_invalid_utf_8_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'[server]\nhost = "caf\xe9"\n')
    assert problems("latin.toml") == ["latin.toml: line 2: not UTF-8, which TOML has to be"]


def test_hash_is_converted_to_lower_case(write: Write) -> None:
    (key,) = load(write(f'[[keys]]\nname = "a"\nsha256 = "{HASH.upper()}"'), {}).keys
    assert key == KeySettings(name="a", sha256=HASH)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([*PROVIDERS, "sqlite", "env:A", "*", "chat", ""])
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
files = st.fixed_dictionaries(
    {},
    optional={
        name: values | st.fixed_dictionaries({}, optional=dict.fromkeys(kind.__struct_fields__, values))
        for name, kind in TABLES.items()
        if name != "keys"
    }
    | {
        "keys": values
        | st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(KeySettings.__struct_fields__, values)), max_size=3),
        "models": values | st.dictionaries(st.text(), st.fixed_dictionaries({}, optional=dict.fromkeys(MODEL_KEYS, values))),
        "toolsets": values
        | st.dictionaries(
            st.text(), st.fixed_dictionaries({}, optional=dict.fromkeys(TOOLSET_KEYS, values) | {"kind": st.just("python")})
        ),
    },
)


@given(files)
def test_any_file_gives_settings_or_a_configuration_error(raw: dict[str, Any]) -> None:
    try:
        settings = config.FileReader("f.toml", {}).read(raw)
    except ConfigurationError:
        return
    assert all(isinstance(model, ModelSettings) for model in settings.models.values())
    assert all(isinstance(getattr(settings, name), kind) for name, kind in TABLES.items() if name != "keys")


# Values that only later versions support

UNAVAILABLE: dict[str, list[Any]] = {
    "store.url": ["postgresql://h/d"],
    "redis.url": ["redis://h"],
    "toolsets.kind": ["mcp"],
}


def file_with(key: str, value: object) -> tuple[dict[str, Any], str]:
    """Return a valid file with this value in it, and the value's path."""
    table, _, field = key.partition(".")
    match table:
        case "toolsets":
            toolset = {"kind": "python", "module": "m", "approval": "never", field: value}
            return {"toolsets": {"mine": toolset}}, f"toolsets.mine.{field}"
        case "keys":
            return {"keys": [{"name": "me", "sha256": HASH, field: value}]}, f"keys.me.{field}"
        case "models":
            return {"models": {"a": {"provider": "compatible", "base_url": "http://h/v1", field: value}}}, f"models.a.{field}"
        case _:
            return {table: {field: value}}, key


def test_every_unavailable_setting_has_a_case_here() -> None:
    assert set(UNAVAILABLE) == {*config.NOT_YET, "toolsets.kind"}
    assert sorted(UNAVAILABLE["toolsets.kind"]) == sorted(config.LATER_TOOLSETS)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in UNAVAILABLE.items() for value in values])
def test_unavailable_value_is_refused(key: str, value: object) -> None:
    raw, place = file_with(key, value)
    with pytest.raises(ConfigurationError) as caught:
        config.FileReader("f.toml", {}).read(raw)
    assert re.fullmatch(
        rf"f\.toml: {re.escape(place)}: .+ is not available in this version yet(; available today: .+)?",
        str(caught.value),
    )


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, works in config.NOT_YET.items() for value in works])
def test_available_value_of_a_restricted_key_is_accepted(key: str, value: object) -> None:
    raw, _ = file_with(key, value)
    config.FileReader("f.toml", {}).read(raw)


@pytest.mark.parametrize("name", ["auto", "native", "off", "sealed", "hermes", "qwen3_coder"])
def test_tool_calling_accepts_modes_and_dialects(name: str) -> None:
    raw, _ = file_with("models.tool_calling", name)
    assert config.FileReader("f.toml", {}).read(raw).models["a"].tool_calling == name


def test_unknown_dialect_is_refused_with_a_suggestion() -> None:
    raw, place = file_with("models.tool_calling", "hermse")
    with pytest.raises(ConfigurationError, match=rf'{place}: expected auto, .*found "hermse"; did you mean "?hermes'):
        config.FileReader("f.toml", {}).read(raw)


@pytest.mark.parametrize("wire", discover_provider_wires().values(), ids=discover_provider_wires())
def test_every_wire_is_accepted(wire: ProviderWire) -> None:
    raw, _ = file_with("models.wire", wire.config_name)
    model = config.FileReader("f.toml", {}).read(raw).models["a"]
    assert isinstance(model, HttpSettings)
    assert model.wire == wire.config_name


@pytest.mark.parametrize(
    ("field", "value"), [("base_url", "http://h/v1"), ("wire", "chat"), ("wire", "chta"), ("api_key", "SECRET")]
)
def test_key_of_another_backend_is_refused_unless_empty(write: Write, field: str, value: str) -> None:
    text = f'[models.a]\nprovider = "demo"\n{field} = '
    (problem,) = problems(write(f'{text}"{value}"'), {})
    assert problem.startswith(
        f'toolrelay.toml: models.a.{field}: provider "demo" has no such setting; providers that have it: openai'
    )
    assert "SECRET" not in problem
    assert list(load(write(f'{text}""'), {}).models) == ["a", "demo"]


# Providers


@pytest.mark.parametrize(("name", "preset"), PROVIDERS.items())
def test_available_provider_gives_the_settings_of_its_backend_with_its_defaults(name: str, preset: Preset) -> None:
    address = {} if preset.base_url or preset.backend != "http" else {"base_url": "http://h/v1"}
    model = config.FileReader("f.toml", {}).read({"models": {"a": {"provider": name, **address}}}).models["a"]
    assert type(model) is discover_backends()[preset.backend].settings
    if isinstance(model, HttpSettings):
        assert (model.base_url, model.wire) == (preset.base_url or "http://h/v1", preset.wire)


def test_one_entry_in_the_table_of_presets_adds_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "another", Preset(backend="http", base_url="https://another.example/v1", wire="responses"))
    model = config.FileReader("f.toml", {}).read({"models": {"a": {"provider": "another", "wire": ""}}}).models["a"]
    assert model == HttpSettings(name="a", provider="another", model="a", base_url="https://another.example/v1", wire="responses")
