"""The sections Keys and Signed-in browsers of the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.console.conftest import Desk
from tests.web.console.test_accessibility import serious_faults
from tests.web.console.test_signing_in import new_address

EVIL = "<img src=x onerror=alert(1)>\"'`<script>alert(2)</script>"


def open_settings(desk: Desk, **options: Any) -> Page:
    page = desk.window(is_approver=False, url=new_address(desk), **options)
    page.goto(f"{desk.gateway.url}/settings")
    expect(page.locator("#keys-content")).to_be_visible()
    return page


def create(page: Page, name: str, **fields: str) -> str:
    """Create a key, and return its text. The dialog stays open."""
    page.get_by_label("Name").fill(name)
    for label, value in fields.items():
        page.locator("#keys").get_by_label(label.capitalize(), exact=True).fill(value)
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#new-key-text")).to_be_visible()
    return page.locator("#new-key-text").inner_text()


def row(page: Page, name: str) -> Locator:
    return page.locator("#key-rows tr").filter(has_text=name)


def status(desk: Desk, text: str | None = None) -> int:
    headers = {} if text is None else {"authorization": f"Bearer {text}"}
    return httpx.get(f"{desk.gateway.url}/v1/models", headers=headers).status_code


def test_keys_are_created_rotated_and_revoked_on_the_page(own_desk: Callable[[], Desk]) -> None:
    desk = own_desk()
    page = open_settings(desk)
    expect(page.locator("#keys-status")).to_contain_text("There are no keys")
    assert status(desk) == 200
    text = create(page, "laptop", models="demo, x-*", toolsets="mine")
    expect(page.get_by_role("dialog")).to_contain_text("every client needs one")
    expect(page.get_by_role("dialog")).to_contain_text(f"{desk.gateway.url}/v1")
    assert [status(desk), status(desk, text)] == [401, 200]
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator("#new-key-text")).to_have_count(0)
    assert text not in page.content()
    expect(row(page, "laptop")).to_contain_text("demo, x-*")
    expect(row(page, "laptop")).to_contain_text("mine")
    page.get_by_role("button", name="Rotate the key laptop").click()
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    expect(page.locator("#new-key-text")).to_be_visible()
    rotated = page.locator("#new-key-text").inner_text()
    assert [status(desk, text), status(desk, rotated)] == [401, 200]
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Revoke the key laptop").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert status(desk, rotated) == 200
    page.get_by_role("button", name="Revoke the key laptop").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row(page, "laptop")).to_contain_text("revoked")
    expect(page.locator("#notices")).to_contain_text("without one")
    assert status(desk) == 200
    page.get_by_label("Name").fill("laptop")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_role("alert")).to_contain_text("is taken")
    assert desk.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_name_is_text_and_the_page_has_no_serious_fault(own_desk: Callable[[], Desk], scheme: Any) -> None:
    desk = own_desk()
    page = open_settings(desk, color_scheme=scheme, viewport={"width": 390, "height": 800})
    create(page, EVIL)
    expect(page.get_by_role("dialog")).to_contain_text(EVIL)
    assert serious_faults(page) == []
    page.get_by_role("button", name="Close", exact=True).click()
    expect(row(page, EVIL)).to_be_visible()
    page.get_by_role("button", name="Revoke the key").click()
    expect(page.get_by_role("dialog")).to_contain_text(EVIL)
    page.get_by_role("button", name="Cancel").click()
    assert page.locator("main").locator("img, script").count() == 0
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert desk.problems == []


def test_copy_button_copies_the_key(own_desk: Callable[[], Desk]) -> None:
    desk = own_desk()
    page = open_settings(desk, permissions=["clipboard-read", "clipboard-write"])
    text = create(page, "copied")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("dialog")).to_contain_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == text


def test_key_that_may_not_approve_is_not_told_to_sign_in(own_desk: Callable[[], Desk]) -> None:
    desk = own_desk()
    text = create(open_settings(desk), "laptop", toolsets="mine")
    page = desk.window(is_approver=False, url=f"{desk.gateway.url}/console/sign-in")
    page.get_by_label("Key").fill(text)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#notices")).to_contain_text("This key may not answer questions about tools")
    expect(page.get_by_role("link", name="Sign in")).to_have_count(0)
    page.goto(f"{desk.gateway.url}/approvals-inbox")
    expect(page.locator("#open")).to_contain_text("This key may not answer questions about tools")
    expect(page.get_by_text("No questions are open.")).to_have_count(0)


def test_notice_to_sign_in_stays_away_after_it_was_closed(desk: Desk) -> None:
    page = desk.window(is_approver=False, url="about:blank")
    page.clock.install()
    page.goto(desk.gateway.url)
    expect(page.locator("#notices")).to_contain_text("Sign in to see")
    page.get_by_role("button", name="Close this notice").click()
    with page.expect_response("**/approvals/events"):
        page.clock.run_for(20_000)
    with page.expect_response("**/approvals/events"):
        page.clock.run_for(20_000)
    expect(page.locator("#notices")).not_to_contain_text("Sign in to see")


def test_who_is_not_the_operator_is_told_what_to_do(desk: Desk) -> None:
    page = desk.window(is_approver=False, url=f"{desk.gateway.url}/settings")
    expect(page.locator("#keys-status")).to_contain_text("toolrelay console")
    expect(page.locator("#keys-content")).to_be_hidden()
    expect(page.locator("#sessions-status")).to_contain_text("Nobody is signed in")


def test_sessions_are_listed_and_revoked_and_the_browser_signs_out(desk: Desk) -> None:
    page = open_settings(desk, user_agent=EVIL)
    other = open_settings(desk, user_agent="The other browser")
    page.reload()
    expect(page.locator("#session-list li").filter(has_text="This browser")).to_contain_text("<img src=x")
    assert page.locator("#session-list").locator("img, script").count() == 0
    found = page.locator("#session-list li").filter(has_text="The other browser")
    found.get_by_role("button", name="Revoke").click()
    expect(found).to_have_count(0)
    other.reload()
    expect(other.locator("#keys-content")).to_be_hidden()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("toolrelay console")).to_be_visible()
    assert page.context.cookies() == []
