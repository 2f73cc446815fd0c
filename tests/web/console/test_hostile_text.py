"""Text of strangers never becomes a script. The fixture fails a test in which a dialog opened or the policy blocked something."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.web.console.conftest import Desk, send

EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script><svg onload=alert(3)><p style="color:red">x</p>'
LINKS = "[a](javascript:alert(1)) [b](data:text/html,x) [c](https://example.com) ![d](https://example.com/d.png) <https://example.com>"


@pytest.mark.parametrize(
    "text", [EVIL, f"Before\n\n{EVIL}\n\n```html\n{EVIL}\n```", f"# {EVIL}\n\n| {EVIL.replace('|', '')} |\n|---|\n| x |"]
)
def test_markup_of_a_model_is_shown_as_text(desk: Desk, text: str) -> None:
    page = desk.window()
    desk.enqueue(text)
    send(page, EVIL, "chat")
    expect(page.locator(".message.assistant[data-done]")).to_have_count(1)
    assert page.locator("#messages").locator("img, script, svg, iframe, style, [style], [onerror], [onload]").count() == 0
    expect(page.locator("#messages")).to_contain_text("<script>alert(2)</script>")
    expect(page.locator("#conversations a").first).to_contain_text("<img src=x")
    page.reload()
    expect(page.locator(".message.assistant[data-done]")).to_have_count(1)
    assert page.locator("#messages").locator("img, script, svg, iframe").count() == 0


def test_links_lead_only_to_the_web(desk: Desk) -> None:
    page = desk.window()
    foreign: list[str] = []
    page.on("request", lambda request: foreign.append(request.url) if desk.gateway.url not in request.url else None)
    desk.enqueue(LINKS)
    send(page, "Go.", "chat")
    expect(page.locator(".message.assistant[data-done]")).to_have_count(1)
    links = page.locator(".text a")
    assert [link.get_attribute("href") for link in links.all() if link.get_attribute("href")] == ["https://example.com"] * 2
    assert foreign == []


def test_names_and_lines_of_files_and_results_are_text(desk: Desk) -> None:
    page = desk.window()
    path = "<img src=x onerror=alert(1)>.md"
    desk.enqueue("Done.", ("file_read", json.dumps({"filePaths": [path]})))
    send(page, "Go.", "chat")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(path)
    expect(dialog).to_contain_text("<script>alert(1)</script>")
    assert dialog.locator("img, script").count() == 0
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(page.locator(".message.assistant[data-done]")).to_have_count(1)
    page.locator(".call summary").click()
    expect(page.locator(".call")).to_contain_text("onerror=alert(2)")
    assert page.locator(".call").locator("img, script").count() == 0


def test_hostile_title_in_the_storage_is_text(desk: Desk) -> None:
    page = desk.window()
    entries = json.dumps([{"id": "conv_1", "title": EVIL, "used": 1}, {"id": 3}, None])
    page.evaluate("(text) => localStorage.setItem('toolrelay.conversations', text)", entries)
    page.reload()
    expect(page.locator("#conversations a")).to_have_count(1)
    assert page.locator("#conversations").locator("img, script, svg").count() == 0
