"""Tables, links and reachability of the documents."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from toolrelay.dialects.base import discover
from toolrelay.web.sessions import COOKIE

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])


def test_generated_tables_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_tables", ROOT / "docs" / "make_tables.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    for path, tables in made.PAGES.items():
        text = path.read_text()
        assert made.page(text, tables()) == text, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_anchor_has_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        found = page.parent / target if target else page
        assert found.suffix != ".md" or anchor in anchors(found), f"{page.name} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_every_document_is_two_links_from_the_readme(page: Path) -> None:
    def links(source: Path) -> set[Path]:
        found = {(source.parent / target).resolve() for target in re.findall(r"\]\(([^)#:]+)", source.read_text())}
        return found | {inner for folder in found if folder.is_dir() for inner in folder.glob("*.md")}

    first = links(ROOT / "README.md")
    second = {further for near in first if near.suffix == ".md" and near.exists() for further in links(near)}
    assert page.resolve() in first | second


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_number_of_dialects_is_stated_right(page: str) -> None:
    assert f"any of {len(discover())} " in (ROOT / page).read_text()


def test_privacy_page_names_everything_that_the_browser_keeps() -> None:
    page = (ROOT / "docs/privacy.md").read_text()
    scripts = "\n".join(path.read_text() for path in (ROOT / "src/toolrelay/web/console/static").glob("*.js"))
    kept = set(re.findall(r"[\"'`](toolrelay\.\w+)[\"'`]", scripts))
    assert kept >= {"toolrelay.conversations", "toolrelay.model"}
    assert [name for name in [*sorted(kept), COOKIE] if f"`{name}`" not in page] == []
    assert not re.search(r"sessionStorage|indexedDB|document\.cookie|caches\.open|serviceWorker", scripts)


def test_security_page_names_only_tests_that_exist() -> None:
    page = ROOT / "docs/security.md"
    named = re.findall(r"\[`(\w+)`\]\(([^)]+\.py)\)", page.read_text())
    assert len(named) > 50
    for name, file in named:
        assert re.search(rf"^(async )?def {name}\(", (page.parent / file).read_text(), re.MULTILINE), f"{file} has no {name}"


def test_architecture_names_only_modules_and_members_that_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    for file in re.findall(r"`([\w/]+\.py)`", page):
        assert (ROOT / "src/toolrelay" / file).exists(), file
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for owner, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", page):
        assert re.search(rf"^class {owner}\b", sources, re.MULTILINE), owner
        assert re.search(rf"^    (async def|def) {member}\b|^    {member} = ", sources, re.MULTILINE), f"{owner}.{member}"


def test_e2_guide_for_obsidian_copilot_has_every_generation_and_says_what_needs_a_licence() -> None:
    page = (ROOT / "docs" / "obsidian-copilot.md").read_text()
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    for generation in ("4.0", "3.2 and 3.3", "3.1"):
        assert any(generation in heading for heading in headings)
    helps = page.partition("## When Toolrelay helps, and when not")[2].partition("\n## ")[0]
    assert "Copilot Plus licence" in helps
    assert "need none" in helps
