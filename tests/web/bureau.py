"""A gateway whose traces are looked at."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.approving import Approver, Asking
from tests.gateway import Gateway, running
from tests.model_server import ModelServer
from tests.scripted_models import MODELS

TOOLS = '''
from toolrelay import tool


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    if city == "Nowhere":
        raise ValueError("no such city")
    return f"18 degrees in {city}"
'''
CONFIG = """
[store]
record = "all"
[toolsets.mine]
kind = "python"
module = "trace_tools"
"""


class Bureau:
    """A gateway with scripted models that call tools, its clients and an approver."""

    def __init__(self, folder: Path, stack: ExitStack, server: ModelServer, *, keys: str = "", more: str = "") -> None:
        self.folder = folder
        self.server = server
        self._stack = stack
        (folder / "trace_tools.py").write_text(TOOLS)
        names = ("chat", "hermes_chat")
        tables = "".join(MODELS[name].table(server.url, more).replace(', "odd"', "") for name in names)
        self.config = CONFIG + keys + tables
        self.start()

    def start(self, config: str | None = None) -> None:
        self.gateway: Gateway = self._stack.enter_context(running(config or self.config, folder=self.folder))

    def approve(self, key: str | None = None) -> Approver:
        return Approver(self.gateway, key)

    def ask(self, model: str, *calls: tuple[str, str], text: str = "Done.", **members: Any) -> Any:
        """Send a Chat request. The model makes the calls, one after the other, and then says the text."""
        scripted = MODELS[model]
        self.server.enqueue(*(scripted.answer("", [each]) for each in calls), scripted.answer(text))
        return Asking(self.gateway).chat("How is the weather?", model=model, **members)

    def newest(self) -> dict[str, Any]:
        found = self.get("/api/traces").json()["traces"][0]
        return self.trace(found["id"])

    def get(self, path: str, key: str | None = None) -> httpx.Response:
        return self.approve(key).get(path)

    def trace(self, identifier: str) -> dict[str, Any]:
        response = self.get(f"/api/traces/{identifier}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def entry(self, trace: dict[str, Any], kind: str, number: int = 0) -> dict[str, Any]:
        key = [each["key"] for each in trace["entries"] if each["kind"] == kind][number]
        response = self.get(f"/api/traces/{trace['id']}/entries/{key}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found
