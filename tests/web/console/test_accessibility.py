"""axe-core finds no serious fault, in both colour schemes."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.web.console.browser import NODE
from tests.web.console.conftest import Desk, ask, send

AXE = (NODE / "node_modules/axe-core/axe.min.js").resolve()


def serious_faults(page: Page) -> list[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate("axe.run({resultTypes: ['violations']}).then((report) => report.violations)")
    faults = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    return [f"{fault['id']}: {[node['html'] for node in fault['nodes']]}" for fault in faults]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_and_dialog_have_no_serious_fault(desk: Desk, scheme: Any) -> None:
    page = desk.window(color_scheme=scheme)
    assert serious_faults(page) == []
    page.get_by_role("button", name="Show Markdown").click()
    expect(page.locator(".code .t-kwd").first).to_be_visible()
    assert serious_faults(page) == []
    send(page, "the weather in Paris")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert serious_faults(page) == []
    page.keyboard.press("Escape")
    expect(page.locator(".message.assistant[data-done]")).to_have_count(2)
    assert serious_faults(page) == []
    _, dialog = ask(desk, ("file_read", '{"filePaths": ["Bees.md", "Missing.md"]}'), page=page)
    dialog.get_by_role("button", name="Preview Bees.md").click()
    expect(dialog.get_by_label("Content of Bees.md")).to_contain_text("nectar")
    assert serious_faults(page) == []
    page.keyboard.press("Escape")
    expect(page.locator(".message.assistant[data-done]")).to_have_count(3)
    page.get_by_role("button", name="Rename").first.click()
    assert serious_faults(page) == []
    page.goto(f"{desk.gateway.url}/approvals-inbox")
    expect(page.locator("#closed > li").first).to_contain_text("denied by")
    assert serious_faults(page) == []
