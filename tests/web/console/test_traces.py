"""The page of traces in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.console.conftest import Desk, send
from tests.web.console.test_accessibility import serious_faults
from toolrelay.core.messages import Call, Message
from toolrelay.core.request import Request
from toolrelay.core.steps import (
    AnswerReceived,
    AnswerRejected,
    CallPlanned,
    QuestionAsked,
    StepEvent,
    ToolRunFinished,
    TurnAccepted,
    TurnFailed,
    VerdictGiven,
)
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import open_store
from toolrelay.stores.messages import message_rows
from toolrelay.stores.turns import StoredStep, TurnRow

EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
WEATHER = ("get_weather", '{"city": "Paris"}')


def ask(desk: Desk, text: str, *calls: tuple[str, str], answer: str = "I see.") -> Page:
    """Send a message to which the model answers with calls, and wait for the dialog."""
    desk.enqueue(answer, *calls)
    page = desk.window()
    send(page, text, "chat")
    expect(page.get_by_role("dialog")).to_be_visible()
    return page


def allow(page: Page) -> None:
    page.get_by_role("button", name="Approve and Execute").click()
    expect(page.locator(".message.assistant[data-done]")).to_have_count(1)


def entry(page: Page, kind: str) -> Locator:
    return page.locator(f".entry.kind-{kind}")


def open_trace(page: Page) -> None:
    """Go from the last answer of the chat to its trace."""
    page.locator(".message.assistant footer").last.get_by_role("link", name="Trace").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("Trace [0-9a-f]{20}"))


def test_turn_is_shown_live_while_it_waits_for_an_approval(desk: Desk) -> None:
    chat = ask(desk, "How is Paris today?", WEATHER)
    page = desk.tab(chat.context, f"{desk.gateway.url}/traces")
    page.locator("#turns").get_by_role("link", name="How is Paris today?").click()
    expect(entry(page, "question")).to_contain_text("May get_weather run? pending not finished")
    expect(page.get_by_text("This turn waits for an answer of a person.")).to_be_visible()
    chat.get_by_label("city").fill("Rome")
    allow(chat)
    expect(entry(page, "finished")).to_contain_text("Finished: stop")
    expect(page.get_by_text("This turn has ended.")).to_be_visible()
    expect(entry(page, "question")).to_contain_text("edited")
    entry(page, "question").locator("summary").click()
    expect(entry(page, "question")).to_contain_text('"city": "Rome"')
    entry(page, "run").locator("summary").click()
    expect(entry(page, "run")).to_contain_text("18 degrees celsius in Rome")
    entry(page, "model").first.locator("summary").first.click()
    expect(entry(page, "model").first).to_contain_text("How is Paris today?")
    expect(entry(page, "model").first).to_contain_text("Computed again from the record")
    entry(page, "model").last.locator("summary").first.click()
    expect(entry(page, "model").last).to_contain_text("The first 1 messages are those of the call before.")
    entry(page, "accepted").locator("summary").click()
    expect(entry(page, "accepted")).to_contain_text('"wire": "openai_responses"')


def test_details_stay_open_while_the_turn_goes_on(desk: Desk) -> None:
    chat = ask(desk, "Go on.", WEATHER)
    page = desk.tab(chat.context, f"{desk.gateway.url}/traces#{desk.approver.question()['turn']}")
    summary = entry(page, "question").locator("summary")
    summary.click()
    expect(entry(page, "question").get_by_role("region", name="Arguments")).to_contain_text("Paris")
    allow(chat)
    expect(entry(page, "question")).to_contain_text("Verdict")
    expect(summary).to_be_focused()


def test_chat_and_inbox_link_to_the_trace(desk: Desk) -> None:
    page = ask(desk, "A link, please.", WEATHER)
    turn = desk.approver.question()["turn"]
    allow(page)
    open_trace(page)
    assert page.url.endswith(f"#resp_{turn}")
    page.goto(f"{desk.gateway.url}/approvals-inbox")
    page.locator("#closed > li").first.get_by_role("link", name="Trace").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Trace {turn}")
    page.get_by_role("link", name="All traces").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Traces")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Trace {turn}")


def test_answer_of_an_opened_conversation_links_to_its_trace(desk: Desk) -> None:
    page = ask(desk, "Remember the link.", WEATHER)
    allow(page)
    page.reload()
    open_trace(page)


def test_list_is_filtered_by_status_tool_and_words(desk: Desk) -> None:
    page = ask(desk, "The word is xylophone.", WEATHER)
    allow(page)
    page.goto(f"{desk.gateway.url}/traces")
    turns = page.locator("#turns > li")
    expect(turns.first).to_contain_text("The word is xylophone.")
    expect(turns.first).to_contain_text("get_weather · 1 question")
    page.get_by_label("Words").fill("XYLOPHONE")
    page.get_by_label("Words").press("Enter")
    expect(turns).to_have_count(1)
    page.get_by_label("Tool").fill("get_weather")
    page.get_by_role("button", name="Search").click()
    expect(turns).to_have_count(1)
    page.get_by_label("Tool").fill("file_read")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("No turn fits.")).to_be_visible()
    page.get_by_label("Tool").fill("")
    page.get_by_label("Status").select_option("failed")
    expect(page.get_by_text("No turn fits.")).to_be_visible()
    page.get_by_label("Status").select_option("finished")
    page.get_by_label("Model").select_option("chat")
    expect(turns).to_have_count(1)


def test_unknown_trace_and_broken_address_say_so(desk: Desk) -> None:
    page = desk.window(url=f"{desk.gateway.url}/traces#nothing")
    expect(page.get_by_text("There is no trace 'nothing'")).to_be_visible()
    page.goto(f"{desk.gateway.url}/traces#%E0%A4%A")
    expect(page.get_by_text("There is no trace")).to_be_visible()


def test_signed_out_reader_is_told_to_sign_in(desk: Desk) -> None:
    page = desk.window(is_approver=False, url=f"{desk.gateway.url}/traces")
    expect(page.get_by_text("Traces need a session, or the approver's token")).to_be_visible()
    assert page.locator("#turns > li").count() == 0


def test_hostile_content_is_text_everywhere(desk: Desk) -> None:
    page = ask(desk, EVIL, ("get_weather", json.dumps({"city": EVIL})), answer=EVIL)
    allow(page)
    page.goto(f"{desk.gateway.url}/traces")
    page.locator("#turns a").first.click()
    expect(entry(page, "finished")).to_be_visible()
    for summary in page.locator(".entry > details > summary").all():
        summary.click()
    page.get_by_text("Times as a table").click()
    expect(entry(page, "run")).to_contain_text("onerror=")
    expect(entry(page, "model").last.get_by_role("region", name="Text")).to_contain_text("<script>alert(2)</script>")
    expect(entry(page, "accepted")).to_contain_text("<script>")
    assert page.locator("#main").locator("img, script, svg, iframe, [onerror]").count() == 0


def record(desk: Desk, identifier: str, *events: StepEvent) -> None:
    """Add a turn to the record of the gateway, which runs."""

    async def write() -> None:
        store = open_store(StoreSettings(), desk.gateway.data_dir)
        await store.open()
        now = time.time()
        row = TurnRow(id=identifier, owner="local", model="chat", wire="openai_chat", created_at=now, status="failed")
        steps = [StoredStep(seq=seq, at=now + seq / 100, step=event) for seq, event in enumerate(events)]
        await store.create_turn(row, steps, [message for event in events for message in message_rows(event)])
        await store.close()

    with ThreadPoolExecutor(1) as threads:  # Playwright has an event loop in this one
        threads.submit(asyncio.run, write()).result()


def test_printed_text_is_beside_the_calls_that_were_read(desk: Desk) -> None:
    call = Call(id="call_1", name=EVIL, arguments=json.dumps({"a": EVIL}))
    record(
        desk,
        "hostile",
        TurnAccepted(request=Request(wire="openai_chat", model="chat", items=(Message(role="user", content=EVIL),))),
        AnswerRejected(rule="unknown_tool", raw=f"{EVIL} rejected"),
        AnswerReceived(items=(Message(role="assistant", content="read"), call), finish="calls", raw=f"{EVIL} printed"),
        CallPlanned(call=call, owner="gateway", toolset=EVIL),
        QuestionAsked(call_id="call_1", tool=EVIL, toolset=EVIL, arguments=EVIL),
        VerdictGiven(call_id="call_1", verdict="deny", by=EVIL, reason=EVIL),
        TurnFailed(code="odd", message=EVIL),
    )
    page = desk.window(url=f"{desk.gateway.url}/traces#hostile")
    expect(entry(page, "failed")).to_be_visible()
    for summary in page.locator(".entry > details > summary").all():
        summary.click()
    printed = page.get_by_role("region", name="What the model printed")
    expect(printed).to_have_text(f"{EVIL} printed")
    expect(page.locator(".beside .call")).to_contain_text(f"Call of {EVIL}")
    left, right = printed.bounding_box(), page.locator(".beside .call").bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] <= right["x"]
    expect(page.get_by_role("region", name="What it printed")).to_have_text(f"{EVIL} rejected")
    expect(entry(page, "question")).to_contain_text("denied")
    assert page.locator("#main").locator("img, script, svg, iframe, [onerror]").count() == 0


def test_long_turn_and_long_texts_are_loaded_in_parts(desk: Desk) -> None:
    runs = [ToolRunFinished(call_id=f"call_{number}", output="x" * 30_000) for number in range(1050)]
    accepted = TurnAccepted(request=Request(wire="openai_chat", model="chat", items=()))
    record(desk, "long", accepted, *runs, TurnFailed(code="odd", message="Enough."))
    page = desk.window(url=f"{desk.gateway.url}/traces#long")
    expect(entry(page, "run").first).to_be_visible()
    assert page.locator(".entry").count() == 1000
    page.get_by_role("button", name=re.compile(r"Show more entries \(\d+\)")).click()
    expect(entry(page, "failed")).to_be_visible()
    first = entry(page, "run").first
    first.locator("summary").click()
    expect(first.get_by_role("region", name="Result")).to_contain_text("[10000 more characters]")
    first.get_by_role("button", name="Show all").click()
    expect(first.get_by_role("region", name="Result")).to_have_text("x" * 30_000)
    expect(first.get_by_role("button", name="Show all")).to_have_count(0)


def test_empty_list_says_what_is_recorded(own_desk: Callable[[], Desk]) -> None:
    desk = own_desk()
    page = desk.window(url=f"{desk.gateway.url}/traces")
    expect(page.locator("#list-note")).to_have_text(re.compile('^Nothing is recorded yet. .* set record = "all" under'))


def test_bug_report_is_shown_and_has_no_content(desk: Desk) -> None:
    page = ask(desk, "My secret is platypus.", WEATHER, answer="The platypus is safe.")
    allow(page)
    open_trace(page)
    page.get_by_role("button", name="Copy bug report").click()
    report = page.get_by_label("Bug report").input_value()
    assert "get_weather" in report
    assert "provider compatible" in report
    assert not re.search("platypus|Paris|degrees", report)
    expect(page.locator("#trace-view").get_by_role("status").first).to_have_text(re.compile("copied|Copy it"))


def test_bug_report_is_copied_where_the_browser_allows_it(desk: Desk) -> None:
    page = ask(desk, "Copy this.", WEATHER)
    allow(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=desk.gateway.url)
    open_trace(page)
    page.get_by_role("button", name="Copy bug report").click()
    expect(page.get_by_text("It was copied. Read it before you send it.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("## Toolrelay: report of a turn")


def test_trace_is_used_by_keyboard(desk: Desk) -> None:
    page = ask(desk, "By keyboard.", WEATHER)
    allow(page)
    page.goto(f"{desk.gateway.url}/traces")
    page.locator("#turns a").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    entry(page, "run").locator("summary").focus()
    page.keyboard.press("Enter")
    expect(entry(page, "run").get_by_role("region", name="Result")).to_be_visible()
    page.keyboard.press("Tab")
    expect(entry(page, "run").get_by_role("region", name="Arguments")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
def test_pages_are_accessible_and_fit(desk: Desk, scheme: Any, width: int) -> None:
    chat = ask(desk, "x" * 300, WEATHER)
    allow(chat)
    page = desk.window(color_scheme=scheme, viewport={"width": width, "height": 800}, url=f"{desk.gateway.url}/traces")
    expect(page.locator("#turns > li").first).to_be_visible()
    assert serious_faults(page) == []
    page.locator("#turns a").first.click()
    expect(entry(page, "finished")).to_be_visible()
    for summary in page.locator(".entry > details > summary").all():
        summary.click()
    expect(entry(page, "run").get_by_role("region", name="Result")).to_be_visible()
    expect(entry(page, "model").last.get_by_role("region", name="Text")).to_be_visible()
    page.get_by_text("Times as a table").click()
    page.get_by_role("button", name="Copy bug report").click()
    expect(page.get_by_label("Bug report")).to_be_visible()
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
