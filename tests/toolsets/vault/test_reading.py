"""file_read: contents, path tricks, links, odd files, private notes, previews."""

from __future__ import annotations

import os
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.toolsets.vault.vaults import context, on_vault, read, write_notes
from toolrelay.toolsets.base import FilePreview, PrivateOutput, Toolset
from toolrelay.toolsets.vault.files import MAX_NOTE_BYTES, VaultFiles
from toolrelay.toolsets.vault.reading import read_files
from toolrelay.toolsets.vault.rules import Rules

NOTES: dict[str, str | bytes] = {
    "Notes/React.md": "# React\r\n\r\nReact is a library…\n",
    "Notes/Vue.md": "# Vue",
    "Journal/Day.md": "dear diary",
    "Marked.md": "text #private",
    "Archive/Old.md": "old",
    ".obsidian/App.md": "hidden",
    "Image.png": b"\x89PNG",
}
MISSING = {"path": "No.md", "content": "File not found: No.md", "size": 0}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return write_notes(tmp_path / "vault", NOTES)


def entries(vault: Path, *files: str, local: bool = False, **settings: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def story(toolset: Toolset) -> None:
        found.extend(await read(toolset, *files, local=local))

    on_vault(vault, story, **settings)
    return found


def test_files_are_returned_whole_in_the_order_asked(vault: Path) -> None:
    assert entries(vault, "Notes/Vue.md", "No.md", "Notes/React.md") == [
        {"path": "Notes/Vue.md", "content": "# Vue", "size": 5},
        MISSING,
        {"path": "Notes/React.md", "content": NOTES["Notes/React.md"], "size": len(str(NOTES["Notes/React.md"]).encode())},
    ]


TRICKS = {
    "": "Error reading file: the path is empty",
    "../vault/Notes/Vue.md": "Error reading file: the path must not contain ..",
    "Notes/../Notes/Vue.md": "Error reading file: the path must not contain ..",
    "/etc/passwd": "Error reading file: the path must be relative to the vault",
    "~/x.md": "Error reading file: the path must be relative to the vault",
    "C:\\Notes\\Vue.md": "Error reading file: the path contains a backslash; folders are separated by /",
    "C:/Notes/Vue.md": "Error reading file: the path must be relative to the vault",
    "Notes\\Vue.md": "Error reading file: the path contains a backslash; folders are separated by /",
    "Notes/Vue.md\0.png": "Error reading file: the path contains a control character",
    ".obsidian/App.md": "Error reading file: hidden files and folders are not read",
    "Archive/Old.md": "File not found: Archive/Old.md",
    "archive/old": "File not found: archive/old",
    "Image.png": "Error reading file: only Markdown notes (.md) can be read",
    "No.pdf": "Error reading file: only Markdown notes (.md) can be read",
    "Notes": "File not found: Notes",
    "Notes/Vue.md/x.md": "File not found: Notes/Vue.md/x.md",
    "\udcff\ud800.md": "File not found: \ufffd\ufffd.md",
    "x" * 300 + ".md": "File not found: " + "x" * 120 + "…",
    "y/" * 2048: "Error reading file: the path has 4,096 characters; 1,024 are allowed",
}


def test_path_tricks_are_refused_each_and_the_others_read(vault: Path) -> None:
    found = entries(vault, *TRICKS, "Notes/Vue.md", exclude=("Archive/**",))
    assert [(entry["content"], entry["size"]) for entry in found[:-1]] == [(message, 0) for message in TRICKS.values()]
    assert found[-1]["content"] == "# Vue"
    assert all(len(entry["path"]) <= 121 for entry in found)


def test_link_out_of_the_vault_is_refused(vault: Path) -> None:
    outside = write_notes(vault.parent / "outside", {"Secret.md": "outside"})
    (vault / "Link.md").symlink_to(outside / "Secret.md")
    (vault / "Folder").symlink_to(outside)
    (vault / "Up").symlink_to("..")
    (vault / "Broken.md").symlink_to("nowhere.md")
    found = entries(vault, "Link.md", "Folder/Secret.md", "Up/outside/Secret.md", "Broken.md")
    assert [entry["content"] for entry in found] == [
        *(["Error reading file: it is a link that leaves the vault"] * 3),
        "File not found: Broken.md",
    ]


def test_folder_beside_the_vault_with_its_name_as_prefix_is_outside(vault: Path) -> None:
    write_notes(vault.parent / "vault2", {"Secret.md": "outside"})
    (vault / "Link.md").symlink_to(vault.parent / "vault2" / "Secret.md")
    assert "leaves the vault" in entries(vault, "Link.md")[0]["content"]


def test_link_within_the_vault_follows_the_rules_of_its_target(vault: Path) -> None:
    (vault / "Vue link.md").symlink_to("Notes/Vue.md")
    (vault / "Diary.md").symlink_to("Journal/Day.md")
    (vault / "Hidden.md").symlink_to(".obsidian/App.md")
    (vault / "Picture.md").symlink_to("Image.png")
    (vault / "Public").symlink_to("Journal")
    asked = ("Vue link.md", "Diary.md", "Hidden.md", "Picture.md", "Public/Day.md")
    found = entries(vault, *asked, private=("Journal/**",))
    assert [entry["content"] for entry in found] == ["# Vue", *(f"File not found: {path}" for path in asked[1:])]


def test_loop_of_links_is_harmless(vault: Path) -> None:
    (vault / "Loop.md").symlink_to("Loop.md")
    (vault / "Round").symlink_to(".")
    (vault / "Notes" / "Round").symlink_to("..")
    assert entries(vault, "Loop.md")[0]["content"] == "File not found: Loop.md"
    assert entries(vault, "Round/Round/Notes/Vue.md")[0]["content"] == "# Vue"


@pytest.mark.parametrize("asked", ["notes/vue.md", "NOTES/VUE", "Notes/Vue", "./Notes//Vue.md"])
def test_other_spelling_is_found(vault: Path, asked: str) -> None:
    assert entries(vault, asked) == [{"path": "Notes/Vue.md", "content": "# Vue", "size": 5}]


@pytest.mark.parametrize(("stored", "asked"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_other_normal_form_is_found(tmp_path: Path, stored: str, asked: str) -> None:
    name = "Übér/Ärger.md"
    vault = write_notes(tmp_path / "vault", {unicodedata.normalize(stored, name): "found"})  # type: ignore[arg-type]  # a literal
    assert entries(vault, unicodedata.normalize(asked, name))[0]["content"] == "found"  # type: ignore[arg-type]  # as above


def test_ambiguous_spelling_is_not_found(vault: Path) -> None:
    write_notes(vault, {"a.md": "1", "A.md": "2", "Dir/x.md": "3", "dir/x.md": "4", "dir/Y.md": "5"})
    assert [entry["content"] for entry in entries(vault, "a.MD", "A.md", "DIR/x", "DIR/y")] == [
        "File not found: a.MD",
        "2",
        "File not found: DIR/x",
        "5",
    ]


def test_name_that_is_not_utf_8_is_shown_and_found(tmp_path: Path) -> None:
    root = write_notes(tmp_path / "vault", {})
    (root / os.fsdecode(b"caf\xe9.md")).write_text("found")
    assert entries(root, "caf\ufffd.md") == [{"path": "caf\ufffd.md", "content": "found", "size": 5}]


def test_private_note_reads_like_a_missing_one(vault: Path) -> None:
    asked = ("Journal/Day.md", "journal/day", "Marked.md", "No.md")
    found = entries(vault, *asked, private=("tag:private", "Journal/**"))
    assert found == [{"path": path, "content": f"File not found: {path}", "size": 0} for path in asked]


def test_private_note_does_not_make_a_spelling_ambiguous(vault: Path) -> None:
    write_notes(vault, {"plan.md": "#private", "PLAN.md": "public"})
    found = entries(vault, "Plan", "plan.md", private=("tag:private",))
    assert [entry["content"] for entry in found] == ["public", "public"]


def test_local_model_gets_private_notes_marked(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        private = await toolset.run("file_read", {"filePaths": ["Journal/Day.md", "Notes/Vue.md"]}, context(local=True))
        assert isinstance(private, PrivateOutput)
        assert isinstance(await toolset.run("file_read", {"filePaths": ["Notes/Vue.md"]}, context(local=True)), list)

    on_vault(vault, story, private=("Journal/**",))


def test_note_that_becomes_private_is_gone_at_once(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        assert (await read(toolset, "Notes/Vue.md"))[0]["content"] == "# Vue"
        (vault / "Notes" / "Vue.md").write_text("# Vue #private")
        assert (await read(toolset, "Notes/Vue.md"))[0]["content"] == "File not found: Notes/Vue.md"
        found = await toolset.run("vault_search", {"query": "vue"}, context())
        assert found == []

    on_vault(vault, story, private=("tag:private",))


def test_huge_note_is_cut_with_its_true_size(vault: Path) -> None:
    write_notes(vault, {"Long.md": "word " * 300_000})
    (entry,) = entries(vault, "Long.md")
    assert entry["size"] == 1_500_000
    assert entry["content"].endswith("[truncated: these are the first 1,000,000 characters of 1,500,000 bytes]")


def test_note_above_the_limit_is_private_if_a_tag_could_make_it_so(vault: Path) -> None:
    write_notes(vault, {"Long.md": "word " * (MAX_NOTE_BYTES // 5) + "#private"})
    assert entries(vault, "Long.md", private=("tag:private",))[0]["content"] == "File not found: Long.md"
    assert entries(vault, "Long.md", private=("Journal/**",))[0]["size"] > MAX_NOTE_BYTES


def test_all_files_of_a_call_together_are_limited(vault: Path) -> None:
    write_notes(vault, {f"{number}.md": "x" * 1_000_000 for number in range(5)})
    found = entries(vault, *(f"{number}.md" for number in range(5)))
    assert [len(entry["content"]) == 1_000_000 for entry in found] == [True, True, True, True, False]
    assert "read it in another call" in found[4]["content"]


def test_files_beyond_100_are_refused(vault: Path) -> None:
    found = entries(vault, *["Notes/Vue.md"] * 101)
    assert [entry["content"] for entry in found[99:]] == ["# Vue", "Error reading file: only 100 files can be read at once"]


def test_odd_files_are_refused_without_blocking(vault: Path) -> None:
    os.mkfifo(vault / "Pipe.md")
    (vault / "Folder.md").mkdir()
    write_notes(vault, {"Binary.md": b"\x7fELF\0\0"})
    with (vault / "Sparse.md").open("wb") as file:
        file.truncate(500_000_000)
    found = entries(vault, "Pipe.md", "Folder.md", "Binary.md", "Sparse.md")
    assert [entry["content"] for entry in found] == [
        "Error reading file: it is not a regular file",
        "Error reading file: it is not a regular file",
        "Error reading file: it is a binary file, not text",
        "Error reading file: it is a binary file, not text",
    ]


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Root may read every file, so be somebody else."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_unreadable_file_is_an_error_entry() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = write_notes(Path(folder) / "vault", {"a.md": "a", "Closed/b.md": "b"})
        Path(folder).chmod(0o755)
        (root / "a.md").chmod(0)
        (root / "Closed").chmod(0)
        with as_ordinary_user():
            for rules, messages in (
                (Rules(), ["Error reading file: Permission denied"] * 2),
                (Rules(private=["tag:x"]), ["File not found: a.md", "File not found: Closed/b.md"]),
            ):
                files = VaultFiles(root, rules)
                found, _ = read_files(files, ["a.md", "Closed/b.md"], local=False, is_cancelled=lambda: False)
                assert [entry["content"] for entry in found if isinstance(entry, dict)] == messages
            assert [found for found in files.walk() if isinstance(found, str)] == ["Closed"]
        (root / "Closed").chmod(0o700)


# Previews


def previews(vault: Path, *files: str, local: bool = False, **settings: Any) -> tuple[FilePreview, ...]:
    found: list[FilePreview] = []

    async def story(toolset: Toolset) -> None:
        found.extend((await toolset.preview("file_read", {"filePaths": list(files)}, context(local=local))).files)

    on_vault(vault, story, **settings)
    return tuple(found)


def test_preview_lists_the_files_in_the_order_asked(vault: Path) -> None:
    write_notes(vault, {"Front.md": "---\na: b\n---\n\n" + "long line " * 30})
    modified = (vault / "Front.md").stat().st_mtime_ns / 1e9
    assert previews(vault, "No.md", "Front.md", "notes/react") == (
        FilePreview(path="No.md", name="No.md", error="File not found: No.md"),
        FilePreview(path="Front.md", name="Front.md", size=314, modified_at=modified, first_line=("long line " * 12)),
        FilePreview(
            path="notes/react",
            name="React.md",
            size=33,
            modified_at=(vault / "Notes/React.md").stat().st_mtime_ns / 1e9,
            first_line="# React",
        ),
    )


def test_preview_of_too_many_files_has_the_errors_of_the_run(vault: Path) -> None:
    found = previews(vault, *["Notes/Vue.md"] * 101)
    assert [preview.error for preview in found[99:]] == [None, "Error reading file: only 100 files can be read at once"]


def test_preview_says_what_is_private_to_local_models_only(vault: Path) -> None:
    rules = ("Journal/**",)
    asked = ("Journal/Day.md", "Notes/Vue.md")
    assert [preview.private for preview in previews(vault, *asked, local=True, private=rules)] == [True, False]
    hidden, shown = previews(vault, *asked, private=rules)
    assert hidden == FilePreview(path="Journal/Day.md", name="Day.md", error="File not found: Journal/Day.md")
    assert shown.private is None
