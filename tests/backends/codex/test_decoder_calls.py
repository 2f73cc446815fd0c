"""Calls in a turn of Codex: which go out and in what order, which are refused, and that Codex does nothing of its own."""

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
    Said,
    call,
    delta,
    error_of,
    failed,
    fold,
    hear,
    item_started,
    message_completed,
    raw,
    raw_call,
    refused_response,
    response_completed,
    rules,
    told,
    tool_call,
    turn_completed,
    turn_for,
    visible,
)
from toolrelay.backends.codex.decoder import MOST_REFUSED
from toolrelay.backends.codex.json_access import REFUSALS
from toolrelay.backends.codex.rails import OWN_WORK
from toolrelay.backends.codex.rpc import Notification, ServerRequest
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


def test_a_call_goes_out_whole_in_the_models_own_words() -> None:  # bugs 20, 21
    turn = turn_for()
    assert turn.feed([delta("Let me see.")]) == [STARTED, TextDelta("Let me see.")]
    assert turn.feed([raw_call("get_weather", '{"city":\n"Rome"}')]) == call(0, arguments='{"city":\n"Rome"}')
    assert turn.feed([tool_call(arguments={"city": "Rome"})]) == []
    assert turn.waits
    assert turn.feed([response_completed()]) == [
        Noticed(event="tool_cutoff", rule="end_of_calls"),
        AnswerFinished(finish="calls", usage=USAGE),
    ]
    assert turn.over
    assert turn.answers == []


def test_a_custom_tool_gets_its_free_text() -> None:  # bug 33
    events = hear(raw_call("python_run", '{"input": "print(1)"}'), response_completed())
    assert events[1:4] == [CallStarted(0, "python.run", kind="custom"), ArgumentsDelta(0, "print(1)"), CallFinished(0)]


CALLS = st.lists(st.sampled_from(["Paris", "Rome", "Oslo"]), min_size=1, max_size=5)


@given(cities=CALLS, data=st.data())
def test_parallel_calls_go_out_in_the_models_order_however_codex_asks_for_them(
    cities: list[str], data: st.DataObject
) -> None:  # bugs 7, 8, 29
    """The raw items keep their order among themselves; requests to run a call come in any order, early, late or not at all."""
    arguments = [json.dumps({"city": city}) for city in cities]
    raws = [raw_call("get_weather", argument, f"c{n}") for n, argument in enumerate(arguments)]
    asked = [tool_call(f"c{n}", arguments=json.loads(argument)) for n, argument in enumerate(arguments)]
    asked = data.draw(st.permutations(asked))[: data.draw(st.integers(0, len(asked)))]
    story: list[Said] = []
    while raws or asked:
        source = raws if not asked or (raws and data.draw(st.booleans())) else asked
        story.append(source.pop(0))
    turn = turn_for()
    events = hear(*story, response_completed(), turn=turn)
    assert [made.arguments for made in fold(events).calls] == arguments
    assert [event.index for event in events if isinstance(event, CallStarted)] == list(range(len(cities)))
    assert events[-1] == AnswerFinished(finish="calls", usage=USAGE)
    assert turn.answers == []


def test_a_call_of_which_nothing_raw_came_is_not_lost() -> None:
    events = hear(tool_call("c1", arguments={"city": "Rome"}), response_completed())
    assert visible(events)[1:-1] == call(0, arguments='{"city":"Rome"}')


