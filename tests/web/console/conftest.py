"""A gateway with tools and a vault in front of scripted models, and windows of a real browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from tests.approving import TIMEOUT_SECONDS, Approver, write_notes
from tests.gateway import Gateway, running
from tests.model_server import ModelServer
from tests.scripted_models import MODELS, USAGE
from tests.upstream import stream
from tests.web.console.browser import launch
from toolrelay.core.events import AnswerFinished, AnswerStarted, StreamEvent, TextDelta
from toolrelay.core.request import Request
from toolrelay.wires.base import Envelope

expect.set_options(timeout=30_000)

NOTES = {
    "Bees.md": "# Bees\n\nBees make honey from nectar.\n",
    "Garden/Hive.md": "The hive stands by the apple tree. Bees love it.\n",
    "<img src=x onerror=alert(1)>.md": "<script>alert(1)</script> bees <img src=x onerror=alert(2)>\n",
}
TOOLS = '''
from typing import Literal

from toolrelay import tool


@tool
def get_weather(city: str, days: int = 1, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """The weather of a city."""
    return f"18 degrees {unit} in {city}, {days} days <img src=x onerror=alert(1)>"
'''
CONFIG = """
[toolsets.mine]
kind = "python"
module = "console_tools"
[toolsets.vault]
kind = "vault"
path = "Notes"
[models.demo]
provider = "demo"
toolsets = ["mine", "vault"]
"""


class Desk:
    """A gateway whose model `chat` answers what a test enqueues, and windows that an approver is signed in to."""

    def __init__(
        self, folder: Path, stack: ExitStack, browser: Browser, *, tools: str = TOOLS, vault: str = "", hasty_seconds: int = 0
    ) -> None:
        """`vault` is added to the table of the vault. With `hasty_seconds`, questions of the model `hasty` expire after them."""
        self._browser = browser
        self.folder = folder
        write_notes(folder / "Notes", NOTES)
        (folder / "console_tools.py").write_text(tools)
        self.server = stack.enter_context(ModelServer())
        table = MODELS["chat"].table(self.server.url).replace('toolsets = ["mine", "odd"]', 'toolsets = ["mine", "vault"]')
        self.config = CONFIG.replace('path = "Notes"', f'path = "Notes"\n{vault}') + table
        if hasty_seconds:
            self.config += f"{table.replace('[models.chat]', '[models.hasty]')}\napproval_expiry_seconds = {hasty_seconds}\n"
        self.gateway: Gateway = stack.enter_context(running(self.config, folder=folder))
        self.approver = Approver(self.gateway)
        self.problems: list[str] = []
        self._contexts: list[BrowserContext] = []
        stack.callback(self.close_windows)

    def clear(self) -> None:
        """Close the windows, deny open questions, and wait for their turns, which still take answers of the model server."""
        self.close_windows()
        until = time.monotonic() + TIMEOUT_SECONDS
        while count := self.gateway.open_turns():
            assert time.monotonic() < until, f"{count} turns are still open"
            for question in self.approver.pending():
                self.approver.post(question["id"], verdict="deny")

    def close_windows(self) -> None:
        while self._contexts:
            self._contexts.pop().close()

    def enqueue(self, text: str, *calls: tuple[str, str]) -> None:
        """Have the model `chat` make these calls, one after the other, and then answer with the text."""
        model = MODELS["chat"]
        self.server.enqueue(*(model.answer("", [call]) for call in calls), model.answer(text))

    def enqueue_pieces(self, *pieces: str) -> None:
        """Have the model `chat` answer with a text in these pieces."""
        wire = MODELS["chat"].wire
        events: list[StreamEvent] = [AnswerStarted(model="m"), *(TextDelta(piece) for piece in pieces)]
        events.append(AnswerFinished(finish="stop", usage=USAGE))
        asked = Request(wire=wire.name, model="m", items=(), stream=True, include_usage=True)
        self.server.enqueue(stream(wire.encoder(Envelope(token="t" * 20, created=1, model="m", request=asked)).encode(events)))

    def window(self, *, is_approver: bool = True, url: str | None = None, **options: Any) -> Page:
        """Open a window with storage of its own. What goes wrong in it is added to `problems`."""
        context = self._browser.new_context(extra_http_headers=self.approver.headers if is_approver else {}, **options)
        self._contexts.append(context)
        return self.tab(context, url or self.gateway.url)

    def tab(self, context: BrowserContext, url: str) -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", self._refuse_dialog)
        page.on("console", lambda message: self._note_violation(message.text))
        page.goto(url)
        return page

    def _refuse_dialog(self, dialog: Any) -> None:
        if dialog.type == "confirm":
            dialog.accept()
            return
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_violation(self, text: str) -> None:
        if "Content Security Policy" in text or "Content-Security-Policy" in text:
            self.problems.append(text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: while Playwright runs, no other test of the process can use asyncio.run."""
    with sync_playwright() as playwright:
        started = launch(playwright)
        yield started
        started.close()


@pytest.fixture(scope="module")
def shared_desk(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Desk]:
    with ExitStack() as stack:
        yield Desk(tmp_path_factory.mktemp("console"), stack, browser)


@pytest.fixture
def desk(shared_desk: Desk) -> Iterator[Desk]:
    """The gateway of the module. In the end no script of a stranger may have run, and nothing may have been blocked."""
    shared_desk.problems.clear()
    yield shared_desk
    shared_desk.clear()
    assert shared_desk.problems == []


@pytest.fixture
def own_desk(tmp_path: Path, browser: Browser) -> Iterator[Callable[[], Desk]]:
    """A gateway of the test's own, which it may stop."""
    with ExitStack() as stack:
        yield lambda: Desk(tmp_path, stack, browser)


def finished(page: Page, count: int = 1) -> None:
    """Wait until there are so many complete answers."""
    expect(page.locator(".message.assistant[data-done]")).to_have_count(count)


def ask(desk: Desk, *calls: tuple[str, str], page: Page | None = None) -> tuple[Page, Locator]:
    """Send a message to which the model answers with calls. Return the window and its dialog."""
    desk.enqueue("I see.", *calls)
    shown = page or desk.window()
    send(shown, "Go.", "chat")
    dialog = shown.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return shown, dialog


def last_answer(page: Page) -> Locator:
    expect(page.locator(".message.assistant").last).to_have_attribute("data-done", "true")
    return page.locator(".message.assistant").last


def send(page: Page, text: str, model: str = "demo") -> None:
    """Send a message to a model."""
    page.get_by_label("Model").select_option(model)
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send").click()
