"""Calls in a Codex turn: emitted in order, refused, or stopped if they are Codex's own."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.codex.messages import (
    STARTED,
    THREAD,
    TURN,
    USAGE,
    CodexMessage,
    call_events,
    decode,
    decoder_for,
    delta,
    error_of,
    failed,
    fold,
    item_started,
    message_completed,
    notification,
    raw,
    raw_call,
    refused_response,
    response_completed,
    rules,
    tool_call,
    turn_completed,
    visible,
)
from toolrelay.backends.codex.decoder import MAX_REFUSED_RESPONSES
from toolrelay.backends.codex.rails import BUILTIN_ITEMS
from toolrelay.backends.codex.rpc import Notification, ServerRequest
from toolrelay.backends.codex.server_requests import REFUSALS
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ItemReceived,
    Noticed,
    TextDelta,
)

# Calls


def test_call_has_the_models_own_arguments_and_ends_the_answer() -> None:  # bugs 20, 21
    turn = decoder_for()
    assert turn.feed([delta("Let me see.")]) == [STARTED, TextDelta("Let me see.")]
    assert turn.feed([raw_call("get_weather", '{"city":\n"Rome"}')]) == call_events(0, arguments='{"city":\n"Rome"}')
    assert turn.feed([tool_call(arguments={"city": "Rome"})]) == []
    assert turn.is_waiting
    assert turn.feed([response_completed()]) == [
        Noticed(event="tool_cutoff", rule="end_of_calls"),
        AnswerFinished(finish="calls", usage=USAGE),
    ]
    assert turn.is_finished
    assert turn.answers == []


def test_custom_tool_call_has_its_free_text() -> None:  # bug 33
    events = decode(raw_call("python_run", '{"input": "print(1)"}'), response_completed())
    assert events[1:4] == [CallStarted(0, "python.run", kind="custom"), ArgumentsDelta(0, "print(1)"), CallFinished(0)]


CALLS = st.lists(st.sampled_from(["Paris", "Rome", "Oslo"]), min_size=1, max_size=5)


@given(cities=CALLS, data=st.data())
def test_parallel_calls_keep_the_models_order(cities: list[str], data: st.DataObject) -> None:  # bugs 7, 8, 29
    """Raw items keep their order; requests to run a call arrive in any order, early, late or never."""
    arguments = [json.dumps({"city": city}) for city in cities]
    raws = [raw_call("get_weather", argument, f"c{n}") for n, argument in enumerate(arguments)]
    asked = [tool_call(f"c{n}", arguments=json.loads(argument)) for n, argument in enumerate(arguments)]
    asked = data.draw(st.permutations(asked))[: data.draw(st.integers(0, len(asked)))]
    story: list[CodexMessage] = []
    while raws or asked:
        source = raws if not asked or (raws and data.draw(st.booleans())) else asked
        story.append(source.pop(0))
    turn = decoder_for()
    events = decode(*story, response_completed(), turn=turn)
    assert [made.arguments for made in fold(events).calls] == arguments
    assert [event.index for event in events if isinstance(event, CallStarted)] == list(range(len(cities)))
    assert events[-1] == AnswerFinished(finish="calls", usage=USAGE)
    assert turn.answers == []


def test_call_without_a_raw_item_is_emitted() -> None:
    events = decode(tool_call("c1", arguments={"city": "Rome"}), response_completed())
    assert visible(events)[1:-1] == call_events(0, arguments='{"city":"Rome"}')


STORY: list[CodexMessage] = [
    item_started("reasoning", "rs_1"),
    notification("item/reasoning/summaryTextDelta", itemId="rs_1", delta="Hm", summaryIndex=0),
    raw("reasoning", id="rs_1", encrypted_content="sealed"),
    delta("Let"),
    delta(" me see."),
    message_completed("Let me see."),
    raw_call("nope", call_id="c0"),
    raw_call("get_weather", '{"city":"Rome"}', "c1"),
    tool_call("c1"),
    raw_call("get_weather", '{"city":"Oslo"}', "c2"),
    response_completed(),
    turn_completed("interrupted"),
]


@given(st.sets(st.integers(1, len(STORY) - 1)))
def test_batching_does_not_matter(cuts: set[int]) -> None:  # bugs 1, 3
    turn = decoder_for()
    places = [0, *sorted(cuts), len(STORY)]
    batched = [event for start, end in itertools.pairwise(places) for event in turn.feed(STORY[start:end])]
    assert batched == decode(*STORY)


def test_text_after_calls_is_emitted() -> None:
    events = decode(raw_call("get_weather"), delta("So be it."), raw_call("get_weather", call_id="c2"), response_completed())
    assert visible(events)[1:-1] == [*call_events(0), TextDelta("So be it."), *call_events(1)]


def test_discarded_output_leaves_only_the_finish_and_usage() -> None:  # bug 13
    turn = decoder_for()
    decode(raw_call("get_weather"), turn=turn)
    turn.discard_output()
    assert turn.feed([delta(" fine"), raw_call("get_weather", call_id="c2")]) == []
    assert turn.feed([response_completed()]) == [AnswerFinished(finish="calls", usage=USAGE)]


# Invalid calls


def test_unknown_tool_is_not_emitted_and_the_turn_continues() -> None:  # bug 28
    events = decode(*refused_response(0), delta("Well then."), response_completed(), turn_completed())
    assert visible(events) == [STARTED, TextDelta("Well then."), AnswerFinished(finish="stop", usage=USAGE + USAGE)]
    assert [event for event in events if isinstance(event, Noticed)] == [
        Noticed(event="tool_block", rule="unknown_tool", tool="exec_command")
    ]


def test_repeated_refused_calls_fail_the_answer() -> None:  # bug 47
    turn = decoder_for()
    events = decode(*itertools.chain(*(refused_response(number) for number in range(100))), turn=turn)
    assert rules(events) == ["unknown_tool"] * MAX_REFUSED_RESPONSES + ["refused_too_often"]
    error = error_of(events)
    assert (error.status, error.code) == (502, "unknown_tool")
    assert "exec_command" in error.message


@pytest.mark.parametrize(
    "item",
    [
        raw("custom_tool_call", call_id="c", name="apply_patch", input="*** Begin Patch"),
        raw("custom_tool_call", call_id="c", name="get_weather", input="x"),
        raw("local_shell_call", call_id="c", status="completed", action={"type": "exec", "command": ["ls"]}),
    ],
)
def test_other_kinds_of_calls_are_refused(item: Notification) -> None:
    assert rules(decode(item, response_completed())) == ["unknown_tool"]
    error = error_of(decode(*[item, response_completed()] * MAX_REFUSED_RESPONSES))
    assert error.code == "unknown_tool"


def test_valid_calls_beside_a_refused_one_are_emitted() -> None:
    events = decode(raw_call("shell", call_id="c0"), raw_call("get_weather", call_id="c1"), response_completed())
    assert visible(events) == [STARTED, *call_events(0), AnswerFinished(finish="calls", usage=USAGE)]


@pytest.mark.parametrize("arguments", ["[1]", "", '{"city": "Ro', "null"])
def test_arguments_that_are_not_an_object_are_refused(arguments: str) -> None:  # bugs 18, 22
    """Codex accepts a list and requests the call; the answer is an error."""
    turn = decoder_for()
    request = tool_call("c1", arguments=[1])
    events = decode(raw_call("get_weather", arguments), request, response_completed(), turn=turn)
    assert rules(events) == ["invalid_json"]
    ((answered, result),) = turn.answers
    assert answered is request
    assert result["success"] is False
    assert decode(raw_call("get_weather", call_id="c2"), response_completed(), turn=turn)[1:4] == call_events(0)


def test_request_before_its_invalid_call_is_answered() -> None:
    turn = decoder_for()
    request = tool_call("c1", arguments=[1])
    decode(request, raw_call("get_weather", "[1]"), turn=turn)
    assert [answered for answered, _ in turn.answers] == [request]
    assert not turn.is_waiting


def test_repairable_arguments_are_emitted_unchanged() -> None:  # bug 19
    events = decode(raw_call("get_weather", '{"city": "Rome",}'), response_completed())
    assert visible(events)[1:-1] == call_events(0, arguments='{"city": "Rome",}')


def test_refused_calls_are_reported_if_configured() -> None:
    assert visible(decode(raw_call("nope"), reported_calls="all"))[1:] == call_events(0, "nope")
    assert visible(decode(raw_call("shell", '{"command":[]}'), reported_calls="all"))[1:] == call_events(
        0, "shell", '{"command":[]}'
    )
    events = decode(
        raw_call("nope", '{"a":1}'), raw_call("get_weather", "[1]", "c2"), response_completed(), reported_calls="runnable"
    )
    assert visible(events)[1:-1] == [*call_events(0, "nope", '{"a":1}'), *call_events(1, "get_weather", "[1]")]


@pytest.mark.parametrize("name", ["exec_command", "exec", "update_plan", "apply_patch", "view_image"])
def test_builtin_tool_is_never_passed_on(name: str) -> None:
    assert visible(decode(raw_call(name, '{"cmd":"ls"}'), response_completed(), reported_calls="runnable")) == []


def test_answer_with_only_a_refused_call_fails() -> None:
    """Codex does not ask the model again after some kinds of calls."""
    shell = raw("local_shell_call", call_id="c", status="completed", action={"type": "exec", "command": ["ls"]})
    error = error_of(decode(shell, response_completed(), turn_completed()))
    assert (error.status, error.code) == (502, "unknown_tool")
    assert "local_shell_call" in error.message
    events = decode(delta("Let me see."), shell, response_completed(), turn_completed())
    assert visible(events) == [STARTED, TextDelta("Let me see."), AnswerFinished(finish="stop", usage=USAGE)]


# Built-in tools


@pytest.mark.parametrize("kind", sorted(BUILTIN_ITEMS))
def test_started_builtin_fails_the_answer(kind: str) -> None:
    events = decode(delta("x"), item_started(kind, "i1"), delta("y"))
    assert error_of(events).code == "builtin_tool"
    assert rules(events) == ["builtin_stopped"]
    assert not any(isinstance(event, AnswerFailed) for event in decode(item_started(kind, "i1"), allowed_items=frozenset({kind})))


def test_search_without_rails_fails_the_answer() -> None:
    search = raw("web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "cats"})
    events = decode(search, delta("Cats."))
    assert error_of(events).code == "builtin_tool"
    assert len(visible(events)) == 1
    events = decode(search, allowed_items=frozenset({"webSearch"}))
    assert [event.raw["id"] for event in events if isinstance(event, ItemReceived)] == ["ws_1"]


@pytest.mark.parametrize("method", sorted(set(REFUSALS) - {"item/tool/call"}))
def test_every_server_request_is_refused(method: str) -> None:
    turn = decoder_for()
    request = ServerRequest(0, method, {"threadId": THREAD, "turnId": TURN})
    assert rules(turn.feed([request])) == ["builtin_refused"]
    assert turn.answers == [(request, REFUSALS[method])]


def test_repeated_approval_requests_fail_the_answer() -> None:
    asked: list[CodexMessage] = [ServerRequest(0, "item/commandExecution/requestApproval", {}), response_completed()]
    assert error_of(decode(*asked * MAX_REFUSED_RESPONSES)).code == "unknown_tool"


# Probe


def test_probe_abandons_waiting_calls() -> None:
    turn = decoder_for()
    request = tool_call("c1")
    decode(raw_call("get_weather"), request, turn=turn)
    turn.probe()
    ((answered, result),) = turn.answers
    assert answered is request
    assert result["success"] is False
    assert not turn.is_waiting
    events = decode(failed("stream disconnected before completion: Transport error"), turn=turn)
    assert error_of(events).code == "upstream_cut"
