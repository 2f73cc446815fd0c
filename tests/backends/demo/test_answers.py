"""Answers of the demo model: calls, results, text, limits and usage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.demo.conversation import STRING, TOOLS, WEATHER, calls, fold, message_text, request, schema, text_of
from toolrelay.backends.demo import respond
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    ReasoningDelta,
    TextDelta,
)
from toolrelay.core.messages import Call, File, Image, Message, Reasoning, Result, Text
from toolrelay.core.request import OpaqueTool, OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice

# Calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is the weather in Paris?", [("get_weather", {"city": "Paris"})]),
        ("Use get_weather for Oslo", [("get_weather", {"city": "Oslo"})]),
        ("GET WEATHER Oslo", [("get_weather", {"city": "Oslo"})]),
        ("please call getWeather, Oslo", [("get_weather", {"city": "Oslo"})]),
        ("weather for New York please, fahrenheit", [("get_weather", {"city": "New York", "unit": "fahrenheit"})]),
        ("weather in Rome in Celsius", [("get_weather", {"city": "Rome", "unit": "celsius"})]),
        ("I want to know the weather in Rio de Janeiro today", [("get_weather", {"city": "Rio de Janeiro"})]),
        ("weather in Paris for 3 days", [("get_weather", {"city": "Paris", "days": 3})]),
        ("weather in Paris for 30 days", [("get_weather", {"city": "Paris"})]),
        ("weather in Paris and Tokyo", [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})]),
        ("weather in Paris, France", [("get_weather", {"city": "Paris"})]),
        (
            "the time in Tokyo and the weather in Paris",
            [("getCurrentTime", {"timezone": "Tokyo"}), ("get_weather", {"city": "Paris"})],
        ),
        ("time and weather in Paris", [("getCurrentTime", {"timezone": "Paris"}), ("get_weather", {"city": "Paris"})]),
        ("search my vault for notes about Rome", [("vault_search", {"query": "notes about Rome"})]),
        ("search the vault, query: tomatoes, limit: 5", [("vault_search", {"query": "tomatoes", "limit": 5})]),
        ('search "red wine" in the vault', [("vault_search", {"query": "red wine"})]),
        ("how is the weather", [("get_weather", {"city": "weather"})]),
    ],
)
def test_message_that_names_tools_calls_them_in_order(text: str, expected: list[tuple[str, Any]]) -> None:
    assert calls(request(text, *TOOLS)) == expected


@pytest.mark.parametrize(
    "text", ["Is it warm at this place?", "search for cats", "the whether", "weatherproof jackets", "set it", "Hello", ""]
)
def test_message_without_a_tools_words_calls_nothing(text: str) -> None:
    assert calls(request(text, *TOOLS)) == []


def test_written_arguments_are_used_verbatim() -> None:
    text = 'get_weather {"city":  "Zürich",\n"time": 1e0} then get_weather with arguments {"city":"Bern"}'
    answer = fold(respond(request(text, *TOOLS)))
    assert [(call.name, call.arguments) for call in answer.calls] == [
        ("get_weather", '{"city":  "Zürich",\n"time": 1e0}'),
        ("get_weather", '{"city":"Bern"}'),
    ]


def test_tools_named_inside_written_arguments_are_not_called() -> None:
    written = {"city": "vault_search {} and run_python and the time"}
    assert calls(request(f"get_weather {json.dumps(written)}", *TOOLS)) == [("get_weather", written)]


def test_large_written_arguments_are_not_truncated() -> None:
    written = json.dumps({"city": "x weather time " * 20_000})
    answer = fold(respond(request(f"get_weather {written} please", *TOOLS)))
    assert [call.arguments for call in answer.calls] == [written]


@pytest.mark.parametrize("broken", ['{"city": "Paris"', "{'city': 'Paris'}", '{"city": NaN} Paris', "{" * 100_000 + " Paris"])
def test_written_arguments_with_invalid_json_are_ignored(broken: str) -> None:
    ((name, arguments),) = calls(request(f"get_weather {broken}", WEATHER))
    assert name == "get_weather"
    assert isinstance(arguments["city"], str)


def test_custom_tool_gets_the_quoted_text_or_the_message() -> None:  # bug 33
    answer = fold(respond(request("run python `print(1)`", *TOOLS)))
    assert [(call.kind, call.name, call.arguments) for call in answer.calls] == [("custom", "run_python", "print(1)")]
    (call,) = fold(respond(request(" run_python now ", *TOOLS))).calls
    assert call.arguments == "run_python now"


def test_tool_with_more_matching_words_is_preferred() -> None:
    forecast = Tool(name="get_weather_forecast", parameters=schema(place=STRING))
    assert calls(request("weather forecast for Rome", WEATHER, forecast)) == [("get_weather_forecast", {"place": "Rome"})]
    assert calls(request("get_weather_forecast Rome", WEATHER, forecast)) == [("get_weather_forecast", {"place": "Rome"})]
    assert calls(request("weather in Rome", forecast, WEATHER)) == [("get_weather", {"city": "Rome"})]


def test_full_name_is_preferred_over_shared_words() -> None:
    look, change = Tool(name="get_weather"), Tool(name="set_weather")
    assert calls(request("set_weather in the game", look, change)) == [("set_weather", {})]
    assert calls(request("set_weather, then get_weather", look, change)) == [("set_weather", {}), ("get_weather", {})]
    assert calls(request("weather in Rome", look, change)) == [("get_weather", {})]


def test_tool_choice_none_calls_nothing() -> None:  # bug 26
    assert "get_weather" in text_of(request("get_weather Paris", *TOOLS, tool_choice=ToolChoice(mode="none")))


def test_named_tool_is_called_whatever_the_message_says() -> None:  # bug 26
    named = ToolChoice(mode="named", names=(("function", "getCurrentTime"),))
    assert calls(request("weather in Paris and Tokyo", *TOOLS, tool_choice=named)) == [("getCurrentTime", {"timezone": "Paris"})]


def test_tool_choice_required_calls_the_best_match_or_the_first() -> None:  # bug 26
    required = ToolChoice(mode="required")
    assert calls(request("search for cats", *TOOLS, tool_choice=required)) == [("vault_search", {"query": "cats"})]
    assert calls(request("a joke", *TOOLS, tool_choice=required)) == [("get_weather", {"city": "a joke"})]
    assert calls(request("repeat: x", *TOOLS, tool_choice=required)) != []


def test_only_allowed_tools_are_called() -> None:
    allowed = ToolChoice(mode="auto", names=(("function", "getCurrentTime"),))
    assert [name for name, _ in calls(request("weather and time", *TOOLS, tool_choice=allowed))] == ["getCurrentTime"]
    assert calls(request("weather", *TOOLS, tool_choice=allowed)) == []


def test_parallel_calls_disabled_makes_one_call_per_round() -> None:  # bug 27
    first = request("time and weather in Paris", *TOOLS, parallel_tool_calls=False)
    assert [name for name, _ in calls(first)] == ["getCurrentTime"]
    noon = (Call(id="1", name="getCurrentTime", arguments="{}"), Result(call_id="1", output="noon"))
    second = request("time and weather in Paris", *TOOLS, then=noon, parallel_tool_calls=False)
    assert calls(second) == [("get_weather", {"city": "Paris"})]
    sun = (*noon, Call(id="2", name="get_weather", arguments="{}"), Result(call_id="2", output="sun"))
    third = request("time and weather in Paris", *TOOLS, then=sun, parallel_tool_calls=False)
    assert text_of(third) == "getCurrentTime says: noon\nget_weather says: sun"


def test_hosted_tool_is_not_called() -> None:
    hosted = OpaqueTool(wire="responses", raw={"type": "web_search"})
    asked = Request(wire="responses", model="demo", items=(Message(role="user", content="web search"),), tools=(hosted,))
    assert "no tools" in text_of(asked)


# Results


def test_results_are_reported_with_their_tools_names() -> None:  # bug 34
    made = [Call(id="a", name="get_weather", arguments="{}"), Call(id="b", name="getCurrentTime", arguments="{}")]
    results = [
        Result(call_id="b", output="noon"),
        Result(call_id="a", output=(Text(text="18 degrees"), Image(url="data:"))),
    ]
    asked = request("time and weather", *TOOLS, then=[*made, *results])
    assert text_of(asked) == "getCurrentTime says: noon\nget_weather says: 18 degrees (1 attached)"


def test_results_before_the_last_user_message_are_ignored() -> None:
    old = (Call(id="a", name="get_weather", arguments="{}"), Result(call_id="a", output="rain"))
    again = Message(role="user", content="And the weather in Rome?")
    assert calls(request("weather in Paris", *TOOLS, then=[*old, again])) == [("get_weather", {"city": "Rome"})]


def test_long_result_is_truncated_and_empty_one_is_marked() -> None:
    made = [Call(id="a", name="x", arguments="{}"), Call(id="b", name="y", arguments="{}")]
    results = [Result(call_id="a", output="é" * 501), Result(call_id="b", output="")]
    assert text_of(request("go", then=[*made, *results])) == f"x says: {'é' * 500}…\ny says: (nothing)"


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ("Error: no such city", True),
        ("An error occurred while running the tool.", True),
        ('{"error": "no such city"}', True),
        ('{"isError": true, "content": []}', True),
        ("The user denied this call. It was not run.", True),
        ('{"error": null, "degrees": 18}', False),
        ("errorless", False),
        ("{" * 100_000, False),
    ],
)
def test_result_that_looks_like_an_error_is_reported_as_failed(output: str, failed: bool) -> None:  # noqa: FBT001 -- a column of the table
    then = (Call(id="a", name="x", arguments="{}"), Result(call_id="a", output=output))
    assert text_of(request("go", then=then)).startswith("x failed: " if failed else "x says: ")


# Text


def test_other_message_is_answered_with_what_was_read_and_offered() -> None:
    answer = text_of(request("What is the meaning of life? " * 9))
    assert "not a language model" in answer
    assert 'You said: "What is the meaning of life?' in answer
    assert "…" in answer
    assert "no tools" in answer
    assert "get_weather, getCurrentTime, vault_search, run_python" in text_of(request("Tell me a joke", *TOOLS))


@pytest.mark.parametrize("text", ["", " ", "héllo  wörld\n\n👩‍👩‍👧 日本語" * 30, "tool <tool_call>{}</tool_call>", "x" * 1000])
def test_repeat_answers_the_exact_text(text: str) -> None:  # bug 24
    events = respond(request(f"repeat: {text}", WEATHER))
    assert message_text(fold(events)) == text
    assert all(len(event.text.strip()) <= 24 for event in events if isinstance(event, TextDelta))


def test_repeat_takes_precedence_over_tools_and_say_does_not() -> None:
    assert text_of(request("Repeat: the weather", *TOOLS)) == "the weather"
    assert text_of(request("say  hi, there ")) == " hi, there "
    assert calls(request("say the weather in Rome", *TOOLS)) == [("get_weather", {"city": "Rome"})]


def test_count_sends_one_number_per_delta() -> None:
    deltas = [event.text for event in respond(request("Please count to 10000.")) if isinstance(event, TextDelta)]
    assert [int(delta) for delta in deltas] == list(range(1, 10_001))
    assert deltas[0] == "1 "
    assert text_of(request("count to 10001")) == "I count to 10000 at most."


def test_images_and_files_are_ignored() -> None:
    parts = (Text(text="repeat: What is this?"), Image(url="data:"), File(file_id="1"))
    asked = Request(wire="chat", model="demo", items=(Message(role="user", content=parts),))
    assert text_of(asked) == "What is this?"


def test_request_without_a_user_message_is_answered() -> None:
    asked = Request(wire="chat", model="demo", items=(Message(role="system", content="Be brief."),))
    assert 'You said: ""' in text_of(asked)


def test_json_format_is_followed() -> None:
    form = OutputFormat(type="json_schema", schema=schema(city=STRING, degrees={"type": "integer"}))
    assert json.loads(text_of(request("It is 18 degrees in Paris", output=form))) == {"city": "Paris", "degrees": 18}
    free = OutputFormat(type="json_object")
    assert json.loads(text_of(request("say hi", output=free))) == {"answer": "hi"}
    assert calls(request("weather in Paris", *TOOLS, output=form)) == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize(
    ("effort", "thinks"), [("high", True), ("low", True), ("minimal", False), ("none", False), (None, False)]
)
def test_reasoning_effort_adds_a_reasoning_sentence(effort: str | None, thinks: bool) -> None:  # noqa: FBT001 -- a column of the table
    answer = fold(respond(request("weather in Paris", *TOOLS, reasoning=ReasoningOptions(effort=effort))))
    thoughts = [item for item in answer.items if isinstance(item, Reasoning)]
    assert [thought.text for thought in thoughts] == [('The user asks: "weather in Paris". I will call get_weather.',)] * thinks
    assert answer.usage is not None
    assert bool(answer.usage.reasoning) is thinks
    summed = fold(respond(request("hi", reasoning=ReasoningOptions(effort=effort, summary="auto"))))
    assert [item.summary for item in summed.items if isinstance(item, Reasoning)] == [
        ('The user asks: "hi". I will answer.',)
    ] * thinks


# Limits, usage, choices


def test_token_limit_truncates_text() -> None:
    answer = fold(respond(request("count to 10", sampling=Sampling(max_output_tokens=3))))
    assert (message_text(answer), answer.finish) == ("1 2 3 ", "length")
    assert answer.usage is not None
    assert answer.usage.output == 3
    assert fold(respond(request("count to 10", sampling=Sampling(max_output_tokens=10)))).finish == "stop"


def test_call_truncated_by_the_token_limit_is_not_finished() -> None:  # bug 5
    events = respond(request("get_weather Paris", *TOOLS, sampling=Sampling(max_output_tokens=1)))
    assert any(isinstance(event, ArgumentsDelta) for event in events)
    assert not any(isinstance(event, CallFinished) for event in events)
    assert (fold(events).calls, fold(events).finish) == ((), "length")


def test_answer_has_at_most_200000_tokens() -> None:
    usage = fold(respond(request("repeat: " + "a " * 2000, sampling=Sampling(n=128)))).usage
    assert usage is not None
    assert usage.output <= 200_000


@given(text=st.sampled_from(["weather and time in Paris", "repeat: a b c d e f", "hi"]), limit=st.integers(1, 40))
def test_limited_answer_is_a_prefix_of_the_whole_answer(text: str, limit: int) -> None:
    wish = ReasoningOptions(effort="low")
    whole = respond(request(text, *TOOLS, reasoning=wish))
    cut = respond(request(text, *TOOLS, reasoning=wish, sampling=Sampling(max_output_tokens=limit)))
    last = cut[-1]
    assert isinstance(last, AnswerFinished)
    assert last.usage is not None
    assert last.usage.output <= limit
    assert cut[:-1] == whole[: len(cut) - 1]
    assert (last.finish == "length") is (len(cut) < len(whole))
    assert not isinstance(cut[-2], CallStarted)


@pytest.mark.parametrize("limit", [0, -1])
def test_token_limit_below_one_is_refused_with_the_clients_field_name(limit: int) -> None:
    for field, sampling in (
        ("max_output_tokens", Sampling(max_output_tokens=limit)),
        ("max_tokens", Sampling(max_output_tokens=limit, max_tokens_field="max_tokens")),
    ):
        (failed,) = respond(request("count to 9", sampling=sampling))
        assert isinstance(failed, AnswerFailed)
        assert (failed.error.status, failed.error.param) == (400, field)


def test_text_ends_before_the_first_stop_sequence() -> None:
    answer = fold(respond(request("count to 9", sampling=Sampling(stop=("", "7", " 4")))))
    assert (message_text(answer), answer.finish) == ("1 2 3", "stop")
    assert message_text(fold(respond(request("repeat: ab", sampling=Sampling(stop="a"))))) == ""


def test_usage_counts_input_and_output_pieces() -> None:  # bug 40
    one = fold(respond(request("repeat: a b"))).usage
    more = fold(respond(request("repeat: a b", WEATHER, instructions="Be very brief."))).usage
    assert one is not None
    assert more is not None
    assert (one.input, one.output, one.total, one.reasoning) == (3, 2, 5, 0)
    assert more.input > one.input + 3


def test_several_choices_hold_the_same_answer() -> None:
    events = respond(request("weather in Paris", *TOOLS, sampling=Sampling(n=3), reasoning=ReasoningOptions(effort="low")))
    answer = fold(events)
    assert [other.items for other in answer.others] == [answer.items] * 2
    assert [event for event in events if isinstance(event, ChoiceFinished)] == [
        ChoiceFinished(1, "calls"),
        ChoiceFinished(2, "calls"),
    ]
    alone = fold(respond(request("weather in Paris", *TOOLS, reasoning=ReasoningOptions(effort="low")))).usage
    assert alone is not None
    assert answer.usage is not None
    assert answer.usage.output == 3 * alone.output


def test_answer_has_one_start_one_end_and_small_deltas() -> None:  # bugs 7, 9
    events = respond(request("weather and time in Paris", *TOOLS, reasoning=ReasoningOptions(effort="low")))
    assert events[0] == AnswerStarted(model="toolrelay-demo")
    assert sum(isinstance(event, AnswerStarted | AnswerFinished) for event in events) == 2
    assert isinstance(events[-1], AnswerFinished)
    assert [event.index for event in events if isinstance(event, CallStarted)] == [0, 1]
    assert {event.id for event in events if isinstance(event, CallStarted)} == {""}
    pieces = [event.text for event in events if isinstance(event, ArgumentsDelta | ReasoningDelta)]
    assert len(pieces) > 10
    assert all(pieces)
