"""The configuration's page and its example tell the truth, the whole of it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import NODEFAULT, Struct, structs

from toolrelay import _expectations as expect
from toolrelay import config
from toolrelay.config import load
from toolrelay.errors import ConfigurationError
from toolrelay.settings import KeySettings, LimitSettings, ModelSettings, RedisSettings, ServerSettings, Settings, StoreSettings

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "toolrelay.example.toml"
PAGE = (ROOT / "docs" / "configuration.md").read_text("utf-8")
TABLES: dict[str, type[Struct]] = {
    "server": ServerSettings,
    "store": StoreSettings,
    "redis": RedisSettings,
    "limits": LimitSettings,
    "keys": KeySettings,
    "models": ModelSettings,
}


def documented() -> dict[str, tuple[str, str, str]]:
    """The rows of docs/configuration.md that describe a key: default, example, meaning."""
    rows = re.findall(r"^\| `([a-z0-9_.]+)` \| (.+?) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    found = {key: (default.strip("`"), example.strip("`"), meaning) for key, default, example, meaning in rows}
    assert len(found) == len(rows), "a key is described twice"
    return found


def file_keys() -> Iterator[tuple[str, structs.FieldInfo]]:
    for table, kind in TABLES.items():
        for field in structs.fields(kind):
            if (table, field.name) != ("models", "name"):
                yield f"{table}.{field.name}", field


def test_the_page_describes_every_key_of_the_file_and_no_other() -> None:
    assert sorted(documented()) == sorted([*(key for key, _ in file_keys()), "toolsets"])


def test_every_table_of_the_settings_is_looked_at_here() -> None:
    elsewhere = {*config._ELSEWHERE, "toolsets"} - {"data_dir"}  # it is one of the surroundings
    assert set(Settings.__struct_fields__) == set(TABLES) | elsewhere
    assert [name for name in elsewhere if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize(("key", "field"), list(file_keys()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_page_states_the_default_and_an_example_that_fits(key: str, field: structs.FieldInfo) -> None:
    default, example, _ = documented()[key]
    if field.default is NODEFAULT:
        assert default == "required"
    else:
        stated = tomllib.loads(f"x = {default}")["x"]
        assert (tuple(stated) if isinstance(stated, list) else stated) == field.default
    assert expect.fits(tomllib.loads(f"x = {example}")["x"], field.type)


def test_the_page_marks_what_is_not_available_yet_and_nothing_else() -> None:
    assert {key for key, (_, _, meaning) in documented().items() if "**Not yet**" in meaning} == {*config.NOT_YET, "models.wire"}


def example_lines() -> Iterator[tuple[str, str]]:
    """Each setting of the example, switched off or not, with the line that it stands in."""
    table = ""
    for line in EXAMPLE.read_text("utf-8").splitlines():
        if header := re.match(r"#?\[+(\w+)(?:\.\w+)?\]+$", line):
            table = header[1]
        elif setting := re.match(r"#?(\w+) = ", line):
            yield f"{table}.{setting[1]}", line


def test_the_example_is_right_as_it_stands() -> None:
    settings = load(str(EXAMPLE), {})
    demo = ModelSettings(name="demo", provider="demo", model="demo")
    assert settings == Settings(models={"demo": demo}, config_file=str(EXAMPLE), surroundings=settings.surroundings)


def test_the_example_holds_every_key() -> None:
    assert {key for key, _ in example_lines() if not key.startswith("toolsets.")} == {key for key, _ in file_keys()}


def test_the_example_switched_on_is_understood_and_only_what_it_marks_is_refused(tmp_path: Path) -> None:
    switched_on = tmp_path / "toolrelay.toml"
    switched_on.write_text(re.sub(r"^#(?=[a-z\[])", "", EXAMPLE.read_text("utf-8"), flags=re.MULTILINE), "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load(str(switched_on), {"OPENAI_API_KEY": "x"})
    refused = str(caught.value).splitlines()
    assert [problem for problem in refused if "is not available in this version yet" not in problem] == []
    places = [re.sub(r"(keys|models)\.\w+\.", r"\1.", problem.split(": ")[1]) for problem in refused]
    marked = [key for key, line in example_lines() if line.startswith("#") and "(not yet)" in line]
    assert sorted(place for place in places if not place.startswith("toolsets.")) == sorted(marked)
    assert [place for place in places if place.startswith("toolsets.")] == ["toolsets.vault", "toolsets.mine", "toolsets.github"]
