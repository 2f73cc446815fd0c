"""A gateway whose tools need approval, a model that calls what it is told to call, and a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import httpx

from tests.cli.commands import PROGRAM
from tests.gateway import Gateway, running
from tests.model_server import ModelServer, configuration
from tests.tool_rounds import Round, play
from tests.upstream import Player, ReceivedRequest, Script

TIMEOUT_SECONDS = 60  # only a test that hangs reaches it
WEATHER = {"city": "Rome"}
NOTES = {"paths": ["Trips/Rome.md", "Trips/Oslo.md", "Diary.md"], "tags": ["x"]}

_FUNCTIONS = '''
from toolrelay import tool


@tool(hints={"readOnlyHint": True})
def get_weather(city: str) -> str:
    """Return the weather.

    Only for today.
    """
    return f"18 degrees in {city}"
'''

# Found by discovery, like the kinds of the gateway itself: it has files and hostile texts, which functions do not have.
_KIND = r"""
from toolrelay.settings import ToolsetSettings
from toolrelay.toolsets.base import FilePreview, Preview, ToolDefinition, ToolsetKind

STRINGS = {"type": "array", "items": {"type": "string"}}
SCHEMA = {
    "type": "object",
    "properties": {"tags": STRINGS, "paths": STRINGS},
    "required": ["paths"],
    "additionalProperties": False,
}


