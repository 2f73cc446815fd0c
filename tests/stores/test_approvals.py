"""Questions, answers and rules in the store."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import asdict, replace

from tests.stores.conftest import Play
from tests.stores.rows import ACCEPTED, ASKED, FINISHED, conversation, steps, turn
from toolrelay.errors import StoreConflictError
from toolrelay.stores.approvals import ApprovalAnswer, ApprovalRow, RuleRow
from toolrelay.stores.base import PruneResult, Store

QUESTION = ApprovalRow(
    id="appr_1",
    turn="t1",
    owner="me",
    model="fast",
    conversation=None,
    call_id="call_1",
    kind="run",
    mode="hold",
    toolset="vault",
    tool="vault_search",
    arguments='{"query":"x"}',
    created_at=1000.0,
    expires_at=4600.0,
)
ALLOWED = ApprovalAnswer(id="appr_1", status="allowed", answered_at=1001.0, answered_by="anna")
RULE = RuleRow(
    id="rule_1",
    owner="me",
    toolset="vault",
    tool="vault_search",
    definition="d",
    kind="run",
    verdict="allow",
    created_at=1000.0,
    created_by="anna",
)


async def ask(store: Store, **members: Any) -> None:
    await store.create_turn(turn(**members), steps(ACCEPTED, ASKED), approvals=[QUESTION])


def test_question_and_answer_are_kept(play: Play) -> None:
    async def story(store: Store) -> None:
        await ask(store)
        assert await store.load_approval("appr_1") == QUESTION
        answer = replace(ALLOWED, status="edited", new_arguments='{"query":"y"}', reason="narrower")
        await store.append_steps("t1", steps(FINISHED, start=2), approvals=[answer])
        loaded = await store.load_approval("appr_1")
        assert loaded == replace(QUESTION, **{key: value for key, value in asdict(answer).items() if key != "id"})

    play(story)


@pytest.mark.parametrize("status", ["allowed", "edited", "denied", "expired"])
def test_second_answer_is_a_conflict_and_changes_nothing(play: Play, status: Any) -> None:
    async def story(store: Store) -> None:
        await ask(store)
        await store.append_steps("t1", steps(FINISHED, start=2), approvals=[ALLOWED])
        with pytest.raises(StoreConflictError, match="appr_1 was answered already"):
            await store.append_steps("t1", steps(FINISHED, start=3), approvals=[replace(ALLOWED, status=status)])
        loaded = await store.load_approval("appr_1")
        assert loaded is not None
        assert loaded.status == "allowed"
        stored = await store.load_turn("t1")
        assert stored is not None
        assert len(stored.steps) == 3

    play(story)


def test_withdrawn_question_may_be_asked_again(play: Play) -> None:
    async def story(store: Store) -> None:
        await ask(store)
        await store.append_steps("t1", [], approvals=[replace(ALLOWED, status="withdrawn", answered_by=None)])
        again = replace(QUESTION, created_at=2000.0, expires_at=5600.0)
        await store.append_steps("t1", steps(ASKED, start=2), approvals=[again])
        assert await store.load_approval("appr_1") == again
        with pytest.raises(StoreConflictError):
            await store.append_steps("t1", steps(ASKED, start=3), approvals=[again])

    play(story)


def test_questions_are_listed_newest_first_by_status(play: Play) -> None:
    async def story(store: Store) -> None:
        await ask(store)
        later = [replace(QUESTION, id=f"appr_{number}", created_at=1000.0 + number) for number in (2, 3)]
        await store.append_steps("t1", [], approvals=[*later, ALLOWED])
        assert [row.id for row in await store.list_approvals()] == ["appr_3", "appr_2", "appr_1"]
        assert [row.id for row in await store.list_approvals("pending", limit=1)] == ["appr_3"]
        assert [row.id for row in await store.list_approvals("allowed")] == ["appr_1"]

    play(story)


def test_prune_keeps_a_turn_that_ended_with_a_question_until_it_expires(play: Play) -> None:
    async def story(store: Store) -> None:
        row = turn(created_at=1.0, status="finished")
        question = replace(QUESTION, mode="return", created_at=1.0)
        await store.create_turn(row, steps(ACCEPTED, FINISHED, at=1.0), approvals=[question])
        assert await store.prune(question.expires_at) == PruneResult()
        assert await store.prune(question.expires_at + 1) == PruneResult(turns=1)
        assert await store.load_approval("appr_1") is None

    play(story)


def test_deleted_response_takes_its_questions_with_it(play: Play) -> None:
    async def story(store: Store) -> None:
        await ask(store, stored=True)
        assert await store.delete_response("t1", "me")
        assert await store.load_approval("appr_1") is None

    play(story)


def test_rules_are_found_by_owner_and_tool_and_deleted_once(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_rule(RULE)
        other = replace(RULE, id="rule_2", owner="you", created_at=1001.0, arguments="{}", new_arguments="{}", reason="r")
        await store.add_rule(other)
        assert await store.list_rules() == [other, RULE]
        assert await store.find_rules("me", "vault_search") == [RULE]
        assert await store.find_rules("me", "file_read") == []
        assert await store.delete_rule("rule_1")
        assert not await store.delete_rule("rule_1")

    play(story)


def test_rule_of_a_conversation_goes_with_it(play: Play) -> None:
    async def story(store: Store) -> None:
        rule = replace(RULE, conversation="conv_1")
        with pytest.raises(StoreConflictError):
            await store.add_rule(rule)
        await store.create_conversation(conversation())
        await store.add_rule(rule)
        assert await store.delete_conversation("conv_1", "me")
        assert await store.list_rules() == []

    play(story)


def test_rule_of_a_conversation_without_a_row_makes_one(play: Play) -> None:
    async def story(store: Store) -> None:
        row = turn("t1", conversation="conv_t1", stored=True)
        await store.create_turn(row, steps(ACCEPTED, FINISHED), creates_conversation=False)
        assert await store.load_conversation("conv_t1", "me") is None
        with pytest.raises(StoreConflictError):
            await store.add_rule(replace(RULE, owner="you", conversation="conv_t1"))
        await store.add_rule(replace(RULE, conversation="conv_t1"))
        assert [rule.conversation for rule in await store.find_rules("me", "vault_search")] == ["conv_t1"]

    play(story)


def test_export_has_questions_and_rules(play: Play) -> None:
    async def story(store: Store) -> None:
        await ask(store)
        await store.add_rule(RULE)
        records = {record["type"]: record async for record in store.export()}
        assert records["approval"] == {"type": "approval", **asdict(QUESTION)}
        assert records["rule"] == {"type": "rule", **asdict(RULE)}

    play(story)
