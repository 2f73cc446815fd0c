"""The page of settings in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.approving import Approver, write_notes
from tests.gateway import running
from tests.web.console.conftest import Desk, send
from tests.web.console.test_accessibility import serious_faults

EVIL = "<img src=x onerror=alert(1)>"
NOTES = {"Apples.md": "Apples keep until March.\n"}
SEARCH = 'vault_search {"query": "apples"}'


class Home(Desk):
    """A gateway without scripted models, and with the configuration that a test gives it."""

    def __init__(self, folder: Path, stack: ExitStack, browser: Browser, config: str | None) -> None:
        self._browser = browser
        self.folder = folder
        self.notes = folder / "Notes"
        write_notes(self.notes, NOTES)
        self.gateway = stack.enter_context(running(config, folder=folder))
        self.approver = Approver(self.gateway)
        self.problems = []
        self._contexts = []
        stack.callback(self.close_windows)

    def settings(self, **options: Any) -> Page:
        page = self.window(url=f"{self.gateway.url}/settings", **options)
        expect(page.locator("#tools form, #tools .hint").first).to_be_visible()
        return page


@pytest.fixture
def home(tmp_path: Path, browser: Browser) -> Iterator[Any]:
    with ExitStack() as stack:
        made: list[Home] = []

        def make(config: str | None = None) -> Home:
            made.append(Home(tmp_path, stack, browser, config))
            return made[-1]

        yield make
        assert [problem for each in made for problem in each.problems] == []


def save(section: Locator, says: str = "Saved.") -> None:
    section.get_by_role("button", name="Save").click()
    expect(section.locator(".message")).to_contain_text(says)


def answer_of(page: Page, home: Home, text: str = SEARCH) -> Locator:
    """Ask in the chat, in the same window, and return the answer when it is there."""
    page.goto(home.gateway.url)
    send(page, text)
    return page.locator(".message.assistant").last


def test_vault_is_added_asked_about_and_used(home: Any) -> None:
    """The story: enter the path, ask, see the dialog, allow, get the answer."""
    desk = home(None)
    page = desk.settings()
    vault = page.locator("#vault")
    expect(vault).to_contain_text("the sample vault that comes with Toolrelay")
    vault.get_by_label("Folder").fill(str(desk.notes))
    vault.get_by_role("button", name="Check").click()
    expect(vault.locator(".found")).to_contain_text("1 note,")
    save(vault)
    expect(vault.get_by_label("Folder")).to_have_value(str(desk.notes))
    expect(vault).to_contain_text("set here")
    answer = answer_of(page, desk)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Search vault")
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(answer).to_contain_text("Apples.md")
    page.goto(f"{desk.gateway.url}/settings")
    vault.get_by_role("button", name="Back to the sample vault").click()
    expect(vault.locator(".message")).to_have_text("Removed.")
    expect(vault).to_contain_text("the sample vault that comes with Toolrelay")


def test_first_suggestion_with_a_tool_asks(home: Any) -> None:
    page = home(None).window()
    page.get_by_role("button", name="Search the notes for bees").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve and Execute").click()
    expect(page.locator(".message.assistant").last).to_contain_text("Honey bees.md")


def test_error_stands_beside_the_field_and_keeps_what_was_entered(home: Any) -> None:
    page = home(None).settings()
    vault, models = page.locator("#vault"), page.locator("#models")
    vault.get_by_label("Folder").fill("/no/such/folder")
    vault.get_by_role("button", name="Check").click()
    expect(vault.locator(".found")).to_have_text("There is no folder /no/such/folder.")
    save(vault, "there is no folder /no/such/folder")
    expect(vault.locator(".message")).to_have_class("message error")
    models.get_by_label("vault").uncheck()
    save(models)
    expect(models.get_by_label("vault")).not_to_be_checked()
    expect(vault.get_by_label("Folder")).to_have_value("/no/such/folder")
    expect(vault.locator(".message")).to_contain_text("there is no folder")
    save(models, "Nothing was changed.")


def test_toolset_is_turned_off_for_a_model(home: Any) -> None:
    desk = home(None)
    page = desk.settings()
    page.locator("#models").get_by_label("vault").uncheck()
    save(page.locator("#models"))
    expect(answer_of(page, desk)).to_contain_text("I was offered no tools")


def test_tool_that_never_asks_runs_without_a_dialog(home: Any) -> None:
    desk = home(None)
    page = desk.settings()
    tools = page.locator("#tools")
    expect(tools).to_contain_text("Nobody sees it beforehand.")
    tools.get_by_label("Search vault").select_option("Never ask")
    save(tools)
    expect(tools.get_by_label("Read files")).to_have_value("always")
    expect(answer_of(page, desk, 'vault_search {"query": "bees"}')).to_contain_text("Honey bees.md")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert desk.approver.get("/approvals").json()["approvals"] == []


def test_revoked_rule_asks_again(home: Any) -> None:
    desk = home(None)
    page = desk.window()
    send(page, 'vault_search {"query": "bees"}')
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Remember this answer").select_option("always")
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(page.locator(".message.assistant").last).to_contain_text("Honey bees.md")
    expect(answer_of(page, desk, 'vault_search {"query": "hive"}')).to_contain_text("Hive log.md")
    page.goto(f"{desk.gateway.url}/settings")
    rules = page.locator("#rules")
    expect(rules.locator("li")).to_contain_text("Allowed: running vault_search with any arguments, always, for local")
    rules.get_by_role("button", name="Revoke").click()
    expect(rules).to_contain_text("No answer is remembered.")
    answer_of(page, desk, 'vault_search {"query": "bees"}')
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")


FIXED = """
[models.demo]
provider = "demo"
toolsets = ["vault"]
[toolsets.vault]
kind = "vault"
path = "Notes"
approval = "always"
"""


def test_value_of_the_file_is_shown_and_cannot_be_changed(home: Any) -> None:
    page = home(FIXED).settings()
    for field in (page.get_by_label("Folder"), page.locator("#models").get_by_label("vault"), page.get_by_label("Search vault")):
        expect(field).to_be_disabled()
    expect(page.locator("#vault .origin").first).to_have_text("set in toolrelay.toml")
    expect(page.locator("#models")).to_contain_text("set in toolrelay.toml")
    page.get_by_text("Private and excluded notes").click()
    page.get_by_label("Private notes").fill("tag:private\nJournal/**")
    save(page.locator("#vault"))
    expect(page.get_by_label("Private notes")).to_have_value("tag:private\nJournal/**")


HOSTILE = f"""
[models."{EVIL}"]
provider = "demo"
[toolsets."{EVIL}"]
kind = "python"
module = "evil_tools"
"""
EVIL_TOOLS = f'''
from toolrelay import tool


@tool(name="evil")
def evil() -> str:
    """{EVIL}"""
    return ""
'''


def test_vault_is_added_to_models_of_a_file_and_names_are_text(home: Any, tmp_path: Path) -> None:
    (tmp_path / "evil_tools.py").write_text(EVIL_TOOLS)
    desk = home(HOSTILE)
    page = desk.settings()
    vault = page.locator("#vault")
    vault.get_by_label("Folder").fill(str(desk.notes))
    expect(vault.get_by_label(EVIL)).to_be_checked()
    expect(vault.get_by_label("demo")).not_to_be_checked()
    vault.get_by_role("button", name="Add vault").click()
    expect(vault.locator(".message")).to_have_text("The vault was added.")
    ours, demo = page.locator("#models").get_by_label("vault").all()
    expect(ours).to_be_checked()
    expect(demo).not_to_be_checked()
    expect(page.locator("#models").get_by_label(EVIL).first).not_to_be_checked()
    expect(page.locator("#tools")).to_contain_text(EVIL)
    assert page.locator("main img").count() == 0
    vault.get_by_role("button", name="Remove this vault").click()
    expect(vault.get_by_role("button", name="Add vault")).to_be_visible()
    expect(page.locator("#models").get_by_label("vault")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_no_serious_fault(home: Any, scheme: Any) -> None:
    desk = home(None)
    page = desk.settings(color_scheme=scheme, viewport={"width": 390, "height": 800})
    page.get_by_text("Private and excluded notes").click()
    page.locator("#vault").get_by_label("Folder").fill("/no/such/folder")
    save(page.locator("#vault"), "there is no folder")
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_who_is_not_signed_in_is_told_so(home: Any) -> None:
    desk = home(None)
    page = desk.window(is_approver=False, url=f"{desk.gateway.url}/settings")
    expect(page.locator("#vault")).to_contain_text("Sign in as the one who runs the gateway")
    expect(page.locator("#rules")).to_contain_text("Sign in to see remembered answers.")
