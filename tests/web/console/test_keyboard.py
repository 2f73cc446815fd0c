"""The whole story with the keyboard only: Tab, Enter, Space, Escape and letters."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.web.console.conftest import Desk, finished, last_answer

FOCUSED = """() => {
  const node = document.activeElement;
  const label = node.labels?.[0]?.textContent ?? "";
  return (node.getAttribute("aria-label") ?? (label || node.textContent)).trim();
}"""


def tab_to(page: Page, name: str, *, back: bool = False, limit: int = 60) -> None:
    """Press Tab until an element with this name has the focus, and see that the focus is visible."""
    for _ in range(limit):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        if page.evaluate(FOCUSED) == name:
            assert page.evaluate("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"Tab does not reach {name!r}")


def test_question_is_asked_looked_at_changed_allowed_and_denied_without_a_mouse(desk: Desk) -> None:
    page = desk.window()
    expect(page.get_by_label("Model").locator("option")).to_have_count(2)
    tab_to(page, "Skip to the content")
    tab_to(page, "Model")
    page.keyboard.type("chat")
    tab_to(page, "Message")
    desk.enqueue("Bees make honey.", ("file_read", '{"filePaths": ["Bees.md", "Garden/Hive.md"]}'))
    page.keyboard.type("What about bees?")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_role("button", name="Approve and Execute")).to_be_enabled()
    tab_to(page, "Preview Hive.md")
    page.keyboard.press("Enter")
    expect(dialog.get_by_label("Content of Hive.md")).to_contain_text("by the apple tree")
    tab_to(page, "Hive.md", back=True)
    page.keyboard.press("Space")
    expect(dialog.locator(".changes")).to_contain_text('["Bees.md"]')
    tab_to(page, "Approve and Execute")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(last_answer(page).locator(".text")).to_have_text("Bees make honey.")
    assert page.evaluate(FOCUSED) == "Message", "the focus returns to where it was"

    desk.enqueue("As you like.", ("get_weather", '{"city": "Paris"}'))
    page.keyboard.type("And the weather?")
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    finished(page, 2)
    expect(last_answer(page).locator(".call.failed")).to_have_count(1)


def test_conversation_is_found_renamed_opened_and_deleted_without_a_mouse(desk: Desk) -> None:
    page = desk.window()
    tab_to(page, "Message")
    page.keyboard.type("repeat: keys only")
    page.keyboard.press("Enter")
    finished(page)
    tab_to(page, "New chat")
    page.keyboard.press("Space")
    expect(page.locator("#welcome")).to_be_visible()
    tab_to(page, "Search conversations", back=True)
    page.keyboard.type("keys only")
    expect(page.locator("#conversations a")).to_have_text(["repeat: keys only"])
    tab_to(page, "Rename repeat: keys only")
    page.keyboard.press("Enter")
    page.keyboard.type("Only keys only")
    page.keyboard.press("Enter")
    expect(page.locator("#conversations a")).to_have_text(["Only keys only"])
    expect(page.locator("#conversations a")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant .text")).to_have_text("keys only")
    tab_to(page, "Delete Only keys only", back=True)
    page.keyboard.press("Enter")
    expect(page.locator("#conversations a")).to_have_count(0)
    expect(page.get_by_label("Search conversations")).to_be_focused()
