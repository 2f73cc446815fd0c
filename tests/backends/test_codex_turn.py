"""A turn of Codex, heard: its messages in, events and answers out. The messages are shaped as the real binary's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.backends._codex_history import Plan
from toolrelay.backends._codex_rails import NO_RAILS, OWN_WORK, Rails
from toolrelay.backends._codex_rpc import Notification, ServerRequest
from toolrelay.backends._codex_turn import MOST_REFUSED, CodexTurn, Manner
from toolrelay.backends._codex_words import REFUSALS
from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finish,
    ItemReceived,
    MessageStarted,
    Noticed,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Message, Reasoning, plain_text
from toolrelay.core.request import Tool
from toolrelay.errors import ToolrelayError

Said: TypeAlias = Notification | ServerRequest

NOW = datetime(2026, 11, 16, 2, 0, 0)  # noqa: DTZ001 -- Codex speaks local time
THREAD, TURN = "thread-1", "turn-1"
WEATHER = Tool(name="get_weather")
PYTHON = Tool(name="python.run", kind="custom")
OFFERED = {"get_weather": WEATHER, "python_run": PYTHON}
USAGE = Usage(input=11, output=7, total=18, cached=3, reasoning=2)
STARTED = AnswerStarted(model="m")


# What Codex says


def told(method: str, turn: str = TURN, **params: Any) -> Notification:
    return Notification(method, {"threadId": THREAD, "turnId": turn, **params})


def delta(text: str, item: str = "msg_1") -> Notification:
    return told("item/agentMessage/delta", itemId=item, delta=text)


def item_started(kind: str, item: str, **members: Any) -> Notification:
    return told("item/started", item={"type": kind, "id": item, **members})


def message_completed(text: str, item: str = "msg_1") -> Notification:
    return told("item/completed", item={"type": "agentMessage", "id": item, "text": text})


def raw(kind: str, **members: Any) -> Notification:
    return told("rawResponseItem/completed", item={"type": kind, **members})


def raw_call(name: str, arguments: str = "{}", call_id: str = "c1") -> Notification:
    return raw("function_call", id=f"fc_{call_id}", name=name, arguments=arguments, call_id=call_id)


_request_ids = itertools.count()


def tool_call(call_id: str = "c1", tool: str = "get_weather", arguments: Any = None) -> ServerRequest:
    params = {"threadId": THREAD, "turnId": TURN, "callId": call_id, "tool": tool, "arguments": arguments or {}}
    return ServerRequest(next(_request_ids), "item/tool/call", params)


def breakdown(input_: int = 11, output: int = 7, cached: int = 3, reasoned: int = 2) -> dict[str, int]:
    return {
        "totalTokens": input_ + output,
        "inputTokens": input_,
        "cachedInputTokens": cached,
        "cacheWriteInputTokens": 0,
        "outputTokens": output,
        "reasoningOutputTokens": reasoned,
    }


def response_completed(**usage: int) -> Notification:
    return told("rawResponse/completed", responseId="resp_1", usage=breakdown(**usage))


def turn_completed(status: str = "completed", error: Any = None, turn: str = TURN) -> Notification:
    return Notification("turn/completed", {"threadId": THREAD, "turn": {"id": turn, "status": status, "error": error}})


def failed(message: str, info: Any = "other") -> Notification:
    return turn_completed("failed", {"message": message, "codexErrorInfo": info})


def will_retry(message: str) -> Notification:
    return told("error", error={"message": message, "codexErrorInfo": "other"}, willRetry=True)


# What is made of it


def turn_for(
    *, cutoff: Any = "burst", on_bad_call: Any = "retry", is_account: bool = False, rails: Rails = NO_RAILS, **plan: Any
) -> CodexTurn:
    manner = Manner(model="m", cutoff=cutoff, on_bad_call=on_bad_call, is_account=is_account, rails=rails)
    return CodexTurn(Plan(thread={}, items=[], turn={}, offered=OFFERED, **plan), TURN, manner=manner, now=NOW)


def hear(*messages: Said, turn: CodexTurn | None = None, **members: Any) -> list[StreamEvent]:
    """One message at a time: how they are batched never matters (see below)."""
    turn = turn or turn_for(**members)
    return [event for message in messages for event in turn.hear([message])]


def visible(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    return [event for event in events if not isinstance(event, Noticed)]


def rules(events: Sequence[StreamEvent]) -> list[str]:
    return [event.rule for event in events if isinstance(event, Noticed)]


def fold(events: Sequence[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


def error_of(events: Sequence[StreamEvent]) -> ToolrelayError:
    last = events[-1]
    assert isinstance(last, AnswerFailed)
    return last.error


def call(index: int, name: str = "get_weather", arguments: str = "{}") -> list[StreamEvent]:
    return [CallStarted(index, name), ArgumentsDelta(index, arguments), CallFinished(index)]


# Text


def test_text_goes_out_as_it_comes() -> None:
    turn = turn_for()
    assert turn.hear([item_started("agentMessage", "msg_1", text="")]) == []
    assert turn.hear([delta("Hel")]) == [STARTED, TextDelta("Hel")]
    assert turn.hear([delta("lo"), message_completed("Hello")]) == [TextDelta("lo")]
    assert turn.hear([raw("message", role="assistant", id="msg_1"), response_completed()]) == []
    assert not turn.over
    assert turn.hear([turn_completed()]) == [AnswerFinished(finish="stop", usage=USAGE)]
    assert turn.over


def test_a_message_that_comes_whole_is_not_lost() -> None:  # bug 14
    events = hear(item_started("agentMessage", "msg_1", text="Hi"), message_completed("Hi"), turn_completed())
    assert events[1] == TextDelta("Hi")


def test_several_messages_stay_apart_and_keep_their_phases() -> None:
    events = hear(
        item_started("agentMessage", "msg_1", phase="commentary"),
        delta("One"),
        item_started("agentMessage", "msg_2", phase="final_answer"),
        delta("Two", "msg_2"),
        item_started("agentMessage", "msg_3"),
        delta("Three", "msg_3"),
        turn_completed(),
    )
    assert events[1:-1] == [
        MessageStarted(phase="commentary"),
        TextDelta("One"),
        MessageStarted(phase="final_answer"),
        TextDelta("Two"),
        MessageStarted(),
        TextDelta("Three"),
    ]


def test_an_answer_without_a_word_still_begins_and_ends() -> None:
    assert hear(response_completed(), turn_completed()) == [STARTED, AnswerFinished(finish="stop", usage=USAGE)]


def test_what_is_said_of_other_turns_is_not_heard() -> None:
    """Codex repeats every injected item as a raw one, under a turn of its own making: old calls must not be made again."""
    echo = Notification("rawResponseItem/completed", {**raw_call("get_weather").params, "turnId": "auto-compact-0"})
    assert hear(echo, turn_completed(turn="another"), told("item/agentMessage/delta", "another", itemId="x", delta="y")) == []
    assert hear(raw("message", role="user", content=[]), raw("function_call_output", call_id="c9", output="x")) == []


def test_after_the_end_nothing_is_heard() -> None:
    turn = turn_for()
    hear(delta("x"), turn_completed(), turn=turn)
    assert hear(delta("y"), raw_call("get_weather"), tool_call(), failed("late"), turn_completed(), turn=turn) == []
    assert turn.answers == []


def test_citations_belong_to_the_text_before_them() -> None:
    citation: JsonObject = {"type": "url_citation", "url": "https://example.com", "start_index": 0, "end_index": 1}
    content = [{"type": "output_text", "text": "x", "annotations": [citation]}]
    events = hear(delta("x"), raw("message", role="assistant", id="msg_1", content=content), turn_completed())
    assert events[1:-1] == [TextDelta("x"), AnnotationAdded(citation)]


# Reasoning


def test_reasoning_comes_with_its_summaries_and_its_seal() -> None:  # bug 31
    events = hear(
        item_started("reasoning", "rs_1", summary=[], content=[]),
        told("item/reasoning/summaryPartAdded", itemId="rs_1", summaryIndex=0),
        told("item/reasoning/summaryTextDelta", itemId="rs_1", delta="First", summaryIndex=0),
        told("item/reasoning/summaryTextDelta", itemId="rs_1", delta="Second", summaryIndex=1),
        raw("reasoning", id="rs_1", summary=[], encrypted_content="sealed"),
        delta("Hi"),
        turn_completed(),
    )
    assert events[1:-1] == [
        ReasoningStarted(id="rs_1"),
        ReasoningDelta("First", "summary", 0),
        ReasoningDelta("Second", "summary", 1),
        ReasoningFinished(encrypted="sealed"),
        TextDelta("Hi"),
    ]
    assert fold(events).items[0] == Reasoning(id="rs_1", summary=("First", "Second"), encrypted="sealed")


def test_reasoning_as_text_and_reasoning_without_a_word() -> None:
    events = hear(
        told("item/reasoning/textDelta", itemId="rs_1", delta="Hm", contentIndex=0),
        raw("reasoning", id="rs_1", encrypted_content=None),
        raw("reasoning", id="rs_2", encrypted_content="sealed"),
        turn_completed(),
    )
    thoughts = [item for item in fold(events).items if isinstance(item, Reasoning)]
    assert thoughts == [Reasoning(id="rs_1", text=("Hm",)), Reasoning(id="rs_2", encrypted="sealed")]


# Calls


def test_a_call_goes_out_whole_in_the_models_own_words() -> None:  # bugs 20, 21
    turn = turn_for()
    assert turn.hear([delta("Let me see.")]) == [STARTED, TextDelta("Let me see.")]
    assert turn.hear([raw_call("get_weather", '{"city":\n"Rome"}')]) == call(0, arguments='{"city":\n"Rome"}')
    assert turn.hear([tool_call(arguments={"city": "Rome"})]) == []
    assert turn.waits
    assert turn.hear([response_completed()]) == [
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
    batched = [event for start, end in itertools.pairwise(places) for event in turn.hear(STORY[start:end])]
    assert batched == hear(*STORY)


def test_narration_after_calls_is_cut_and_the_cost_is_waited_for() -> None:  # bug 13
    turn = turn_for()
    hear(raw_call("get_weather"), turn=turn)
    assert turn.hear([delta(" \n")]) == []
    assert turn.hear([delta("The weather is")]) == [Noticed(event="tool_cutoff", rule="text_after_calls")]
    assert turn.was_cut
    assert turn.hear([delta(" fine"), raw_call("get_weather", call_id="c2")]) == []
    assert turn.hear([response_completed()]) == [AnswerFinished(finish="calls", usage=USAGE)]


def test_the_cost_of_a_cut_answer_is_estimated_and_marked_if_it_does_not_come() -> None:
    turn = turn_for(size=400)
    hear(delta("x" * 40), raw_call("get_weather", "{}"), delta("narration"), turn=turn)
    assert turn.settle() == [AnswerFinished(finish="calls", usage=Usage(input=100, output=10, estimated=True))]
    assert turn.over


def test_cutoff_off_lets_narration_pass() -> None:
    events = hear(
        raw_call("get_weather"), delta("So be it."), raw_call("get_weather", call_id="c2"), response_completed(), cutoff="off"
    )
    assert visible(events)[1:-1] == [*call(0), TextDelta("So be it."), *call(1)]


@pytest.mark.parametrize("members", [{"cutoff": "first"}, {"single": True}])
def test_one_call_is_given_out_where_one_is_wanted(members: dict[str, Any]) -> None:  # bug 27
    turn = turn_for(**members)
    events = hear(raw_call("get_weather"), raw_call("get_weather", call_id="c2"), response_completed(), turn=turn)
    assert visible(events) == [STARTED, *call(0), AnswerFinished(finish="calls", usage=USAGE)]


def test_one_call_is_given_out_even_without_a_cutoff() -> None:  # bug 27
    events = hear(raw_call("get_weather"), raw_call("get_weather", call_id="c2"), response_completed(), single=True, cutoff="off")
    assert visible(events) == [STARTED, *call(0), AnswerFinished(finish="calls", usage=USAGE)]
    assert rules(events) == ["parallel_tool_calls_false", "end_of_calls"]


def test_a_choice_that_must_be_met_holds_text_back_and_fails_without_a_call() -> None:  # bug 26
    events = hear(delta("I would rather not."), response_completed(), turn_completed(), must=True)
    assert error_of(events).code == "tool_choice_unmet"
    assert len(events) == 1
    events = hear(delta("Sure."), raw_call("get_weather"), response_completed(), must=True)
    assert visible(events) == [STARTED, *call(0), AnswerFinished(finish="calls", usage=USAGE)]


# Calls that are none


def refused_response(number: int, name: str = "exec_command") -> list[Said]:
    return [
        raw_call(name, '{"cmd":"ls"}', f"c{number}"),
        response_completed(),
        raw("function_call_output", call_id=f"c{number}", output=f"unsupported call: {name}"),
    ]


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


def test_arguments_that_can_mean_only_one_thing_are_mended() -> None:  # bug 19
    events = hear(raw_call("get_weather", '{"city": "Rome",}'), response_completed())
    assert rules(events) == ["repaired_json", "end_of_calls"]
    assert [json.loads(made.arguments) for made in fold(events).calls] == [{"city": "Rome"}]


def test_a_bad_call_may_fail_the_answer_or_pass_by_policy() -> None:
    assert error_of(hear(raw_call("nope"), on_bad_call="fail")).code == "bad_call"
    events = hear(raw_call("nope", '{"a":1}'), raw_call("get_weather", "[1]", "c2"), response_completed(), on_bad_call="pass")
    assert visible(events)[1:-1] == [*call(0, "nope", '{"a":1}'), *call(1, "get_weather", "[1]")]


@pytest.mark.parametrize("name", ["exec_command", "exec", "update_plan", "apply_patch", "view_image"])
def test_a_built_in_tool_is_never_passed_on(name: str) -> None:
    assert visible(hear(raw_call(name, '{"cmd":"ls"}'), response_completed(), on_bad_call="pass")) == []


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
    assert rules(turn.hear([request])) == ["builtin_refused"]
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


# Usage


def test_usage_may_come_by_another_way() -> None:  # bug 40
    usage = told("thread/tokenUsage/updated", tokenUsage={"last": breakdown(input_=1), "total": breakdown()})
    assert hear(delta("x"), usage, turn_completed())[-1] == AnswerFinished(finish="stop", usage=USAGE)


def test_usage_that_does_not_come_is_estimated_and_marked() -> None:
    (*_, last) = hear(delta("x" * 40), turn_completed(), size=400)
    assert last == AnswerFinished(finish="stop", usage=Usage(input=100, output=10, estimated=True))


def test_usage_of_a_response_that_was_cut_is_estimated_beside_what_is_known() -> None:
    turn = turn_for(size=400)
    hear(*refused_response(0), raw_call("get_weather", "{}"), delta("x"), turn=turn)
    (last,) = turn.settle()
    assert isinstance(last, AnswerFinished)
    assert last.usage == Usage(input=111, output=7, total=118, cached=3, reasoning=2, estimated=True)


# Stop sequences


@given(cuts=st.sets(st.integers(1, 16)), stop=st.sampled_from(["END", "t E", "ND tail", "E"]))
def test_text_ends_before_a_stop_sequence_however_it_is_cut(cuts: set[int], stop: str) -> None:
    whole = "text END tail EN"
    places = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    pieces = [delta(whole[start:end]) for start, end in itertools.pairwise(places)]
    turn = turn_for(stops=(stop, "never"))
    events = [*hear(*pieces, turn=turn), *turn.settle()]
    answer = fold(events)
    said = "".join(plain_text(item.content) for item in answer.items if isinstance(item, Message))
    assert said == whole[: whole.index(stop)]
    assert answer.finish == "stop"


def test_what_only_looks_like_the_beginning_of_a_stop_sequence_is_said_in_the_end() -> None:  # bug 14
    events = hear(delta("the EN"), turn_completed(), stops=("END",))
    assert events[1:-1] == [TextDelta("the "), TextDelta("EN")]
    events = hear(delta("the EN"), raw_call("get_weather"), response_completed(), stops=("END",))
    assert events[1:4] == [TextDelta("the "), TextDelta("EN"), CallStarted(0, "get_weather")]


# An upstream that breaks


def test_an_upstream_that_is_asked_again_before_it_said_anything_is_no_matter() -> None:
    events = hear(will_retry("Reconnecting... 1/5"), delta("Hi", "msg_2"), response_completed(), turn_completed())
    assert visible(events) == [STARTED, TextDelta("Hi"), AnswerFinished(finish="stop", usage=USAGE)]
    assert Noticed(event="upstream_retried", rule="nothing_said") in events


@pytest.mark.parametrize("said", [delta("Hel"), raw_call("get_weather")])
def test_what_was_said_cannot_be_taken_back_so_a_second_beginning_is_a_failure(said: Notification) -> None:
    events = hear(said, will_retry("Reconnecting... 1/5"), delta("Hello", "msg_2"), turn_completed())
    assert error_of(events).code == "upstream_cut"
    assert TextDelta("Hello") not in events


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ("Incomplete response returned, reason: max_output_tokens", "length"),
        ("stream disconnected before completion: Incomplete response returned, reason: content_filter", "content_filter"),
    ],
)
def test_an_answer_that_was_cut_short_has_an_end(message: str, finish: Finish) -> None:  # bug 5
    for end in (failed(message), will_retry(message)):
        events = hear(delta("x" * 8), end, size=8)
        assert events == [
            STARTED,
            TextDelta("x" * 8),
            AnswerFinished(finish=finish, usage=Usage(input=2, output=2, estimated=True)),
        ]


HTTP = "httpConnectionFailed"


@pytest.mark.parametrize(
    ("message", "info", "status", "code"),
    [
        (
            "unexpected status 401 Unauthorized: bad key sk-1, url: http://u/v1",
            {HTTP: {"httpStatusCode": 401}},
            502,
            "upstream_auth",
        ),
        ("unexpected status 403 Forbidden: boo, url: http://u/v1", {HTTP: {"httpStatusCode": 403}}, 403, "upstream_error"),
        ("unexpected status 404 Not Found: boo, url: http://u/v1", {HTTP: {"httpStatusCode": 404}}, 404, "upstream_error"),
        ("unexpected status 503 Service Unavailable: boo", {HTTP: {"httpStatusCode": 503}}, 503, "upstream_error"),
        ("last status: 429", {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, 429, "rate_limit_exceeded"),
        ("error sending request", {HTTP: {"httpStatusCode": None}}, 502, "upstream_unreachable"),
        ("We’re currently experiencing high demand", "internalServerError", 500, "upstream_error"),
        ('{"error": {"message": "too long", "code": "context_length_exceeded"}}', "other", 400, "context_length_exceeded"),
        ("Codex ran out of room in the model's context window.", "contextWindowExceeded", 400, "context_length_exceeded"),
        ("rate limit exceeded", "rateLimitExceeded", 429, "rate_limit_exceeded"),
        ("You’ve hit your usage limit.", "usageLimitExceeded", 429, "insufficient_quota"),
        ("busy", "serverOverloaded", 503, "server_overloaded"),
        ("token expired", "unauthorized", 502, "upstream_auth"),
        ("stream disconnected before completion: sorry", "other", 502, "upstream_cut"),
        ("bad prompt", "other", 502, "upstream_error"),
        ("", None, 502, "upstream_error"),
    ],
)
def test_failures_are_told_in_words_of_the_wire(message: str, info: Any, status: int, code: str) -> None:
    error = error_of(hear(failed(message, info)))
    assert (error.status, error.code) == (status, code)
    assert error.message
    assert "sk-1" not in error.message
    assert "http://u" not in error.message


def test_a_sign_in_that_has_run_out_says_what_to_do() -> None:
    error = error_of(hear(failed("unexpected status 401", {HTTP: {"httpStatusCode": 401}}), is_account=True))
    assert error.code == "upstream_auth"
    assert "codex login" in error.message


@pytest.mark.parametrize(
    ("when", "seconds"),
    [
        ("Please try again in 1.5s.", 1.5),
        ("Please try again in 250ms.", 0.25),
        ("Please try again in 2 hours and 5 minutes.", 7500),
        ("try again at 3:33 AM.", 5580),
        ("try again at 1:00 AM.", 82800),
        ("try again at 12:30 PM.", 37800),
        ("try again at Nov 17th, 2026 2:00 AM.", 86400),
        ("try again at Nov 15th, 2026 2:00 AM.", 0),
        ("try again at Foo 99th, 2026 2:00 AM.", None),
        ("try again later", None),
    ],
)
def test_a_limit_says_when_it_is_lifted(when: str, seconds: float | None) -> None:
    error = error_of(hear(failed(f"You’ve hit your usage limit. {when}", "usageLimitExceeded")))
    assert error.retry_after == seconds


def test_a_server_that_is_busy_may_say_how_long() -> None:
    message = "unexpected status 503 Service Unavailable: Please try again in 5s., url: http://u/v1"
    assert error_of(hear(failed(message, {HTTP: {"httpStatusCode": 503}}))).retry_after == 5


def test_a_turn_that_somebody_else_interrupted_is_a_failure() -> None:
    assert error_of(hear(delta("x"), turn_completed("interrupted"))).code == "upstream_cut"


# Whatever comes

MEMBERS = st.sampled_from(["type", "id", "usage", "call_id", "name", "arguments", "httpStatusCode"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(MEMBERS, inner, max_size=3),
    max_leaves=5,
)
METHODS = [*CodexTurn._READS, "turn/completed", "turn/started", "x"]


@given(
    st.lists(
        st.builds(
            Notification,
            st.sampled_from(METHODS),
            st.dictionaries(
                st.sampled_from(["item", "delta", "itemId", "error", "turn", "usage", "tokenUsage", "willRetry"]),
                JUNK,
                max_size=4,
            ).map(lambda params: {"turnId": TURN, **params}),
        ),
        max_size=6,
    )
)
def test_odd_messages_never_raise_and_an_answer_has_one_end(messages: list[Notification]) -> None:
    events = hear(*messages, turn_completed())
    assert sum(isinstance(event, AnswerFinished | AnswerFailed) for event in events) == 1
    assert isinstance(events[-1], AnswerFinished | AnswerFailed)
