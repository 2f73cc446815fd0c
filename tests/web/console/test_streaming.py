"""Streaming in a real browser: no layout jumps, a slow network, huge answers, the gateway gone and back."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.gateway import running
from tests.web.console.conftest import Desk, finished, send

SHIFTS = """() => {
  window.shifts = [];
  const name = ({ node }) => node?.outerHTML?.slice(0, 80);
  const note = (list) => window.shifts.push(...list.getEntries().map(({ value, sources }) => [value, sources.map(name)]));
  new PerformanceObserver(note).observe({ type: "layout-shift" });
}"""
PARAGRAPH = "A paragraph that is long enough to be broken into several lines, whatever the width of the window may be. " * 2
MARKDOWN = (
    f"repeat: # Title\n\n{PARAGRAPH}\n\n- one\n- two\n\n"
    "```python\ndef f(x):\n    return x\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
)


def large_shifts(page: Page) -> list[object]:
    """Return what moved on the page without a person's doing. Tiny movements, such as a tooth of a scroll bar, are none."""
    found: list[list[object]] = page.evaluate("window.shifts")
    return [shift for shift in found if float(str(shift[0])) > 0.001]


def test_nothing_jumps_while_an_answer_streams(desk: Desk) -> None:
    page = desk.window(viewport={"width": 900, "height": 500})
    send(page, "repeat: first")
    finished(page)
    page.evaluate(SHIFTS)
    send(page, MARKDOWN * 3)
    finished(page, 2)
    expect(page.locator(".code .t-kwd").first).to_be_attached()
    assert large_shifts(page) == []
    assert page.evaluate("(log => log.scrollHeight - log.scrollTop - log.clientHeight)(document.getElementById('log'))") < 80


def test_reader_who_scrolled_up_stays_there(desk: Desk) -> None:
    page = desk.window(viewport={"width": 900, "height": 500})
    desk.enqueue("And more. " * 200, ("get_weather", '{"city": "Paris"}'))
    send(page, PARAGRAPH * 20, "chat")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.evaluate("document.getElementById('log').scrollTop = 10")
    page.evaluate(SHIFTS)
    dialog.get_by_role("button", name="Approve and Execute").click()
    finished(page)
    assert page.evaluate("document.getElementById('log').scrollTop") == 10
    assert large_shifts(page) == []


def test_slow_network_is_only_slow(desk: Desk) -> None:
    page = desk.window()
    session = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 300, "downloadThroughput": 60_000, "uploadThroughput": 30_000}
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", slow)
    page.reload(wait_until="commit")
    expect(page.get_by_label("Model").locator("option")).to_have_count(2)
    desk.enqueue("Slowly.", ("get_weather", '{"city": "Paris"}'))
    send(page, "Go.", "chat")
    page.keyboard.press("Enter")  # an impatient person sends nothing twice
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    approve = dialog.get_by_role("button", name="Approve and Execute")
    approve.dblclick()
    expect(dialog).to_be_hidden()
    finished(page)
    expect(page.locator(".message.assistant .text")).to_have_text("Slowly.")
    expect(page.locator(".message.user")).to_have_count(1)


def test_answer_of_5_mb_is_cut_until_all_is_asked_for(desk: Desk) -> None:
    line = "All work and no play makes a dull model. " * 5 + "\n"
    piece = line * 100
    page = desk.window()
    desk.enqueue_pieces(*[piece] * (5_000_000 // len(piece)), "The end.")
    send(page, "Everything.", "chat")
    finished(page)
    text = page.locator(".message.assistant .text")
    shown = len(text.text_content() or "")
    assert 150_000 < shown < 250_000
    page.get_by_label("Message", exact=True).fill("the page still answers")
    button = page.get_by_role("button", name="Show all")
    expect(button).to_contain_text("MB more")
    page.reload()
    finished(page)
    button.click()
    expect(button).to_be_hidden()
    expect(page.locator(".piece").last).to_contain_text("The end.")
    send(page, "repeat: next")
    finished(page, 2)


def test_answer_that_is_one_huge_block_is_cut_too(desk: Desk) -> None:
    page = desk.window()
    desk.enqueue_pieces("```python\n", *["x = 1 # " + "y" * 20_000] * 25)
    send(page, "One line.", "chat")
    finished(page)
    expect(page.get_by_role("button", name="Show all")).to_be_visible()
    assert len(page.locator(".message.assistant .text").text_content() or "") < 250_000


def test_gateway_gone_and_back_is_said_and_the_page_recovers(own_desk: Callable[[], Desk]) -> None:
    desk = own_desk()
    page = desk.window()
    expect(page.get_by_label("Model").locator("option")).to_have_count(2)
    inbox = desk.window(url=f"{desk.gateway.url}/approvals-inbox")
    expect(inbox.locator("#open")).to_have_text("No questions are open.")
    port = desk.gateway.port
    desk.gateway.process.kill()
    desk.gateway.process.wait()
    for each in (page, inbox):
        expect(each.locator("#notices")).to_contain_text("The connection to the gateway is lost. Trying again")
    page.get_by_label("Message", exact=True).fill("repeat: kept")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#notices")).to_contain_text("The gateway cannot be reached.")
    expect(page.get_by_label("Message", exact=True)).to_have_value("repeat: kept")
    with running(desk.config, folder=desk.folder, flags=("--port", str(port))):
        for each in (page, inbox):
            expect(each.locator("#notices")).not_to_contain_text("is lost")
        page.get_by_role("button", name="Send").click()
        finished(page)
        expect(page.locator(".message.assistant .text")).to_have_text("kept")
    assert desk.problems == []
