"""The vault with a person's yes: search, pick files, read, answer. On Chat and Responses, native and text models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.approving import TIMEOUT_SECONDS, Approver, Asking, without_time, write_notes
from tests.gateway import running
from tests.model_server import ModelServer
from tests.scripted_models import MODELS, ScriptedModel
from toolrelay.config import load
from toolrelay.errors import ConfigurationError

NOTES = {
    "Bees.md": "# Bees\n\nBees make honey from nectar.\n",
    "Garden/Hive.md": "The hive stands by the apple tree. Bees love it.\n",
    "Garden/Honey.md": "---\ntags: [food]\n---\nHoney harvest: 12 jars of honey.\n",
    "Journal/Today.md": "I was stung by bees, and I am sad.\n",
    "Secret.md": "#private The bees know my password.\n",
}
SEARCH = ("vault_search", '{"query": "bees"}')
READ = ("file_read", '{"filePaths": ["Bees.md", "Garden/Hive.md", "Garden/Honey.md"]}')
TEXT = "Bees make honey."


class VaultDesk:
    """A gateway with a vault, a model server, a client and an approver."""

    def __init__(self, folder: Path, stack: ExitStack, *, vault: str = "", model: str = "") -> None:
        self.vault = folder / "Notes"
        write_notes(self.vault, NOTES)
        self.server = stack.enter_context(ModelServer())
        tables = "".join(each.table(self.server.url, f"{model}\n") for each in MODELS.values())
        local = MODELS["chat"].table(self.server.url, "local = true").replace("[models.chat]", "[models.local]")
        tables = (tables + local).replace('toolsets = ["mine", "odd"]', 'toolsets = ["vault"]')
        private = 'private = ["tag:private", "Journal/**"]'
        config = f'{tables}[toolsets.vault]\nkind = "vault"\npath = "Notes"\n{private}\n{vault}\n'
        self.gateway = stack.enter_context(running(config, folder=folder))
        self.approver = Approver(self.gateway)
        self.asking = Asking(self.gateway)

    def ask(self, model: str, *answers: bytes, api: str = "chat", **members: Any) -> Future[httpx.Response]:
        self.first = self.server.enqueue(*answers)
        if api == "chat":
            return self.asking.chat("What about bees?", model=model, **members)
        return self.asking.responses("What about bees?", model=model, **members)

    def sent(self, number: int) -> str:
        """Return the body of a request to the model."""
        return self.server.request(self.first + number).result(TIMEOUT_SECONDS).body.decode()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VaultDesk]:
    with ExitStack() as stack:
        yield VaultDesk(tmp_path_factory.mktemp("vault"), stack)


@pytest.fixture
def open_desk(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda **options: VaultDesk(tmp_path, stack, **options)


def text_of(response: httpx.Response, api: str) -> str:
    assert response.status_code == 200, response.text
    value = response.json()
    if api == "chat":
        return str(value["choices"][0]["message"]["content"])
    return str(value["output"][-1]["content"][0]["text"])


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_search_then_read_two_of_three_files_then_answer(desk: VaultDesk, model: ScriptedModel, api: str) -> None:
    reply = desk.ask(model.name, model.answer("", [SEARCH]), model.answer("", [READ]), model.answer(TEXT), api=api)
    question = desk.approver.question("vault_search")
    assert (question["title"], question["arguments"], question["model"]) == ("Search vault", {"query": "bees"}, model.name)
    assert "files" not in question
    assert len(desk.server.requests) == desk.first + 1
    desk.approver.allow("vault_search")
    question = desk.approver.question("file_read")
    assert [(file["path"], file["name"], file["first_line"]) for file in question["files"]] == [
        ("Bees.md", "Bees.md", "# Bees"),
        ("Garden/Hive.md", "Hive.md", "The hive stands by the apple tree. Bees love it."),
        ("Garden/Honey.md", "Honey.md", "Honey harvest: 12 jars of honey."),
    ]
    assert all(file["size"] > 0 and file["modified_at"] > 0 and "private" not in file for file in question["files"])
    assert (question["provider"], question["local"]) == ("compatible", False)
    desk.approver.allow("file_read", arguments={"filePaths": ["Bees.md", "Garden/Honey.md"]})
    assert text_of(reply.result(TIMEOUT_SECONDS), api) == TEXT
    found, read = desk.sent(1), desk.sent(2)
    assert "Bees.md" in found
    assert "Garden/Hive.md" in found
    assert "ran_with" in read
    assert "12 jars of honey" in read
    assert "stands by the apple tree. Bees love it.\\n" not in read.rpartition("ran_with")[2]
    for body in (found, read):
        assert "Journal" not in body
        assert "Secret" not in body
        assert "password" not in body


def test_denied_search_leaves_nothing(desk: VaultDesk) -> None:
    model = MODELS["chat"]
    reply = desk.ask("chat", model.answer("", [SEARCH]), model.answer("I may not look."))
    desk.approver.deny(reason="private matters")
    assert text_of(reply.result(TIMEOUT_SECONDS), "chat") == "I may not look."
    assert "Reason: private matters" in desk.sent(1)
    assert "Hive" not in desk.sent(1)


def test_empty_selection_of_files_is_a_denial(desk: VaultDesk) -> None:
    model = MODELS["chat"]
    reply = desk.ask("chat", model.answer("", [READ]), model.answer("I see."))
    answered = desk.approver.allow(arguments={"filePaths": []})
    assert (answered["status"], answered["reason"]) == ("denied", "No file was selected.")
    reply.result(TIMEOUT_SECONDS)
    assert "No file was selected." in desk.sent(1)


def test_private_notes_do_not_exist_for_other_models(desk: VaultDesk) -> None:
    model = MODELS["chat"]
    paths = json.dumps({"filePaths": ["Journal/Today.md", "Nothing.md", "Bees.md"]})
    reply = desk.ask("chat", model.answer("", [("file_read", paths)]), model.answer(TEXT))
    files = desk.approver.question()["files"]
    assert [(file["path"], file.get("error")) for file in files] == [
        ("Journal/Today.md", "File not found: Journal/Today.md"),
        ("Nothing.md", "File not found: Nothing.md"),
        ("Bees.md", None),
    ]
    desk.approver.allow()
    reply.result(TIMEOUT_SECONDS)
    assert "File not found: Journal/Today.md" in desk.sent(1)
    assert "sad" not in desk.sent(1)


def test_local_model_sees_private_notes_and_the_person_is_told(desk: VaultDesk) -> None:
    model = MODELS["chat"]
    paths = json.dumps({"filePaths": ["Journal/Today.md", "Bees.md"]})
    reply = desk.ask("local", model.answer("", [SEARCH, ("file_read", paths)]), model.answer(TEXT))
    desk.approver.allow("vault_search")
    question = desk.approver.question("file_read")
    assert [(file["path"], file["private"]) for file in question["files"]] == [("Journal/Today.md", True), ("Bees.md", False)]
    assert question["local"] is True
    desk.approver.allow("file_read")
    reply.result(TIMEOUT_SECONDS)
    assert "I am sad" in desk.sent(1)
    assert "password" in desk.sent(1)


@pytest.mark.parametrize("following", ["previous_response_id", "conversation"])
def test_private_result_is_withheld_from_another_model_of_the_conversation(desk: VaultDesk, following: str) -> None:
    model = MODELS["chat"]
    paths = json.dumps({"filePaths": ["Journal/Today.md"]})
    named = {"conversation": desk.gateway.post("/v1/conversations", {}).json()["id"]} if following == "conversation" else {}
    reply = desk.ask("local", model.answer("", [("file_read", paths)]), model.answer("Hm."), api="responses", **named)
    desk.approver.allow()
    first = reply.result(TIMEOUT_SECONDS).json()
    assert "I am sad" in desk.sent(1)
    members = named or {"previous_response_id": first["id"]}
    for name, sees in (("chat", False), ("local", True)):
        reply = desk.ask(name, model.answer(TEXT), api="responses", **members)
        assert text_of(reply.result(TIMEOUT_SECONDS), "responses") == TEXT
        assert ("I am sad" in desk.sent(0)) is sees
        assert ("[withheld]" in desk.sent(0)) is not sees
        if not named:
            members = {"previous_response_id": first["id"]}


def test_private_result_of_a_deleted_response_is_withheld_from_another_model(desk: VaultDesk) -> None:
    """The conversation keeps the item of a deleted response, and with it whether its result is private."""
    model = MODELS["chat"]
    paths = json.dumps({"filePaths": ["Journal/Today.md"]})
    named = {"conversation": desk.gateway.post("/v1/conversations", {}).json()["id"]}
    reply = desk.ask("local", model.answer("", [("file_read", paths)]), model.answer("Hm."), api="responses", **named)
    desk.approver.allow()
    first = reply.result(TIMEOUT_SECONDS).json()
    assert httpx.delete(f"{desk.gateway.v1}/responses/{first['id']}").status_code == 200
    for name, sees in (("chat", False), ("local", True)):
        desk.ask(name, model.answer(TEXT), api="responses", **named).result(TIMEOUT_SECONDS)
        assert ("I am sad" in desk.sent(0)) is sees
        assert ("[withheld]" in desk.sent(0)) is not sees


def test_note_that_becomes_private_between_question_and_run_is_not_found(open_desk: Any) -> None:
    desk = open_desk()
    model = MODELS["chat"]
    reply = desk.ask("chat", model.answer("", [READ]), model.answer(TEXT))
    assert not any("error" in file for file in desk.approver.question()["files"])
    (desk.vault / "Bees.md").write_text("#private Now it is mine.\n")
    desk.approver.allow()
    reply.result(TIMEOUT_SECONDS)
    assert "File not found: Bees.md" in desk.sent(1)
    assert "Now it is mine" not in desk.sent(1)


def test_note_that_changed_or_moved_between_question_and_run_is_read_as_it_is(open_desk: Any) -> None:
    desk = open_desk()
    model = MODELS["chat"]
    reply = desk.ask("chat", model.answer("", [READ]), model.answer(TEXT))
    desk.approver.question()
    (desk.vault / "Bees.md").write_text("Bees are wasps.\n")
    (desk.vault / "Garden" / "Hive.md").rename(desk.vault / "Hive.md")
    desk.approver.allow()
    reply.result(TIMEOUT_SECONDS)
    assert "Bees are wasps." in desk.sent(1)
    assert "File not found: Garden/Hive.md" in desk.sent(1)


def test_vault_survives_a_restart_with_an_open_question(open_desk: Any, tmp_path: Path) -> None:  # bug 49
    desk = open_desk()
    model = MODELS["chat"]
    started = desk.ask("chat", model.answer("", [READ]), model.answer(TEXT), api="responses", background=True)
    response_id = started.result(TIMEOUT_SECONDS).json()["id"]
    asked = desk.approver.question()
    desk.gateway.process.kill()
    desk.gateway.process.wait()
    with running((tmp_path / "toolrelay.toml").read_text(), folder=tmp_path) as gateway:
        approver = Approver(gateway)
        question = approver.question()
        assert without_time(question) == without_time(asked)
        approver.allow(arguments={"filePaths": ["Garden/Honey.md"]})
        body = desk.sent(1)
        assert "12 jars" in body
        url = f"{gateway.v1}/responses/{response_id}?stream=true"
        with httpx.stream("GET", url, timeout=TIMEOUT_SECONDS) as stream:
            assert "response.completed" in stream.read().decode()


def test_model_that_is_no_longer_local_does_not_get_what_it_had_seen(open_desk: Any, tmp_path: Path) -> None:
    desk = open_desk()
    model = MODELS["chat"]
    private, public = [("file_read", json.dumps({"filePaths": [path]})) for path in ("Journal/Today.md", "Bees.md")]
    answers = model.answer("", [private]), model.answer("", [public]), model.answer(TEXT)
    desk.ask("local", *answers, api="responses", background=True).result(TIMEOUT_SECONDS)
    desk.approver.allow()
    assert "I am sad" in desk.sent(1)
    desk.approver.question()
    desk.gateway.process.kill()
    desk.gateway.process.wait()
    config = (tmp_path / "toolrelay.toml").read_text().replace("local = true", "local = false")
    with running(config, folder=tmp_path) as gateway:
        Approver(gateway).allow()
        body = desk.sent(2)
        assert "I am sad" not in body
        assert "[withheld]" in body
        assert "from nectar" in body


def test_answer_for_always_given_for_a_local_model_does_not_hold_for_others(open_desk: Any) -> None:
    desk = open_desk()
    model = MODELS["chat"]
    reply = desk.ask("local", model.answer("", [SEARCH]), model.answer(TEXT))
    desk.approver.allow(remember="always")
    reply.result(TIMEOUT_SECONDS)
    assert text_of(desk.ask("local", model.answer("", [SEARCH]), model.answer(TEXT)).result(TIMEOUT_SECONDS), "chat") == TEXT
    reply = desk.ask("chat", model.answer("", [SEARCH]), model.answer(TEXT))
    assert desk.approver.question()["model"] == "chat"
    desk.approver.deny()
    reply.result(TIMEOUT_SECONDS)


# share = "ask"


def test_results_are_shared_only_after_a_second_yes(open_desk: Any) -> None:
    desk = open_desk(vault='share = "ask"\napproval = "never"')
    model = MODELS["chat"]
    reply = desk.ask("chat", model.answer("", [SEARCH]), model.answer(TEXT), api="responses")
    question = desk.approver.question()
    assert question["kind"] == "share"
    assert sorted(question["arguments"]["paths"]) == ["Bees.md", "Garden/Hive.md"]
    assert {file["path"] for file in question["files"]} == {"Bees.md", "Garden/Hive.md"}
    assert all(file["first_line"] for file in question["files"])
    refused = desk.approver.post(question["id"], verdict="allow", arguments={"paths": ["Secret.md"]})
    assert refused.status_code == 422
    desk.approver.allow(arguments={"paths": ["Bees.md"]})
    response = reply.result(TIMEOUT_SECONDS).json()
    assert [entry["path"] for entry in json.loads(response["output"][0]["output"])] == ["Bees.md"]
    assert "Bees.md" in desk.sent(1)
    assert "Hive" not in desk.sent(1)


def test_nothing_is_shared_without_the_second_yes(open_desk: Any) -> None:  # bug 48
    desk = open_desk(vault='share = "ask"')
    model = MODELS["chat"]
    reply = desk.ask("chat", model.answer("", [SEARCH]), model.answer("Well."))
    desk.approver.allow("vault_search")
    question = desk.approver.question()
    assert question["kind"] == "share"
    desk.approver.deny()
    assert text_of(reply.result(TIMEOUT_SECONDS), "chat") == "Well."
    assert "did not share its result" in desk.sent(1)
    assert "Hive" not in desk.sent(1)


def test_question_about_sharing_survives_a_restart(open_desk: Any, tmp_path: Path) -> None:  # bug 49
    desk = open_desk(vault='share = "ask"\napproval = "never"')
    model = MODELS["chat"]
    desk.ask("chat", model.answer("", [SEARCH]), model.answer(TEXT), api="responses", background=True).result(TIMEOUT_SECONDS)
    asked = desk.approver.question()
    desk.gateway.process.kill()
    desk.gateway.process.wait()
    with running((tmp_path / "toolrelay.toml").read_text(), folder=tmp_path) as gateway:
        approver = Approver(gateway)
        assert without_time(approver.question()) == without_time(asked)
        approver.allow(arguments={"paths": ["Garden/Hive.md"]})
        assert "Hive" in desk.sent(1)
        assert "Bees.md" not in desk.sent(1)


def test_large_files_can_be_shared_in_part(open_desk: Any) -> None:
    desk = open_desk(vault='share = "ask"\napproval = "never"', model="max_tool_result_bytes = 4000")
    (desk.vault / "Large.md").write_text("bees " * 5000)
    model = MODELS["chat"]
    paths = json.dumps({"filePaths": ["Large.md", "Bees.md"]})
    reply = desk.ask("chat", model.answer("", [("file_read", paths)]), model.answer(TEXT))
    desk.approver.allow(arguments={"paths": ["Bees.md"]})
    reply.result(TIMEOUT_SECONDS)
    assert "Bees make honey from nectar" in desk.sent(1)
    assert "bees bees bees" not in desk.sent(1)


def test_sharing_is_refused_with_returned_questions(tmp_path: Path) -> None:
    config = (
        '[models.m]\nprovider = "demo"\napproval = "return"\ntoolsets = ["vault"]\n'
        f'[toolsets.vault]\nkind = "vault"\npath = "{tmp_path}"\nshare = "ask"\n'
    )
    (tmp_path / "toolrelay.toml").write_text(config)
    with pytest.raises(ConfigurationError, match=r'models\.m\.approval: "return" is not possible with the toolset vault'):
        load(str(tmp_path / "toolrelay.toml"), {})
