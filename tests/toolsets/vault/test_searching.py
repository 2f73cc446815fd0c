"""vault_search through the toolset: results, order, limits, private notes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.toolsets.vault.vaults import context, make_toolset, on_vault, paths, search, write_notes
from toolrelay.errors import ConfigurationError, ToolError
from toolrelay.settings import Environment
from toolrelay.toolsets.base import Preview, PrivateOutput, Toolset
from toolrelay.toolsets.vault import KIND, VaultSettings

NOTES = {
    "Programming/TypeScript Basics.md": "TypeScript is a typed superset of JavaScript.",
    "Programming/Python.md": "Python and typescript. #lang/python",
    "Daily notes/2024-01-01.md": "---\ntags: [daily]\n---\nA day in the café. 東京は日本の首都である。",
    "Journal/Secret.md": "My secret about typescript in Zanzibar.",
    "Marked.md": "#private typescript in Zanzibar",
}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return write_notes(tmp_path / "vault", NOTES)


def test_search_returns_the_entries_of_the_specification(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        assert await search(toolset, "TypeScript", limit=1) == [
            {
                "path": "Programming/TypeScript Basics.md",
                "basename": "TypeScript Basics",
                "matches": 2,
                "preview": "TypeScript is a typed superset of JavaScript.",
            }
        ]

    on_vault(vault, story)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("cafe", ["Daily notes/2024-01-01.md"]),
        ("京は", ["Daily notes/2024-01-01.md"]),
        ("首", ["Daily notes/2024-01-01.md"]),
        ("script superset", ["Programming/TypeScript Basics.md"]),
        ("basics javascript", ["Programming/TypeScript Basics.md"]),
        ('"a typed superset"', ["Programming/TypeScript Basics.md"]),
        ('"typed a superset"', []),
        ("tag:daily", ["Daily notes/2024-01-01.md"]),
        ("tag:lang", ["Programming/Python.md"]),
        ("tag:lang/python typescript", ["Programming/Python.md"]),
        ('path:"daily notes" day', ["Daily notes/2024-01-01.md"]),
        ("path:programming tag:daily", []),
        ("2024-01", ["Daily notes/2024-01-01.md"]),
        ("nowhere", []),
    ],
)
def test_query_finds_notes(vault: Path, query: str, found: list[str]) -> None:
    async def story(toolset: Toolset) -> None:
        assert await paths(toolset, query) == found

    on_vault(vault, story)


def test_names_come_before_content_and_words_before_parts(tmp_path: Path) -> None:
    notes = {
        "c.md": "an anode",
        "b.md": "a node",
        "The node.md": "",
        "Nodes.md": "",
        "node.md": "",
        "d.md": "node node node node",
    }

    async def story(toolset: Toolset) -> None:
        assert await paths(toolset, "node") == ["node.md", "Nodes.md", "The node.md", "d.md", "b.md", "c.md"]

    on_vault(write_notes(tmp_path / "vault", notes), story)


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (2.0, 2), (2.9, 2), (50, 50), (51, 50), (1e308, 50)])
def test_limit_is_kept_and_at_most_50(tmp_path: Path, limit: float, count: int) -> None:
    async def story(toolset: Toolset) -> None:
        assert len(await search(toolset, "word", limit=limit)) == count

    on_vault(write_notes(tmp_path / "vault", {f"{number}.md": "word" for number in range(60)}), story)


def test_limit_is_10_by_default(tmp_path: Path) -> None:
    async def story(toolset: Toolset) -> None:
        assert len(await search(toolset, "word")) == 10

    on_vault(write_notes(tmp_path / "vault", {f"{number}.md": "word" for number in range(20)}), story)


@pytest.mark.parametrize("arguments", [{"query": "a", "limit": 0}, {"query": "a", "limit": -1}, {"query": ""}])
def test_useless_arguments_are_an_error(vault: Path, arguments: dict[str, Any]) -> None:
    async def story(toolset: Toolset) -> None:
        with pytest.raises(ToolError):
            await toolset.run("vault_search", arguments, context())

    on_vault(vault, story)


PRIVATE = ("tag:private", "Journal/**")


@pytest.mark.parametrize("query", ["zanzibar", "secret", "zibar", "tag:private", "path:journal", "marked", '"in zanzibar"'])
def test_private_note_is_found_by_local_models_only(vault: Path, query: str) -> None:
    async def story(toolset: Toolset) -> None:
        assert await search(toolset, query) == []
        found = await toolset.run("vault_search", {"query": query}, context(local=True))
        assert isinstance(found, PrivateOutput)
        assert found.value

    on_vault(vault, story, private=PRIVATE)


def test_result_without_private_notes_is_not_marked(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        assert isinstance(await toolset.run("vault_search", {"query": "python"}, context(local=True)), list)

    on_vault(vault, story, private=PRIVATE)


def test_private_notes_change_nothing_for_other_models(tmp_path: Path) -> None:
    public = {f"n{number}.md": f"alpha {'beta ' * (number % 3)} gamma{number}" for number in range(12)}
    private = {f"Journal/{number}.md": "alpha alpha beta gamma5 anode" for number in range(40)}
    outputs = []
    for name, notes in (("one", public), ("two", {**private, **public})):
        root = tmp_path / name
        root.mkdir()

        async def story(toolset: Toolset) -> None:
            queries = ["alpha", "alpha beta", "gamma5", "amma", "node", "n", '"alpha beta"', "tag:x", "path:journal", "a"]
            outputs.append([await toolset.run("vault_search", {"query": query}, context()) for query in queries])

        write_notes(root / "vault", notes)
        for age, path in enumerate(sorted(notes)):
            os.utime(root / "vault" / path, (age, age))  # without ties the order is fixed
        on_vault(root / "vault", story, private=PRIVATE)
    assert outputs[0] == outputs[1]


def test_search_has_an_empty_preview(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        assert await toolset.preview("vault_search", {"query": "a"}, context()) == Preview()

    on_vault(vault, story)


def test_tools_are_those_of_the_specification(vault: Path) -> None:
    search_tool, read_tool = make_toolset(vault, vault.parent / "data").tools
    assert (search_tool.title, read_tool.title, read_tool.files_argument) == ("Search vault", "Read files", "filePaths")
    assert search_tool.idempotent
    assert read_tool.idempotent
    assert search_tool.parameters["required"] == ["query"]
    assert "maximum" not in msgspec.json.encode(search_tool.parameters["properties"]).decode().replace("maximum is", "")
    assert not search_tool.asks_to_share
    asking = make_toolset(vault, vault.parent / "data", share="ask").tools
    assert all(tool.asks_to_share for tool in asking)


def remove(root: Path) -> None:
    root.rmdir()


def replace_by_file(root: Path) -> None:
    root.rmdir()
    root.write_text("")


@pytest.mark.parametrize(("change", "message"), [(remove, "there is no folder"), (replace_by_file, "is not a folder")])
def test_path_that_is_no_folder_is_a_configuration_error(tmp_path: Path, change: Callable[[Path], None], message: str) -> None:
    root = tmp_path / "vault"
    root.mkdir()
    change(root)

    async def story() -> None:
        toolset = make_toolset(root, tmp_path / "data")
        with pytest.raises(ConfigurationError, match=message):
            await toolset.open()
        await toolset.close()

    asyncio.run(story())


@pytest.mark.parametrize("settings", [{"exclude": ("",)}, {"private": ("tag:",)}])
def test_bad_pattern_is_a_configuration_error(vault: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make_toolset(vault, vault.parent / "data", **settings)


def test_data_directory_in_the_vault_is_refused(vault: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing may be written"):
        make_toolset(vault, vault / "data")


def test_relative_path_begins_at_the_configuration_file(vault: Path) -> None:
    async def story() -> None:
        settings = VaultSettings(name="vault", kind="vault", path="vault")
        toolset = KIND.open(settings, Environment(data_dir=vault.parent / "data", config_dir=vault.parent))
        await toolset.open()
        assert await paths(toolset, "superset") == ["Programming/TypeScript Basics.md"]
        await toolset.close()

    asyncio.run(story())


def test_nothing_is_written_in_the_vault(vault: Path) -> None:
    def listing() -> dict[str, tuple[int, bytes]]:
        return {
            str(file): (file.stat().st_mtime_ns, file.read_bytes() if file.is_file() else b"")
            for file in sorted(vault.rglob("*"))
        }

    before = listing()

    async def story(toolset: Toolset) -> None:
        await search(toolset, "typescript")
        await toolset.run("file_read", {"filePaths": ["Marked.md", "new.md"]}, context())

    on_vault(vault, story)
    assert listing() == before


def test_index_is_readable_by_its_owner_only(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        await search(toolset, "typescript")
        files = list((vault.parent / "data").rglob("*"))
        assert {oct(file.stat().st_mode & 0o777) for file in files if file.is_file()} == {"0o600"}
        assert {oct(file.stat().st_mode & 0o777) for file in files if file.is_dir()} == {"0o700"}

    on_vault(vault, story)
