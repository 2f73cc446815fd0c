"""Files of an open question over HTTP: a person looks at what the model would read, and at nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256

import httpx
import pytest

from tests.approving import TIMEOUT_SECONDS, write_notes
from tests.gateway import running
from tests.scripted_models import MODELS
from tests.test_vault_approvals import NOTES, SEARCH, VaultDesk
from toolrelay.web.approvals import MAX_TEXT

PATHS = ["Bees.md", "Secret.md", "../outside.md", "Garden/Missing.md", "Long.md", "Image.png"]
READ = ("file_read", json.dumps({"filePaths": PATHS}))
CHAT = MODELS["chat"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VaultDesk]:
    folder = tmp_path_factory.mktemp("previews")
    (folder / "outside.md").write_text("outside of the vault")
    with ExitStack() as stack:
        made = VaultDesk(folder, stack)
        write_notes(made.vault, {"Long.md": "é" * (MAX_TEXT + 1), "Image.png": "no note"})
        yield made


@contextmanager
def asked(desk: VaultDesk, model: str = "chat", call: tuple[str, str] = READ) -> Iterator[str]:
    """Open a question; at the end deny it and wait for the turn, which still takes an answer of the server."""
    reply = desk.ask(model, CHAT.answer("", [call]), CHAT.answer("Done."))
    try:
        yield str(desk.approver.question()["id"])
    finally:
        if desk.approver.pending():
            desk.approver.deny()
        reply.result(TIMEOUT_SECONDS)


def preview(desk: VaultDesk, question: str, index: object) -> httpx.Response:
    return desk.approver.get(f"/approvals/{question}/files/{index}")


def test_preview_has_the_text_that_a_run_would_read(desk: VaultDesk) -> None:
    with asked(desk) as question:
        texts = [preview(desk, question, index).json() for index in range(len(PATHS))]
    assert texts[0] == {"text": NOTES["Bees.md"], "is_cut": False}
    assert texts[1]["text"] == "File not found: Secret.md"
    assert "outside of the vault" not in texts[2]["text"]
    assert texts[3]["text"] == "File not found: Garden/Missing.md"
    assert texts[4] == {"text": "é" * MAX_TEXT, "is_cut": True}
    assert "no note" not in texts[5]["text"]


def test_local_model_reads_private_notes_and_so_does_the_preview(desk: VaultDesk) -> None:
    with asked(desk, "local") as question:
        assert preview(desk, question, 1).json()["text"] == NOTES["Secret.md"]


@pytest.mark.parametrize("index", [len(PATHS), -1, "1e3", "²", "9" * 400, "Bees.md", "..%2fSecret.md"])
def test_file_that_the_question_does_not_list_does_not_exist(desk: VaultDesk, index: object) -> None:
    with asked(desk) as question:
        assert preview(desk, question, index).status_code == 404


def test_only_approvers_look_and_only_while_the_question_is_open(desk: VaultDesk) -> None:
    with asked(desk) as question:
        url = f"{desk.gateway.url}/approvals/{question}/files/0"
        assert httpx.get(url).status_code == 401
        assert preview(desk, "appr_unknown", 0).status_code == 404
        desk.approver.deny()
        refused = preview(desk, question, 0)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "approval_not_pending")


def test_question_without_files_has_none(desk: VaultDesk) -> None:
    with asked(desk, call=SEARCH) as question:
        assert preview(desk, question, 0).status_code == 404


def test_key_that_may_not_approve_sees_no_file() -> None:
    key = f'[[keys]]\nname = "plain"\nsha256 = "{sha256(b"plain").hexdigest()}"\n'
    with running(f'{key}[models.demo]\nprovider = "demo"\n') as gateway:
        assert gateway.get("/approvals/appr_1/files/0", authorization="Bearer plain").status_code == 403


def test_shared_result_is_shown_as_the_model_would_see_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    with ExitStack() as stack:
        desk = VaultDesk(tmp_path_factory.mktemp("sharing"), stack, vault='share = "ask"\napproval = "never"')
        asked = desk.ask("chat", CHAT.answer("", [("file_read", '{"filePaths": ["Bees.md"]}')]), CHAT.answer("Done."))
        question = desk.approver.question()
        assert question["kind"] == "share"
        assert preview(desk, question["id"], 0).json() == {"text": NOTES["Bees.md"], "is_cut": False}
        assert preview(desk, question["id"], 1).status_code == 404
        desk.approver.allow()
        assert asked.result(TIMEOUT_SECONDS).status_code == 200
