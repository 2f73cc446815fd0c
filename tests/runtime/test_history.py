"""What a request refers to: recalled turns, references and chains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from toolrelay.core.identity import make_call_id, make_item_id
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, Message, OpaqueItem, Reasoning, Result
from toolrelay.core.request import Request
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    CallsHandedOver,
    StepEvent,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFinished,
)
from toolrelay.errors import ClientError
from toolrelay.runtime.history import Past, PastResolver
from toolrelay.runtime.returned_questions import ReturnedQuestions
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import open_store
from toolrelay.stores.turns import StoredStep, TurnRow
from toolrelay.wires.responses.request import NAME as RESPONSES

TOKEN = "0123456789abcdef0123"
USER = Message(role="user", content="Weather and time?")
GATEWAY = Call(id=make_call_id(TOKEN, 0), name="get_weather", arguments="{}")
FIRST = Call(id=make_call_id(TOKEN, 1), name="get_time", arguments="{}")
SECOND = Call(id=make_call_id(TOKEN, 2), name="get_time", arguments='{"zone": 1}')
RAN = Result(call_id=GATEWAY.id, output="18 degrees")
TEXT = Message(role="assistant", content="Let me see.")
THOUGHT = Reasoning(id="rs_provider", encrypted="secret")


def answer_to(call: Call) -> Result:
    return Result(call_id=call.id, output="noon")


def plan(*items: Item) -> list[StepEvent]:
    """Return the steps of an answer, with a run of the gateway's call."""
    calls = [item for item in items if isinstance(item, Call)]
    steps: list[StepEvent] = [AnswerReceived(items=items, finish="calls")]
    steps += [CallPlanned(call=call, owner="gateway" if call is GATEWAY else "client") for call in calls]
    if GATEWAY in calls:
        steps += [ToolRunStarted(call_id=GATEWAY.id, arguments="{}"), ToolRunFinished(call_id=GATEWAY.id, output=RAN.output)]
    return steps


def end(*calls: Call) -> list[StepEvent]:
    return [CallsHandedOver(call_ids=tuple(call.id for call in calls)), TurnFinished(finish="calls")]


MIXED = [*plan(TEXT, GATEWAY, FIRST, SECOND), *end(FIRST, SECOND)]
TWO_ROUNDS = [*plan(TEXT, GATEWAY), *plan(FIRST), *end(FIRST)]

Resolve = Callable[..., Past]


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """Return a function that resolves the items of a request after a recorded turn with these steps."""

    def resolve(
        steps: Sequence[StepEvent],
        items: Sequence[Item],
        *,
        owner: str = "me",
        model: str = "fast",
        local: bool = True,
        **members: Any,
    ) -> Past:
        async def main() -> Past:
            store = open_store(StoreSettings(record="none"), tmp_path)
            await store.open()
            try:
                row = TurnRow(id=TOKEN, owner="me", model="fast", wire=RESPONSES, created_at=1.0, stored=True)
                accepted = TurnAccepted(request=Request(wire=RESPONSES, model="fast", items=(USER,), store=True))
                stored = [StoredStep(seq=seq, at=1.0, step=step) for seq, step in enumerate([accepted, *steps])]
                await store.create_turn(row, stored)
                asked = Request(wire=RESPONSES, model=model, items=tuple(items), **members)
                resolver = PastResolver(store, ReturnedQuestions(store, lambda _: None))
                return await resolver.resolve(asked, owner, is_local=local)
            finally:
                await store.close()

        return asyncio.run(main())

    return resolve


def test_mixed_answer_is_recalled_in_order(resolve: Resolve) -> None:
    past = resolve(MIXED, [USER, TEXT, FIRST, SECOND, answer_to(FIRST), answer_to(SECOND)])
    assert past.request.items == (USER, TEXT, GATEWAY, FIRST, SECOND, RAN, answer_to(FIRST), answer_to(SECOND))


def test_all_rounds_are_recalled(resolve: Resolve) -> None:
    past = resolve(TWO_ROUNDS, [USER, TEXT, FIRST, answer_to(FIRST)])
    assert past.request.items == (USER, TEXT, GATEWAY, RAN, FIRST, answer_to(FIRST))


