"""The page of usage in a real browser: real turns in the table, charts, filters, CSV, phones, both colour schemes."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.approving import Asking, chat_text
from tests.model_server import error
from tests.web.console.conftest import Desk
from tests.web.console.test_accessibility import serious_faults
from tests.web.test_sessions import new_code

CHARTS = 10
COLUMNS = ("Requests", "Errors", "Tokens in", "of these cached", "Tokens out", "Tool runs", "Denials")
WEATHER = ("get_weather", '{"city": "Rome"}')


COUNT_BLUE = """canvas => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i + 2] - data[i] > 80 && data[i + 3] > 200) count++;
    return count;
}"""


def play_turns(desk: Desk) -> None:
    """Have a tool run, a denial and an error, on the model `chat`."""
    asking = Asking(desk.gateway)
    for answer in (desk.approver.allow, desk.approver.deny):
        desk.enqueue("Done.", WEATHER)
        sent = asking.chat(model="chat")
        answer("get_weather")
        assert chat_text(sent.result(60)) == "Done."
    desk.server.enqueue(error(400))
    assert asking.chat(model="chat").result(60).status_code == 400


def open_usage(desk: Desk, query: str = "", **options: Any) -> Page:
    return desk.window(url=f"{desk.gateway.url}/usage{query}", **options)


def figures(page: Page, name: str) -> dict[str, str]:
    """Return the sums of a model or key by column."""
    heads = page.locator("#sums thead th").all_inner_texts()
    row = page.locator("#sums tr").filter(has=page.get_by_role("rowheader", name=name, exact=True))
    expect(row).to_have_count(1)
    return dict(zip(heads[1:], row.locator("td").all_inner_texts(), strict=True))


def charts(page: Page) -> Locator:
    return page.locator("#charts .uplot canvas")


def test_empty_page_says_what_to_do(own_desk: Callable[[], Desk]) -> None:
    desk = own_desk()
    page = open_usage(desk)
    expect(page.get_by_role("heading", name="Nothing was counted in this time")).to_be_visible()
    expect(page.get_by_role("link", name="open the chat")).to_have_attribute("href", "/")
    expect(page.locator("#figures")).to_be_hidden()
    assert serious_faults(page) == []
    assert desk.problems == []


def test_tool_run_denial_and_error_are_in_the_table_and_the_csv(own_desk: Callable[[], Desk]) -> None:
    desk = own_desk()
    play_turns(desk)
    page = desk.window(is_approver=False, url=f"{desk.gateway.url}/?code={new_code(desk.gateway)}", timezone_id="Asia/Tokyo")
    page.get_by_role("link", name="Usage").click()
    expect(charts(page)).to_have_count(CHARTS)
    found = figures(page, "chat")
    assert [found[name] for name in COLUMNS] == ["3", "1", "28", "0", "12", "1", "1"]
    assert all(re.fullmatch(r"[\d.]+ (ms|s)", found[name]) for name in found if "p50" in name or "p95" in name)
    assert figures(page, "Total") == found
    expect(page.locator("#legend li")).to_have_text(["chat"])
    expect(page.get_by_role("img", name="Denials: chat 1.")).to_be_visible()
    expect(page.locator("#zone")).to_contain_text("Asia/Tokyo")
    expect(page.locator("#zone")).to_contain_text("+09:00")
    page.get_by_text("The same by time, as a table").click()
    expect(page.locator("#times tbody tr").first.locator("td").first).to_have_text("chat")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    with download.value.path().open(newline="") as file:
        rows = list(csv.DictReader(file))
    sums = {name: sum(int(row[name]) for row in rows) for name in ("turns", "failed", "tool_runs", "denials")}
    assert sums == {"turns": 3, "failed": 1, "tool_runs": 1, "denials": 1}
    assert {row["model"] for row in rows} == {"chat"}
    assert desk.problems == []


def test_ranges_grouping_and_filters_are_kept_in_the_address(desk: Desk) -> None:
    play_turns(desk)
    desk.gateway.post("/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]})
    page = open_usage(desk)
    expect(page.get_by_role("button", name="24 hours")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#legend li")).to_have_count(2)
    dashes = page.locator("#legend line").evaluate_all("lines => lines.map((line) => line.getAttribute('stroke-dasharray'))")
    assert len(set(dashes)) == 2
    for name in ("1 hour", "6 hours", "7 days", "30 days"):
        with page.expect_response(lambda response: "/api/usage?" in response.url) as answer:
            page.get_by_role("button", name=name).click()
        assert answer.value.status == 200
        expect(page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Model", exact=True).select_option("demo")
    expect(page.locator("#sums tbody th")).to_have_text(["demo"])
    page.get_by_label("Group by").select_option("key")
    expect(page.locator("#sums tbody th")).to_have_text(["local"])
    page.get_by_label("Key", exact=True).select_option("local")
    page.reload()
    expect(page.locator("#sums tbody th")).to_have_text(["local"])
    expect(page.get_by_label("Model", exact=True)).to_have_value("demo")
    expect(page.get_by_role("button", name="30 days")).to_have_attribute("aria-pressed", "true")
    assert page.url.endswith("?range=30d&by=key&model=demo&key=local")
    page.goto(f"{desk.gateway.url}/usage?range=nonsense&by=%3Cb%3E&model=%3Cimg%20src%3Dx%3E")
    expect(page.get_by_role("heading", name="Nothing was counted in this time")).to_be_visible()
    expect(page.get_by_label("Model", exact=True)).to_have_value("<img src=x>")


def test_page_is_refreshed_while_it_is_open(desk: Desk) -> None:
    page = desk.window(url="about:blank")
    page.clock.install()
    play_turns(desk)
    page.goto(f"{desk.gateway.url}/usage")
    expect(charts(page)).to_have_count(CHARTS)
    before = int(figures(page, "chat")["Requests"])
    play_turns(desk)
    page.clock.run_for(40_000)
    expect(page.locator("#sums tbody tr").filter(has_text="chat").locator("td").first).to_have_text(str(before + 3))


def test_pointing_at_a_chart_reads_its_values(desk: Desk) -> None:
    play_turns(desk)
    page = open_usage(desk, "?range=1h")
    expect(charts(page)).to_have_count(CHARTS)
    page.locator("#charts .u-over").first.hover()
    expect(page.locator("#charts .readout").first).to_contain_text("chat 0")


def test_single_value_of_a_latency_is_drawn(own_desk: Callable[[], Desk]) -> None:
    """A line needs two points in a row. The first answer of a day is one."""
    desk = own_desk()
    desk.enqueue("Done.")
    assert Asking(desk.gateway).chat(model="chat").result(60).status_code == 200
    page = open_usage(desk, "?range=24h")
    expect(charts(page)).to_have_count(CHARTS)
    figure = page.locator("#charts figure").filter(has_text="Whole turn, p50")
    assert figure.locator("canvas").evaluate(COUNT_BLUE) > 5


def test_visitor_is_asked_to_sign_in(desk: Desk) -> None:
    page = open_usage(desk, is_approver=False)
    expect(page.get_by_role("alert")).to_contain_text("Usage is for people who are signed in.")
    expect(page.get_by_role("alert").get_by_role("link", name="Sign in")).to_have_attribute("href", "/console/sign-in")
    expect(page.locator("#figures")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_page_has_no_serious_fault_and_fits_the_window(desk: Desk, scheme: Any, width: int) -> None:
    play_turns(desk)
    page = open_usage(desk, color_scheme=scheme, viewport={"width": width, "height": 800})
    expect(charts(page)).to_have_count(CHARTS)
    page.get_by_text("The same by time, as a table").click()
    expect(page.locator("#times tbody tr").first).to_be_visible()
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_names_of_models_are_text(desk: Desk) -> None:
    """A report of any names: the page shows them as they are."""
    name = "<img src=x onerror=alert(1)>"
    play_turns(desk)
    page = desk.window(url="about:blank")

    def rename(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(body=answer.text().replace('"chat"', f'"{name}"'), content_type="application/json")

    page.route(re.compile(r"/api/usage\?"), rename)
    page.goto(f"{desk.gateway.url}/usage")
    expect(charts(page)).to_have_count(CHARTS)
    expect(page.locator("#sums tbody th").first).to_contain_text(name)
    expect(page.locator("#legend li").first).to_contain_text(name)
    expect(page.locator("main img")).to_have_count(0)
