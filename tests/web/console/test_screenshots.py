"""Pictures of the console, for the documentation: `make screenshots`."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.approving import Asking
from tests.web.console.conftest import Desk, send


def test_pictures_are_taken(desk: Desk, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = Path(request.config.getoption("--screenshots") or tmp_path)
    page = desk.window(viewport={"width": 1100, "height": 720}, color_scheme="light")
    page.get_by_role("button", name="Show Markdown").click()
    expect(page.locator(".code .t-kwd").first).to_be_visible()
    page.screenshot(path=folder / "console-chat.png")
    page.get_by_role("button", name="New chat").click()
    desk.enqueue("Bees make honey.", ("file_read", '{"filePaths": ["Bees.md", "Garden/Hive.md"]}'))
    send(page, "What do my notes say about bees?", "chat")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.screenshot(path=folder / "console-approval.png")
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(page.locator(".message.assistant[data-done]")).to_have_count(1)
    page.locator(".message.assistant footer").get_by_role("link", name="Trace").click()
    page.locator(".entry.kind-question summary").click()
    expect(page.locator(".entry.kind-question")).to_contain_text("Verdict")
    page.screenshot(path=folder / "console-trace.png")
    page.goto(f"{desk.gateway.url}/usage")
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.get_by_role("rowheader", name="demo").first).to_be_visible()
    page.screenshot(path=folder / "console-usage.png")
    page.goto(f"{desk.gateway.url}/settings")
    expect(page.locator("#tools")).to_contain_text("file_read")
    page.screenshot(path=folder / "console-settings.png")
    wanted = {f"console-{name}.png" for name in ("chat", "approval", "trace", "usage", "settings")}
    assert {path.name for path in folder.glob("*.png")} >= wanted


def test_picture_of_a_question_of_another_client_is_taken(desk: Desk, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = Path(request.config.getoption("--screenshots") or tmp_path)
    page = desk.window(viewport={"width": 1100, "height": 720}, color_scheme="light")
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    desk.enqueue("It is mild in Paris.", ("get_weather", '{"city": "Paris"}'))
    answer = Asking(desk.gateway).chat("What is the weather in Paris?", model="chat", stream=True)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The weather of a city.")
    approve = dialog.get_by_role("button", name="Approve and Execute")
    expect(approve).to_be_enabled()
    page.screenshot(path=folder / "console-asked-by-client.png")
    approve.click()
    assert "mild" in answer.result().text
    expect(page.locator(".message")).to_have_count(0)  # the conversation is the other client's
