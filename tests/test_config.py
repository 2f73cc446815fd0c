"""Loading the configuration: sources and their order, secrets, and the loopback rule."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from msgspec import structs

from tests import config_files
from tests.config_files import HASH, Write, problems
from toolrelay import config
from toolrelay.backends.http import HttpSettings
from toolrelay.config import load
from toolrelay.errors import ConfigurationError
from toolrelay.settings import ModelSettings, check_binding

# pytest finds fixtures by the names of the module.
empty_directory, write = config_files.empty_directory, config_files.write

ROOT = Path(__file__).parent.parent


# Sources


def test_without_a_file_the_demo_model_is_served_on_loopback(tmp_path: Path) -> None:
    settings = load(None, {}, data_dir=str(tmp_path))
    assert settings.models == {"demo": ModelSettings(name="demo", provider="demo", model="demo", toolsets=("vault",))}
    assert {name: (toolset.kind, toolset.approval) for name, toolset in settings.toolsets.items()} == {
        "vault": ("vault", "always")
    }
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8787)
    assert settings.config_file == ""
    check_binding(settings)


@pytest.mark.parametrize("text", ["", "[server]\nport = 1\n", "[models]\n"])
def test_file_without_models_serves_the_demo_model(write: Write, text: str) -> None:
    settings = load(write(text), {})
    assert settings.models == {"demo": ModelSettings(name="demo", provider="demo", model="demo")}
    assert settings.toolsets == {}


def test_e5_file_with_models_serves_those_and_demo(write: Write) -> None:
    settings = load(write('[models.fast]\nprovider = "openai"\n'), {})
    assert list(settings.models) == ["fast", "demo"]
    assert settings.models["demo"] == ModelSettings(name="demo", provider="demo", model="demo")


def test_e5_demo_can_be_turned_off(write: Write) -> None:
    path = write('[server]\ndemo = false\n[models.fast]\nprovider = "openai"\n')
    assert list(load(path, {}).models) == ["fast"]


def test_e5_model_named_demo_takes_its_place(write: Write) -> None:
    settings = load(write('[models.demo]\nprovider = "openai"\n'), {})
    assert [(model.name, model.provider) for model in settings.models.values()] == [("demo", "openai")]


def test_e5_nothing_to_serve_is_refused(write: Write) -> None:
    with pytest.raises(ConfigurationError, match=r"server\.demo is false"):
        load(write("[server]\ndemo = false\n"), {})


def test_config_flag_overrides_the_variable_and_the_current_directory(write: Write) -> None:
    write("server.port = 1")
    write("server.port = 2", "two.toml")
    write("server.port = 3", "three.toml")
    assert load("three.toml", {"TOOLRELAY_CONFIG": "two.toml"}).server.port == 3
    assert load(None, {"TOOLRELAY_CONFIG": "two.toml"}).server.port == 2
    assert load(None, {"TOOLRELAY_CONFIG": ""}).server.port == 1
    assert load(None, {}).config_file == "toolrelay.toml"


def test_flags_override_the_file(write: Write) -> None:
    path = write('[server]\nhost = "127.0.0.2"\nport = 1\nmax_body_bytes = 5')
    server = load(path, {}, host="::1", port=0).server
    assert (server.host, server.port, server.max_body_bytes) == ("::1", 0, 5)


def test_model_defaults_to_the_name_of_its_table(write: Write) -> None:
    path = write('[models."gpt-4.1"]\nprovider = "openai"\n[models.fast]\nprovider = "openai"\nmodel = "gpt-6-mini"')
    models = load(path, {}).models
    assert [(model.name, model.model) for model in models.values()] == [
        ("gpt-4.1", "gpt-4.1"),
        ("fast", "gpt-6-mini"),
        ("demo", "demo"),
    ]


def test_byte_order_mark_is_ignored(write: Write) -> None:
    assert load(write("\ufeffserver.port = 1"), {}).server.port == 1


@pytest.mark.parametrize(
    ("terminal", "written", "log"), [(True, "", "text"), (False, "", "json"), (True, "json", "json"), (False, "TEXT", "text")]
)
def test_log_format_follows_the_variable_or_the_terminal(*, terminal: bool, written: str, log: str) -> None:
    assert load(None, {"TOOLRELAY_LOG": written}, stderr_is_tty=terminal).log == log


def test_variables_set_log_level_and_tools_off() -> None:
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
def test_invalid_variable_is_refused(variable: str, value: str, message: str) -> None:
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
def test_data_directory_is_the_flag_or_below_the_users_data(flag: str | None, environ: dict[str, str], directory: str) -> None:
    assert str(load(None, environ, data_dir=flag).environment.data_dir) == directory


def test_relative_data_directory_becomes_absolute_and_is_not_created(tmp_path: Path) -> None:
    assert load(None, {}, data_dir="state").environment.data_dir == tmp_path / "state"
    assert not list(tmp_path.iterdir())


def test_from_environment_reads_the_process_environment(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLRELAY_CONFIG", write("server.port = 7", "mine.toml"))
    monkeypatch.setenv("TOOLRELAY_LOG_LEVEL", "error")
    settings = config.from_environment(host="::1")
    assert (settings.server.port, settings.server.host, settings.log_level) == (7, "::1", "error")


def test_only_config_reads_os_environ() -> None:
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


def http_model(path: str, environ: dict[str, str]) -> HttpSettings:
    model = load(path, environ).models["fast"]
    assert isinstance(model, HttpSettings)
    return model


@pytest.mark.parametrize("environ", [{"FAST_KEY": "sk-secret"}, {"FAST_KEY": " sk-secret\n"}])
def test_env_reference_is_replaced_by_the_variable(write: Write, environ: dict[str, str]) -> None:
    assert http_model(write(KEYED), environ).api_key == "sk-secret"


def test_key_may_be_written_in_the_file(write: Write) -> None:
    assert http_model(write(KEYED.replace("env:FAST_KEY", "sk-secret")), {}).api_key == "sk-secret"


@pytest.mark.parametrize("environ", [{}, {"FAST_KEY": ""}, {"FAST_KEY": " "}])
def test_missing_variable_of_a_key_is_reported(write: Write, environ: dict[str, str]) -> None:
    assert problems(write(KEYED), environ) == [
        "toolrelay.toml: models.fast.api_key: the environment variable FAST_KEY is not set, or empty; set it before the start"
    ]


def test_representations_mask_the_key(write: Write) -> None:
    settings = load(write(KEYED), {"FAST_KEY": "sk-secret"})
    model = settings.models["fast"]
    assert isinstance(model, HttpSettings)
    for text in (repr(settings), repr(model), str(model), repr(model.__rich_repr__())):
        assert "sk-secret" not in text
    assert "api_key='***'" in repr(settings)
    assert "provider='openai'" in repr(model)
    assert "api_key=''" in repr(structs.replace(model, api_key=""))


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ('[models.a]\nprovider = "codex"\napi_key = ["SECRET"]', "models.a.api_key", "expected a string, found a list"),
        ('[models.a]\nprovider = "openai"\napi_key = "env:SECRET-1"', "models.a.api_key", "expected env:NAME"),
        ('[models.a]\nprovider = "openai"\napi_key = "SEC RET"', "models.a.api_key", "the key holds blanks"),
        (
            '[models.a]\nprovider = "openai"\napi_key = "env:VARIABLE"',
            "models.a.api_key",
            "the environment variable VARIABLE holds blanks",
        ),
        ('[models.a]\nprovider = "openai"\napi_keys = "SECRET"', "models.a.api_keys", "unknown key; did you mean api_key?"),
        (
            '[models.a]\nprovider = "codex"\nbase_url = "http://me:SECRET@h/"',
            "models.a.base_url",
            "expected an http:// or https:// URL",
        ),
        ('[models]\na = "SECRET"', "models.a", "expected a table [models.NAME], found a string of 6 characters"),
        ('[[keys]]\nname = "a"\nsha256 = "SECRET"', "keys.a.sha256", "expected 64 hexadecimal characters"),
        ('[store]\nurl = "postgresql://me:SECRET@h/d"', "store.url", "this value is not available in this version yet"),
        ('[redis]\nurl = "redis://:SECRET@h"', "redis.url", "this value is not available in this version yet"),
    ],
)
def test_error_messages_contain_no_secret(write: Write, text: str, where: str, expected: str) -> None:
    (problem,) = problems(write(text), {"VARIABLE": "SECRET\nSECRET"})
    assert problem.startswith(f"toolrelay.toml: {where}: {expected}")
    assert not re.search("SECRET|SEC RET", problem)


# The loopback rule


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_loopback_needs_no_key(host: str) -> None:
    check_binding(load(None, {}, host=host))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.2", "::ffff:192.168.1.2", "example.org", "localhost.example.org", "127.0.0.1.nip"]
)
def test_host_beyond_loopback_needs_a_key(write: Write, host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"needs at least one \[\[keys\]\] entry.*`toolrelay keys new NAME`"):
        check_binding(load(None, {}, host=host))
    check_binding(load(write(f'[[keys]]\nname = "a"\nsha256 = "{HASH}"'), {}, host=host))


def test_refused_host_is_reported_with_the_file(write: Write) -> None:
    file = write('[server]\nhost = "0.0.0.0"')
    with pytest.raises(ConfigurationError) as caught:
        check_binding(load(file, {}))
    assert str(caught.value).startswith(f"{file}: server.host: 0.0.0.0 is not a loopback address")
