"""The bounds of looking at a folder."""

from __future__ import annotations

from pathlib import Path

from tests.approving import write_notes
from toolrelay.web.folder_check import inspect_folder


def test_count_stops_at_the_limit(tmp_path: Path) -> None:
    write_notes(tmp_path, {f"{number}.md": "" for number in range(20)})
    report = inspect_folder(str(tmp_path), Path(), max_entries=5)
    assert (report.notes, report.complete) == (5, False)
    assert not inspect_folder(str(tmp_path), Path(), seconds=-1).complete


def test_links_are_not_followed(tmp_path: Path) -> None:
    write_notes(tmp_path, {"Vault/A.md": "", "Other/B.md": ""})
    (tmp_path / "Vault" / "link").symlink_to(tmp_path / "Other")
    (tmp_path / "Vault" / "loop").symlink_to(tmp_path / "Vault")
    assert inspect_folder("Vault", tmp_path).notes == 1
