"""Steps as entries on a time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from tests.runtime.traces.records import (
    ACCEPTED,
    ALLOWED,
    ASKED,
    CALLED,
    FAILED,
    FINISHED,
    OWN,
    PLANNED,
    RAN,
    SAID,
    SECOND,
    STARTED,
    STORIES,
    record_of,
)
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    QuestionClosed,
    StepEvent,
    ToolRunFinished,
    TurnFailed,
    TurnResumed,
    VerdictGiven,
)
from toolrelay.runtime.traces.timeline import TraceEntry, make_timeline, total_usage
from toolrelay.stores.turn_lists import UnreadableStep


def outline(*steps: StepEvent, **row: Any) -> list[tuple[str, str, float, float | None]]:
    return [(entry.kind, entry.status, entry.started, entry.ms) for entry in make_timeline(record_of(*steps, **row))]


def find(kind: str, *steps: StepEvent) -> list[TraceEntry]:
    return [entry for entry in make_timeline(record_of(*steps)) if entry.kind == kind]


def test_stories_have_every_kind_of_step() -> None:
    assert {type(step) for story in STORIES.values() for step in story} == set(get_args(StepEvent))


@pytest.mark.parametrize("steps", STORIES.values(), ids=STORIES)
def test_every_step_of_every_prefix_is_in_an_entry(steps: Sequence[StepEvent]) -> None:
    for end in range(len(steps) + 1):
        entries = make_timeline(record_of(*steps[:end]))
        assert {seq for entry in entries for seq in entry.steps} >= set(range(end))
        keys = [entry.key for entry in entries]
        assert len(keys) == len(set(keys))
        assert all(entry.started >= 0 and (entry.ms is None or entry.ms >= 0) for entry in entries)


@pytest.mark.parametrize("steps", STORIES.values(), ids=STORIES)
def test_something_is_open_until_the_end_and_nothing_after_it(steps: Sequence[StepEvent]) -> None:
    assert not any(entry.is_open for entry in make_timeline(record_of(*steps)))
    assert sum(entry.is_open for entry in make_timeline(record_of(steps[0]))) == 1


def test_asked_turn_has_its_times() -> None:
    assert outline(*STORIES["asked"]) == [
        ("accepted", "done", 0, 0),
        ("model", "done", 600, 400),
        ("call", "done", 2000, 0),
        ("question", "allowed", 3000, 1000),
        ("run", "done", 5000, 1000),
        ("model", "done", 6700, 300),
        ("finished", "done", 8000, 0),
    ]


def test_model_call_is_open_after_the_last_result_only() -> None:
    both = (ACCEPTED, CALLED, PLANNED, CallPlanned(call=SECOND, owner="gateway"), STARTED)
    assert [entry.title for entry in make_timeline(record_of(*both)) if entry.is_open] == ["Tool own"]
    assert [entry.title for entry in make_timeline(record_of(*both, RAN)) if entry.is_open] == []
    done = (*both, RAN, ToolRunFinished(call_id="call_2", output="no", failed=True))
    assert [(entry.title, entry.started) for entry in make_timeline(record_of(*done)) if entry.is_open] == [
        ("Model call 2", 6000)
    ]


def test_key_of_an_open_model_call_is_that_of_its_answer() -> None:
    (running,) = find("model", ACCEPTED)
    (done,) = find("model", ACCEPTED, SAID)
    assert (running.key, running.ms) == (done.key, None)


def test_answer_without_times_begins_after_the_step_before() -> None:
    (entry,) = find("model", ACCEPTED, AnswerReceived(items=(), finish="stop"), FINISHED)
    assert (entry.started, entry.ms, entry.detail["first_ms"]) == (0, 1000, None)


def test_rejected_answer_says_why_and_what_was_printed() -> None:
    (rejected,) = find("rejected", *STORIES["rejected"])
    assert (rejected.title, rejected.started, rejected.ms) == ("Answer rejected: unknown_tool", 0, 1000)
    assert rejected.detail == {"rule": "unknown_tool", "raw": "<tool_call>"}


def test_edited_arguments_and_who_edited_are_shown() -> None:
    edited = VerdictGiven(call_id="call_1", verdict="allow", arguments='{"city":"Bern"}', by="ann", reason="wrong city")
    (question,) = find("question", ACCEPTED, CALLED, PLANNED, ASKED, edited)
    assert question.status == "edited"
    assert question.detail["arguments"] == OWN.arguments
    assert question.detail["answer"] == {
        "verdict": "allow",
        "by": "ann",
        "arguments": '{"city":"Bern"}',
        "reason": "wrong city",
        "output": None,
    }


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (VerdictGiven(call_id="call_1", verdict="deny", by="ann"), "denied"),
        (QuestionClosed(call_id="call_1", status="expired"), "expired"),
    ],
)
def test_denied_or_expired_question_is_followed_by_a_model_call(answer: StepEvent, status: str) -> None:
    entries = make_timeline(record_of(ACCEPTED, CALLED, PLANNED, ASKED, answer))
    assert [(entry.kind, entry.status) for entry in entries[-2:]] == [("question", status), ("model", "running")]


def test_failed_tool_and_one_that_was_not_run() -> None:
    failing = replace(RAN, failed=True, private=True)
    (run,) = find("run", ACCEPTED, CALLED, PLANNED, STARTED, failing)
    assert (run.status, run.detail["output"], run.detail["private"]) == ("failed", "18 degrees", True)
    (refused,) = find("run", ACCEPTED, CALLED, PLANNED, failing)
    assert (refused.status, refused.title, refused.ms) == ("not_run", "Tool own was not run", 0)


def test_failure_ends_what_was_under_way() -> None:
    assert outline(ACCEPTED, FAILED) == [("accepted", "done", 0, 0), ("model", "failed", 0, 1000), ("failed", "failed", 1000, 0)]
    assert outline(ACCEPTED, CALLED, PLANNED, STARTED, FAILED)[-2:] == [
        ("run", "interrupted", 3000, 1000),
        ("failed", "failed", 4000, 0),
    ]


def test_turn_that_was_resumed_after_a_crash_has_both_runs() -> None:
    crashed = (ACCEPTED, CALLED, PLANNED, STARTED, STARTED, RAN)
    assert [(run.status, run.ms) for run in find("run", *crashed)] == [("interrupted", 1000), ("done", 1000)]
    resumed = (ACCEPTED, CALLED, PLANNED, STARTED, TurnFailed(code="client_gone", message="x"), TurnResumed(), STARTED, RAN, SAID)
    assert [entry.kind for entry in make_timeline(record_of(*resumed, FINISHED))][3:6] == ["run", "failed", "resumed"]


def test_parked_turn_without_a_question_calls_no_model() -> None:
    assert not any(entry.is_open for entry in make_timeline(record_of(ACCEPTED, status="parked")))
    entries = make_timeline(record_of(ACCEPTED, CALLED, PLANNED, ASKED, status="parked"))
    assert [entry.title for entry in entries if entry.is_open] == ["May own run?"]


def test_record_with_an_unreadable_end_has_nothing_open() -> None:
    broken = UnreadableStep(seq=6, at=1006.0, kind="TurnFinished", reason="Object missing required field `finish`")
    record = record_of(ACCEPTED, CALLED, PLANNED, ASKED, ALLOWED, STARTED, unreadable=[broken], status="finished")
    entries = make_timeline(record)
    assert (entries[-1].kind, entries[-1].title, entries[-1].detail["step"]) == (
        "unreadable",
        "Step 6 cannot be read",
        "TurnFinished",
    )
    assert [(entry.kind, entry.status, entry.ms) for entry in entries if entry.status == "interrupted"] == [
        ("run", "interrupted", None)
    ]


def test_steps_without_their_beginning_are_shown() -> None:
    """Of a turn whose first steps cannot be read."""
    record = record_of(RAN, ALLOWED, SAID)
    assert [entry.kind for entry in make_timeline(record)] == ["run", "question", "model"]


def test_clock_that_was_set_back_gives_no_negative_times() -> None:
    record = record_of(*STORIES["asked"], created_at=1004.5)
    assert all(entry.started >= 0 and (entry.ms or 0) >= 0 for entry in make_timeline(record))


def test_name_of_the_key_is_not_in_the_request() -> None:
    (accepted,) = find("accepted", ACCEPTED)
    assert "key" not in accepted.detail["request"]
    assert accepted.detail["tools"] == ["theirs"]


def test_usage_is_that_of_all_answers() -> None:
    usage = total_usage(record_of(*STORIES["asked"]).steps)
    assert usage is not None
    assert (usage.input, usage.output) == (16, 5)
    assert total_usage(record_of(ACCEPTED).steps) is None