STORY: list[Said] = [
    item_started("reasoning", "rs_1"),
    told("item/reasoning/summaryTextDelta", itemId="rs_1", delta="Hm", summaryIndex=0),
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
def test_how_messages_are_batched_never_matters(cuts: set[int]) -> None:  # bugs 1, 3
    turn = turn_for()
    places = [0, *sorted(cuts), len(STORY)]
    batched = [event for start, end in itertools.pairwise(places) for event in turn.feed(STORY[start:end])]
    assert batched == hear(*STORY)


def test_text_after_calls_is_left_to_the_layer() -> None:
    events = hear(raw_call("get_weather"), delta("So be it."), raw_call("get_weather", call_id="c2"), response_completed())
    assert visible(events)[1:-1] == [*call(0), TextDelta("So be it."), *call(1)]


def test_discarded_output_leaves_only_the_end_and_its_usage() -> None:  # bug 13
    turn = turn_for()
    hear(raw_call("get_weather"), turn=turn)
    turn.discard_output()
    assert turn.feed([delta(" fine"), raw_call("get_weather", call_id="c2")]) == []
    assert turn.feed([response_completed()]) == [AnswerFinished(finish="calls", usage=USAGE)]


# Calls that are none


def test_a_call_of_another_tool_is_codexs_to_refuse_and_the_model_goes_on() -> None:  # bug 28
    events = hear(*refused_response(0), delta("Well then."), response_completed(), turn_completed())
    assert visible(events) == [STARTED, TextDelta("Well then."), AnswerFinished(finish="stop", usage=USAGE + USAGE)]
    assert [event for event in events if isinstance(event, Noticed)] == [
        Noticed(event="tool_block", rule="unknown_tool", tool="exec_command")
    ]


def test_a_model_that_keeps_calling_refused_tools_is_stopped() -> None:  # bug 47
    turn = turn_for()
    events = hear(*itertools.chain(*(refused_response(number) for number in range(100))), turn=turn)
    assert rules(events) == ["unknown_tool"] * MOST_REFUSED + ["refused_too_often"]
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
def test_other_kinds_of_calls_are_refused_as_well(item: Notification) -> None:
    assert rules(hear(item, response_completed())) == ["unknown_tool"]
    error = error_of(hear(*[item, response_completed()] * MOST_REFUSED))
    assert error.code == "unknown_tool"


def test_good_calls_beside_a_refused_one_go_out() -> None:
    events = hear(raw_call("shell", call_id="c0"), raw_call("get_weather", call_id="c1"), response_completed())
    assert visible(events) == [STARTED, *call(0), AnswerFinished(finish="calls", usage=USAGE)]


@pytest.mark.parametrize("arguments", ["[1]", "", '{"city": "Ro', "null"])
def test_arguments_that_are_no_object_are_the_models_to_correct(arguments: str) -> None:  # bugs 18, 22
    """Of these Codex takes a list for good, and asks for the call to be run: it is told why not."""
    turn = turn_for()
    request = tool_call("c1", arguments=[1])
    events = hear(raw_call("get_weather", arguments), request, response_completed(), turn=turn)
    assert rules(events) == ["invalid_json"]
    ((answered, result),) = turn.answers
    assert answered is request
    assert result["success"] is False
    assert hear(raw_call("get_weather", call_id="c2"), response_completed(), turn=turn)[1:4] == call(0)


def test_a_request_that_came_before_the_bad_call_is_answered_too() -> None:
    turn = turn_for()
    request = tool_call("c1", arguments=[1])
    hear(request, raw_call("get_weather", "[1]"), turn=turn)
    assert [answered for answered, _ in turn.answers] == [request]
    assert not turn.waits


def test_repairable_arguments_are_left_to_the_layer() -> None:  # bug 19
    events = hear(raw_call("get_weather", '{"city": "Rome",}'), response_completed())
    assert visible(events)[1:-1] == call(0, arguments='{"city": "Rome",}')


def test_refused_calls_are_reported_where_asked_for() -> None:
    assert visible(hear(raw_call("nope"), reported_calls="all"))[1:] == call(0, "nope")
    assert visible(hear(raw_call("shell", '{"command":[]}'), reported_calls="all"))[1:] == call(0, "shell", '{"command":[]}')
    events = hear(
        raw_call("nope", '{"a":1}'), raw_call("get_weather", "[1]", "c2"), response_completed(), reported_calls="runnable"
    )
    assert visible(events)[1:-1] == [*call(0, "nope", '{"a":1}'), *call(1, "get_weather", "[1]")]


@pytest.mark.parametrize("name", ["exec_command", "exec", "update_plan", "apply_patch", "view_image"])
def test_a_built_in_tool_is_never_passed_on(name: str) -> None:
    assert visible(hear(raw_call(name, '{"cmd":"ls"}'), response_completed(), reported_calls="runnable")) == []


def test_an_answer_of_nothing_but_a_refused_call_is_no_answer() -> None:
    """After some of its own kinds of calls Codex does not ask the model again."""
    shell = raw("local_shell_call", call_id="c", status="completed", action={"type": "exec", "command": ["ls"]})
    error = error_of(hear(shell, response_completed(), turn_completed()))
    assert (error.status, error.code) == (502, "unknown_tool")
    assert "local_shell_call" in error.message
    events = hear(delta("Let me see."), shell, response_completed(), turn_completed())
    assert visible(events) == [STARTED, TextDelta("Let me see."), AnswerFinished(finish="stop", usage=USAGE)]


# Nothing of Codex's own


@pytest.mark.parametrize("kind", sorted(OWN_WORK))
def test_an_answer_ends_where_codex_begins_to_work_on_its_own(kind: str) -> None:
    events = hear(delta("x"), item_started(kind, "i1"), delta("y"))
    assert error_of(events).code == "builtin_tool"
    assert rules(events) == ["builtin_stopped"]
    assert not any(isinstance(event, AnswerFailed) for event in hear(item_started(kind, "i1"), own_work=frozenset({kind})))


def test_a_search_that_was_not_asked_for_is_not_told() -> None:
    search = raw("web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "cats"})
    events = hear(search, delta("Cats."))
    assert error_of(events).code == "builtin_tool"
    assert len(visible(events)) == 1
    events = hear(search, own_work=frozenset({"webSearch"}))
    assert [event.raw["id"] for event in events if isinstance(event, ItemReceived)] == ["ws_1"]


@pytest.mark.parametrize("method", sorted(set(REFUSALS) - {"item/tool/call"}))
def test_every_question_is_answered_with_no(method: str) -> None:
    turn = turn_for()
    request = ServerRequest(0, method, {"threadId": THREAD, "turnId": TURN})
    assert rules(turn.feed([request])) == ["builtin_refused"]
    assert turn.answers == [(request, REFUSALS[method])]


def test_a_model_that_keeps_asking_for_approval_is_stopped() -> None:
    asked: list[Said] = [ServerRequest(0, "item/commandExecution/requestApproval", {}), response_completed()]
    assert error_of(hear(*asked * MOST_REFUSED)).code == "unknown_tool"


# Silence while a call waits


def test_waiting_calls_are_given_up_to_learn_whether_the_upstream_still_speaks() -> None:
    turn = turn_for()
    request = tool_call("c1")
    hear(raw_call("get_weather"), request, turn=turn)
    turn.probe()
    ((answered, result),) = turn.answers
    assert answered is request
    assert result["success"] is False
    assert not turn.waits
    events = hear(failed("stream disconnected before completion: Transport error"), turn=turn)
    assert error_of(events).code == "upstream_cut"
