"""Settings over HTTP: changes that count at once, last over a restart, and never override the file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.approving import TIMEOUT_SECONDS, Approver, Asking, chat_text, write_notes
from tests.gateway import Gateway, running

NOTES = {"Apples.md": "Apples keep until March.\n", "Journal/Day.md": "I ate apples.\n"}
SEARCH = 'vault_search {"query": "apples"}'
PATH = "toolsets.vault.path"
NEVER = {"toolsets.vault.approval": "never"}


class Room:
    """A gateway in a folder with notes, and its operator."""

    def __init__(self, folder: Path, stack: ExitStack, config: str | None) -> None:
        self.folder = folder
        self.notes = folder / "Notes"
        write_notes(self.notes, NOTES)
        self._stack = stack
        self.start(config)

    def start(self, config: str | None, **environ: str) -> None:
        self.gateway: Gateway = self._stack.enter_context(running(config, folder=self.folder, environ=environ))
        self.operator = Approver(self.gateway)
        self.asking = Asking(self.gateway)

    def restart(self, config: str | None, **environ: str) -> None:
        assert self.gateway.stop() == 0
        self.start(config, **environ)

    def show(self) -> dict[str, Any]:
        response = self.operator.get("/api/settings")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def toolset(self, name: str = "vault") -> dict[str, Any]:
        return next(toolset for toolset in self.show()["toolsets"] if toolset["name"] == name)

    def value(self, key: str, toolset: str = "vault") -> Any:
        return self.toolset(toolset)["values"][key]["value"]

    def send(self, changes: Any, **headers: str) -> httpx.Response:
        url = f"{self.gateway.url}/api/settings"
        given = headers or self.operator.headers
        return httpx.patch(url, json={"changes": changes}, headers=given, timeout=TIMEOUT_SECONDS)

    def change(self, **changes: Any) -> dict[str, Any]:
        response = self.send(changes)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def check(self, path: str) -> dict[str, Any]:
        url = f"{self.gateway.url}/api/settings/check-folder"
        response = httpx.post(url, json={"path": path}, headers=self.operator.headers, timeout=TIMEOUT_SECONDS)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def ask(self, text: str = SEARCH, model: str = "demo") -> str:
        return chat_text(self.asking.chat(text, model=model).result())

    def refused(self, changes: Any, status: int = 422) -> str:
        """Send changes that are refused, and return why. Nothing may have changed."""
        before = self.show()
        response = self.send(changes)
        assert response.status_code == status, response.text
        assert self.show() == before
        return str(response.json()["error"]["message"])


@pytest.fixture(scope="module")
def shared_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with ExitStack() as stack:
        yield Room(tmp_path_factory.mktemp("settings"), stack, None)


@pytest.fixture
def room(shared_room: Room) -> Room:
    """A gateway without a configuration file, on which nothing has been changed."""
    paths = [PATH, "models.demo.toolsets"] + [f"toolsets.vault.{key}" for key in ("approval", "private", "exclude", "share")]
    shared_room.change(**dict.fromkeys(paths))
    return shared_room


@pytest.fixture
def own_room(tmp_path: Path) -> Iterator[Any]:
    """Make a room of the test's own, with its configuration."""
    with ExitStack() as stack:
        yield lambda config: Room(tmp_path, stack, config)


def test_without_a_file_the_sample_vault_asks(room: Room) -> None:
    toolset = room.toolset()
    assert toolset["is_sample"]
    assert toolset["values"]["path"]["source"] == "default"
    assert [(tool["name"], tool["approval"]) for tool in toolset["tools"]] == [
        ("vault_search", "always"),
        ("file_read", "always"),
    ]
    answer = room.asking.chat("vault search for bees", model="demo")
    assert room.operator.allow("vault_search")["arguments"] == {"query": "bees"}
    assert "Garden/Honey bees.md" in chat_text(answer.result())


def test_plain_request_to_the_demo_model_runs_no_tool(room: Room) -> None:
    assert room.ask("say hello") == "hello"


