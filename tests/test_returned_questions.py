"""`approval = "return"`: a response ends with its questions, and the next request answers them. With OpenAI's SDK."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.approving import TIMEOUT_SECONDS, Approver, Asking, chat_text
from tests.durable import Workshop
from tests.gateway import Gateway
from tests.test_approvals import KEYS
from tests.tool_rounds import Round, play
from tests.upstream import Upstream
from toolrelay.core.approvals import denial_text

NODE = Path(sys.executable).parent / "node"
SCRIPT = Path(__file__).parent / "node" / "approvals.mjs"
ONE = Round(text=("Let me see.",), calls=(("once", {"number": 1}),))
TWO = Round(calls=(("once", {"number": 1}), ("again", {"number": 2})))
MIXED = Round(calls=(("get_weather", {"city": "Rome"}), ("once", {"number": 1})))
DONE = Round(text=("Done.",))
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


class Desk:
    def __init__(self, workshop: Workshop, gateway: Gateway, upstream: Upstream, key: str = "none") -> None:
        self.workshop = workshop
        self.gateway = gateway
        self.upstream = upstream
        self.client = OpenAI(base_url=gateway.v1, api_key=key, max_retries=0, timeout=TIMEOUT_SECONDS)

    def create(self, given: Any = "Go.", **members: Any) -> Response:
        response: Response = self.client.responses.create(model="fast", input=given, **members)
        return response

    def told(self) -> list[tuple[str, str]]:
        """Return role and content, or the calls, of each message that the model was sent last."""
        messages = json.loads(self.upstream.requests[-1].body)["messages"]
        return [
            (each["role"], each.get("content") or json.dumps([call["id"] for call in each["tool_calls"]])) for each in messages
        ]


@pytest.fixture
def open_desk(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def start(*rounds: Round, config: str = "", model: str = "", key: str = "none") -> Desk:
            upstream = stack.enter_context(Upstream(play(*rounds)))
            model = f'approval = "return"\n{model}'
            workshop = Workshop(tmp_path, upstream, approval="always", config=config, model=model)
            return Desk(workshop, stack.enter_context(workshop.start()), upstream, key)

        yield start


def questions(response: Response) -> list[Any]:
    return [item for item in response.output if item.type == "mcp_approval_request"]


def answer(question: Any, *, approve: bool = True, **members: Any) -> Any:
    return {"type": "mcp_approval_response", "approval_request_id": question.id, "approve": approve, **members}


def calls(response: Response) -> list[Any]:
    return [item for item in response.output if item.type == "mcp_call"]


def test_response_ends_with_the_question_and_the_next_one_runs_the_tool(open_desk: Any) -> None:  # bug 48
    desk = open_desk(ONE, DONE)
    first = desk.create()
    assert first.status == "completed"
    assert [item.type for item in first.output] == ["message", "mcp_approval_request"]
    (question,) = questions(first)
    assert (question.name, question.server_label, json.loads(question.arguments)) == ("once", "mine", {"number": 1})
    assert desk.workshop.lines() == []
    second = desk.create([answer(question)], previous_response_id=first.id)
    assert [item.type for item in second.output] == ["mcp_call", "message"]
    (call,) = calls(second)
    assert (call.output, call.approval_request_id) == ("once 1 is done", question.id)
    assert second.output_text == "Done."
    assert desk.workshop.lines() == ["once 1"]
    assert [role for role, _ in desk.told()] == ["user", "assistant", "tool"]


def test_stream_ends_with_the_question(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    events = [*desk.client.responses.create(model="fast", input="Go.", stream=True)]
    items = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.type for item in items] == ["message", "mcp_approval_request"]
    assert events[-1].type == "response.completed"
    assert events[-1].response.output == items


def test_question_is_not_listed_and_cannot_be_answered_elsewhere(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    (question,) = questions(desk.create())
    approver = Approver(desk.gateway)
    assert approver.pending() == []
    assert approver.get().json()["approvals"] == []
    refused = approver.post(question.id, verdict="allow")
    assert refused.status_code == 409
    assert "returned to the client" in refused.json()["error"]["message"]


def test_denial_is_told_with_its_reason(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    first = desk.create()
    second = desk.create([answer(questions(first)[0], approve=False, reason="no")], previous_response_id=first.id)
    assert second.output_text == "Done."
    assert desk.told()[-1] == ("tool", denial_text("run", "no"))
    assert calls(second)[0].error is not None
    assert desk.workshop.lines() == []


@pytest.mark.parametrize("arguments", [{"number": 7}, '{"number": 7}'], ids=["object", "string"])
def test_extra_member_arguments_edits(open_desk: Any, arguments: Any) -> None:
    desk = open_desk(ONE, DONE)
    first = desk.create()
    second = desk.create([answer(questions(first)[0], arguments=arguments)], previous_response_id=first.id)
    assert json.loads(calls(second)[0].arguments) == {"number": 7}
    assert json.loads(desk.told()[-1][1]) == {"ran_with": {"number": 7}, "result": "once 7 is done"}


def test_arguments_that_break_the_schema_are_refused_and_the_question_stays(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    first = desk.create()
    (question,) = questions(first)
    with pytest.raises(openai.BadRequestError, match="cannot be approved"):
        desk.create([answer(question, arguments={"number": "x"})], previous_response_id=first.id)
    assert desk.create([answer(question)], previous_response_id=first.id).output_text == "Done."


def test_all_questions_of_an_answer_are_returned_and_must_be_answered(open_desk: Any) -> None:
    desk = open_desk(TWO, DONE)
    first = desk.create()
    both = questions(first)
    assert [question.name for question in both] == ["once", "again"]
    for given in ([answer(both[0])], [{"role": "user", "content": "And?"}]):
        with pytest.raises(openai.BadRequestError, match="has no answer") as caught:
            desk.create(given, previous_response_id=first.id)
        assert caught.value.code == "missing_approval_response"
    assert desk.workshop.lines() == []
    second = desk.create([answer(both[1], approve=False), answer(both[0])], previous_response_id=first.id)
    assert [content for role, content in desk.told() if role == "tool"] == ["once 1 is done", denial_text("run", None)]
    assert second.output_text == "Done."


def test_second_answer_is_refused_also_from_a_fork(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    first = desk.create()
    (question,) = questions(first)
    desk.create([answer(question)], previous_response_id=first.id)
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match="can be answered once") as caught:
            desk.create([answer(question)], previous_response_id=first.id)
        assert caught.value.code == "already_answered"
    assert desk.workshop.lines() == ["once 1"]


def test_two_answers_at_once_run_the_tool_once(open_desk: Any) -> None:  # bug 45
    desk = open_desk(ONE, DONE)
    first = desk.create()
    given = {"type": "mcp_approval_response", "approval_request_id": questions(first)[0].id, "approve": True}
    asking = Asking(desk.gateway)
    body = {"model": "fast", "input": [given], "previous_response_id": first.id}
    replies = [asking.send("/v1/responses", body) for _ in range(4)]
    statuses = sorted(reply.result(TIMEOUT_SECONDS).status_code for reply in replies)
    assert statuses[0] == 200
    assert all(status in (400, 409) for status in statuses[1:])
    assert desk.workshop.lines() == ["once 1"]


def test_client_calls_and_questions_are_returned_together(open_desk: Any) -> None:
    desk = open_desk(MIXED, DONE)
    first = desk.create(tools=[WEATHER])
    assert [item.type for item in first.output] == ["function_call", "mcp_approval_request"]
    call, question = first.output
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    for given in ([output], [answer(question)]):
        with pytest.raises(openai.BadRequestError):
            desk.create(given, previous_response_id=first.id, tools=[WEATHER])
    assert desk.workshop.lines() == []
    second = desk.create([output, answer(question)], previous_response_id=first.id, tools=[WEATHER])
    assert second.output_text == "Done."
    told = desk.told()
    assert [role for role, _ in told] == ["user", "assistant", "tool", "tool"]
    assert {content for role, content in told if role == "tool"} == {"sunny", "once 1 is done"}


def test_node_sdk_answers_questions_and_client_calls_together(open_desk: Any) -> None:
    desk = open_desk(MIXED, DONE)
    command = [NODE, SCRIPT, desk.gateway.v1]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {
        "first": ["function_call", "mcp_approval_request"],
        "question": {"name": "once", "label": "mine", "arguments": {"number": 1}},
        "refusals": [400, 400],
        "second": ["mcp_call", "message"],
        "ran": "once 1 is done",
        "approval": True,
        "text": "Done.",
        "last": "response.completed",
    }
    assert desk.workshop.lines() == ["once 1"]


def test_unstored_client_sends_everything_back(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE, DONE)
    history: list[Any] = [{"role": "user", "content": "Go."}]
    first = desk.create(history, store=False)
    history += [item.model_dump(exclude_none=True) for item in first.output] + [answer(questions(first)[0])]
    second = desk.create(history, store=False)
    assert [item.type for item in second.output] == ["mcp_call", "message"]
    assert [role for role, _ in desk.told()] == ["user", "assistant", "tool"]
    history += [item.model_dump(exclude_none=True) for item in second.output] + [{"role": "user", "content": "More."}]
    third = desk.create(history, store=False)
    assert third.output_text == "Done."
    assert [role for role, _ in desk.told()] == ["user", "assistant", "tool", "assistant", "user"]
    assert desk.workshop.lines() == ["once 1"]


def test_answer_alone_is_enough(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    first = desk.create(store=False)
    second = desk.create([{"role": "user", "content": "Go."}, answer(questions(first)[0])], store=False)
    assert second.output_text == "Done."
    assert {role for role, _ in desk.told()} == {"user", "assistant", "tool"}


def test_chain_and_conversation_go_on_after_an_answer(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    first = desk.create()
    second = desk.create([answer(questions(first)[0])], previous_response_id=first.id)
    third = desk.create("More.", previous_response_id=second.id)
    assert third.output_text == "Done."
    assert [role for role, _ in desk.told()] == ["user", "assistant", "tool", "assistant", "user"]


def test_conversation_keeps_questions_and_results(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    conversation = desk.client.conversations.create().id
    first = desk.create(conversation=conversation)
    with pytest.raises(openai.BadRequestError, match="has no answer"):
        desk.create("And?", conversation=conversation)
    desk.create([answer(questions(first)[0])], conversation=conversation)
    assert desk.create("More.", conversation=conversation).output_text == "Done."
    assert [role for role, _ in desk.told()] == ["user", "assistant", "tool", "assistant", "user"]
    items = [item.type for item in desk.client.conversations.items.list(conversation, order="asc")]
    assert items.count("mcp_approval_request") == 1
    assert items.count("mcp_call") == 1


def test_question_survives_kill_9(open_desk: Any) -> None:  # bug 49
    desk = open_desk(ONE, DONE)
    first = desk.create(store=False)
    history = [{"role": "user", "content": "Go."}, *[item.model_dump(exclude_none=True) for item in first.output]]
    desk.workshop.kill(desk.gateway)
    with desk.workshop.start() as gateway:
        again = Desk(desk.workshop, gateway, desk.upstream)
        assert again.create([*history, answer(questions(first)[0])], store=False).output_text == "Done."
    assert desk.workshop.lines() == ["once 1"]


def test_expired_question_can_only_be_denied(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE, model="approval_expiry_seconds = 0.001")
    first = desk.create()
    (question,) = questions(first)
    with pytest.raises(openai.BadRequestError, match="has expired"):
        desk.create([answer(question)], previous_response_id=first.id)
    assert desk.create([answer(question, approve=False)], previous_response_id=first.id).output_text == "Done."
    assert desk.workshop.lines() == []


def test_deleted_response_takes_its_question_with_it(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    first = desk.create()
    desk.client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError, match="deleted"):
        desk.create([answer(questions(first)[0])], previous_response_id=first.id)
    assert desk.workshop.lines() == []


def test_another_key_cannot_answer(open_desk: Any) -> None:  # bug 43
    desk = open_desk(ONE, DONE, config=KEYS, key="key-a")
    first = desk.create(store=False)
    bert = Desk(desk.workshop, desk.gateway, desk.upstream, "key-b")
    history = [{"role": "user", "content": "Go."}, answer(questions(first)[0])]
    with pytest.raises(openai.APIStatusError):
        bert.create(history, store=False)
    assert desk.workshop.lines() == []


def test_questions_of_a_turn_that_failed_are_withdrawn_and_the_chain_goes_on(open_desk: Any) -> None:
    desk = open_desk(Round(calls=(("once", {"number": 1}), ("wait", {}))), DONE)
    go = desk.workshop.folder / "go"
    go.touch()
    reply = Asking(desk.gateway).chat()
    approver = Approver(desk.gateway)
    approver.deny("once")
    approver.allow("wait", remember="always")
    reply.result(TIMEOUT_SECONDS)
    go.unlink()
    stream = desk.client.responses.create(model="fast", input="Go.", stream=True)
    events = {}
    for event in stream:  # until `wait` runs: the first question is with the client by then
        events[event.type] = event
        if event.type == "response.output_item.added" and event.item.type == "mcp_call":
            break
    stream.close()
    first = events["response.created"].response.id
    question = events["response.output_item.done"].item
    desk.workshop.await_that(lambda: desk.workshop.statuses()[-1] == "cancelled", desk.workshop.statuses)
    with pytest.raises(openai.BadRequestError, match="withdrawn already"):
        desk.create([answer(question)], previous_response_id=first)
    assert desk.create("Go on.", previous_response_id=first).status == "completed"
    assert "once 1" not in desk.workshop.lines()


def test_returned_questions_do_not_hide_those_that_wait(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    reply = Asking(desk.gateway).chat()
    approver = Approver(desk.gateway)
    held = approver.question()
    for _ in range(2):
        desk.create()
    listed = approver.get("/approvals?status=pending&limit=1").json()["approvals"]
    assert [each["id"] for each in listed] == [held["id"]]
    assert [each["id"] for each in approver.get("/approvals?limit=1").json()["approvals"]] == [held["id"]]
    approver.deny()
    reply.result(TIMEOUT_SECONDS)


def test_yes_of_the_client_does_not_count_for_a_model_that_asks_an_approver(tmp_path: Path) -> None:
    with Upstream(play(ONE, DONE)) as upstream:
        held = f'[models.held]\nprovider = "compatible"\nwire = "chat"\nbase_url = "{upstream.url}/v1"\ntoolsets = ["mine"]\n'
        workshop = Workshop(tmp_path, upstream, approval="always", model='approval = "return"', config=held)
        with workshop.start() as gateway:
            desk = Desk(workshop, gateway, upstream)
            first = desk.create()
            (question,) = questions(first)
            answered: dict[str, Any] = {"previous_response_id": first.id}
            with pytest.raises(openai.BadRequestError, match="asks an approver"):
                desk.client.responses.create(model="held", input=[answer(question)], **answered)
            assert workshop.lines() == []
            denied = desk.client.responses.create(model="held", input=[answer(question, approve=False)], **answered)
            assert denied.output_text == "Done."


def test_chat_holds(open_desk: Any) -> None:
    desk = open_desk(ONE, DONE)
    reply = Asking(desk.gateway).chat()
    Approver(desk.gateway).allow()
    assert "Done." in chat_text(reply.result(TIMEOUT_SECONDS))


def test_calls_that_need_no_approval_run_before_the_response_ends(tmp_path: Path) -> None:
    with Upstream(play(TWO, DONE)) as upstream:
        by_tool = '{once = "always", again = "never"}'
        workshop = Workshop(tmp_path, upstream, model='approval = "return"', approval=by_tool)
        with workshop.start() as gateway:
            desk = Desk(workshop, gateway, upstream)
            first = desk.create()
            assert [item.type for item in first.output] == ["mcp_approval_request", "mcp_call"]
            assert workshop.lines() == ["again 2"]
            second = desk.create([answer(questions(first)[0])], previous_response_id=first.id)
            assert second.output_text == "Done."
            assert [content for role, content in desk.told() if role == "tool"] == ["once 1 is done", "again 2 is done"]
            assert workshop.lines() == ["again 2", "once 1"]
