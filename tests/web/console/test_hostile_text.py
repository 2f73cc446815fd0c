"""Text of strangers never becomes a script. The fixture fails a test in which a dialog opened or the policy blocked something."""

from __future__ import annotations

import json
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.gateway import running
from tests.model_server import ModelServer
from tests.scripted_models import MODELS
from tests.web.console.conftest import TOOLS, Desk, send

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
    page = desk.window(is_approver=False)
    entries = json.dumps([{"id": "conv_1", "title": EVIL, "used": 1}, {"id": 3}, None])
    page.evaluate("(text) => localStorage.setItem('toolrelay.conversations', text)", entries)
    page.reload()
    expect(page.locator("#conversations a")).to_have_count(1)
    assert page.locator("#conversations").locator("img, script, svg").count() == 0


def test_name_of_a_tool_that_a_model_made_up_is_text(desk: Desk) -> None:
    page = desk.window()
    desk.enqueue("Done.", (f"get_{EVIL}", json.dumps({EVIL: EVIL})))
    send(page, "Go.", "chat")
    expect(page.locator(".message.assistant[data-done]")).to_have_count(1)
    page.locator(".call summary").click()
    expect(page.locator(".call")).to_contain_text("<script>alert(2)</script>")
    assert page.locator("#messages").locator("img, script, svg").count() == 0


def test_names_of_keys_and_models_are_text(tmp_path: Path, browser: Browser) -> None:
    name = "<img src=x onerror=alert(1)>"
    key = f'name = \'{name}\'\nsha256 = "{sha256(b"secret").hexdigest()}"\napprove = true\ntoolsets = ["*"]'
    with ExitStack() as stack:
        server = stack.enter_context(ModelServer())
        (tmp_path / "console_tools.py").write_text(TOOLS)
        table = MODELS["chat"].table(server.url).replace('["mine", "odd"]', '["mine"]')
        config = '[toolsets.mine]\nkind = "python"\nmodule = "console_tools"\n' + table.replace("models.chat", f"models.'{name}'")
        gateway = stack.enter_context(running(f"[[keys]]\n{key}\n{config}", folder=tmp_path))
        context = browser.new_context(extra_http_headers={"authorization": "Bearer secret"})
        stack.callback(context.close)
        page = context.new_page()
        problems: list[str] = []
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("console", lambda message: problems.append(message.text))
        page.goto(gateway.url)
        server.enqueue(MODELS["chat"].answer("", [("get_weather", '{"city": "Paris"}')]), MODELS["chat"].answer("Done."))
        send(page, "Go.", name)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"asked by {name}")
        expect(dialog).to_contain_text(f"the model “{name}”")
        dialog.get_by_role("button", name="Cancel").click()
        expect(page.locator(".call summary")).to_contain_text(f"denied by {name}")
        page.goto(f"{gateway.url}/approvals-inbox")
        expect(page.locator("#closed")).to_contain_text(f"denied by {name}")
        assert page.locator("img").count() == 0
        assert [text for text in problems if "alert" in text or "Security Policy" in text] == []
