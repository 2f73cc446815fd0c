"""The approval dialog and the inbox in a real browser."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from tests.web.console.conftest import Desk, ask, last_answer

WEATHER = ("get_weather", '{"city": "Paris"}')
READ = ("file_read", '{"filePaths": ["Bees.md", "Garden/Hive.md"]}')


def newest(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = desk.approver.get("/approvals?limit=1").json()["approvals"][0]
    return found


def test_dialog_shows_tool_purpose_and_reader_and_edits_the_arguments(desk: Desk) -> None:
    page, dialog = ask(desk, WEATHER)
    expect(dialog).to_contain_text("The weather of a city.")
    expect(dialog).to_contain_text("the model “chat” (provider: compatible)")
    assert page.title() == "(1) Toolrelay"
    expect(page.locator(".waiting")).to_contain_text("Waiting for an approval: get_weather.")
    dialog.get_by_label("city").fill("Rome")
    dialog.get_by_label("days").fill("3")
    dialog.get_by_label("unit").select_option("fahrenheit")
    expect(dialog.locator(".changes")).to_contain_text('city: "Paris" → "Rome"')
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(dialog).to_be_hidden()
    answer = last_answer(page)
    expect(answer.locator(".call summary")).to_contain_text("Tool get_weather done · allowed with changes by local")
    assert newest(desk)["ran_with"] == {"city": "Rome", "days": 3, "unit": "fahrenheit"}
    assert page.title() == "Toolrelay"


def test_arguments_are_edited_as_json(desk: Desk) -> None:
    page, dialog = ask(desk, WEATHER)
    dialog.get_by_role("button", name="Edit as JSON").click()
    raw = dialog.get_by_label("Arguments as JSON")
    raw.fill("{")
    expect(dialog.get_by_role("alert")).to_have_text("The arguments: this is not JSON.")
    raw.fill('{"town": 1}')
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(dialog.get_by_role("alert")).to_contain_text("town")
    raw.fill('{"city": "Oslo"}')
    dialog.get_by_role("button", name="Edit as a form").click()
    expect(dialog.get_by_label("city")).to_have_value("Oslo")
    dialog.get_by_role("button", name="Approve and Execute").click()
    last_answer(page)
    assert newest(desk)["ran_with"] == {"city": "Oslo"}


def test_escape_denies_with_the_reason(desk: Desk) -> None:
    page, dialog = ask(desk, WEATHER)
    dialog.get_by_label("Reason").fill("not today")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(last_answer(page).locator(".call.failed summary")).to_contain_text("denied by local: not today")
    assert (newest(desk)["status"], newest(desk)["reason"]) == ("denied", "not today")


def test_enter_answers_nothing(desk: Desk) -> None:
    page, dialog = ask(desk, WEATHER)
    expect(dialog.get_by_role("button", name="Approve and Execute")).to_be_enabled()
    page.keyboard.press("Enter")
    dialog.get_by_label("Reason").press("Enter")
    dialog.get_by_label("city").press("Enter")
    assert desk.approver.question()["status"] == "pending"
    page.keyboard.press("Escape")
    last_answer(page)


def test_close_button_and_cancel_deny(desk: Desk) -> None:
    page = desk.window()
    for name in ("Close and deny", "Cancel"):
        _, dialog = ask(desk, WEATHER, page=page)
        dialog.get_by_role("button", name=name).click()
        last_answer(page)
        assert newest(desk)["status"] == "denied"


def test_leaving_the_page_denies_nothing(desk: Desk) -> None:
    page, _ = ask(desk, WEATHER)
    page.goto("about:blank")
    assert desk.approver.question()["status"] == "pending"
    desk.approver.deny()


def test_files_of_a_vault_are_picked(desk: Desk) -> None:
    page, dialog = ask(desk, READ)
    expect(dialog.get_by_role("checkbox")).to_have_count(2)
    expect(dialog).to_contain_text("Garden/Hive.md")
    expect(dialog).to_contain_text("# Bees")
    dialog.get_by_role("button", name="Deselect all").click()
    expect(dialog.get_by_role("checkbox", checked=True)).to_have_count(0)
    dialog.get_by_role("button", name="Select all", exact=True).click()
    dialog.get_by_role("checkbox", name="Hive.md").uncheck()
    dialog.get_by_role("button", name="Approve and Execute").click()
    last_answer(page)
    assert newest(desk)["ran_with"] == {"filePaths": ["Bees.md"]}


def test_answer_in_one_window_closes_the_other(desk: Desk) -> None:
    other = desk.window()
    page, dialog = ask(desk, WEATHER)
    expect(other.get_by_role("dialog")).to_be_visible()
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(other.get_by_role("dialog")).to_be_hidden()
    expect(other.locator("#notices")).to_contain_text("get_weather was allowed by")
    last_answer(page)


def test_answer_is_remembered_for_the_conversation(desk: Desk) -> None:
    page, dialog = ask(desk, WEATHER, ("get_weather", '{"city": "Rome"}'))
    dialog.get_by_label("Remember this answer").select_option("conversation")
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(last_answer(page).locator(".call")).to_have_count(2)
    rules = desk.approver.get("/approvals/rules").json()["rules"]
    assert [(rule["tool"], rule["verdict"]) for rule in rules] == [("get_weather", "allow")]
    desk.approver.delete(f"/approvals/rules/{rules[0]['id']}")


def test_inbox_lists_open_questions_and_answers(desk: Desk) -> None:
    page = desk.window(url=f"{desk.gateway.url}/approvals-inbox")
    expect(page.locator("#open")).to_have_text("No questions are open.")
    _, dialog = ask(desk, WEATHER)
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Review").click()
    page.get_by_label("city").fill("Bern")
    page.get_by_role("button", name="Approve and Execute").click()
    expect(dialog).to_be_hidden()
    first = page.locator("#closed > li").first
    expect(first).to_contain_text("edited by local")
    expect(first).to_contain_text('city: "Paris" → "Bern"')
