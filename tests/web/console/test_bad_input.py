"""Tools and questions that a form is not made for, and clocks that are wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.web.console.conftest import TOOLS, Desk, ask, last_answer, send

WEATHER = ("get_weather", '{"city": "Paris"}')
EVIL = "<img src=x onerror=alert(1)>"
COUNT = 200
MORE_TOOLS = (
    "\n\n@tool\ndef many("
    + ", ".join(f"a{number}: int = {number}" for number in range(COUNT))
    + ') -> str:\n    """Many arguments."""\n    return f"{a0} {a199}"\n'
    + f'''

@tool(description="Purpose {EVIL}")
def odd(value: list[dict[str, int]] | str, tree: dict[str, list[int]] | None = None) -> str:
    """Odd.

    Args:
        value: About it {EVIL}
    """
    return repr((value, tree))
'''
)
UNION = {"oneOf": [{"type": "object", "properties": {"city": {"type": "string"}}}, {"type": "object"}]}
SCHEMAS: dict[str, Any] = {
    "none": None,
    "a list": [],
    "true": True,
    "a union": UNION,
    "properties that are not": {"type": "object", "properties": "city"},
    "members that are not": {"properties": {"city": None, "days": True, "x": 5}, "required": 3},
    "a list of types": {"properties": {"city": {"type": ["string", "null"], "enum": None, "description": {"a": EVIL}}}},
    "a list of one": {"properties": {"city": {"type": "array", "items": None}}},
    "an endless name": {"properties": {"city": {"type": "string"}, "x" * 5000: {"type": "string"}, "__proto__": {}, EVIL: {}}},
}
VALUES: list[Any] = [{"city": "Paris"}, {}, {"city": None, EVIL: [{}]}, ["Paris"], "Paris", None]
READ_FORM = """async ([schema, values]) => {
  const { ArgumentForm } = await import("/console/static/form.js");
  const form = new ArgumentForm(values, schema, () => {});
  document.body.append(form.node);
  const read = [form.read()];
  if (!form.toggle.hidden) {
    form.switch();
    read.push(form.read());
  }
  return [read, form.raw !== null];
}"""


@pytest.fixture(scope="module")
def shared_desk(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Desk]:
    with ExitStack() as stack:
        yield Desk(tmp_path_factory.mktemp("bad"), stack, browser, tools=TOOLS + MORE_TOOLS, hasty_seconds=3)


def newest(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = desk.approver.get("/approvals?limit=1").json()["approvals"][0]
    return found


def test_tool_with_200_arguments_has_a_form_and_buttons_in_view(desk: Desk) -> None:
    page, dialog = ask(desk, ("many", json.dumps({f"a{number}": number for number in range(COUNT)})))
    expect(dialog.locator(".field.number")).to_have_count(COUNT)
    expect(dialog.get_by_role("button", name="Approve and Execute")).to_be_in_viewport()
    dialog.get_by_label("a199", exact=False).last.fill("7")
    expect(dialog.locator(".changes li")).to_have_text(["a199: 199 → 7"])
    dialog.get_by_role("button", name="Approve and Execute").click()
    last_answer(page)
    assert newest(desk)["ran_with"]["a199"] == 7


def test_argument_that_no_field_can_show_is_json(desk: Desk) -> None:
    page, dialog = ask(desk, ("odd", '{"value": [{"a": 1}]}'))
    expect(dialog).to_contain_text(f"Purpose {EVIL}")
    expect(dialog).to_contain_text(f"About it {EVIL}")
    value = dialog.get_by_label("value")
    assert json.loads(value.input_value()) == [{"a": 1}]
    value.fill("[")
    expect(dialog.get_by_role("alert")).to_have_text("value: this is not JSON.")
    value.fill('"text"')
    dialog.get_by_role("button", name="Approve and Execute").click()
    last_answer(page)
    assert newest(desk)["ran_with"] == {"value": "text"}
    assert dialog.locator("img").count() == 0


def serve_schema(page: Page, schema: Any) -> None:
    """Have the page see questions with this schema."""

    def answer(route: Route) -> None:
        response = route.fetch()
        questions = response.json()
        for question in questions["approvals"]:
            question["schema"] = schema
        route.fulfill(response=response, json=questions)

    page.route("**/approvals?status=pending*", answer)


def test_schema_that_no_form_can_show_leaves_json(desk: Desk) -> None:
    desk.enqueue("I see.", WEATHER)
    page = desk.window(is_approver=False)
    send(page, "Go.", "chat")
    desk.approver.question()
    other = desk.window(url="about:blank")
    serve_schema(other, UNION)
    other.goto(desk.gateway.url)
    dialog = other.get_by_role("dialog")
    raw = dialog.get_by_label("Arguments as JSON")
    assert json.loads(raw.input_value()) == {"city": "Paris"}
    expect(dialog.get_by_role("button", name="Edit as")).to_have_count(0)
    raw.fill('{"city": "Rome"}')
    dialog.get_by_role("button", name="Approve and Execute").click()
    expect(dialog).to_be_hidden()
    last_answer(page)
    assert newest(desk)["ran_with"] == {"city": "Rome"}


def test_form_gives_back_the_arguments_whatever_the_schema(desk: Desk) -> None:
    page = desk.window()
    for name, schema in SCHEMAS.items():
        for values in VALUES:
            read, is_raw = page.evaluate(READ_FORM, [schema, values])
            assert read == [values] * len(read), name
            assert is_raw, name
    assert page.locator("img").count() == 0


def test_question_that_expires_while_it_is_open_closes_and_says_so(desk: Desk) -> None:
    page = desk.window()
    desk.enqueue("Nobody was there.", WEATHER)
    send(page, "Go.", "hasty")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".expiry")).to_have_text("Expires in 2 seconds.")
    expect(dialog).to_be_hidden()
    expect(page.locator("#notices")).to_contain_text("get_weather has expired.")
    expect(last_answer(page).locator(".call.failed .outcome")).to_contain_text("Nobody answered")


@pytest.mark.parametrize("year", [1999, 2060])
def test_wrong_clock_changes_no_duration(desk: Desk, year: int) -> None:
    page = desk.window(url="about:blank")
    page.clock.set_fixed_time(f"{year}-01-01T00:00:00Z")
    page.goto(desk.gateway.url)
    _, dialog = ask(desk, WEATHER, page=page)
    expect(dialog.locator(".expiry")).to_have_text("Expires in 59 minutes.")
    dialog.get_by_role("button", name="Approve and Execute").click()
    footer = last_answer(page).locator("footer")
    expect(footer).to_contain_text("tokens in")
    seconds = float(footer.inner_text().split(" · ")[1].removesuffix(" s"))
    assert 0 <= seconds < 3600
    page.reload()
    expect(last_answer(page).locator("footer")).to_contain_text("tokens in")
