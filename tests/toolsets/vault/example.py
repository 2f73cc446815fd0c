"""A toolset of kind `vault` for the contract suite."""

from __future__ import annotations

from pathlib import Path

from tests.toolsets.contract import Call, Example
from tests.toolsets.vault.vaults import make_toolset, write_notes
from toolrelay.toolsets.base import Toolset

EXAMPLE = Example(
    tools=("vault_search", "file_read"),
    echo=Call("file_read", {"filePaths": ["Greeting.md"]}, [{"path": "Greeting.md", "content": "Grüß Gott", "size": 11}]),
    fail=Call("vault_search", {"query": "a", "limit": 0}, "at least 1"),
    wait=None,
)


def example(directory: Path) -> Toolset:
    """Return a toolset, not yet open, of a vault with one note."""
    return make_toolset(write_notes(directory / "vault", {"Greeting.md": "Grüß Gott"}), directory / "data")
