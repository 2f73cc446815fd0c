"""The configuration: where it comes from, what it refuses and how."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, structs

from toolrelay import config
from toolrelay.config import load
from toolrelay.errors import ConfigurationError
from toolrelay.settings import (
    KeySettings,
    LimitSettings,
    ModelSettings,
    RedisSettings,
    ServerSettings,
    StoreSettings,
    check_binding,
)
from toolrelay.wires.base import Wire, discover

ROOT = Path(__file__).parent.parent
HASH = "4f8e0b7c3a1d5e2f6b9c8d7a0e1f2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c"
TABLES: dict[str, type[Struct]] = {
    "server": ServerSettings,
    "store": StoreSettings,
    "redis": RedisSettings,
    "limits": LimitSettings,
    "keys": KeySettings,
    "models": ModelSettings,
}
Write = Callable[..., str]


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a configuration file into the current directory and returns its name."""

    def write(text: str, name: str = "toolrelay.toml") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write


def problems(path: str | None, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(path, environ or {})
    return str(caught.value).splitlines()


# Where settings come from


def test_without_a_file_the_demo_model_is_served_on_loopback() -> None:
    settings = load(None, {})
    assert settings.models == {"demo": ModelSettings(name="demo", provider="demo", model="demo")}
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8787)
    assert settings.config_file == ""
    check_binding(settings)


@pytest.mark.parametrize("text", ["", "[server]\nport = 1\n", "[models]\n"])
def test_a_file_without_models_serves_the_demo_model(write: Write, text: str) -> None:
    assert list(load(write(text), {}).models) == ["demo"]


def test_a_file_with_models_serves_those_alone(write: Write) -> None:
    settings = load(write('[models.fast]\nprovider = "openai"\n'), {})
    assert list(settings.models) == ["fast"]


def test_the_flag_names_the_file_before_the_variable_and_the_variable_before_the_directory(write: Write) -> None:
    write("server.port = 1")
    write("server.port = 2", "two.toml")
    write("server.port = 3", "three.toml")
    assert load("three.toml", {"TOOLRELAY_CONFIG": "two.toml"}).server.port == 3
    assert load(None, {"TOOLRELAY_CONFIG": "two.toml"}).server.port == 2
    assert load(None, {"TOOLRELAY_CONFIG": ""}).server.port == 1
    assert load(None, {}).config_file == "toolrelay.toml"


def test_flags_stand_above_the_file(write: Write) -> None:
    path = write('[server]\nhost = "127.0.0.2"\nport = 1\nmax_body_bytes = 5')
    server = load(path, {}, host="::1", port=0).server
    assert (server.host, server.port, server.max_body_bytes) == ("::1", 0, 5)


def test_a_model_is_called_as_its_table_unless_the_provider_has_another_name_for_it(write: Write) -> None:
    path = write('[models."gpt-4.1"]\nprovider = "openai"\n[models.fast]\nprovider = "openai"\nmodel = "gpt-6-mini"')
    models = load(path, {}).models
    assert [(model.name, model.model) for model in models.values()] == [("gpt-4.1", "gpt-4.1"), ("fast", "gpt-6-mini")]


def test_a_file_that_begins_with_a_byte_order_mark_is_read(write: Write) -> None:
    assert load(write("\ufeffserver.port = 1"), {}).server.port == 1


@pytest.mark.parametrize(
    ("terminal", "written", "log"), [(True, "", "text"), (False, "", "json"), (True, "json", "json"), (False, "TEXT", "text")]
)
def test_the_log_is_text_on_a_terminal_and_json_elsewhere_unless_the_variable_says(
    *, terminal: bool, written: str, log: str
) -> None:
    assert load(None, {"TOOLRELAY_LOG": written}, stderr_is_tty=terminal).log == log


