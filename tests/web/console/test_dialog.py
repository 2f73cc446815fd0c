"""The approval dialog in a real browser: previews, sharing, remembering, errors of tools, notifications, several windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.web.console.conftest import TOOLS, Desk, ask, last_answer

WEATHER = ("get_weather", '{"city": "Paris"}')
READ = ("file_read", '{"filePaths": ["Bees.md", "<img src=x onerror=alert(1)>.md", "Missing.md"]}')
MORE_TOOLS = '''

@tool
def fail(reason: str) -> str:
    """Always fails."""
    raise ValueError("<b>broken</b> " + reason)
'''
HIDDEN = """
Object.defineProperty(document, "hidden", { get: () => true });
window.shown = [];
window.Notification = class {
  static permission = "granted";
  constructor(title, options) { window.shown.push([title, options.body]); }
};
"""

UNDECIDED = "window.Notification = class { static permission = 'default'; static requestPermission() { window.asked = 1; } }"


@pytest.fixture(scope="module")
def shared_desk(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Desk]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("dialog")
        yield Desk(folder, stack, browser, tools=TOOLS + MORE_TOOLS, vault='share = "ask"')


def newest(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = desk.approver.get("/approvals?limit=1").json()["approvals"][0]
    return found


def test_preview_of_a_file_is_shown_and_hidden_as_text(desk: Desk) -> None:
    page, dialog = ask(desk, READ)
    dialog.get_by_role("button", name="Preview Bees.md").click()
    shown = dialog.get_by_label("Content of Bees.md")
    expect(shown).to_have_text("# Bees\n\nBees make honey from nectar.\n")
    dialog.get_by_role("button", name="Preview Bees.md").click()
    expect(shown).to_be_hidden()
    dialog.get_by_role("button", name="Preview <img").click()
    expect(dialog.get_by_label("Content of <img")).to_contain_text("<script>alert(1)</script>")
    assert dialog.locator("img, script").count() == 0
    expect(dialog).to_contain_text("File not found: Missing.md")
    expect(dialog.get_by_role("button", name="Preview")).to_have_count(2)
    page.keyboard.press("Escape")
    last_answer(page)


def test_question_about_sharing_follows_the_run_and_keeps_what_is_picked(desk: Desk) -> None:
    page, dialog = ask(desk, ("file_read", '{"filePaths": ["Bees.md", "Garden/Hive.md"]}'))
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(dialog).to_contain_text("The tool has run. Choose what the model may see of its result:")
    dialog.get_by_role("button", name="Preview Hive.md").click()
    expect(dialog.get_by_label("Content of Hive.md")).to_contain_text("The hive stands by the apple tree.")
    dialog.get_by_role("checkbox", name="Bees.md").uncheck()
    before = len(desk.server.requests)
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(last_answer(page).locator(".text").last).to_have_text("I see.")
    sent = desk.server.request(before).result(30).body.decode()
    assert "apple tree" in sent
    assert "nectar" not in sent


def test_denial_with_a_reason_is_a_line_in_the_chat_and_in_the_inbox(desk: Desk) -> None:
    page, dialog = ask(desk, WEATHER)
    dialog.get_by_label("Reason").fill("<i>never</i> on Sundays")
    dialog.get_by_role("button", name="Cancel").click()
    line = "Tool get_weather not run · denied by local: <i>never</i> on Sundays"
    expect(last_answer(page).locator(".call.failed summary")).to_have_text(line)
    page.goto(f"{desk.gateway.url}/approvals-inbox")
    first = page.locator("#closed > li").first
    expect(first).to_contain_text("denied by local, ")
    expect(first).to_contain_text("Reason: <i>never</i> on Sundays")


def test_decision_and_changed_arguments_are_a_line_in_the_chat(desk: Desk) -> None:
    page, dialog = ask(desk, WEATHER)
    dialog.get_by_label("city").fill("Rome")
    dialog.get_by_role("button", name="Approve and Execute").click()
    line = 'Tool get_weather done · allowed with changes by local: city: "Paris" → "Rome"'
    expect(last_answer(page).locator(".call summary")).to_have_text(line)
    page.reload()
    expect(last_answer(page).locator(".call summary")).to_have_text(line)


def test_error_of_a_tool_and_an_unknown_tool_are_lines_in_the_chat(desk: Desk) -> None:
    page, dialog = ask(desk, ("fail", '{"reason": "today"}'), ("no_such_tool", "{}"))
    dialog.get_by_role("button", name="Approve and Execute").click()
    answer = last_answer(page)
    expect(answer.locator(".call.failed summary")).to_have_count(2)
    expect(answer.locator(".call summary").first).to_contain_text("<b>broken</b> today")
    expect(answer.locator(".call summary").last).to_have_text("Tool no_such_tool failed: Unknown tool: no_such_tool")
    assert answer.locator("b").count() == 0


@pytest.mark.parametrize("button", ["Approve and Execute", "Cancel"])
def test_answer_for_always_is_not_asked_for_again(desk: Desk, button: str) -> None:
    page, dialog = ask(desk, WEATHER)
    dialog.get_by_label("Remember this answer").select_option("always")
    dialog.get_by_role("button", name=button).click()
    last_answer(page)
    other = desk.window()
    desk.enqueue("At once.", WEATHER)
    other.get_by_label("Model").select_option("chat")
    other.get_by_label("Message", exact=True).fill("Go.")
    other.keyboard.press("Enter")
    other.get_by_label("Message", exact=True).press("Enter")
    expect(last_answer(other).locator(".text").last).to_have_text("At once.")
    expect(other.locator(".call.failed")).to_have_count(1 if button == "Cancel" else 0)
    (rule,) = desk.approver.get("/approvals/rules").json()["rules"]
    assert (rule["tool"], rule["conversation"]) == ("get_weather", None)
    desk.approver.delete(f"/approvals/rules/{rule['id']}")


def test_page_in_the_background_notifies_and_counts_in_its_title(desk: Desk) -> None:
    hidden = desk.window(url="about:blank", permissions=["notifications"])
    hidden.add_init_script(HIDDEN)
    hidden.goto(f"{desk.gateway.url}/approvals-inbox")
    expect(hidden.locator("#open")).to_have_text("No questions are open.")
    page, dialog = ask(desk, WEATHER)
    expect(hidden).to_have_title("(1) Approvals – Toolrelay")
    assert hidden.evaluate("window.shown") == [["Toolrelay: approval needed", "get_weather"]]
    dialog.get_by_role("button", name="Cancel").click()
    expect(hidden).to_have_title("Approvals – Toolrelay")
    last_answer(page)


def test_button_asks_for_permission_to_notify(desk: Desk) -> None:
    page = desk.window()
    page.add_init_script(
        "window.Notification = class { static permission = 'default'; static requestPermission() { window.asked = 1; } }"
    )
    page.reload()
    page.get_by_role("button", name="Notify me").click()
    expect(page.get_by_role("button", name="Notify me")).to_be_hidden()
    assert page.evaluate("window.asked") == 1


def test_of_two_people_who_answer_at_once_the_second_is_told(desk: Desk) -> None:
    slow = desk.window(url="about:blank")
    slow.goto(desk.gateway.url)
    page, dialog = ask(desk, WEATHER)
    expect(slow.get_by_role("dialog")).to_be_visible()
    expect(slow.get_by_role("button", name="Approve and Execute")).to_be_enabled()
    held: list[Any] = []
    slow.route("**/approvals/appr_*", lambda route: held.append(route) if route.request.method == "POST" else route.continue_())
    slow.get_by_role("button", name="Approve and Execute").click()
    expect(slow.get_by_role("dialog")).to_be_visible()
    dialog.get_by_label("Reason").fill("I was first")
    dialog.get_by_role("button", name="Cancel").click()
    last_answer(page)
    assert len(held) == 1
    held[0].continue_()
    expect(slow.get_by_role("dialog")).to_be_hidden()
    expect(slow.locator("#notices")).to_contain_text("get_weather was denied by local: I was first.")
    assert newest(desk)["status"] == "denied"
