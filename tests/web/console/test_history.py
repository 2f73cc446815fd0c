"""Conversations in a real browser: the gateway's list in every browser, titles, running turns, long conversations."""

from __future__ import annotations

from typing import Any

import httpx
from playwright.sync_api import Page, expect

from tests.web.console.conftest import Desk, finished, send

EVIL = "<img src=x onerror=alert(1)>"


def make_conversation(desk: Desk, title: str, count: int) -> str:
    """Make a conversation with so many messages, question and answer in turn."""
    messages: list[dict[str, Any]] = []
    for number in range(count // 2):
        messages.append({"type": "message", "role": "user", "content": f"Question {number}"})
        messages.append(
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"Answer {number}"}]}
        )
    with httpx.Client(base_url=desk.gateway.v1, timeout=60) as client:
        made = client.post("/conversations", json={"metadata": {"title": title}, "items": messages[:20]})
        for start in range(20, count, 20):
            added = client.post(f"/conversations/{made.json()['id']}/items", json={"items": messages[start : start + 20]})
            assert added.status_code == 200, added.text
    return str(made.json()["id"])


def titles(page: Page, search: str) -> Any:
    page.get_by_label("Search conversations").fill(search)
    return page.locator("#conversations a")


def test_another_browser_has_the_list_and_the_costs(desk: Desk) -> None:
    page = desk.window()
    send(page, "repeat: of plums and pears")
    finished(page)
    other = desk.window()
    expect(titles(other, "PLUMS AND")).to_have_count(1)
    assert other.evaluate("localStorage.length") == 0
    titles(other, "plums and").click()
    expect(other.locator(".message.assistant .text")).to_have_text("of plums and pears")
    expect(other.locator(".message.assistant footer")).to_contain_text("tokens in")
    expect(other.locator(".message.assistant footer")).to_contain_text(" s")
    cost = other.locator(".message.assistant footer").inner_text()
    expect(page.locator(".message.assistant footer")).to_have_text(cost)


def test_without_a_session_the_list_is_kept_in_the_browser(desk: Desk) -> None:
    page = desk.window(is_approver=False)
    send(page, "repeat: a word in private")
    finished(page)
    expect(page.locator("#conversations a")).to_have_text(["repeat: a word in private"])
    expect(page.get_by_text("This list is kept in this browser.")).to_be_visible()
    page.reload()
    expect(page.locator(".message.assistant .text")).to_have_text("a word in private")
    expect(page.locator("#conversations a")).to_have_count(1)
    stranger = desk.window(is_approver=False)
    expect(stranger.get_by_text("This list is kept in this browser.")).to_be_visible()
    expect(stranger.locator("#conversations a")).to_have_count(0)


def test_title_is_changed_and_a_hostile_one_is_text(desk: Desk) -> None:
    page = desk.window()
    send(page, "repeat: name me")
    finished(page)
    page.get_by_role("button", name="Rename repeat: name me").click()
    page.get_by_label("New title").fill(EVIL)
    page.keyboard.press("Enter")
    other = desk.window()
    expect(titles(other, EVIL)).to_have_text([EVIL])
    assert other.locator("#history img").count() == 0
    page.get_by_role("button", name=f"Rename {EVIL}").click()
    page.get_by_label("New title").fill("dropped")
    page.keyboard.press("Escape")
    expect(titles(page, EVIL)).to_have_count(1)
    expect(titles(page, "dropped")).to_have_count(0)


def test_running_answer_is_found_by_another_browser(desk: Desk) -> None:
    page = desk.window()
    send(page, "the weather in Paris")
    expect(page.get_by_role("dialog")).to_be_visible()
    other = desk.window(url=page.url)
    expect(other.locator(".message.user")).to_have_text(["the weather in ParisEdit"])
    other.get_by_role("button", name="Approve and Execute").click()
    for each in (page, other):
        finished(each)
        expect(each.locator(".message.assistant .text").last).to_contain_text("18 degrees celsius in Paris")
        expect(each.locator(".message.user")).to_have_count(1)


def test_list_goes_on_with_more(desk: Desk) -> None:
    with httpx.Client(base_url=desk.gateway.v1, timeout=60) as client:
        for number in range(60):
            client.post("/conversations", json={"metadata": {"title": f"Numbered {number:02}"}})
        client.post("/conversations", json={"metadata": {"title": "First of the list until the search is done"}})
    page = desk.window()
    expect(titles(page, "Numbered").first).to_have_text("Numbered 59")
    expect(page.locator("#conversations a")).to_have_count(50)
    page.get_by_role("button", name="More").click()
    expect(page.locator("#conversations a")).to_have_count(60)
    expect(page.get_by_role("button", name="More")).to_be_hidden()


def test_conversation_of_2000_messages_shows_the_latest_and_older_ones_on_demand(desk: Desk) -> None:
    conversation = make_conversation(desk, "Endless", 2000)
    page = desk.window(url=f"{desk.gateway.url}/#{conversation}")
    expect(page.locator(".message.assistant .text").last).to_have_text("Answer 999")
    expect(page.locator(".message")).to_have_count(60)
    page.get_by_role("button", name="Show older messages").click()
    expect(page.locator(".message")).to_have_count(120)
    expect(page.locator(".message.assistant .text").first).to_have_text("Answer 940")
    expect(page.locator(".message.assistant .text").last).to_have_text("Answer 999")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    text = download.value.path().read_text()
    assert text.count("## You") == text.count("## Model") == 1000
    desk.enqueue("The thousandth.")
    send(page, "And now?", "chat")
    finished(page, 61)
    expect(page.locator(".message")).to_have_count(122)
    assert desk.gateway.get(f"/v1/conversations/{conversation}/items?order=desc&limit=1").json()["data"][0]["role"] == "assistant"


def test_edit_in_a_long_conversation_keeps_all_that_was_before(desk: Desk) -> None:
    conversation = make_conversation(desk, "Long", 140)
    page = desk.window(url=f"{desk.gateway.url}/#{conversation}")
    expect(page.locator(".message")).to_have_count(60)
    page.locator(".message.user").last.get_by_role("button", name="Edit").click()
    desk.enqueue("Another answer.")
    send(page, "Another question", "chat")
    expect(page.locator(".message.assistant .text").last).to_have_text("Another answer.")
    branch = page.url.rpartition("#")[2]
    assert branch != conversation
    found = desk.gateway.get(f"/v1/conversations/{branch}/items?order=asc&limit=100").json()
    assert (found["data"][0]["content"][0]["text"], len(found["data"]), found["has_more"]) == ("Question 0", 100, True)
    rest = desk.gateway.get(f"/v1/conversations/{branch}/items?order=asc&limit=100&after={found['last_id']}").json()["data"]
    assert [item["content"][0]["text"] for item in rest[-3:]] == ["Answer 68", "Another question", "Another answer."]


def test_conversation_that_does_not_exist_and_a_broken_address_leave_the_page_usable(desk: Desk) -> None:
    page = desk.window(url=f"{desk.gateway.url}/#conv_nothing")
    expect(page.locator("#notices")).to_contain_text("not found")
    page.goto("about:blank")
    page.goto(f"{desk.gateway.url}/#%E0%A4%A")
    send(page, "repeat: still here")
    finished(page)
