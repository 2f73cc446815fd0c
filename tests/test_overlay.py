"""Changes of the console, laid over the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.config import FileReader, with_defaults
from toolrelay.overlay import Overlay, SettingPath, apply_changes, merge, parse_path
from toolrelay.settings import Environment, Settings
from toolrelay.toolsets.vault import VaultSettings

FAST: dict[str, Any] = {"provider": "demo"}
NOTES: dict[str, Any] = {"kind": "vault", "path": "/notes"}
MINE: dict[str, Any] = {"kind": "python", "module": "m"}


def configured(tables: dict[str, Any]) -> Settings:
    """Return the settings of a file with these tables. Without tables there is no file."""
    file = "toolrelay.toml" if tables else ""
    read = FileReader(file, {}).read(with_defaults(tables, has_file=bool(file), data_dir=Path()))
    return Settings(
        models=read.models,
        toolsets=read.toolsets,
        config_file=file,
        environment=Environment(data_dir=read.environment.data_dir, tables=tables),
    )


def reasons(overlay: Overlay) -> dict[str, str]:
    return {each.path: each.reason for each in overlay.ignored}


def path_of(overlay: Overlay) -> str:
    toolset = overlay.settings.toolsets["vault"]
    assert isinstance(toolset, VaultSettings)
    return toolset.path


def test_change_counts_before_the_default() -> None:
    overlay = apply_changes(configured({}), {"toolsets.vault.path": "/mine", "models.demo.toolsets": []})
    assert path_of(overlay) == "/mine"
    assert overlay.settings.models["demo"].toolsets == ()
    assert overlay.ignored == ()


def test_file_wins() -> None:
    base = configured({"models": {"fast": {**FAST, "toolsets": ["vault"]}}, "toolsets": {"vault": NOTES}})
    overlay = apply_changes(base, {"toolsets.vault.path": "/mine", "models.fast.toolsets": []})
    assert overlay.settings == base
    assert reasons(overlay) == dict.fromkeys(["models.fast.toolsets", "toolsets.vault.path"], "It is set in toolrelay.toml.")


def test_vault_is_added_to_a_file_without_one() -> None:
    base = configured({"models": {"fast": FAST}})
    changes: dict[str, Any] = {"toolsets.vault.kind": "vault", "toolsets.vault.path": "/mine", "models.fast.toolsets": ["vault"]}
    overlay = apply_changes(base, changes)
    assert (path_of(overlay), overlay.settings.models["fast"].toolsets, overlay.ignored) == ("/mine", ("vault",), ())


def test_sources_are_told() -> None:
    base = configured({"models": {"fast": FAST}, "toolsets": {"vault": NOTES}})
    overlay = apply_changes(base, {"toolsets.vault.approval": "never"})
    keys = {key: overlay.source(SettingPath("toolsets", "vault", key)) for key in ("path", "approval", "share")}
    assert keys == {"path": "file", "approval": "here", "share": "default"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"models.gone.toolsets": []}, 'There is no model "gone".'),
        ({"toolsets.gone.path": "/x"}, 'There is no toolset "gone".'),
        ({"toolsets.mine.path": "/x"}, 'The toolset "mine" is no vault.'),
        ({"models.fast.toolsets": ["gone"]}, 'models.fast.toolsets: there is no toolset "gone"'),
        ({"models.fast.toolsets": "mine"}, "models.fast.toolsets: expected a list of strings"),
        ({"toolsets.vault.approval": "perhaps"}, "toolsets.vault.approval: expected"),
        ({"toolsets.new.kind": "vault"}, "toolsets.new.path: missing"),
        ({"toolsets.new.kind": "python", "toolsets.new.path": "m"}, 'The toolset "new" is no vault.'),
        ({"models.fast.provider": "openai"}, "This cannot be changed here."),
        ({"server.host": "0.0.0.0"}, "This cannot be changed here."),
    ],
)
def test_change_that_does_not_fit_is_ignored_and_says_why(changes: dict[str, Any], reason: str) -> None:
    base = configured({"models": {"fast": FAST}, "toolsets": {"vault": NOTES, "mine": MINE}})
    overlay = apply_changes(base, {**changes, "models.fast.toolsets": changes.get("models.fast.toolsets", ["mine"])})
    assert set(reasons(overlay)) == set(changes)
    assert all(each.startswith(reason) for each in reasons(overlay).values())
    assert overlay.settings.models["fast"].toolsets == (() if "models.fast.toolsets" in changes else ("mine",))


def test_toolset_is_off_if_what_restricts_it_does_not_fit() -> None:
    model = {**FAST, "toolsets": ["vault", "mine"]}
    base = configured(
        {"models": {"fast": model, "asks": {**model, "approval": "return"}}, "toolsets": {"vault": NOTES, "mine": MINE}}
    )
    overlay = apply_changes(base, {"toolsets.vault.share": "ask", "toolsets.vault.private": ["Journal/**"]})
    assert set(reasons(overlay)) == {"toolsets.vault.share"}
    assert {name: each.toolsets for name, each in overlay.settings.models.items()} == {
        "fast": ("mine",),
        "asks": ("mine",),
        "demo": (),
    }


def test_changes_of_a_broken_toolset_are_ignored() -> None:
    overlay = apply_changes(configured({}), {"toolsets.vault.path": "/gone", "models.demo.toolsets": []}, {"vault": "no folder"})
    assert reasons(overlay) == {"toolsets.vault.path": "no folder"}
    assert overlay.settings.models["demo"].toolsets == ()


def test_what_was_added_comes_after_what_the_file_has() -> None:
    """So that a clash of tools is a problem of what was added."""
    merged = merge({"toolsets": {"z": {"kind": "vault"}}}, {SettingPath("toolsets", "a", "kind"): "vault"})
    assert list(merged["toolsets"]) == ["z", "a"]


NAMES = st.text(min_size=1, max_size=8)


@given(NAMES)
def test_path_of_any_name_is_read_back(name: str) -> None:
    path = SettingPath("toolsets", name, "path")
    assert parse_path(str(path)) == path


@given(st.text(max_size=40) | NAMES.map(lambda name: f'models."{name}".toolsets'))
def test_path_has_one_spelling(text: str) -> None:
    path = parse_path(text)
    assert path is None or str(path) == text


KEYS = {
    "toolsets.vault.path": st.sampled_from(["/a", "/b", 3]),
    "toolsets.vault.approval": st.sampled_from(["always", "never", {"file_read": "never"}, "x"]),
    "toolsets.vault.private": st.sampled_from([[], ["Journal/**"], "x"]),
    "toolsets.extra.kind": st.just("vault"),
    "toolsets.extra.path": st.sampled_from(["/c", None]),
    "models.demo.toolsets": st.sampled_from([[], ["vault"], ["vault", "extra"], ["gone"]]),
    "models.gone.toolsets": st.just([]),
}
CHANGES = st.fixed_dictionaries({}, optional=KEYS)
FILES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"models": st.just({"demo": {"provider": "demo"}})},
    optional={
        "toolsets": st.fixed_dictionaries({}, optional={"vault": st.sampled_from([NOTES, {**NOTES, "approval": "always"}])})
    },
) | st.just({})


@given(FILES, CHANGES, st.randoms())
def test_order_of_changes_does_not_matter(tables: dict[str, Any], changes: dict[str, Any], random: Any) -> None:
    shuffled = list(changes.items())
    random.shuffle(shuffled)
    base = configured(tables)
    one, other = apply_changes(base, changes), apply_changes(base, dict(shuffled))
    assert (one.settings, dict(one.changes), one.ignored) == (other.settings, dict(other.changes), other.ignored)


@given(FILES, CHANGES)
def test_every_change_counts_or_is_ignored_and_the_file_stays(tables: dict[str, Any], changes: dict[str, Any]) -> None:
    base = configured(tables)
    overlay = apply_changes(base, changes)
    assert {*overlay.changes, *reasons(overlay)} == set(changes)
    assert not set(overlay.changes) & set(reasons(overlay))
    for name, table in tables.get("toolsets", {}).items():
        for key, value in table.items():
            assert getattr(overlay.settings.toolsets[name], key) == value
    assert apply_changes(base, overlay.changes).changes == overlay.changes
    assert apply_changes(base, {}).settings == base