def test_client_tool_is_handed_over_although_there_is_a_sample_vault(room: Room) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}]
    answer = room.asking.chat("What is the weather in Paris?", model="demo", tools=tools).result().json()
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], call["function"]["arguments"]) == ("get_weather", '{"city": "Paris"}')


def test_vault_is_used_in_the_next_request(room: Room) -> None:
    changed = room.change(**{PATH: str(room.notes), **NEVER})
    assert changed["toolsets"][0]["values"]["path"] == {"path": PATH, "value": str(room.notes), "source": "here", "fixed": False}
    answer = room.ask()
    assert "Apples.md" in answer
    assert "Journal/Day.md" in answer


def test_tilde_is_the_home_directory(own_room: Any) -> None:
    room = own_room(None)
    room.restart(None, HOME=str(room.folder))
    room.change(**{PATH: "~/Notes", **NEVER})
    assert "Apples.md" in room.ask()
    assert room.check("~/Notes")["notes"] == 2


def test_null_is_back_to_the_default(room: Room) -> None:
    before = room.show()
    room.change(**{PATH: str(room.notes), **NEVER})
    assert room.change(**dict.fromkeys([PATH, *NEVER])) == before


def test_private_and_excluded_notes_are_changed_live(room: Room) -> None:
    room.change(**{PATH: str(room.notes), **NEVER, "toolsets.vault.private": ["Journal/**"]})
    assert "Journal/Day.md" not in room.ask()
    room.change(**{"toolsets.vault.private": None})
    assert "Journal/Day.md" in room.ask()
    room.change(**{"toolsets.vault.exclude": ["Journal/**"]})
    assert "Journal/Day.md" not in room.ask()


def test_approval_is_by_tool(room: Room) -> None:
    room.change(**{"toolsets.vault.approval": {"vault_search": "never", "file_read": "always"}})
    assert [tool["approval"] for tool in room.toolset()["tools"]] == ["never", "always"]
    assert "says" in room.ask('vault_search {"query": "bees"}')
    answer = room.asking.chat('file_read {"filePaths": ["Welcome.md"]}', model="demo")
    room.operator.deny("file_read")
    assert "failed" in chat_text(answer.result())


def test_toolset_is_taken_from_a_model(room: Room) -> None:
    room.change(**{"models.demo.toolsets": []})
    assert "I was offered no tools" in room.ask()
    room.change(**{"models.demo.toolsets": ["vault"], **NEVER})
    assert "vault_search says" in room.ask()


def test_index_of_a_vault_that_is_gone_is_deleted(room: Room) -> None:
    folder = room.gateway.data_dir / "vaults"
    room.change(**{PATH: str(room.notes)})
    room.change(**{PATH: None})
    until = time.monotonic() + TIMEOUT_SECONDS
    while len(list(folder.glob("*.db"))) > 1:  # it is closed when its calls have ended
        assert time.monotonic() < until, list(folder.iterdir())
    assert room.value("path").endswith("sample")


def test_settings_last_over_a_restart(own_room: Any) -> None:
    room = own_room(None)
    room.change(**{PATH: str(room.notes), **NEVER})
    room.restart(None)
    assert "Apples.md" in room.ask()
    assert room.toolset()["values"]["approval"]["source"] == "here"


FILE = """
[models.fast]
provider = "demo"
toolsets = ["vault"]
[models.other]
provider = "demo"
[toolsets.vault]
kind = "vault"
path = "Notes"
"""


def test_file_fixes_its_values(own_room: Any) -> None:
    room = own_room(FILE)
    values = room.toolset()["values"]
    assert {key: (value["source"], value["fixed"]) for key, value in values.items()} == {
        "approval": ("default", False),
        "kind": ("file", True),
        "path": ("file", True),
        "private": ("default", False),
        "exclude": ("default", False),
        "share": ("default", False),
    }
    assert "is set in" in room.refused({PATH: "/tmp"}, 409)
    assert "is set in" in room.refused({"models.fast.toolsets": []}, 409)
    room.change(**{"models.other.toolsets": ["vault"], **NEVER})
    assert "Apples.md" in room.ask(model="other")


