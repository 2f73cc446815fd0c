"""Traces over HTTP, of real turns."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.approving import TIMEOUT_SECONDS, Approver, Asking, chat_text
from tests.gateway import Gateway
from tests.model_server import BEGUN, REST, ModelServer, error
from tests.scripted_models import MODELS
from tests.stores.rows import ACCEPTED, ANSWERED, FINISHED, PLANNED, STARTED, steps, turn
from tests.upstream import Gate
from tests.web.bureau import Bureau
from tests.web.test_sessions import Browser, new_code
from toolrelay.core.steps import QuestionAsked, ToolRunFinished, VerdictGiven
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import open_store

ROUTES = ["/api/traces/{}", "/api/traces/{}/entries/accepted-0", "/api/traces/{}/events", "/api/traces/{}/report"]
PARIS = ("get_weather", '{"city": "Paris"}')

Open = Callable[..., Bureau]


@pytest.fixture
def open_bureau(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:
        server = stack.enter_context(ModelServer())
        yield lambda **options: Bureau(tmp_path, stack, server, **options)


def statuses(trace: dict[str, Any]) -> list[tuple[str, str]]:
    return [(entry["kind"], entry["status"]) for entry in trace["entries"]]


def test_printed_call_is_beside_what_was_read_and_the_prompt_is_what_was_sent(open_bureau: Open) -> None:
    bureau = open_bureau()
    answer = bureau.ask("hermes_chat", PARIS)
    bureau.approve().allow(arguments={"city": "Rome"})
    assert chat_text(answer.result(TIMEOUT_SECONDS)) == "Done."
    trace = bureau.newest()
    assert statuses(trace) == [
        *(("accepted", "done"), ("model", "done"), ("call", "done"), ("question", "edited"), ("run", "done")),
        *(("model", "done"), ("finished", "done")),
    ]
    assert (trace["tool_calling"], trace["provider"], trace["wire"]) == ("hermes", "compatible", "openai_chat")
    assert (trace["usage"]["input"], trace["usage"]["output"]) == (14, 6)
    first, second = bureau.entry(trace, "model"), bureau.entry(trace, "model", 1)
    assert "<tool_call>" in first["detail"]["raw"]
    assert [item["name"] for item in first["detail"]["items"]] == ["get_weather"]
    sent = [MODELS["hermes_chat"].texts(bureau.server, number) for number in (0, 1)]
    told = [message["content"] for message in first["detail"]["told"]["messages"]]
    assert told == sent[0]
    assert first["detail"]["told"]["rules"] == sent[0][0]
    assert [*told, *[message["content"] for message in second["detail"]["told"]["messages"]]] == sent[1]
    assert second["detail"]["told"]["repeats"] == len(sent[0])
    assert bureau.entry(trace, "question")["detail"]["answer"]["arguments"] == '{"city":"Rome"}'
    assert bureau.entry(trace, "run")["detail"]["output"] == "18 degrees in Rome"


def test_denied_call_and_failing_tool(open_bureau: Open) -> None:
    bureau = open_bureau()
    answer = bureau.ask("chat", PARIS)
    bureau.approve().deny(reason="not today")
    answer.result(TIMEOUT_SECONDS)
    trace = bureau.newest()
    assert ("question", "denied") in statuses(trace)
    assert bureau.entry(trace, "question")["detail"]["answer"]["reason"] == "not today"
    answer = bureau.ask("chat", ("get_weather", '{"city": "Nowhere"}'))
    bureau.approve().allow()
    answer.result(TIMEOUT_SECONDS)
    trace = bureau.newest()
    assert ("run", "failed") in statuses(trace)
    assert "no such city" in bureau.entry(trace, "run")["detail"]["output"]


def test_expired_question(open_bureau: Open) -> None:
    bureau = open_bureau(more="approval_expiry_seconds = 1")
    bureau.ask("chat", PARIS).result(TIMEOUT_SECONDS)
    assert ("question", "expired") in statuses(bureau.newest())


def test_rejected_answers_and_retries_say_why(open_bureau: Open) -> None:
    bureau = open_bureau()
    model = MODELS["hermes_chat"]
    tool = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object", "properties": {}}}}
    busy = error(503, headers="retry-after: 0\r\n")
    bureau.server.enqueue(busy, model.answer('<tool_call>{"name": "nosuch", "arguments": {}}</tool_call>'), model.answer("Well."))
    Asking(bureau.gateway).chat(model="hermes_chat", tools=[tool]).result(TIMEOUT_SECONDS)
    trace = bureau.newest()
    assert statuses(trace)[1:3] == [("rejected", "rejected"), ("model", "done")]
    rejected = bureau.entry(trace, "rejected")["detail"]
    assert rejected["rule"] == "unknown_tool"
    assert "nosuch" in rejected["raw"]
    assert bureau.entry(trace, "model")["detail"]["told"]["rejected"] == 1
    bureau.server.enqueue(busy, model.answer("Fine."))
    Asking(bureau.gateway).chat(model="hermes_chat").result(TIMEOUT_SECONDS)
    assert bureau.entry(bureau.newest(), "model")["detail"]["retries"] == ["status_503"]


def test_failed_turn_has_its_error(open_bureau: Open) -> None:
    bureau = open_bureau()
    bureau.server.enqueue(error(400, "The prompt is bad."))
    reply = Asking(bureau.gateway).chat(model="chat").result(TIMEOUT_SECONDS)
    trace = bureau.trace(reply.headers["x-request-id"])
    assert statuses(trace) == [("accepted", "done"), ("model", "failed"), ("failed", "failed")]
    assert "The prompt is bad." in bureau.entry(trace, "failed")["detail"]["message"]
    assert bureau.get("/api/traces?status=failed").json()["traces"][0]["id"] == trace["id"]
    assert bureau.get("/api/traces?q=prompt is BAD").json()["traces"][0]["id"] == trace["id"]


def test_turn_is_found_by_its_response_id(open_bureau: Open) -> None:
    bureau = open_bureau()
    bureau.server.enqueue(MODELS["chat"].answer("Hi."))
    reply = Asking(bureau.gateway).responses(model="chat").result(TIMEOUT_SECONDS).json()
    assert f"resp_{bureau.trace(reply['id'])['id']}" == reply["id"]


def events(bureau: Bureau, identifier: str) -> Iterator[tuple[str, dict[str, Any]]]:
    url = f"{bureau.gateway.url}/api/traces/{identifier}/events"
    with httpx.stream("GET", url, headers=bureau.approve().headers, timeout=TIMEOUT_SECONDS) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def test_events_follow_a_turn_that_waits_for_an_approval(open_bureau: Open) -> None:
    bureau = open_bureau()
    answer = bureau.ask("chat", PARIS)
    question = bureau.approve().question()
    following = events(bureau, question["turn"])
    assert next(following) == ("steps", {"steps": 4})
    waiting = bureau.trace(question["turn"])
    assert (waiting["status"], waiting["ended_ms"]) == ("parked", None)
    assert [entry["title"] for entry in waiting["entries"] if entry["open"]] == ["May get_weather run?"]
    bureau.approve().allow()
    *more, last = following
    assert all(name == "steps" and data["steps"] > 4 for name, data in more)
    assert last == ("end", {"status": "finished"})
    answer.result(TIMEOUT_SECONDS)
    assert list(events(bureau, question["turn"])) == [("end", {"status": "finished"})]


def test_turn_is_seen_before_it_is_written(open_bureau: Open) -> None:
    """The model is in the middle of its answer: nothing of the turn is in the store."""
    bureau = open_bureau()
    gate = Gate()
    bureau.server.enqueue((BEGUN, gate, REST))
    body = {"model": "chat", "messages": [{"role": "user", "content": "Go."}], "stream": True}
    with httpx.stream("POST", f"{bureau.gateway.v1}/chat/completions", json=body, timeout=TIMEOUT_SECONDS) as response:
        identifier = response.headers["x-request-id"]
        trace = bureau.trace(identifier)
        assert statuses(trace) == [("accepted", "done"), ("model", "running")]
        assert bureau.entry(trace, "model")["detail"]["told"]["messages"] == [{"role": "user", "content": "Go."}]
        assert bureau.get("/api/traces").json()["traces"] == []
        following = events(bureau, identifier)
        assert next(following) == ("steps", {"steps": 1})
        gate.open()
        response.read()
    assert list(following)[-1] == ("end", {"status": "finished"})
    assert ("model", "done") in statuses(bureau.trace(identifier))


def test_turn_goes_on_after_kill_9(open_bureau: Open) -> None:
    bureau = open_bureau()
    model = MODELS["chat"]
    bureau.server.enqueue(model.answer("", [PARIS]), model.answer("Done."))
    Asking(bureau.gateway).responses(model="chat", background=True).result(TIMEOUT_SECONDS)
    token = bureau.approve().question()["turn"]
    bureau.gateway.process.kill()
    bureau.gateway.process.wait()
    bureau.start()
    bureau.approve().allow()
    assert list(events(bureau, token))[-1] == ("end", {"status": "finished"})
    trace = bureau.trace(token)
    assert statuses(trace)[-4:] == [("question", "allowed"), ("run", "done"), ("model", "done"), ("finished", "done")]


def test_model_that_is_gone_is_named(open_bureau: Open) -> None:
    bureau = open_bureau()
    bureau.server.enqueue(MODELS["chat"].answer("Hi."))
    Asking(bureau.gateway).chat(model="chat").result(TIMEOUT_SECONDS)
    bureau.gateway.stop()
    bureau.start('[models.demo]\nprovider = "demo"\n')
    told = bureau.entry(bureau.newest(), "model")["detail"]["told"]
    assert told == {"unknown": "The model 'chat' is no longer configured."}
    report = bureau.get(f"/api/traces/{bureau.newest()['id']}/report")
    assert "provider unknown (no longer configured)" in report.text


# Who may see them


def test_client_without_a_session_sees_nothing(open_bureau: Open) -> None:
    bureau = open_bureau()
    bureau.server.enqueue(MODELS["chat"].answer("Hi."))
    Asking(bureau.gateway).chat(model="chat").result(TIMEOUT_SECONDS)
    token = bureau.newest()["id"]
    for path in ("/api/traces", *[route.format(token) for route in ROUTES]):
        for headers, code in (({}, "missing"), ({"authorization": "Bearer wrong"}, "invalid")):
            response = bureau.gateway.get(path, **headers)
            assert (response.status_code, response.json()["error"]["code"]) == (401, f"{code}_approver_token"), path


def test_session_sees_traces_until_it_is_signed_out(open_bureau: Open) -> None:
    bureau = open_bureau()
    answer = bureau.ask("chat", PARIS)
    token = bureau.approve().question()["turn"]
    with Browser(bureau.gateway) as browser:
        assert browser.get("/api/traces").status_code == 401
        browser.open(new_code(bureau.gateway))
        assert [trace["id"] for trace in browser.get("/api/traces").json()["traces"]] == [token]
        with browser.stream("GET", f"/api/traces/{token}/events") as response:
            lines = response.iter_lines()
            while next(lines) != "event: steps":
                pass
            with Browser(bureau.gateway) as other:
                other.cookies.update(browser.cookies)
                assert other.post("/console/sign-out", headers=other.own).status_code == 303
            assert browser.get("/api/traces").status_code == 401
            bureau.approve().allow()
            assert not any(line.startswith("event:") for line in lines)
    answer.result(TIMEOUT_SECONDS)


def test_owner_sees_only_own_turns(open_bureau: Open) -> None:
    keys = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\ntoolsets = ["*"]\napprove = true\n'
        for name in ("ann", "ben")
    )
    bureau = open_bureau(keys=keys)
    bureau.server.enqueue(MODELS["chat"].answer("Hi."))
    Asking(bureau.gateway, {"authorization": "Bearer ann"}).chat("Secret.", model="chat").result(TIMEOUT_SECONDS)
    (found,) = bureau.get("/api/traces", "ann").json()["traces"]
    assert bureau.get("/api/traces", "ben").json()["traces"] == []
    assert bureau.get("/api/traces?q=Secret", "ben").json()["traces"] == []
    for route in ROUTES:
        path = route.format(found["id"])
        assert bureau.get(path, "ann").status_code == 200, path
        other = bureau.get(path, "ben")
        assert (other.status_code, other.json()["error"]["code"]) == (404, "trace_not_found"), path
        assert bureau.gateway.get(path).status_code == 401


def test_withheld_result_is_shown_only_to_approvers(open_bureau: Open, tmp_path: Path) -> None:
    """With share = "ask" nobody gets a result before a person has decided, not even the client whose turn it is."""
    withheld = ToolRunFinished(call_id="call_1", output="the whole note", withheld=True)
    asked = QuestionAsked(call_id="call_1", kind="share", tool="own", arguments='{"paths":["Diary.md"]}')
    shared = VerdictGiven(call_id="call_1", kind="share", verdict="allow", output="a part of it")
    for name in ("ann", "ben"):
        write_turn(tmp_path, STARTED, withheld, asked, shared, owner=name, identifier=f"t_{name}")
    keys = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\napprove = {approve}\n'
        for name, approve in (("ann", "true"), ("ben", "false"))
    )
    bureau = open_bureau(keys=keys)
    for name, is_approver in (("ann", True), ("ben", False)):
        trace = bureau.get(f"/api/traces/t_{name}", name).json()
        texts = [trace, *[bureau.get(f"/api/traces/t_{name}/entries/{each['key']}", name).json() for each in trace["entries"]]]
        assert ("the whole note" in json.dumps(texts)) is is_approver
        assert ("Diary.md" in json.dumps(texts)) is is_approver
        assert "a part of it" in json.dumps(texts)


# Sizes, and records that are broken


def write_turn(folder: Path, *more: Any, owner: str = "local", identifier: str = "t1") -> None:
    async def write() -> None:
        store = open_store(StoreSettings(), folder / "data")
        await store.open()
        now = time.time()  # an older one would be deleted at the start
        row = turn(identifier, owner, model="chat", status="finished", created_at=now)
        await store.create_turn(row, steps(ACCEPTED, ANSWERED, PLANNED, *more, FINISHED, at=now))
        await store.close()

    asyncio.run(write())


def test_long_turn_is_shown_in_pages(open_bureau: Open, tmp_path: Path) -> None:
    big = ToolRunFinished(call_id="call_1", output="x" * 2000)
    write_turn(tmp_path, *[STARTED, big] * 1500)
    bureau = open_bureau()
    response = bureau.get("/api/traces/t1")
    assert len(response.content) < 4_000_000
    trace = response.json()
    assert (len(trace["entries"]), trace["entry_count"], trace["next"]) == (1000, 1504, 1000)
    rest = bureau.get("/api/traces/t1?from=1000").json()
    assert (len(rest["entries"]), rest["next"]) == (504, None)
    assert bureau.get("/api/traces/t1/report").status_code == 200


def test_large_result_is_cut_until_all_is_wanted(open_bureau: Open, tmp_path: Path) -> None:
    write_turn(tmp_path, STARTED, ToolRunFinished(call_id="call_1", output="é" * 5_000_000))
    bureau = open_bureau()
    response = bureau.get("/api/traces/t1")
    assert len(response.content) < 100_000
    (run,) = [entry for entry in response.json()["entries"] if entry["kind"] == "run"]
    assert run["cut"]
    assert run["detail"]["output"].endswith("… [4999700 more characters]")
    part = bureau.get(f"/api/traces/t1/entries/{run['key']}").json()
    assert (part["cut"], len(part["detail"]["output"]) < 21_000) == (True, True)
    whole = bureau.get(f"/api/traces/t1/entries/{run['key']}?all=1").json()
    assert (whole["cut"], len(whole["detail"]["output"])) == (False, 5_000_000)
    assert len(bureau.get("/api/traces").content) < 10_000


def test_unreadable_step_is_reported(open_bureau: Open, tmp_path: Path) -> None:
    write_turn(tmp_path, STARTED)
    with closing(sqlite3.connect(tmp_path / "data" / "toolrelay.db")) as connection:
        connection.execute("UPDATE steps SET data = '{\"type\":\"Unheard\"}' WHERE kind = 'CallPlanned'")
        connection.execute("UPDATE steps SET data = 'no JSON' WHERE kind = 'TurnFinished'")
        connection.commit()
    bureau = open_bureau()
    trace = bureau.trace("t1")
    unreadable = [(entry["title"], entry["detail"]["step"]) for entry in trace["entries"] if entry["kind"] == "unreadable"]
    assert unreadable == [("Step 2 cannot be read", "CallPlanned"), ("Step 4 cannot be read", "TurnFinished")]
    assert bureau.entry(trace, "model")["detail"]["told"] == {"unknown": "Steps of this turn cannot be read."}
    assert bureau.get("/api/traces").json()["traces"][0]["tools"] == [""]
    assert bureau.get("/api/traces/t1/report").status_code == 200


@pytest.mark.parametrize(
    ("query", "param"),
    [("status=odd", "status"), ("limit=0", "limit"), ("before=x", "before"), ("before=nan_x", "before"), (f"q={'x' * 201}", "q")],
)
def test_wrong_filter_is_refused(gateway: Gateway, query: str, param: str) -> None:
    response = Approver(gateway).get(f"/api/traces?{query}")
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_list_says_what_is_recorded(gateway: Gateway) -> None:
    assert Approver(gateway).get("/api/traces").json()["record"] == "tools"
    assert Approver(gateway).get("/api/traces/nothing").status_code == 404