class NotesSettings(ToolsetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Notes:
    tools = (
        ToolDefinition(name="read_notes", title="Read notes", description="Read.", parameters=SCHEMA, files_argument="paths"),
        ToolDefinition(name="find_notes", description="Find.", parameters=SCHEMA, asks_to_share=True),
        ToolDefinition(
            name="odd", title="[red]odd\x1b[2J\x1b]0;owned\x07", description="one\n\x9b2J\u202etwo[/]", parameters=SCHEMA,
            hints={"\x1b[1m": "\x07"}, files_argument="paths",
        ),
    )

    async def open(self): ...

    async def close(self): ...

    async def preview(self, name, arguments, context):
        if name == "find_notes":
            return Preview()
        return Preview(files=tuple(self._describe(path, context) for path in arguments["paths"]))

    def _describe(self, path, context):
        name = path.rpartition("/")[2]
        if name == "bug.md":
            raise KeyError(name)
        if name == "gone.md":
            return FilePreview(path=path, name=name, error="File not found")
        private = name == "Diary.md" if context.local else None
        return FilePreview(path=path, name=name, size=1234, modified_at=1.7e9, first_line=f"# {name}", private=private)

    async def run(self, name, arguments, context):
        if name == "find_notes":
            return [{"path": path, "content": "…"} for path in arguments["paths"]]
        return "read " + " ".join(arguments["paths"])


KIND = ToolsetKind(name="notes", settings=NotesSettings, open=lambda settings, environment: Notes())
"""
_CUSTOMIZE = """
import os, toolrelay.toolsets
toolrelay.toolsets.__path__.append(os.path.join(os.path.dirname(__file__), "kinds"))
"""
_TOOLSETS = """
[toolsets.mine]
kind = "python"
module = "asking_tools"
approval = "always"

[toolsets.notes]
kind = "notes"
approval = {read_notes = "always", find_notes = "never", odd = "always"}
"""


def respond(received: ReceivedRequest) -> Script:
    """Call what the user's message says; then repeat what came back."""
    messages = json.loads(received.body)["messages"]
    calls = json.loads(next(message["content"] for message in messages if message["role"] == "user"))
    results = tuple(str(message["content"]) for message in messages if message["role"] == "tool")
    return play(Round(calls=tuple((name, arguments) for name, arguments in calls)), Round(text=results))(received)


class AskingGateway:
    """A running gateway, its questions, and clients that wait for them."""

    def __init__(self, gateway: Gateway, token: str) -> None:
        self.gateway = gateway
        self.token = token
        self._http = httpx.Client(base_url=gateway.url, headers={"authorization": f"Bearer {token}"}, timeout=60)
        self._pool = ThreadPoolExecutor(16)

    @property
    def options(self) -> tuple[str, ...]:
        return "--url", self.gateway.url, "--data-dir", str(self.gateway.data_dir)

    def call(self, name: str, arguments: dict[str, Any], *more: tuple[str, dict[str, Any]], model: str = "fast") -> Future[str]:
        """Let the model make calls. Return what the client gets at the end: the results, as the model saw them."""
        message = {"role": "user", "content": json.dumps([(name, arguments), *more])}

        def request() -> str:
            response = self.gateway.post("/v1/chat/completions", {"model": model, "messages": [message]})
            assert response.status_code == 200, response.text
            return str(response.json()["choices"][0]["message"]["content"])

        return self._pool.submit(request)

    def ask(self, name: str = "get_weather", arguments: dict[str, Any] | None = None, **options: Any) -> tuple[str, Future[str]]:
        """Let the model make a call, and wait until it is asked about. Return the question's id as well."""
        before = {question["id"] for question in self.pending()}
        answer = self.call(name, WEATHER if arguments is None else arguments, **options)
        return await_value(lambda: next((each["id"] for each in self.pending() if each["id"] not in before), None)), answer

    def ask_stored(self) -> str:
        """Ask in a background response, which survives its client and the gateway."""
        message = json.dumps([("get_weather", WEATHER)])
        body = {"model": "fast", "input": message, "background": True}
        assert self.gateway.post("/v1/responses", body).status_code == 200
        return str(await_value(lambda: next((each["id"] for each in self.pending()), None)))

    def await_open(self, question: str) -> None:
        """Wait until the turn of a question waits for the answer again, after a restart."""
        await_value(lambda: f'"id":"{question}"' in (log := self.gateway.log()) and '"status":"pending"' in log)

    def pending(self) -> list[dict[str, Any]]:
        return list(self._http.get("/approvals?status=pending").json()["approvals"])

    def retrieve(self, question: str) -> dict[str, Any]:
        return dict(self._http.get(f"/approvals/{question}").json())

    def answer(self, question: str, **decision: Any) -> None:
        response = self._http.post(f"/approvals/{question}", json=decision)
        assert response.status_code == 200, response.text

    def rules(self) -> list[dict[str, Any]]:
        return list(self._http.get("/approvals/rules").json()["rules"])

    def clean(self) -> None:
        """Deny what is open, and delete the rules."""
        for question in self.pending():
            self._http.post(f"/approvals/{question['id']}", json={"verdict": "deny"})
        for rule in self.rules():
            self._http.delete(f"/approvals/rules/{rule['id']}")

    def close(self) -> None:
        self._http.close()
        self._pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def asking(
    folder: Path, *, config: str = "", port: int = 0, token: str = "", script: Player = respond
) -> Iterator[AskingGateway]:
    """Start a gateway with the models `fast`, `home`, which is local, and `brief`, whose questions expire after a second."""
    (folder / "kinds").mkdir(parents=True, exist_ok=True)
    (folder / "kinds" / "notes.py").write_text(_KIND)
    (folder / "sitecustomize.py").write_text(_CUSTOMIZE)
    (folder / "asking_tools.py").write_text(_FUNCTIONS)
    with ModelServer(script) as model:
        tools = 'toolsets = ["mine", "notes"]\n'
        models = configuration(model, model=tools, before=_TOOLSETS)
        home = configuration(model, model=f"{tools}local = true\n").replace("[models.fast]", "[models.home]")
        brief = configuration(model, model=f"{tools}approval_expiry_seconds = 1\n").replace("[models.fast]", "[models.brief]")
        flags = ("--port", str(port))
        with running(models + home + brief + config, environ={"PYTHONPATH": str(folder)}, folder=folder, flags=flags) as gateway:
            found = AskingGateway(gateway, token or (gateway.data_dir / "approver.token").read_text().strip())
            try:
                yield found
            finally:
                found.close()


def await_value(look: Callable[[], Any]) -> Any:
    """Return the first value that is true."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while not (value := look()):
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.01)
    return value


class Terminal:
    """`toolrelay` in a terminal."""

    def __init__(self, *arguments: str, environ: dict[str, str] | None = None) -> None:
        self._ours, theirs = pty.openpty()
        variables = {"TERM": "dumb", "COLUMNS": "160", "LINES": "50", **(environ or {})}
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, **variables},
        )
        os.close(theirs)
        self.output = ""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def expect(self, text: str) -> str:
        """Wait for a text after the last one that was expected. Return what was printed before it."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while (place := self.output.find(text, self._seen)) < 0:
            assert time.monotonic() < until, f"no {text!r} in {self.output!r}"
            assert self._read(until - time.monotonic()), f"ended without {text!r}: {self.output!r}"
        before = self.output[self._seen : place]
        self._seen = place + len(text)
        return before

    def send(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        """Return the exit code."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while self._read(max(0.0, until - time.monotonic())):
            pass
        return self.process.wait(TIMEOUT_SECONDS)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # EIO: the other end of the terminal is closed
            return False
        self.output += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
