"""Signing in with a real browser: the one-time code, and what the session may do."""

from __future__ import annotations

import httpx
from playwright.sync_api import expect

from tests.web.console.conftest import Desk, send

WEATHER = ("get_weather", '{"city": "Paris"}')


def new_address(desk: Desk) -> str:
    """Return the address that `toolrelay console` prints."""
    response = httpx.post(f"{desk.gateway.url}/console/codes", headers=desk.approver.headers)
    assert response.status_code == 200, response.text
    return f"{desk.gateway.url}/?code={response.json()['code']}"


def test_code_signs_in_once_and_the_session_approves(desk: Desk) -> None:
    address = new_address(desk)
    page = desk.window(is_approver=False, url=address)
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    assert "code" not in page.url
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("toolrelay_session", True, "Strict")
    desk.enqueue("I see.", WEATHER)
    send(page, "Go.", "chat")
    page.get_by_role("button", name="Approve and Execute").click()
    expect(page.locator(".message.assistant").last).to_have_attribute("data-done", "true")
    expect(page.locator(".message.assistant").last).to_contain_text("I see.")
    again = desk.window(is_approver=False, url=address)
    expect(again.get_by_text("toolrelay console")).to_be_visible()
    assert again.context.cookies() == []


def test_window_without_a_session_chats_and_says_that_it_cannot_approve(desk: Desk) -> None:
    page = desk.window(is_approver=False)
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