def test_variables_set_the_log_level_and_turn_tools_off() -> None:
    settings = load(None, {"TOOLRELAY_LOG_LEVEL": "warning", "TOOLRELAY_TOOLS": "off"})
    assert (settings.log_level, settings.tools_off) == ("warning", True)
    assert (load(None, {}).log_level, load(None, {"TOOLRELAY_TOOLS": "on"}).tools_off) == ("info", False)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TOOLRELAY_LOG", "jsn", 'TOOLRELAY_LOG: expected one of json, text, found "jsn"; did you mean json?'),
        (
            "TOOLRELAY_LOG_LEVEL",
            "warn",
            'TOOLRELAY_LOG_LEVEL: expected one of debug, info, warning, error, found "warn"; did you mean warning?',
        ),
        ("TOOLRELAY_TOOLS", "false", 'TOOLRELAY_TOOLS: expected one of on, off, found "false"'),
    ],
)
def test_a_variable_with_a_value_that_means_nothing_is_refused(variable: str, value: str, message: str) -> None:
    assert problems(None, {variable: value}) == [message]


@pytest.mark.parametrize(
    ("flag", "environ", "directory"),
    [
        (None, {"HOME": "/home/me"}, "/home/me/.local/share/toolrelay"),
        (None, {"HOME": "/home/me", "XDG_DATA_HOME": "/data"}, "/data/toolrelay"),
        (None, {"HOME": "/home/me", "XDG_DATA_HOME": "relative"}, "/home/me/.local/share/toolrelay"),
        ("/here", {"HOME": "/home/me", "XDG_DATA_HOME": "/data"}, "/here"),
        ("~/here", {"HOME": "/home/me", "XDG_DATA_HOME": "/data"}, "/home/me/here"),
    ],
)
def test_the_data_directory_is_the_flag_or_in_the_users_data(flag: str | None, environ: dict[str, str], directory: str) -> None:
    assert str(load(None, environ, data_dir=flag).surroundings.data_dir) == directory


def test_a_relative_data_directory_is_made_absolute_and_nothing_is_created(tmp_path: Path) -> None:
    assert load(None, {}, data_dir="state").surroundings.data_dir == tmp_path / "state"
    assert not list(tmp_path.iterdir())


