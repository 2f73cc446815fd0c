"""Approvals over REST: gateway tools that wait for a person, on Chat and Responses."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.approving import TIMEOUT_SECONDS, Approver, Asking, chat_text, output_items
from tests.durable import Workshop, read_events
from tests.gateway import Gateway
from tests.tool_rounds import Round, play, play_by_text, results
from tests.upstream import Upstream
from toolrelay.core.approvals import NOT_ANSWERED, denial_text

ONE = Round(calls=(("once", {"number": 1}),))
TWO = Round(calls=(("once", {"number": 1}), ("again", {"number": 2})))
DONE = Round(text=("Done.",))


class Office:
    """A gateway whose tools ask, with a client and an approver."""

    def __init__(self, workshop: Workshop, gateway: Gateway, upstream: Upstream, key: str | None = None) -> None:
        self.workshop = workshop
        self.gateway = gateway
        self.upstream = upstream
        self.approver = Approver(gateway, key)
        self.asking = Asking(gateway, {"authorization": f"Bearer {key}"} if key else None)

    def told(self) -> list[str]:
        """Return the results that the model was sent last."""
        return results(self.upstream.requests[-1].body)


@pytest.fixture
def open_office(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def start(*rounds: Round, key: str | None = None, **options: str) -> Office:
            upstream = stack.enter_context(Upstream(play(*rounds)))
            workshop = Workshop(tmp_path, upstream, approval="always", **options)
            return Office(workshop, stack.enter_context(workshop.start()), upstream, key)

        yield start


# Hold


def test_tool_runs_only_after_a_yes(open_office: Any) -> None:  # bug 48
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    question = office.approver.question()
    assert office.workshop.lines() == []
    assert not reply.done()
    answered = office.approver.post(question["id"], verdict="allow").json()
    assert chat_text(reply.result(TIMEOUT_SECONDS)) == "Done."
    assert office.workshop.lines() == ["once 1"]
    assert office.told() == ["once 1 is done"]
    assert (answered["status"], answered["answered_by"]) == ("allowed", "local")
    assert office.approver.pending() == []


def test_question_says_what_would_run_and_who_would_see_it(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    question = office.approver.question()
    assert {
        "kind": "run",
        "tool": "once",
        "toolset": "mine",
        "title": "once",
        "purpose": "Do what must not be repeated.",
        "arguments": {"number": 1},
        "model": "fast",
        "provider": "compatible",
        "key": "local",
        "status": "pending",
    }.items() <= question.items()
    assert question["expires_at"] - question["created_at"] == pytest.approx(3600)
    assert question["schema"]["properties"].keys() == {"number"}
    assert 0 < question.pop("expires_in") <= 3600
    again = office.approver.get(f"/approvals/{question['id']}").json()
    assert {name: value for name, value in again.items() if name != "expires_in"} == question
    office.approver.deny()
    reply.result(TIMEOUT_SECONDS)


def test_denial_is_the_result_and_the_model_goes_on(open_office: Any) -> None:  # bug 48
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    office.approver.deny(reason="not today")
    assert chat_text(reply.result(TIMEOUT_SECONDS)) == "Done."
    assert office.workshop.lines() == []
    assert office.told() == [denial_text("run", "not today")]


def test_edited_arguments_run_and_the_model_is_told(open_office: Any) -> None:  # bug 50
    office = open_office(ONE, DONE)
    reply = office.asking.responses()
    answered = office.approver.allow(arguments={"number": 7})
    response = reply.result(TIMEOUT_SECONDS)
    (call,) = output_items(response, "mcp_call")
    assert (call["arguments"], call["output"], call["approval_request_id"]) == ('{"number":7}', "once 7 is done", answered["id"])
    assert office.workshop.lines() == ["once 7"]
    assert json.loads(office.told()[0]) == {"ran_with": {"number": 7}, "result": "once 7 is done"}
    assert (answered["status"], answered["arguments"], answered["ran_with"]) == ("edited", {"number": 1}, {"number": 7})


@pytest.mark.parametrize("arguments", [{}, {"number": "seven"}, {"number": 1, "more": 2}])
def test_arguments_that_break_the_schema_are_refused_and_the_question_stays(open_office: Any, arguments: Any) -> None:
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    refused = office.approver.post(office.approver.question()["id"], verdict="allow", arguments=arguments)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_arguments")
    office.approver.allow()
    assert chat_text(reply.result(TIMEOUT_SECONDS)) == "Done."
    assert office.workshop.lines() == ["once 1"]


def test_calls_are_asked_about_one_after_the_other(open_office: Any) -> None:
    office = open_office(TWO, DONE)
    reply = office.asking.chat()
    assert office.approver.question()["tool"] == "once"
    office.approver.allow("once")
    assert office.approver.question("again")["arguments"] == {"number": 2}
    office.approver.deny("again")
    assert chat_text(reply.result(TIMEOUT_SECONDS)) == "Done."
    assert office.told() == ["once 1 is done", denial_text("run", None)]


def test_call_that_breaks_the_schema_bothers_nobody(open_office: Any) -> None:
    office = open_office(Round(calls=(("once", {"number": "x"}),)), DONE)
    assert chat_text(office.asking.chat().result(TIMEOUT_SECONDS)) == "Done."
    assert "invalid arguments for once" in office.told()[0]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"verdict": "maybe"},
        {"verdict": "allow", "arguments": []},
        {"verdict": "allow", "remember": "sometimes"},
        {"verdict": "allow", "reason": 1},
        {"verdict": "allow", "argumnets": {"number": 7}},
        {"verdict": "allow", "paths": ["a.md"]},
        [],
        "allow",
    ],
)
def test_body_that_is_no_verdict_is_refused(open_office: Any, body: Any) -> None:
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    url = f"{office.gateway.url}/approvals/{office.approver.question()['id']}"
    response = httpx.post(url, json=body, headers=office.approver.headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_verdict")
    office.approver.deny()
    reply.result(TIMEOUT_SECONDS)


def test_second_verdict_is_refused(open_office: Any) -> None:  # bug 45, 48
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    question = office.approver.question()
    answers = [office.asking._threads.submit(office.approver.post, question["id"], verdict="allow") for _ in range(5)]
    statuses = sorted(answer.result(TIMEOUT_SECONDS).status_code for answer in answers)
    assert statuses == [200, 409, 409, 409, 409]
    reply.result(TIMEOUT_SECONDS)
    late = office.approver.post(question["id"], verdict="deny")
    assert late.status_code == 409
    assert "allowed by local already" in late.json()["error"]["message"]
    assert office.workshop.lines() == ["once 1"]


def test_unknown_question_is_404(open_office: Any) -> None:
    office = open_office(DONE)
    assert office.approver.post("appr_nothing", verdict="allow").status_code == 404
    assert office.approver.get("/approvals/appr_nothing").status_code == 404


def test_expired_question_is_a_result_and_the_turn_goes_on(open_office: Any) -> None:  # bug 48
    office = open_office(ONE, DONE, model="approval_expiry_seconds = 0.2")
    assert chat_text(office.asking.chat().result(TIMEOUT_SECONDS)) == "Done."
    assert office.told() == [NOT_ANSWERED]
    (question,) = office.approver.get().json()["approvals"]
    assert question["status"] == "expired"
    late = office.approver.post(question["id"], verdict="allow")
    assert late.status_code == 409
    assert office.workshop.lines() == []


def test_waiting_turns_do_not_count_as_running(open_office: Any) -> None:
    office = open_office(ONE, DONE, config="[limits]\nconcurrent_turns = 1\n")
    replies = [office.asking.chat() for _ in range(3)]
    seen: set[str] = set()
    while len(seen) < 3:
        seen |= {question["id"] for question in office.approver.pending()}
        refused = [reply.result().status_code for reply in replies if reply.done()]
        if refused:  # it came while another was talking to the model
            assert refused == [503] * len(refused)
            replies = [reply for reply in replies if not reply.done()] + [office.asking.chat() for _ in refused]
    for approval in seen:
        assert office.approver.post(approval, verdict="deny").status_code == 200
    assert {chat_text(reply.result(TIMEOUT_SECONDS)) for reply in replies} == {"Done."}


def test_keep_alive_flows_while_a_person_thinks(open_office: Any) -> None:  # bug 46
    office = open_office(ONE, DONE, config="[server]\nkeepalive_seconds = 0.05\n")
    body = {"model": "fast", "stream": True, "messages": [{"role": "user", "content": "Go."}]}
    with httpx.stream("POST", f"{office.gateway.v1}/chat/completions", json=body, timeout=TIMEOUT_SECONDS) as response:
        lines = response.iter_lines()
        while not next(lines).startswith(":"):
            pass
        office.approver.allow()
        assert any('"content":"Done."' in line for line in lines)


# The client leaves


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {"messages": [{"role": "user", "content": "Go."}]}),
        ("/responses", {"input": "Go.", "store": False}),
    ],
)
def test_question_is_withdrawn_when_the_client_goes(open_office: Any, path: str, body: dict[str, Any]) -> None:
    office = open_office(Round(text=("Let me see.",), calls=ONE.calls), DONE)
    asking = {"model": "fast", "stream": True, **body}
    with office.approver.events() as events:
        with httpx.stream("POST", f"{office.gateway.v1}{path}", json=asking, timeout=TIMEOUT_SECONDS) as response:
            assert response.status_code == 200
            name, question = next(events)
            assert name == "asked"
        name, withdrawn = next(events)
    assert (name, withdrawn["id"], withdrawn["status"]) == ("withdrawn", question["id"], "withdrawn")
    late = office.approver.post(question["id"], verdict="allow")
    assert late.status_code == 409
    assert office.workshop.lines() == []


def test_stored_response_waits_for_the_answer_without_its_client(open_office: Any) -> None:
    office = open_office(Round(text=("Let me see.",), calls=ONE.calls), DONE)
    body = {"model": "fast", "input": "Go.", "stream": True}
    with httpx.stream("POST", f"{office.gateway.v1}/responses", json=body, timeout=TIMEOUT_SECONDS) as response:
        response_id = next(read_events(response))["response"]["id"]
        office.approver.question()
    assert office.workshop.statuses() == ["parked"]
    office.approver.allow()
    office.workshop.await_that(lambda: office.workshop.statuses() == ["finished"], office.workshop.statuses)
    stored = office.gateway.get(f"/v1/responses/{response_id}").json()
    assert stored["status"] == "completed"
    assert [item["type"] for item in stored["output"]] == ["message", "mcp_call", "message"]


def test_cancel_withdraws_the_question(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    started = office.asking.responses(background=True).result(TIMEOUT_SECONDS).json()
    question = office.approver.question()
    assert office.gateway.post(f"/v1/responses/{started['id']}/cancel", {}).json()["status"] == "cancelled"
    assert office.approver.get(f"/approvals/{question['id']}").json()["status"] == "withdrawn"
    assert office.approver.post(question["id"], verdict="allow").status_code == 409


def test_cancel_withdraws_the_question_of_a_stored_response_whose_client_has_gone(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    body = {"model": "fast", "input": "Go.", "stream": True}
    with httpx.stream("POST", f"{office.gateway.v1}/responses", json=body, timeout=TIMEOUT_SECONDS):
        question = office.approver.question()
    cancelled = office.gateway.post(f"/v1/responses/resp_{question['turn']}/cancel", {})
    assert (cancelled.status_code, cancelled.json().get("status")) == (200, "cancelled")
    assert office.approver.get(f"/approvals/{question['id']}").json()["status"] == "withdrawn"


# Crashes


@pytest.mark.parametrize("members", [{"background": True}, {}], ids=["background", "stored"])
def test_question_survives_kill_9(open_office: Any, members: dict[str, Any]) -> None:  # bug 49
    office = open_office(ONE, DONE)
    body = {"model": "fast", "input": "Go.", "stream": True, **members}
    with ExitStack() as stack:
        stream = httpx.stream("POST", f"{office.gateway.v1}/responses", json=body, timeout=TIMEOUT_SECONDS)
        asked = None
        with stream as response:
            events = read_events(response)
            asked = office.approver.question()
            if members:
                response_id = next(events)["response"]["id"]
            office.workshop.kill(office.gateway)
        response_id = "resp_" + asked["turn"]
        gateway = stack.enter_context(office.workshop.start())
        approver = Approver(gateway)
        question = approver.question()
        assert {key: question[key] for key in ("id", "created_at", "expires_at")} == {
            key: asked[key] for key in ("id", "created_at", "expires_at")
        }
        approver.allow()
        office.workshop.await_that(lambda: office.workshop.statuses() == ["finished"], office.workshop.statuses)
        stored = gateway.get(f"/v1/responses/{response_id}").json()
        assert stored["status"] == "completed"
        assert stored["output"][-1]["content"][0]["text"] == "Done."
        assert office.workshop.lines() == ["once 1"]


def test_question_of_a_chat_is_withdrawn_by_a_crash(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    office.asking.chat()
    asked = office.approver.question()
    office.workshop.kill(office.gateway)
    with office.workshop.start() as gateway:
        approver = Approver(gateway)
        assert approver.pending() == []
        assert approver.get(f"/approvals/{asked['id']}").json()["status"] == "withdrawn"
        assert approver.post(asked["id"], verdict="allow").status_code == 409


def test_sigterm_parks_a_stored_response_that_waits(open_office: Any) -> None:  # bug 49
    office = open_office(ONE, DONE)
    reply = office.asking.responses(background=True).result(TIMEOUT_SECONDS).json()
    office.approver.question()
    office.workshop.keep_port(office.gateway)
    assert office.gateway.stop() == 0
    with office.workshop.start() as gateway:
        Approver(gateway).allow()
        office.workshop.await_that(lambda: office.workshop.statuses() == ["finished"], office.workshop.statuses)
        assert gateway.get(f"/v1/responses/{reply['id']}").json()["status"] == "completed"


def test_sigterm_withdraws_the_question_of_a_chat_at_once(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    asked = office.approver.question()
    assert office.gateway.stop() == 0
    assert reply.result(TIMEOUT_SECONDS).status_code == 503
    with office.workshop.start() as gateway:
        assert Approver(gateway).get(f"/approvals/{asked['id']}").json()["status"] == "withdrawn"


def test_sigterm_ends_the_stream_of_a_stored_response_and_keeps_its_question(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    reply = office.asking.responses(stream=True)
    asked = office.approver.question()
    office.workshop.keep_port(office.gateway)
    assert office.gateway.stop() == 0
    assert "shutting_down" in reply.result(TIMEOUT_SECONDS).text
    with office.workshop.start() as gateway:
        Approver(gateway).allow()
        office.workshop.await_that(lambda: office.workshop.statuses() == ["finished"], office.workshop.statuses)
        assert gateway.get(f"/v1/responses/resp_{asked['turn']}").json()["status"] == "completed"


def test_turn_that_a_person_let_go_on_survives_kill_9_without_its_client(open_office: Any) -> None:
    office = open_office(Round(text=("Let me see.",), calls=(("wait", {}),)), DONE)
    body = {"model": "fast", "input": "Go.", "stream": True}
    with httpx.stream("POST", f"{office.gateway.v1}/responses", json=body, timeout=TIMEOUT_SECONDS) as response:
        response_id = next(read_events(response))["response"]["id"]
        office.approver.question()
    office.approver.allow()
    office.workshop.await_line("wait")
    office.workshop.kill(office.gateway)
    with office.workshop.start() as gateway:
        office.workshop.await_that(lambda: office.workshop.statuses() == ["finished"], office.workshop.statuses)
        assert gateway.get(f"/v1/responses/{response_id}").json()["status"] == "completed"


def test_changed_arguments_on_record_are_not_run(open_office: Any) -> None:  # bug 50
    """What runs is what was approved: the record of the verdict has a digest."""
    office = open_office(ONE, DONE)
    office.asking.responses(background=True).result(TIMEOUT_SECONDS)
    asked = office.approver.question()
    office.workshop.kill(office.gateway)
    verdict = {"type": "VerdictGiven", "call_id": asked["call_id"], "verdict": "allow", "digest": "0" * 64}
    with closing(sqlite3.connect(office.workshop.database)) as database, database:
        (seq,) = database.execute("SELECT max(seq) FROM steps").fetchone()
        row = (asked["turn"], seq + 1, 0.0, "VerdictGiven", json.dumps(verdict))
        database.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?)", row)
    with office.workshop.start():
        office.workshop.await_that(lambda: office.workshop.statuses() == ["finished"], office.workshop.statuses)
    assert office.workshop.lines() == []


def test_question_about_a_tool_that_is_gone_is_withdrawn(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    office.asking.responses(background=True).result(TIMEOUT_SECONDS)
    asked = office.approver.question()
    office.workshop.kill(office.gateway)
    tools = office.workshop.folder / "durable_tools.py"
    tools.write_text(tools.read_text().replace("def once(", "def other("))
    with office.workshop.start() as gateway:
        office.workshop.await_that(lambda: office.workshop.statuses() == ["finished"], office.workshop.statuses)
        approver = Approver(gateway)
        assert approver.pending() == []
        assert approver.get(f"/approvals/{asked['id']}").json()["status"] == "withdrawn"


def test_question_of_a_turn_that_cannot_go_on_is_withdrawn(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    conversation = office.gateway.post("/v1/conversations", {}).json()["id"]
    office.asking.responses(background=True, conversation=conversation).result(TIMEOUT_SECONDS)
    office.approver.question()
    httpx.delete(f"{office.gateway.v1}/conversations/{conversation}")
    office.workshop.kill(office.gateway)
    with office.workshop.start() as gateway:
        assert office.workshop.statuses() == ["failed"]
        assert Approver(gateway).pending() == []


# Events


def test_events_tell_what_happens(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    with office.approver.events() as events:
        reply = office.asking.chat()
        name, asked = next(events)
        assert (name, asked["tool"], asked["status"]) == ("asked", "once", "pending")
        office.approver.deny(reason="no")
        name, answered = next(events)
        assert (name, answered["status"], answered["reason"], answered["answered_by"]) == ("answered", "denied", "no", "local")
    reply.result(TIMEOUT_SECONDS)


def test_expiry_is_an_event(open_office: Any) -> None:
    office = open_office(ONE, DONE, model="approval_expiry_seconds = 0.2")
    with office.approver.events() as events:
        office.asking.chat().result(TIMEOUT_SECONDS)
        assert [next(events)[0], next(events)[0]] == ["asked", "expired"]


def test_listeners_do_not_delay_the_stop(open_office: Any) -> None:
    office = open_office(DONE)
    with office.approver.events() as events:
        assert office.gateway.stop() == 0
        assert list(events) == []


# Remembered answers


def chat_answer(office: Office, text: str = "Go.", *past: dict[str, Any]) -> str:
    messages = [*past, {"role": "user", "content": text}]
    return chat_text(office.asking.send("/v1/chat/completions", {"model": "fast", "messages": messages}).result(TIMEOUT_SECONDS))


def test_answer_for_always_is_not_asked_again(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    office.approver.allow(remember="always")
    reply.result(TIMEOUT_SECONDS)
    assert chat_answer(office) == "Done."
    assert office.workshop.lines() == ["once 1", "once 1"]
    (rule,) = office.approver.get("/approvals/rules").json()["rules"]
    assert (rule["tool"], rule["verdict"], rule["key"], rule["created_by"]) == ("once", "allow", "local", "local")
    latest = office.approver.get("/approvals?limit=1").json()["approvals"][0]
    assert (latest["status"], latest["answered_by"]) == ("allowed", f"rule {rule['id']}")


def test_denial_for_always_denies_without_asking(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    office.approver.deny(remember="always", reason="never")
    reply.result(TIMEOUT_SECONDS)
    assert chat_answer(office) == "Done."
    assert office.told() == [denial_text("run", "never")]


def test_revoked_rule_asks_again(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    office.approver.allow(remember="always")
    reply.result(TIMEOUT_SECONDS)
    (rule,) = office.approver.get("/approvals/rules").json()["rules"]
    assert office.approver.delete(f"/approvals/rules/{rule['id']}").status_code == 200
    assert office.approver.delete(f"/approvals/rules/{rule['id']}").status_code == 404
    reply = office.asking.chat()
    office.approver.allow()
    reply.result(TIMEOUT_SECONDS)


def test_edit_is_remembered_as_edited(open_office: Any) -> None:
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    office.approver.allow(arguments={"number": 7}, remember="always")
    reply.result(TIMEOUT_SECONDS)
    chat_answer(office)
    assert office.workshop.lines() == ["once 7", "once 7"]
    assert json.loads(office.told()[0])["ran_with"] == {"number": 7}


def test_answer_for_the_same_arguments_is_for_no_others(tmp_path: Path) -> None:  # bug 48
    other = Round(calls=(("once", {"number": 2}),))
    with Upstream(play_by_text({"Go.": play(ONE, DONE), "Go on.": play(other, DONE)})) as upstream:
        workshop = Workshop(tmp_path, upstream, approval="always")
        with workshop.start() as gateway:
            office = Office(workshop, gateway, upstream)
            reply = office.asking.chat()
            office.approver.allow(remember="always", remember_arguments="same")
            reply.result(TIMEOUT_SECONDS)
            assert chat_answer(office) == "Done."
            reply = office.asking.chat("Go on.")
            assert office.approver.question()["arguments"] == {"number": 2}
            office.approver.allow()
            reply.result(TIMEOUT_SECONDS)


def test_answer_for_a_conversation_holds_in_it_only_on_chat(tmp_path: Path) -> None:
    with Upstream(_by_last_user()) as upstream:
        workshop = Workshop(tmp_path, upstream, approval="always")
        with workshop.start() as gateway:
            office = Office(workshop, gateway, upstream)
            reply = office.asking.chat()
            office.approver.allow(remember="conversation")
            first = chat_text(reply.result(TIMEOUT_SECONDS))
            past = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": first}]
            assert chat_answer(office, "Once more.", *past) == "Done."
            edited = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Something else."}]
            messages = [*edited, {"role": "user", "content": "Once more."}]
            reply = office.asking.send("/v1/chat/completions", {"model": "fast", "messages": messages})
            office.approver.deny()
            reply.result(TIMEOUT_SECONDS)
            reply = office.asking.chat()
            office.approver.deny()
            reply.result(TIMEOUT_SECONDS)


def _by_last_user() -> Any:
    """Return a script that calls the tool once after each message of the user."""

    def respond(received: Any) -> Any:
        messages = json.loads(received.body)["messages"]
        last = max(index for index, message in enumerate(messages) if message["role"] == "user")
        answer = DONE if any(message.get("tool_calls") for message in messages[last:]) else ONE
        return play(answer)(received)

    return respond


@pytest.mark.parametrize("named", [False, True], ids=["previous_response_id", "conversation"])
def test_answer_for_a_conversation_holds_in_it_only_on_responses(tmp_path: Path, *, named: bool) -> None:
    with Upstream(_by_last_user()) as upstream:
        workshop = Workshop(tmp_path, upstream, approval="always")
        with workshop.start() as gateway:
            office = Office(workshop, gateway, upstream)
            members = {"conversation": gateway.post("/v1/conversations", {}).json()["id"]} if named else {}
            reply = office.asking.responses(**members)
            office.approver.allow(remember="conversation")
            first = reply.result(TIMEOUT_SECONDS).json()
            following = members or {"previous_response_id": first["id"]}
            again = office.asking.responses("Once more.", **following).result(TIMEOUT_SECONDS)
            assert output_items(again, "mcp_call")[0]["output"] == "once 1 is done"
            reply = office.asking.responses()
            office.approver.deny()
            reply.result(TIMEOUT_SECONDS)


def test_changed_tool_is_asked_about_again(open_office: Any) -> None:  # bug 50
    office = open_office(ONE, DONE)
    reply = office.asking.chat()
    office.approver.allow(remember="always")
    reply.result(TIMEOUT_SECONDS)
    office.workshop.keep_port(office.gateway)
    office.gateway.stop()
    module = office.workshop.folder / "durable_tools.py"
    module.write_text(module.read_text().replace("Do what must not be repeated.", "Delete everything."))
    with office.workshop.start() as gateway:
        changed = Office(office.workshop, gateway, office.upstream)
        reply = changed.asking.chat()
        assert changed.approver.question()["purpose"] == "Delete everything."
        changed.approver.deny()
        reply.result(TIMEOUT_SECONDS)


# Who may answer


def key_table(name: str, key: str, **members: Any) -> str:
    more = "".join(f"{member} = {json.dumps(value)}\n" for member, value in members.items())
    return f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(key.encode()).hexdigest()}"\n{more}'


KEYS = key_table("anna", "key-a", approve=True, toolsets=["*"]) + key_table("bert", "key-b", toolsets=["*"])


def test_only_a_key_with_approve_may_see_and_answer(open_office: Any) -> None:
    office = open_office(ONE, DONE, config=KEYS, key="key-a")
    asking = Asking(office.gateway, {"authorization": "Bearer key-b"})
    reply = asking.chat()
    question = office.approver.question()
    assert question["key"] == "bert"
    bert, nobody = Approver(office.gateway, "key-b"), Approver(office.gateway, "key-x")
    for refused, status in ((bert, 403), (nobody, 401)):
        assert refused.post(question["id"], verdict="allow").status_code == status
        for path in ("", "/events", "/rules", f"/{question['id']}"):
            assert refused.get(f"/approvals{path}").status_code == status
        assert refused.delete("/approvals/rules/x").status_code == status
    assert office.approver.post(question["id"], verdict="allow").json()["answered_by"] == "anna"
    reply.result(TIMEOUT_SECONDS)


def test_rule_of_one_key_does_not_answer_for_another(open_office: Any) -> None:
    office = open_office(ONE, DONE, config=KEYS, key="key-a")
    reply = office.asking.chat()
    office.approver.allow(remember="always")
    reply.result(TIMEOUT_SECONDS)
    reply = Asking(office.gateway, {"authorization": "Bearer key-b"}).chat()
    assert office.approver.question()["key"] == "bert"
    office.approver.deny()
    reply.result(TIMEOUT_SECONDS)


def test_without_keys_the_token_of_the_data_directory_is_needed(open_office: Any) -> None:
    office = open_office(DONE)
    token = office.gateway.data_dir / "approver.token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert httpx.get(f"{office.gateway.url}/approvals").status_code == 401
    assert httpx.get(f"{office.gateway.url}/approvals", headers={"authorization": "Bearer x"}).status_code == 401
    assert office.approver.get().status_code == 200


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"host": "evil.example"}, {"sec-fetch-site": "cross-site"}]
)
def test_foreign_pages_are_refused(open_office: Any, headers: dict[str, str]) -> None:
    office = open_office(DONE)
    response = httpx.get(f"{office.gateway.url}/approvals", headers={**office.approver.headers, **headers})
    assert response.status_code == 403


def test_log_has_the_answers_and_no_arguments(open_office: Any) -> None:
    office = open_office(Round(calls=(("once", {"number": 987654}),)), DONE)
    reply = office.asking.chat()
    office.approver.allow(reason="confidential")
    reply.result(TIMEOUT_SECONDS)
    lines = [json.loads(line) for line in office.gateway.log().splitlines()]
    told = [(line["status"], line.get("by")) for line in lines if line["event"] == "approval"]
    assert told == [("pending", None), ("allowed", "local")]
    assert "987654" not in office.gateway.log()
    assert "confidential" not in office.gateway.log()
    metrics = office.gateway.get("/metrics").text
    assert 'toolrelay_approvals_total{status="allowed"} 1.0' in metrics