def test_file_that_is_added_later_wins(own_room: Any) -> None:
    room = own_room(None)
    write_notes(room.folder / "Other", {"Pears.md": "No apples.\n"})
    room.change(**{PATH: str(room.folder / "Other"), **NEVER})
    room.restart(FILE)
    assert "Apples.md" in room.ask(model="fast")
    ignored = room.show()["ignored"]
    assert [(each["path"], each["reason"].startswith("It is set in")) for each in ignored] == [(PATH, True)]
    assert room.gateway.log().count('"setting_ignored"') == 1
    assert room.change(**{PATH: None})["ignored"] == []


def test_vault_is_added_to_a_file_without_one(own_room: Any) -> None:
    room = own_room('[models.fast]\nprovider = "demo"\n')
    new = {"toolsets.vault.kind": "vault", PATH: str(room.notes), "models.fast.toolsets": ["vault"], **NEVER}
    room.change(**new)
    assert "Apples.md" in room.ask(model="fast")
    assert "there is no toolset" in room.refused(dict.fromkeys(["toolsets.vault.kind", PATH, *NEVER]))
    assert room.change(**dict.fromkeys(new))["toolsets"] == []
    assert "I was offered no tools" in room.ask(model="fast")


def test_stored_folder_that_is_gone_does_not_keep_the_gateway_from_starting(own_room: Any) -> None:
    room = own_room(None)
    room.change(**{PATH: str(room.notes), "models.demo.toolsets": ["vault"]})
    room.notes.rename(room.folder / "Away")
    room.restart(None)
    (ignored,) = room.show()["ignored"]
    assert (ignored["path"], ignored["reason"].startswith("there is no folder")) == (PATH, True)
    assert room.toolset()["is_sample"]
    room.change(**{"models.demo.toolsets": []})  # something else can be changed all the same
    (room.folder / "Away").rename(room.notes)
    assert room.change(**{PATH: str(room.notes)})["ignored"] == []


def test_damaged_rows_do_not_keep_the_gateway_from_starting(own_room: Any) -> None:
    room = own_room(None)
    assert room.gateway.stop() == 0
    with closing(sqlite3.connect(room.gateway.data_dir / "toolrelay.db")) as connection:
        rows = [(PATH, "{"), ("server.port", "1"), ("nonsense", "null")]
        connection.executemany("INSERT INTO settings VALUES (?, ?, 1.0, 'local')", rows)
        connection.commit()
    room.start(None)
    assert [each["path"] for each in room.show()["ignored"]] == ["nonsense", "server.port", PATH]
    assert room.change(**dict.fromkeys(["nonsense", "server.port", PATH]))["ignored"] == []
    room.restart(None)
    assert room.show()["ignored"] == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({PATH: "/no/such/folder"}, "toolsets.vault: there is no folder /no/such/folder"),
        ({PATH: ""}, "path is empty"),
        ({PATH: "a\0b"}, "toolsets.vault: path"),
        ({PATH: 3}, "toolsets.vault.path: expected a string, found 3"),
        ({"toolsets.vault.approval": {"format_disk": "never"}}, "names the tool format_disk"),
        ({"toolsets.vault.approval": "perhaps"}, "toolsets.vault.approval: expected"),
        ({"models.demo.toolsets": ["gone"]}, "there is no toolset"),
        ({"models.demo.provider": "openai"}, "no setting that can be changed here"),
        ({"server.host": "0.0.0.0"}, "no setting that can be changed here"),
        ({"toolsets.two.kind": "vault", "toolsets.two.path": "/"}, "the data directory"),
        ({"toolsets.two.kind": "python", "toolsets.two.path": "os"}, "is no vault"),
        ({f"toolsets.{'x' * 101}.kind": "vault", f"toolsets.{'x' * 101}.path": "/tmp"}, "at most 100 characters"),
    ],
)
def test_change_that_cannot_be_used_is_refused_and_changes_nothing(room: Room, changes: dict[str, Any], reason: str) -> None:
    assert reason in room.refused({**changes, "toolsets.vault.exclude": ["x/**"]})


