"""The chat page in a real browser: streaming, stop, history, editing, images, reconnecting."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.gateway import running
from tests.web.console.conftest import Desk, finished, send

PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\nIDATx\x9cc\x00\x01"
    b"\x00\x00\x05\x00\x01\r\n-\xb4\x00\x00\x00\x00IEND\xaeB`\x82"
)


def answers(page: Page) -> list[str]:
    return page.locator(".message.assistant .text").all_inner_texts()


def test_suggestion_streams_an_answer_with_usage(desk: Desk) -> None:
    page = desk.window(is_approver=False)
    page.get_by_role("button", name="Count to 100").click()
    finished(page)
    assert "99" in answers(page)[0]
    expect(page.locator(".message.assistant footer")).to_contain_text(re.compile(r"tokens in, \d+ out · \d"))
    expect(page.get_by_text("Sign in to see and answer questions")).to_be_visible()
    assert page.get_by_role("link", name="Sign in").get_attribute("href") == "/console/sign-in"


def test_demo_model_behind_others_suggests_nothing(desk: Desk) -> None:
    page = desk.window()
    expect(page.get_by_role("button", name="Show Markdown")).to_be_visible()
    listed = desk.gateway.get("/v1/models").json()
    page.route("**/v1/models", lambda route: route.fulfill(json={**listed, "data": listed["data"][::-1]}))
    page.reload()
    expect(page.get_by_label("Model", exact=True)).to_have_value("chat")
    expect(page.get_by_role("button", name="Show Markdown")).to_be_hidden()


def test_markdown_has_highlighted_code_and_a_copy_button(desk: Desk) -> None:
    page = desk.window()
    page.get_by_role("button", name="Show Markdown").click()
    finished(page)
    expect(page.locator(".text h2")).to_have_text("Hello")
    expect(page.locator(".text td").first).to_have_text("1")
    expect(page.locator(".code .t-kwd").first).to_have_text("def")
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    link = page.locator(".text a")
    assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noopener noreferrer nofollow")


def test_reasoning_is_folded(desk: Desk) -> None:
    page = desk.window()
    page.get_by_label("Reasoning").select_option("high")
    send(page, "say hello")
    finished(page)
    expect(page.locator("summary", has_text="Reasoning")).to_be_visible()
    expect(page.locator(".reasoning")).to_be_hidden()
    page.locator("summary", has_text="Reasoning").click()
    expect(page.locator(".reasoning")).to_contain_text("The user asks")


def test_stop_cancels_the_response(desk: Desk) -> None:
    page = desk.window()
    send(page, "the weather in Paris")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.evaluate("document.getElementById('stop').click()")  # a dialog is in front of the button
    expect(dialog).to_be_hidden()
    expect(page.locator(".message.assistant footer")).to_contain_text("Stopped.")
    assert desk.approver.pending() == []


def test_history_is_searched_reopened_exported_and_deleted(desk: Desk) -> None:
    page = desk.window()
    send(page, "say first things")
    finished(page)
    page.get_by_role("button", name="New chat").click()
    send(page, "repeat: second things")
    finished(page)
    entries = page.locator("#conversations a")
    page.get_by_label("Search conversations").fill(" things")
    expect(entries).to_have_text(["repeat: second things", "say first things"])
    page.get_by_label("Search conversations").fill("SAY FIRST")
    expect(entries).to_have_text(["say first things"])
    entries.first.click()
    expect(page.locator(".message.assistant .text")).to_have_text("first things")
    expect(page.locator(".message.assistant footer")).to_contain_text("tokens")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    assert download.value.path().read_text() == "# say first things\n\n## You\n\nsay first things\n\n## Model\n\nfirst things\n"
    page.get_by_role("button", name="Delete say first things").click()
    expect(entries).to_have_count(0)
    expect(page.locator("#welcome")).to_be_visible()


def test_edited_message_starts_a_branch(desk: Desk) -> None:
    page = desk.window()
    send(page, "repeat: one")
    finished(page)
    send(page, "repeat: two")
    finished(page, 2)
    page.get_by_role("button", name="Edit").nth(1).click()
    send(page, "repeat: three")
    finished(page, 2)
    expect(page.locator(".message.assistant .text")).to_have_text(["one", "three"])
    page.get_by_label("Search conversations").fill("repeat: ")
    expect(page.locator("#conversations a").first).to_have_text("repeat: three")
    expect(page.locator("#conversations a", has_text="repeat: one")).to_have_count(1)


def test_image_is_sent_to_the_model(desk: Desk) -> None:
    page = desk.window()
    desk.enqueue("A pixel.")
    before = len(desk.server.requests)
    page.get_by_label("Add image").set_input_files({"name": "p.png", "mimeType": "image/png", "buffer": PIXEL})
    expect(page.get_by_alt_text("Image 1")).to_be_visible()
    send(page, "What is it?", "chat")
    finished(page)
    assert b"data:image/png;base64," in desk.server.request(before).result(30).body
    expect(page.get_by_alt_text("Image 1 of the message")).to_be_visible()


def test_reload_in_the_middle_goes_on(desk: Desk) -> None:
    page = desk.window()
    send(page, "the weather in Paris")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.reload()
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator(".message.user")).to_have_count(1)
    page.get_by_role("button", name="Approve and Execute").click()
    finished(page)
    assert "18 degrees celsius in Paris" in answers(page)[0]


def test_restart_of_the_gateway_in_the_middle_goes_on(own_desk: Callable[[], Desk]) -> None:
    desk = own_desk()
    page = desk.window()
    send(page, "the weather in Paris")
    expect(page.get_by_role("dialog")).to_be_visible()
    port = desk.gateway.port
    desk.gateway.process.kill()
    desk.gateway.process.wait()
    expect(page.get_by_text("The connection to the gateway is lost")).to_be_visible()
    with running(desk.config, folder=desk.folder, flags=("--port", str(port))):
        expect(page.get_by_text("Connected again")).to_be_visible()
        page.get_by_role("button", name="Approve and Execute").click()
        finished(page)
    assert "18 degrees celsius in Paris" in answers(page)[0]
    assert desk.problems == []


def test_phone_width_has_no_horizontal_scrolling(desk: Desk) -> None:
    page = desk.window(viewport={"width": 360, "height": 640})
    send(page, "repeat: " + "x" * 500)
    finished(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    expect(page.locator("#history")).to_be_hidden()
    page.get_by_role("button", name="Conversations").click()
    expect(page.locator("#conversations a").first).to_be_visible()


def test_dark_scheme_has_light_text(desk: Desk) -> None:
    colours = [
        desk.window(color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("dark", "light")
    ]
    assert colours == ["rgb(21, 23, 27)", "rgb(255, 255, 255)"]
