"""The console's list of conversations over HTTP: who may see it, its parameters, running turns and costs."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from tests.approving import Approver
from tests.gateway import Gateway, running

Json = dict[str, Any]
MODEL = '[models.demo]\nprovider = "demo"\n'
KEYS = "".join(f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n' for name in ("ann", "bob"))


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running(MODEL) as started:
        yield started


@pytest.fixture(scope="module")
def approver(gateway: Gateway) -> Approver:
    return Approver(gateway)


def ask(gateway: Gateway, text: str, title: str = "A title", **headers: str) -> tuple[str, Json]:
    """Ask in a new conversation. Return its id and the response."""
    created = gateway.post("/v1/conversations", {"metadata": {"title": title}}, **headers)
    assert created.status_code == 200, created.text
    conversation = created.json()["id"]
    response = gateway.post("/v1/responses", {"model": "demo", "input": text, "conversation": conversation}, **headers)
    assert response.status_code == 200, response.text
    return conversation, response.json()


def test_without_keys_the_list_is_for_the_approver_only(gateway: Gateway, approver: Approver) -> None:
    conversation, _ = ask(gateway, "repeat: a quince", "Fruit")
    refused = gateway.get("/api/conversations")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "missing_approver_token")
    assert gateway.get("/api/conversations", authorization="Bearer wrong").status_code == 401
    (found,) = approver.get("/api/conversations?q=QUINCE").json()["data"]
    assert (found["id"], found["title"], found["running"]) == (conversation, "Fruit", None)
    assert found["last_used_at"] >= found["created_at"] > 0
    assert gateway.get(f"/api/conversations/{conversation}").json() == found


def test_renamed_conversation_is_found_by_its_new_title(gateway: Gateway, approver: Approver) -> None:
    conversation, _ = ask(gateway, "repeat: hello", "Before")
    gateway.post(f"/v1/conversations/{conversation}", {"metadata": {"title": "Afterwards"}})
    assert [each["id"] for each in approver.get("/api/conversations?q=afterw").json()["data"]] == [conversation]


def test_pages_go_on_from_next(gateway: Gateway, approver: Approver) -> None:
    made = [ask(gateway, f"repeat: paging {number}", "Paging")[0] for number in range(3)]
    found: list[str] = []
    place: str | None = ""
    while place is not None:
        page = approver.get(f"/api/conversations?q=paging&limit=1&before={place}").json()
        found += [each["id"] for each in page["data"]]
        place = page["next"]
    assert found == list(reversed(made))


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "before=x", "before=nan_a", "before=1e999_a", "before=1_", f"q={'x' * 201}"]
)
def test_bad_parameters_are_refused(approver: Approver, query: str) -> None:
    assert approver.get(f"/api/conversations?{query}").status_code == 400


def test_costs_are_those_of_the_response(gateway: Gateway) -> None:
    conversation, response = ask(gateway, "repeat: how much?")
    other, _ = ask(gateway, "repeat: elsewhere")
    (cost,) = gateway.get(f"/api/conversations/{conversation}/answers?ids={response['id']},resp_unknown").json()["data"]
    assert (cost["id"], cost["model"], cost["status"]) == (response["id"], "demo", "finished")
    assert (cost["input"], cost["output"]) == (response["usage"]["input_tokens"], response["usage"]["output_tokens"])
    assert cost["seconds"] >= 0
    assert gateway.get(f"/api/conversations/{other}/answers?ids={response['id']}").json()["data"] == []
    assert gateway.get(f"/api/conversations/{other}/answers").status_code == 400
    too_many = ",".join(f"resp_{number}" for number in range(51))
    assert gateway.get(f"/api/conversations/{other}/answers?ids={too_many}").status_code == 400


def test_key_sees_only_its_own_conversations() -> None:
    with running(KEYS + MODEL) as gateway:
        ann, bob = {"authorization": "Bearer ann"}, {"authorization": "Bearer bob"}
        conversation, response = ask(gateway, "repeat: secret", **ann)
        assert gateway.get("/api/conversations").status_code == 401
        assert [each["id"] for each in gateway.get("/api/conversations", **ann).json()["data"]] == [conversation]
        assert gateway.get("/api/conversations", **bob).json()["data"] == []
        assert gateway.get(f"/api/conversations/{conversation}", **bob).status_code == 404
        assert gateway.get(f"/api/conversations/{conversation}/answers?ids={response['id']}", **bob).status_code == 404