def test_the_process_environment_is_read_by_from_environment(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLRELAY_CONFIG", write("server.port = 7", "mine.toml"))
    monkeypatch.setenv("TOOLRELAY_LOG_LEVEL", "error")
    settings = config.from_environment(host="::1")
    assert (settings.server.port, settings.server.host, settings.log_level) == (7, "::1", "error")


def test_only_the_configuration_reads_the_environment() -> None:
    def reads(source: Path) -> bool:
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in {f"os.{name}" for name in names}:
                return True
            if isinstance(node, ast.ImportFrom) and node.module == "os" and any(alias.name in names for alias in node.names):
                return True
        return False

    names = {"environ", "environb", "getenv", "getenvb"}
    assert [source.name for source in (ROOT / "src").rglob("*.py") if reads(source)] == ["config.py"]


# Secrets

KEYED = '[models.fast]\nprovider = "openai"\napi_key = "env:FAST_KEY"\n'


@pytest.mark.parametrize("environ", [{"FAST_KEY": "sk-secret"}, {"FAST_KEY": " sk-secret\n"}])
def test_a_key_is_taken_from_the_variable_that_the_file_names(write: Write, environ: dict[str, str]) -> None:
    assert load(write(KEYED), environ).models["fast"].api_key == "sk-secret"


def test_a_key_may_stand_in_the_file(write: Write) -> None:
    assert load(write(KEYED.replace("env:FAST_KEY", "sk-secret")), {}).models["fast"].api_key == "sk-secret"


@pytest.mark.parametrize("environ", [{}, {"FAST_KEY": ""}, {"FAST_KEY": " "}])
def test_a_variable_that_is_missing_is_named_with_the_file_and_the_key(write: Write, environ: dict[str, str]) -> None:
    assert problems(write(KEYED), environ) == [
        "toolrelay.toml: models.fast.api_key: the environment variable FAST_KEY is not set, or empty; set it before the start"
    ]


def test_a_key_is_in_no_representation(write: Write) -> None:
    settings = load(write(KEYED), {"FAST_KEY": "sk-secret"})
    model = settings.models["fast"]
    for text in (repr(settings), repr(model), str(model), repr(model.__rich_repr__())):
        assert "sk-secret" not in text
    assert "api_key='***'" in repr(settings)
    assert "provider='openai'" in repr(model)
    assert "api_key=''" in repr(structs.replace(model, api_key=""))


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ('[models.a]\nprovider = "demo"\napi_key = ["SECRET"]', "models.a.api_key", "expected a string, found a list"),
        ('[models.a]\nprovider = "openai"\napi_key = "env:SECRET-1"', "models.a.api_key", "expected env:NAME"),
        ('[models.a]\nprovider = "openai"\napi_key = "SEC RET"', "models.a.api_key", "the key holds blanks"),
        (
            '[models.a]\nprovider = "openai"\napi_key = "env:VARIABLE"',
            "models.a.api_key",
            "the environment variable VARIABLE holds blanks",
        ),
        ('[models.a]\nprovider = "demo"\napi_keys = "SECRET"', "models.a.api_keys", "unknown key; did you mean api_key?"),
        (
            '[models.a]\nprovider = "demo"\nbase_url = "http://me:SECRET@h/"',
            "models.a.base_url",
            "expected an http:// or https:// URL",
        ),
        ('[models]\na = "SECRET"', "models.a", "expected a table [models.NAME], found a string of 6 characters"),
        ('[[keys]]\nname = "a"\nsha256 = "SECRET"', "keys.a.sha256", "expected 64 hexadecimal characters"),
        ('[store]\nurl = "postgresql://me:SECRET@h/d"', "store.url", "this value is not available in this version yet"),
        ('[redis]\nurl = "redis://:SECRET@h"', "redis.url", "this value is not available in this version yet"),
    ],
)
def test_a_secret_is_in_no_error(write: Write, text: str, where: str, expected: str) -> None:
    (problem,) = problems(write(text), {"VARIABLE": "SECRET\nSECRET"})
    assert problem.startswith(f"toolrelay.toml: {where}: {expected}")
    assert not re.search("SECRET|SEC RET", problem)


# What is refused, and how