def test_second_vault_needs_a_prefix(room: Room) -> None:
    changes = {"toolsets.two.kind": "vault", "toolsets.two.path": str(room.notes)}
    assert "toolsets.two: the tool vault_search is also in toolsets.vault" in room.refused(changes)


def test_share_is_refused_for_models_that_return_questions(own_room: Any) -> None:
    room = own_room(FILE + '[models.asks]\nprovider = "demo"\napproval = "return"\n')
    room.change(**{"toolsets.vault.share": "ask"})
    assert '"return" is not possible with the toolset vault' in room.refused({"models.asks.toolsets": ["vault"]})


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"changes": {}}', b'{"changes": 1}', b'{"paths": {}}', b"\xff", b"[" * 9999]
)
def test_bad_body_is_400(room: Room, body: bytes) -> None:
    for method, path in (("PATCH", "/api/settings"), ("POST", "/api/settings/check-folder")):
        response = httpx.request(method, f"{room.gateway.url}{path}", content=body, headers=room.operator.headers)
        assert response.status_code == 400


def test_lone_surrogate_is_refused(room: Room) -> None:
    body = b'{"changes": {"toolsets.vault.path": "/\\ud800"}}'
    response = httpx.patch(f"{room.gateway.url}/api/settings", content=body, headers=room.operator.headers)
    assert response.status_code in (400, 422)


def test_too_much_is_refused(room: Room) -> None:
    assert room.send({f"models.m{number}.toolsets": [] for number in range(201)}).status_code == 400
    assert room.send({"models.demo.toolsets": ["x" * 300_000]}).status_code == 413


def test_changes_at_the_same_time_are_made_one_after_the_other(room: Room) -> None:
    folders = [room.folder / f"Vault{number}" for number in range(4)]
    for folder in folders:
        write_notes(folder, {f"{folder.name}.md": "Apples.\n"})
    room.change(**NEVER)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda folder: room.send({PATH: str(folder)}), folders))
    assert [answer.status_code for answer in answers] == [200] * 4
    used = Path(room.value("path"))
    assert used in folders
    assert f"{used.name}.md" in room.ask()


# A change while a turn runs


def test_tool_that_was_taken_away_is_not_run_by_a_turn_that_runs(room: Room) -> None:
    answer = room.asking.chat('vault_search {"query": "bees"}', model="demo")
    room.operator.question("vault_search")
    room.change(**{"models.demo.toolsets": []})
    response = room.operator.post(room.operator.question()["id"], verdict="allow")
    assert (response.status_code, "can only be denied" in response.text) == (409, True)
    room.operator.deny("vault_search")
    assert "Honey" not in chat_text(answer.result())


def test_answer_about_one_vault_is_not_remembered_for_another(room: Room) -> None:
    answer = room.asking.chat('vault_search {"query": "bees"}', model="demo")
    question = room.operator.question("vault_search")
    room.change(**{PATH: str(room.notes)})
    response = room.operator.post(question["id"], verdict="allow", remember="always")
    assert (response.status_code, response.json()["error"]["code"]) == (422, "cannot_remember")
    room.operator.deny("vault_search")
    answer.result()


def test_answer_about_one_vault_does_not_read_another(room: Room) -> None:
    write_notes(room.notes, {"Welcome.md": "A secret.\n"})
    answer = room.asking.chat('file_read {"filePaths": ["Welcome.md"]}', model="demo")
    room.operator.question("file_read")
    room.change(**{PATH: str(room.notes)})
    room.operator.allow("file_read")
    text = chat_text(answer.result())
    assert "secret" not in text
    assert "changed in the meantime" in text


def test_answer_about_one_vault_does_not_read_another_after_a_restart(own_room: Any) -> None:
    room: Room = own_room(None)
    write_notes(room.folder / "Other", {"Apples.md": "Rotten.\n"})
    room.change(**{PATH: str(room.notes)})
    body = {"model": "demo", "input": 'file_read {"filePaths": ["Apples.md"]}', "background": True}
    identifier = room.gateway.post("/v1/responses", body).json()["id"]
    assert room.operator.question("file_read")["files"][0]["first_line"] == "Apples keep until March."
    room.change(**{PATH: str(room.folder / "Other")})
    room.restart(None)
    room.operator.allow("file_read")
    until = time.monotonic() + TIMEOUT_SECONDS
    while (answer := room.gateway.get(f"/v1/responses/{identifier}").json())["status"] != "completed":
        assert time.monotonic() < until, answer
    assert "changed after a person had approved" in str(answer["output"])
    assert "Rotten" not in str(answer["output"])


