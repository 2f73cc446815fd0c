"""docs/configuration.md and toolrelay.example.toml describe every key, its default and what is not available yet."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import NODEFAULT, Struct, structs

from toolrelay import config
from toolrelay.backends.base import discover as discover_backends
from toolrelay.backends.providers import Preset
from toolrelay.config import load
from toolrelay.errors import ConfigurationError
from toolrelay.setting_types import accepts
from toolrelay.settings import KeySettings, LimitSettings, ModelSettings, RedisSettings, ServerSettings, Settings, StoreSettings
from toolrelay.toolsets.base import discover as discover_toolsets

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "toolrelay.example.toml"
PAGE = (ROOT / "docs" / "configuration.md").read_text("utf-8")
TABLES: dict[str, type[Struct]] = {
    "server": ServerSettings,
    "store": StoreSettings,
    "redis": RedisSettings,
    "limits": LimitSettings,
    "keys": KeySettings,
}
TOOLSETS = [kind.settings for kind in discover_toolsets().values()]
MODELS = [kind.settings for kind in discover_backends().values()]


def documented() -> dict[str, tuple[str, str, str]]:
    """Return the rows of docs/configuration.md that describe a key: default, example, meaning."""
    rows = re.findall(r"^\| `([a-z0-9_.]+)` \| (.+?) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    found = {key: (default.strip("`"), example.strip("`"), meaning) for key, default, example, meaning in rows}
    assert len(found) == len(rows), "a key is described twice"
    return found


def file_keys() -> dict[str, structs.FieldInfo]:
    tables = {f"{table}.{field.name}": field for table, kind in TABLES.items() for field in structs.fields(kind)}
    models = {f"models.{field.name}": field for kind in MODELS for field in structs.fields(kind) if field.name != "name"}
    toolsets = {f"toolsets.{field.name}": field for kind in TOOLSETS for field in structs.fields(kind) if field.name != "name"}
    return tables | models | toolsets


def test_page_describes_exactly_the_keys_of_the_file() -> None:
    assert sorted(documented()) == sorted(file_keys())


def test_every_table_of_the_settings_is_checked_here() -> None:
    others = {*config.NOT_IN_FILE} - {"data_dir"}  # data_dir is part of `environment`
    assert set(Settings.__struct_fields__) == {*TABLES, "models", "toolsets"} | others
    assert [name for name in others if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize(("key", "field"), list(file_keys().items()), ids=lambda value: value if isinstance(value, str) else "")
def test_page_states_the_default_and_a_valid_example(key: str, field: structs.FieldInfo) -> None:
    default, example, _ = documented()[key]
    if key.removeprefix("models.") in Preset.__struct_fields__:
        assert default == "by provider"
    elif field.required:
        assert default == "required"
    else:
        stated = tomllib.loads(f"x = {default}")["x"]
        expected = field.default if field.default is not NODEFAULT else field.default_factory()
        assert (tuple(stated) if isinstance(stated, list) else stated) == expected
    assert accepts(field.type, tomllib.loads(f"x = {example}")["x"])


def test_page_marks_exactly_the_unavailable_keys() -> None:
    assert {key for key, (_, _, meaning) in documented().items() if "**Not yet**" in meaning} == {
        *config.NOT_YET,
        "models.provider",
        "toolsets.kind",
    }


def example_lines() -> Iterator[tuple[str, str]]:
    """Yield each key of the example, commented out or not, with its line."""
    table = ""
    for line in EXAMPLE.read_text("utf-8").splitlines():
        if header := re.match(r"#?\[+(\w+)(?:\.\w+)?\]+$", line):
            table = header[1]
        elif setting := re.match(r"#?(\w+) = ", line):
            yield f"{table}.{setting[1]}", line


def test_example_file_gives_the_default_settings() -> None:
    settings = load(str(EXAMPLE), {})
    demo = ModelSettings(name="demo", provider="demo", model="demo")
    assert settings == Settings(models={"demo": demo}, config_file=str(EXAMPLE), environment=settings.environment)


def test_example_file_has_every_key() -> None:
    later = {"toolsets.command"}  # of kinds that are not available yet
    assert {key for key, _ in example_lines()} == set(file_keys()) | later


def test_only_marked_lines_of_the_example_are_refused_when_switched_on(tmp_path: Path) -> None:
    switched_on = tmp_path / "toolrelay.toml"
    switched_on.write_text(re.sub(r"^#(?=[a-z\[])", "", EXAMPLE.read_text("utf-8"), flags=re.MULTILINE), "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load(str(switched_on), {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x", "GEMINI_API_KEY": "x"})
    refused = str(caught.value).splitlines()
    assert [problem for problem in refused if "is not available in this version yet" not in problem] == []
    places = [re.sub(r"(keys|models|toolsets)\.\w+\.", r"\1.", problem.split(": ")[1]) for problem in refused]
    marked = [key for key, line in example_lines() if line.startswith("#") and "(not yet)" in line]
    assert sorted(places) == sorted(marked)