A_PROVIDER = "one of openai, anthropic, gemini, openrouter, ollama, lmstudio, vllm, llamacpp, codex, local, demo, compatible"
A_URL = "an http:// or https:// URL without query or credentials"


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
        ('[models.a]\nprovider = "demo"\nname = "b"', "models.a.name: unknown key"),
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
            'models.a.wire: expected one of chat, responses, found "chta"; did you mean chat?',
        ),
        (
            '[models.a]\nprovider = "OpenAL"',
            f'models.a.provider: expected {A_PROVIDER}, found "OpenAL"; did you mean openai?',
        ),
        ('[models.a]\nmodel = "b"', f"models.a.provider: missing; expected {A_PROVIDER}"),
        (
            '[models.a]\nprovider = "compatible"',
            f'models.a.base_url: missing; provider "compatible" needs {A_URL}',
        ),
        (
            '[models.a]\nprovider = "openai"\nbase_url = "localhost:11434"',
            f"models.a.base_url: expected {A_URL}, found a string of 15 characters",
        ),
        (
            '[models.a]\nprovider = "openai"\nbase_url = "http://h:99999/v1"',
            f"models.a.base_url: expected {A_URL}; its address or port cannot be read",
        ),
        ("[keys]\nname = 1", "keys: expected a list of tables, each begun with [[keys]], found a table"),
        ("keys = [1]", "keys[0]: expected a table, found a number"),
        (
            f'[[keys]]\nname = "a"\nsha256 = "{HASH}"\nmodels = "fast"',
            'keys.a.models: expected a list of strings, found "fast"',
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
def test_a_mistake_is_told_with_file_key_expectation_and_finding(write: Write, text: str, problem: str) -> None:
    assert problems(write(text)) == [f"toolrelay.toml: {problem}"]


def test_all_mistakes_of_a_file_are_told_together(write: Write) -> None:
    text = """
        [server]
        port = -1
        hots = "x"
        [[keys]]
        name = "a"
        [models.fast]
        provider = "openai"
        api_key = "env:MISSING"
        approval = "return"
        timeout_second = 1
        [toolsets.vault]
        kind = "vault"
    """
    assert [problem.split(": ")[1] for problem in problems(write(text))] == [
        "server.port",
        "server.hots",
        "keys.a.sha256",
        "models.fast.api_key",
        "models.fast.approval",
        "models.fast.timeout_second",
        "toolsets.vault",
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"port": 65536}, "--port: expected a whole number from 0 to 65535 (0: any free port), found 65536"),
        ({"host": "a b"}, '--host: expected a host\'s name or address, found "a b"'),
    ],
)
def test_a_wrong_flag_is_named(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(None, {}, **flags)
    assert str(caught.value) == message


def test_a_missing_file_is_told_with_who_named_it_and_what_to_do() -> None:
    (by_flag,) = problems("none.toml")
    (by_variable,) = problems(None, {"TOOLRELAY_CONFIG": "none.toml"})
    assert by_flag.startswith("none.toml: no such file (named by --config). Write one, as toolrelay.example.toml shows")
    assert by_variable.startswith("none.toml: no such file (named by TOOLRELAY_CONFIG). ")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert problems("folder") == ["folder: cannot be read (named by --config): Is a directory"]


def test_a_syntax_error_is_told_with_its_line(write: Write) -> None:
    assert problems(write("[server]\nport = \n")) == ["toolrelay.toml: line 2, column 8: not valid TOML: Invalid value"]
    assert problems(write("[server")) == [
        "toolrelay.toml: end of document: not valid TOML: Expected ']' at the end of a table declaration"
    ]


def test_a_file_that_is_not_utf_8_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'[server]\nhost = "caf\xe9"\n')
    assert problems("latin.toml") == ["latin.toml: line 2: not UTF-8, which TOML has to be"]


def test_a_hash_is_kept_in_lower_case(write: Write) -> None:
    (key,) = load(write(f'[[keys]]\nname = "a"\nsha256 = "{HASH.upper()}"'), {}).keys
    assert key == KeySettings(name="a", sha256=HASH)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["demo", "sqlite", "env:A", "*", "chat", ""])
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
files = st.fixed_dictionaries(
    {},
    optional={
        name: values | st.fixed_dictionaries({}, optional=dict.fromkeys(kind.__struct_fields__, values))
        for name, kind in TABLES.items()
        if name not in {"keys", "models"}
    }
    | {
        "keys": values
        | st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(KeySettings.__struct_fields__, values)), max_size=3),
        "models": values
        | st.dictionaries(st.text(), st.fixed_dictionaries({}, optional=dict.fromkeys(ModelSettings.__struct_fields__, values))),
        "toolsets": values,
    },
)


@given(files)
def test_whatever_a_file_says_it_gives_settings_or_a_configuration_error(raw: dict[str, Any]) -> None:
    try:
        settings = config._Reading("f.toml", {}).settings(raw)
    except ConfigurationError:
        return
    assert all(isinstance(model, ModelSettings) for model in settings.models.values())
    assert all(isinstance(getattr(settings, name), kind) for name, kind in TABLES.items() if name not in {"keys", "models"})


# What this version does not do yet

UNAVAILABLE: dict[str, list[Any]] = {
    "store.url": ["postgresql://h/d"],
    "redis.url": ["redis://h"],
    "limits.requests_per_minute": [1],
    "keys.approve": [True],
    "keys.toolsets": [["vault"]],
    "keys.requests_per_minute": [60],
    "models.provider": ["anthropic", "gemini", "local"],
    "models.wire": ["anthropic", "gemini"],
    "models.toolsets": [["vault"]],
    "models.approval": ["return"],
    "models.status": ["text"],
    "models.approval_expiry_seconds": [60],
    "models.max_tool_rounds": [0, 11],
    "toolsets": [{"kind": "vault"}],
}