def test_turn_that_waits_goes_on_after_another_setting_changed(room: Room) -> None:
    answer = room.asking.chat('vault_search {"query": "bees"}', model="demo")
    room.operator.question("vault_search")
    room.change(**NEVER)
    room.operator.allow("vault_search")
    assert "Honey bees.md" in chat_text(answer.result())


def test_rule_for_one_vault_does_not_answer_for_another(room: Room) -> None:
    answer = room.asking.chat('vault_search {"query": "bees"}', model="demo")
    room.operator.allow("vault_search", remember="always")
    answer.result()
    assert "Honey bees.md" in room.ask('vault_search {"query": "bees"}')  # nobody is asked
    room.change(**{PATH: str(room.notes)})
    answer = room.asking.chat(SEARCH, model="demo")
    room.operator.deny("vault_search")
    answer.result()


# Who may


def test_only_who_runs_the_gateway_may_change_settings(room: Room) -> None:
    for headers in ({"x-a": "b"}, {"authorization": "Bearer wrong"}):
        assert room.send({PATH: "/tmp"}, **headers).status_code == 401
        assert room.gateway.get("/api/settings", **headers).status_code == 401
        assert room.gateway.post("/api/settings/check-folder", {"path": "/"}, **headers).status_code == 401
    assert room.send({PATH: "/tmp"}, **room.operator.headers, origin="https://evil.example").status_code == 403


def test_key_that_approves_may_read_and_not_change(tmp_path: Path) -> None:
    keys = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\napprove = {approve}\n'
        for name, approve in (("ada", "true"), ("bob", "false"))
    )
    with running(f'[models.demo]\nprovider = "demo"\n{keys}', folder=tmp_path) as gateway:
        ada, bob = ({"authorization": f"Bearer {name}"} for name in ("ada", "bob"))
        shown = gateway.get("/api/settings", **ada)
        assert (shown.status_code, shown.json()["may_change"]) == (200, False)
        refused = gateway.get("/api/settings", **bob)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_an_operator")
        read = Approver(gateway).get("/api/settings")  # with the operator's token
        assert (read.status_code, read.json().get("may_change")) == (200, True)
        for headers in (ada, bob):
            body: dict[str, Any] = {"changes": {"models.demo.toolsets": []}}
            assert httpx.patch(f"{gateway.url}/api/settings", json=body, headers=headers).status_code == 403
            assert gateway.post("/api/settings/check-folder", {"path": "/"}, **headers).status_code == 403


def test_environment_that_turns_tools_off_is_shown(own_room: Any) -> None:
    room = own_room(None)
    room.restart(None, TOOLRELAY_TOOLS="off")
    assert room.show()["tools"] == {"value": "off", "source": "environment", "fixed": True}
    room.change(**{"models.demo.toolsets": []})


# Looking at a folder


def test_folder_is_described(room: Room) -> None:
    (room.folder / "Vault" / ".obsidian").mkdir(parents=True, exist_ok=True)
    write_notes(room.folder / "Vault", {"A.md": "a", "b/C.md": "c", ".trash/D.md": "d", "e.png": ""})
    found = room.check(str(room.folder / "Vault"))
    assert (found["notes"], found["complete"], found["obsidian"], found["problem"]) == (2, True, True, None)
    assert room.check("/no/such/folder")["problem"] == "There is no folder /no/such/folder."
    assert room.check(str(room.folder / "Vault" / "A.md"))["problem"].endswith("A.md is not a folder.")
    assert room.check("")["problem"] == "Enter the folder of the vault."
    assert room.check("~nobody_of_this_name/x")["problem"].startswith("This path cannot be used")
    assert room.check("a\0b")["problem"].startswith("This path cannot be used")
