"""The states of a session: every transition, and what ends each waiting state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.toolcalls.test_session import (
    DIALECT,
    REQUEST,
    STOP,
    calls,
    feed_native,
    feed_text,
    fold,
    make_session,
    render_call,
    rules,
)
from toolrelay.core.events import (
    AnswerFailed,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.messages import Call, Result
from toolrelay.core.request import Request, Sampling, ToolChoice
from toolrelay.errors import BackendError
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import ToolCallSession
from toolrelay.toolcalls.states import TRANSITIONS, State

CALL = render_call("get_time", "{}")
BAD = render_call("nope", "{}")
MUST = replace(REQUEST, tool_choice=ToolChoice(mode="required"))
REFUSED = AnswerFailed(BackendError("failed to load grammar", status=400))


def stopping(stop: str, request: Request = REQUEST, **options: Any) -> ToolCallSession:
    return make_session(replace(request, sampling=Sampling(stop=stop)), emulates_stop=True, **options)


def text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


# Transitions

SCENARIOS: dict[str, Callable[[], tuple[ToolCallSession, list[list[StreamEvent] | Callable[[ToolCallSession], object]]]]] = {
    "finished": lambda: (make_session(), [[TextDelta("Hi."), STOP]]),
    "failed": lambda: (make_session(), [[AnswerFailed(BackendError("It is down."))]]),
    "cut": lambda: (make_session(), [[TextDelta(CALL + "Noon.")], [STOP]]),
    "cut, estimated": lambda: (make_session(), [[TextDelta(CALL + "Noon.")], ToolCallSession.finish_with_estimate]),
    "stopped": lambda: (stopping("END"), [[TextDelta("Hi.END")], [STOP]]),
    "stopped, estimated": lambda: (stopping("END"), [[TextDelta("Hi.END")], ToolCallSession.finish_with_estimate]),
    "rejected": lambda: (make_session(), [[TextDelta(BAD)], [STOP], ToolCallSession.retry]),
    "rejected, estimated": lambda: (
        make_session(),
        [[TextDelta(BAD)], ToolCallSession.finish_with_estimate, ToolCallSession.retry],
    ),
    "constraint refused": lambda: (make_session(MUST, constrains_output=True), [[REFUSED], ToolCallSession.retry]),
}


def test_scenarios_cover_every_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[State, State]] = set()
    enter = ToolCallSession._enter

    def record(session: ToolCallSession, state: State) -> None:
        seen.add((session.state, state))
        enter(session, state)

    monkeypatch.setattr(ToolCallSession, "_enter", record)
    for scenario in SCENARIOS.values():
        session, steps = scenario()
        for step in steps:
            if isinstance(step, list):
                session.feed(step)
            else:
                step(session)
    assert seen == {(state, target) for state, targets in TRANSITIONS.items() for target in targets}


@pytest.mark.parametrize("name", SCENARIOS)
def test_batching_does_not_change_the_state(name: str) -> None:
    """Batches that arrive together lead to the same state as batches that arrive one by one."""
    (one, steps), (other, _) = SCENARIOS[name](), SCENARIOS[name]()
    batches = [step for step in steps if isinstance(step, list)]
    for batch in batches:
        one.feed(batch)
    other.feed([event for batch in batches for event in batch])
    assert one.state is other.state


def test_illegal_transition_raises() -> None:
    session = make_session()
    with pytest.raises(AssertionError, match="READING is not followed by READING"):
        session.retry()


@pytest.mark.parametrize("events", [[TextDelta(CALL + "Noon.")], [TextDelta(BAD)]], ids=["cut", "rejected"])
def test_output_and_failures_are_ignored_while_waiting(events: list[StreamEvent]) -> None:
    session = make_session()
    session.feed(events)
    state = session.state
    late: list[StreamEvent] = [TextDelta(CALL), CallStarted(0, "get_time"), CallFinished(0), REFUSED]
    assert session.feed(late) == []
    assert session.state is state


def test_events_after_the_end_are_ignored() -> None:
    session = make_session()
    session.feed([STOP])
    assert session.feed([TextDelta("late"), STOP]) == []


# Stop sequences


@pytest.mark.parametrize("stream", [True, False])
def test_stop_sequence_inside_a_printed_call_is_part_of_its_arguments(*, stream: bool) -> None:
    session = stopping("END", replace(REQUEST, stream=stream))
    events = feed_text(session, 'Now EN<tool_call>\n{"name": "get_weather", "arguments": {"city": "END"}}\n</tool_call>')
    assert calls(events) == [("get.weather", {"city": "END"})]
    assert (text(events), session.state) == ("Now EN", State.ENDED)


def test_call_after_a_stop_sequence_does_not_count() -> None:
    session = stopping("END")
    events = session.feed([TextDelta("Now END " + CALL)])
    assert session.state is State.STOPPED
    events += session.feed([TextDelta(CALL), STOP])
    assert (calls(events), text(events), session.state) == ([], "Now ", State.ENDED)


def test_stop_sequence_during_a_native_call_ends_without_the_call() -> None:
    request = replace(REQUEST, sampling=Sampling(stop="END"))
    started: list[StreamEvent] = [CallStarted(0, "get_time"), ArgumentsDelta(0, "{"), TextDelta("Hi.END")]
    session, events = feed_native(started, request, emulates_stop=True)
    assert session.state is State.STOPPED
    events += session.feed([ArgumentsDelta(0, "}"), CallFinished(0), STOP])
    assert (calls(events), text(events), session.state) == ([], "Hi.", State.ENDED)


def test_stop_sequence_after_a_call_keeps_the_call() -> None:
    session = stopping("END")
    events = session.feed([TextDelta(CALL + "END"), STOP])
    assert calls(events) == [("get_time", {})]
    assert fold(events).finish == "calls"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_text_up_to_the_stop_sequence_is_emitted_however_it_is_chunked(size: int) -> None:
    session, events = stopping("END"), list[StreamEvent]()
    output = "An EN and an E, then END of it"
    for at in range(0, len(output), size):
        events += session.feed([TextDelta(output[at : at + size])])
    events += session.finish_with_estimate()
    assert text(events) == "An EN and an E, then "
    assert fold(events).finish == "stop"


@pytest.mark.parametrize("bad", [BAD, CALL + "?"], ids=["rejected", "cut"])
def test_usage_is_counted_once_if_held_text_ends_the_try(bad: str) -> None:
    """The last character may begin a stop sequence: it is read only when the answer finishes."""
    session = stopping(bad[-1] + "#")
    events = session.feed([TextDelta(bad), STOP])
    assert session.state is (State.RETRY if bad is BAD else State.ENDED)
    if session.state is State.RETRY:
        session.retry()
        events += session.feed([TextDelta(CALL), STOP])
        assert fold(events).usage == Usage(input=20, output=10)
    else:
        assert fold(events).usage == STOP.usage


def test_native_call_after_held_text_that_cuts_the_answer_is_ignored() -> None:
    request = replace(REQUEST, sampling=Sampling(stop="?#"), parallel_tool_calls=False)
    session, events = feed_native(
        [TextDelta(CALL + "?"), CallStarted(0, "get_time")], request, scans_text=True, emulates_stop=True
    )
    assert session.state is State.CUT
    assert calls(events + session.feed([CallFinished(0), STOP])) == [("get_time", {})]


def test_usage_of_unscanned_text_is_estimated() -> None:
    request = replace(REQUEST, tools=(), sampling=Sampling(stop="END"))
    session, events = feed_native([TextDelta("x" * 400 + "END")], request, emulates_stop=True)
    events += session.finish_with_estimate()
    usage = fold(events).usage
    assert usage is not None
    assert (usage.output, usage.estimated) == (100, True)


# Native calls that arrive whole


def whole_call(name: str, arguments: str) -> list[StreamEvent]:
    return [CallStarted(0, name), ArgumentsDelta(0, arguments), CallFinished(0)]


@pytest.mark.parametrize(
    ("name", "arguments", "rule"), [("nope", "{}", "unknown_tool"), ("get_time", '{"a": tru}', "invalid_json")]
)
@pytest.mark.parametrize("policy", ["pass", "retry", "text", "fail"])
def test_bad_whole_call_follows_on_bad_call(policy: str, name: str, arguments: str, rule: str) -> None:
    events = [TextDelta("Well. "), *whole_call(name, arguments), STOP]
    session, out = feed_native(events, on_bad_call=policy, whole_calls=True)
    assert rules(out) == [rule]
    names = [call.name for call in fold(out).calls]
    match policy:
        case "pass":
            assert (names, text(out), session.state) == ([name], "Well. ", State.ENDED)
        case "retry":
            assert (names, text(out), session.state) == ([], "Well. ", State.RETRY)
            *_, call, result = session.request.items
            assert isinstance(call, Call)
            assert isinstance(result, Result)
            assert (call.name, call.arguments, result.call_id) == (name, arguments, call.id)
        case "text":
            shown = DIALECT.render_calls([Call(id="", name=name, arguments=arguments)])
            assert (names, text(out), session.state) == ([], f"Well. {shown}", State.ENDED)
        case _:
            assert isinstance(out[-1], AnswerFailed)
            assert out[-1].error.code == "bad_call"


@pytest.mark.parametrize("policy", ["pass", "retry", "text", "fail"])
def test_text_after_a_whole_call_is_cut(policy: str) -> None:
    events = [*whole_call("get_time", "{}"), TextDelta("It is noon.")]
    session, out = feed_native(events, on_bad_call=policy, whole_calls=True)
    assert session.state is State.CUT
    out += session.feed([STOP])
    assert (calls(out), text(out), rules(out)) == ([("get_time", {})], "", ["text_after_calls"])


def test_whole_call_is_repaired() -> None:
    _, out = feed_native([*whole_call("get.weather", '{"city": "Paris",}'), STOP], whole_calls=True)
    assert calls(out) == [("get.weather", {"city": "Paris"})]
    assert rules(out) == ["repaired_json"]


def test_correction_shows_a_native_call_by_the_models_name() -> None:
    options = ToolCallOptions(dialect=DIALECT, native=True, accepts_any_name=False)
    session = ToolCallSession(replace(REQUEST, stream=False), options)
    session.feed([*whole_call("get_weather", "nonsense"), STOP])
    assert session.state is State.RETRY
    assert "get.weather" not in str(session.request.items)