def file_with(key: str, value: object) -> tuple[dict[str, Any], str]:
    """A file that is right but for this value, and the value's place in it."""
    table, _, field = key.partition(".")
    match table:
        case "toolsets":
            return {"toolsets": {"vault": value}}, "toolsets.vault"
        case "keys":
            return {"keys": [{"name": "me", "sha256": HASH, field: value}]}, f"keys.me.{field}"
        case "models":
            address = {} if value == "demo" else {"base_url": "http://h/v1"}
            return {"models": {"a": {"provider": "compatible", **address, field: value}}}, f"models.a.{field}"
        case _:
            return {table: {field: value}}, key


def test_every_setting_that_is_not_available_yet_has_a_case_here() -> None:
    assert set(UNAVAILABLE) == {*config.NOT_YET, "models.wire"}
    assert UNAVAILABLE["models.wire"] == list(config.LATER_WIRES)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in UNAVAILABLE.items() for value in values])
def test_a_setting_that_would_be_ignored_is_refused(key: str, value: object) -> None:
    raw, place = file_with(key, value)
    with pytest.raises(ConfigurationError) as caught:
        config._Reading("f.toml", {}).settings(raw)
    assert re.fullmatch(
        rf"f\.toml: {re.escape(place)}: .+ is not available in this version yet(; available today: .+)?", str(caught.value)
    )


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, works in config.NOT_YET.items() for value in works])
def test_a_value_that_works_today_may_be_written_out(key: str, value: object) -> None:
    raw, _ = file_with(key, value)
    config._Reading("f.toml", {}).settings(raw)


@pytest.mark.parametrize("name", ["auto", "native", "off", "sealed", "hermes", "qwen3_coder"])
def test_tools_may_be_called_natively_or_in_any_dialect(name: str) -> None:
    raw, _ = file_with("models.tool_calling", name)
    assert config._Reading("f.toml", {}).settings(raw).models["a"].tool_calling == name


def test_a_dialect_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    raw, place = file_with("models.tool_calling", "hermse")
    with pytest.raises(ConfigurationError, match=rf'{place}: expected auto, .*found "hermse"; did you mean "?hermes'):
        config._Reading("f.toml", {}).settings(raw)


@pytest.mark.parametrize("wire", discover().values(), ids=discover())
def test_a_wire_that_is_there_may_be_named_by_its_word(wire: Wire) -> None:
    raw, _ = file_with("models.wire", wire.word)
    assert config._Reading("f.toml", {}).settings(raw).models["a"].wire == wire.word


@pytest.mark.parametrize(
    ("field", "value"), [("base_url", "http://h/v1"), ("wire", "chat"), ("wire", "chta"), ("api_key", "SECRET")]
)
def test_the_demo_model_takes_nothing_that_it_would_ignore(write: Write, field: str, value: str) -> None:
    text = f'[models.a]\nprovider = "demo"\n{field} = '
    assert problems(write(f'{text}"{value}"'), {}) == [f"toolrelay.toml: models.a.{field}: the demo model has none"]
    assert list(load(write(f'{text}""'), {}).models) == ["a"]


# Who may reach it


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_loopback_needs_no_key(host: str) -> None:
    check_binding(load(None, {}, host=host))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.2", "::ffff:192.168.1.2", "example.org", "localhost.example.org", "127.0.0.1.nip"]
)
def test_beyond_loopback_a_key_is_needed_and_the_error_says_how_to_make_one(write: Write, host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"needs at least one \[\[keys\]\] entry.*`toolrelay keys new NAME`"):
        check_binding(load(None, {}, host=host))
    check_binding(load(write(f'[[keys]]\nname = "a"\nsha256 = "{HASH}"'), {}, host=host))


def test_a_binding_that_is_refused_names_the_file(write: Write) -> None:
    file = write('[server]\nhost = "0.0.0.0"')
    with pytest.raises(ConfigurationError) as caught:
        check_binding(load(file, {}))
    assert str(caught.value).startswith(f"{file}: server.host: 0.0.0.0 is not a loopback address")