def test_call_that_the_client_left_out_is_not_recalled(resolve: Resolve) -> None:
    past = resolve(MIXED, [USER, FIRST, answer_to(FIRST)])
    assert past.request.items == (USER, TEXT, GATEWAY, FIRST, RAN, answer_to(FIRST))


@pytest.mark.parametrize("kind", ["mcp_call", "item_reference"])
def test_echoed_items_of_a_recalled_turn_are_not_repeated(resolve: Resolve, kind: str) -> None:
    raw: JsonObject = {"type": kind, "id": make_item_id("mcp", TOKEN, 3), "name": "get_weather", "arguments": "{}"}
    echoed = OpaqueItem(wire=RESPONSES, raw=raw)
    text = Message(role="assistant", content="Let me see.", id=make_item_id("msg", TOKEN, 0))
    past = resolve(MIXED, [USER, text, FIRST, SECOND, echoed, answer_to(FIRST), answer_to(SECOND)])
    assert past.request.items == (USER, TEXT, GATEWAY, FIRST, SECOND, RAN, answer_to(FIRST), answer_to(SECOND))


def test_turn_without_gateway_calls_stays_as_the_client_sends_it(resolve: Resolve) -> None:
    edited = Message(role="assistant", content="Edited.")
    items = (USER, edited, FIRST, answer_to(FIRST))
    assert resolve([*plan(TEXT, FIRST), *end(FIRST)], items).request.items == items


def test_encrypted_reasoning_is_recalled_for_the_same_model_only(resolve: Resolve) -> None:
    steps, items = [*plan(THOUGHT, FIRST), *end(FIRST)], (USER, FIRST, answer_to(FIRST))
    assert resolve(steps, items).request.items == (USER, THOUGHT, FIRST, answer_to(FIRST))
    assert resolve(steps, items, model="other").request.items == items


def test_another_owner_recalls_nothing(resolve: Resolve) -> None:
    items = (USER, FIRST, answer_to(FIRST))
    assert resolve(TWO_ROUNDS, items, owner="you").request.items == items


def test_answers_of_other_turns_stay(resolve: Resolve) -> None:
    earlier = Message(role="assistant", content="Hello.")
    past = resolve(TWO_ROUNDS, [earlier, USER, FIRST, answer_to(FIRST)])
    assert past.request.items == (earlier, USER, TEXT, GATEWAY, RAN, FIRST, answer_to(FIRST))


def test_chain_has_gateway_calls_and_needs_the_clients_results(resolve: Resolve) -> None:
    previous = f"resp_{TOKEN}"
    past = resolve(TWO_ROUNDS, [answer_to(FIRST)], previous_response_id=previous)
    assert past.context.items == (USER, TEXT, GATEWAY, RAN, FIRST)
    with pytest.raises(ClientError) as caught:
        resolve(TWO_ROUNDS, [USER], previous_response_id=previous)
    assert caught.value.code == "missing_tool_output"
    with pytest.raises(ClientError) as caught:
        resolve(TWO_ROUNDS, [answer_to(FIRST), answer_to(SECOND)], previous_response_id=previous)
    assert caught.value.code == "unknown_call"


@pytest.mark.parametrize("identifier", [TOKEN, f"conv_{TOKEN}", f"msg_{TOKEN}0000", f"resp_{TOKEN}0000", "resp_", ""])
def test_chain_begins_with_the_id_of_a_response(resolve: Resolve, identifier: str) -> None:
    with pytest.raises(ClientError) as caught:
        resolve(TWO_ROUNDS, [answer_to(FIRST)], previous_response_id=identifier)
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "previous_response_not_found")


def test_chain_that_is_too_long_is_refused_as_such(resolve: Resolve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.runtime.history.MAX_CHAIN", 0)
    with pytest.raises(ClientError, match="more than 0 responses") as caught:
        resolve(TWO_ROUNDS, [answer_to(FIRST)], previous_response_id=f"resp_{TOKEN}")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "chain_too_long")


def test_unknown_reference_is_refused(resolve: Resolve) -> None:
    unknown = OpaqueItem(wire=RESPONSES, raw={"type": "item_reference", "id": make_item_id("msg", "f" * 20, 0)})
    with pytest.raises(ClientError) as caught:
        resolve(TWO_ROUNDS, [unknown, USER])
    assert caught.value.code == "item_not_found"
