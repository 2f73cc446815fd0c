"""Codex as a backend: the real binary against a scripted upstream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.backends.codex_play import SETTINGS, WEATHER, Play, ending, error_of, fold, request, seen_by_the_client, text, told
from tests.backends.codex_stage import KEY, binary_path, place_at, surveyed
from tests.backends.codex_upstream import (
    Call,
    begun,
    breaks_off,
    call,
    calls,
    completed,
    failed,
    head,
    holds,
    incomplete,
    message,
    reasoning,
    refuses,
    says,
    stops_short,
)
from tests.upstream import CUT, Gate, Script, seen
from toolrelay.backends._codex_home import place_for
from toolrelay.backends._codex_pool import Pool
from toolrelay.backends._codex_schemas import MOST_LEVELS
from toolrelay.backends._codex_turn import MOST_REFUSED
from toolrelay.backends.base import Backend
from toolrelay.backends.base import discover as discover_backends
from toolrelay.backends.codex import BACKEND, CodexBackend
from toolrelay.core.events import (
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Noticed,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call as PastCall
from toolrelay.core.messages import Image, Item, Message, Reasoning, Result, Text
from toolrelay.core.request import OutputFormat, ReasoningWish, Sampling, Tool, ToolChoice
from toolrelay.dialects.base import discover
from toolrelay.errors import ConfigurationError, ToolrelayError
from toolrelay.settings import Surroundings
from toolrelay.wires.base import Envelope
from toolrelay.wires.base import discover as discover_wires

STARTED = AnswerStarted(model="scripted")
DONE = AnswerFinished(finish="stop", usage=Usage(input=7, output=3, total=10, cached=0, reasoning=0))
CALLED = AnswerFinished(finish="calls", usage=DONE.usage)
PARIS, ROME = Call("get_weather", {"city": "Paris"}), Call("get_weather", {"city": "Rome"})
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    play = Play(tmp_path_factory.mktemp("codex"))
    yield play
    play.close()


def made(index: int, city: str) -> list[StreamEvent]:
    return [CallStarted(index, "get_weather"), ArgumentsDelta(index, f'{{"city":"{city}"}}'), CallFinished(index)]


# A turn


def test_a_text_turn(play: Play) -> None:
    events = play.ask(request(instructions="Be brief."), says("Hel", "lo"))
    assert seen_by_the_client(events) == [STARTED, TextDelta("Hello"), DONE]
    assert TextDelta("Hel") in events
    (sent,) = play.requests
    said = [(item["role"], item["content"][0]["text"]) for item in sent["input"]]
    assert said == [("developer", "Be brief."), ("user", "hi")]
    assert (sent["tools"], sent["model"], sent["store"]) == ([], "scripted", False)
    assert "instructions" not in sent


def test_a_whole_history_reaches_the_model_as_it_is(play: Play) -> None:  # bugs 30, 31, 34
    items: list[Item] = [
        Message(role="system", content="One."),
        Message(role="user", content=(Text(text="See:"), Image(url=PIXEL, detail="low"))),
        Reasoning(id="rs_9", summary=("Hm",), encrypted="sealed"),
        Message(role="assistant", content="A moment.", phase="commentary"),
        PastCall(id="call_a", name="get_weather", arguments='{"city":\n"Rome"}'),
        PastCall(id="call_b", name="get_weather", arguments="{}"),
        Result(call_id="call_b", output="rain"),
        Result(call_id="call_a", output=(Text(text="sun"), Image(url=PIXEL))),
        Message(role="system", content="Two."),
    ]
    play.ask(request(*items, tools=(WEATHER,)), says("ok"))
    sent = [
        {key: value for key, value in item.items() if key != "id" and value is not None} for item in play.requests[0]["input"]
    ]
    image = {"type": "input_image", "image_url": PIXEL}
    assert sent == [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "One."}]},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "See:"}, {**image, "detail": "auto"}],
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "sealed"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "A moment."}],
            "phase": "commentary",
        },
        {"type": "function_call", "name": "get_weather", "arguments": '{"city":\n"Rome"}', "call_id": "call_a"},
        {"type": "function_call", "name": "get_weather", "arguments": "{}", "call_id": "call_b"},
        {"type": "function_call_output", "call_id": "call_b", "output": "rain"},
        {"type": "function_call_output", "call_id": "call_a", "output": [{"type": "input_text", "text": "sun"}, image]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Two."}]},
    ]


def test_reasoning_comes_with_its_summary_and_its_seal_and_usage_with_its_parts(play: Play) -> None:  # bugs 31, 40
    script = (head() + reasoning("Let me ", "think") + message("Hi") + completed(11, 7, cached=3, reasoned=2),)
    events = play.ask(request(reasoning=ReasoningWish(effort="high", summary="auto")), script)
    thought, said = fold(events).items
    assert isinstance(thought, Reasoning)
    assert (thought.summary, thought.encrypted) == (("Let me think",), "sealed")
    assert isinstance(said, Message)
    assert ending(events).usage == Usage(input=11, output=7, total=18, cached=3, reasoning=2)
    assert play.requests[0]["reasoning"] == {"effort": "high", "summary": "auto"}


def test_no_summary_is_asked_for_unless_the_client_does(play: Play) -> None:
    play.ask(request(), says("x"))
    assert "summary" not in play.requests[0]["reasoning"]


def test_verbosity_and_the_flex_tier_reach_the_provider(play: Play) -> None:
    play.ask(request(sampling=Sampling(verbosity="low"), service_tier="flex"), says("x"))
    assert (play.requests[0]["text"], play.requests[0]["service_tier"]) == ({"verbosity": "low"}, "flex")


def test_a_strict_schema_is_held_to_by_the_provider(play: Play) -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = OutputFormat(type="json_schema", name="it", schema=schema, strict=True)
    assert text(play.ask(request(output=form), says('{"a":', "1}"))) == '{"a":1}'
    sent = play.requests[0]["text"]["format"]
    assert (sent["type"], sent["strict"], sent["schema"]) == ("json_schema", True, schema)


def test_an_answer_of_five_megabytes_comes_whole(play: Play) -> None:
    long = "0123456789" * 500_000
    assert text(play.ask(request(), (head() + message(long) + completed(),))) == long


def test_a_message_longer_than_a_turn_may_hold_goes_all_the_same(play: Play) -> None:
    long = "x" * 1_200_000
    play.ask(request(Message(role="user", content=long)), says("ok"))
    assert play.requests[0]["input"][0]["content"][0]["text"] == long


def test_a_tool_result_of_the_largest_size_is_not_cut(play: Play) -> None:
    largest = "é" * (play.settings.max_tool_result_bytes // 2)
    past = (PastCall(id="a", name="get_weather", arguments="{}"), Result(call_id="a", output=largest))
    play.ask(request(Message(role="user", content="hi"), *past, tools=(WEATHER,)), says("ok"))
    assert play.requests[0]["input"][-1]["output"] == largest


def test_odd_text_goes_there_and_back(play: Play) -> None:  # bug 24
    odd = "ü 👩‍👩‍👧 \u2028\x00\x7f \ud800 $skill @file /init <tool_call>"
    events = play.ask(request(Message(role="user", content=odd)), says("ü 👩‍👩‍👧 ", "\u2028\x7f"))
    assert text(events) == "ü 👩‍👩‍👧 \u2028\x7f"
    assert play.requests[0]["input"][0]["content"][0]["text"] == odd.replace("\ud800", "\ufffd")


def test_a_stop_sequence_ends_the_answer(play: Play) -> None:
    gate = Gate()
    script = (head() + begun("one tw", "o th", "ree"), gate, CUT)
    events = play.ask(request(sampling=Sampling(stop="two")), script)
    assert text(events) == "one "
    assert ending(events).finish == "stop"


# Calls


def test_a_call_in_the_models_own_words_ends_the_answer_and_the_turn(play: Play) -> None:
    events = play.ask(request(tools=(WEATHER,)), calls(PARIS, before="Let me see."))
    assert seen_by_the_client(events) == [STARTED, TextDelta("Let me see."), *made(0, "Paris"), CALLED]
    assert Noticed(event="tool_cutoff", rule="end_of_calls") in events
    assert [tool["name"] for tool in play.requests[0]["tools"]] == ["get_weather"]


def test_parallel_calls_come_in_the_models_order(play: Play) -> None:  # bugs 7, 8
    cities = ["Paris", "Rome", "Oslo", "Bern"]
    script = calls(*(Call("get_weather", {"city": city}) for city in cities))
    events = play.ask(request(tools=(WEATHER,)), script)
    assert [json.loads(call.arguments)["city"] for call in fold(events).calls] == cities


def test_after_calls_the_model_is_not_asked_again(play: Play) -> None:
    """Codex would go on by itself as soon as it had a result."""
    for _ in range(5):
        play.ask(request(tools=(WEATHER,)), calls(PARIS, ROME), says("never"))
        play.run(asyncio.sleep(0.02))  # the time in which it would
        assert len(play.requests) == 1


def test_no_more_than_one_call_where_one_is_wanted(play: Play) -> None:  # bug 27
    events = play.ask(request(tools=(WEATHER,), parallel_tool_calls=False), calls(PARIS, ROME))
    assert seen_by_the_client(events) == [STARTED, *made(0, "Paris"), CALLED]


def test_narration_after_a_call_does_not_leak_and_is_not_waited_for(play: Play) -> None:  # bug 13
    gate = Gate()
    script = (head() + call(PARIS) + begun("The weather in Paris is"), gate, CUT)
    events = play.ask(request(tools=(WEATHER,)), script)
    assert seen_by_the_client(events)[:-1] == [STARTED, *made(0, "Paris")]
    usage = ending(events).usage
    assert usage is not None
    assert usage.estimated


def test_names_that_codex_would_refuse_or_swallow_work(play: Play) -> None:  # bug 32
    names = ["exec_command", "shell_command", "mcp", "mcp__github__search", "vault.search", "shell", "apply_patch", "web_search"]
    tools = tuple(Tool(name=name, parameters={"type": "object", "properties": {}}) for name in names)
    play.ask(request(tools=tools), says("ok"))
    known = [tool["name"] for tool in play.requests[0]["tools"]]
    assert len(known) == len(names)
    events = play.ask(request(tools=tools), calls(*(Call(name) for name in known)))
    assert [call.name for call in fold(events).calls] == names


def test_tool_choice_none_offers_nothing(play: Play) -> None:  # bug 26
    play.ask(request(tools=(WEATHER,), tool_choice=ToolChoice(mode="none")), says("ok"))
    assert play.requests[0]["tools"] == []


def test_a_schema_that_codex_does_not_take_is_the_clients_mistake(play: Play) -> None:
    error = error_of(play.ask(request(tools=(Tool(name="x", parameters={"type": "object", "required": 5}),)), says("never")))
    assert error.status == 400
    assert "x" in error.message


def test_a_schema_as_deep_as_may_be_is_taken_and_a_deeper_one_refused_at_once(play: Play) -> None:
    schema: JsonObject = {"type": "string"}
    for _ in range(MOST_LEVELS // 2 - 1):
        schema = {"type": "object", "properties": {"a": schema}}
    form = OutputFormat(type="json_schema", name="it", schema=schema, strict=True)
    assert text(play.ask(request(tools=(Tool(name="x", parameters=schema),), output=form), says("ok"))) == "ok"
    deeper: JsonObject = {"type": "object", "properties": {"a": schema}}
    error = error_of(play.ask(request(tools=(Tool(name="x", parameters=deeper),)), says("never")))
    assert (error.status, play.requests) == (400, [])


# Both ways

CITY = '{"city":"Paris"}'


def native_script(before: str, *made: Call) -> Script:
    return calls(*made, before=before) if made else says(*before)


def printed_script(before: str, *made: Call) -> Script:
    hermes = discover()["hermes"]
    past = [PastCall(id="", name=call.name, arguments=json.dumps(call.arguments, separators=(",", ":"))) for call in made]
    printed = before + (hermes.render_calls(past) if made else "")
    return says(*(printed[start : start + 7] for start in range(0, len(printed), 7)))


CONVERSATION: list[tuple[str, list[Call], list[str]]] = [
    # what the model says, what it calls, what the client's tools answer
    ("Hello! ", [], []),
    ("", [PARIS], ["18 degrees"]),
    ("And now ", [PARIS, ROME], ["18 degrees", "20 degrees"]),
    ("", [ROME], ["20 degrees"]),
    ("It is warmer in Rome.", [], []),
]


def converse(play: Play, backend: Backend, script: Any, *, stream: bool) -> list[list[StreamEvent]]:
    """The whole conversation: each answer's calls and their results are part of the next request."""
    items: list[Item] = [Message(role="system", content="Be brief."), Message(role="user", content="hi")]
    answers = []
    for said, made, results in CONVERSATION:
        events = play.ask(request(*items, tools=(WEATHER,), stream=stream), script(said, *made), backend=backend)
        answers.append(events)
        past = [
            PastCall(id=f"call_{len(items)}_{n}", name=call.name, arguments=call.arguments)
            for n, call in enumerate(fold(events).calls)
        ]
        items += [Message(role="assistant", content=said), *past]
        items += [Result(call_id=call.id, output=result) for call, result in zip(past, results, strict=True)]
        if not made:
            items.append(Message(role="user", content="Go on."))
    return answers


@pytest.mark.parametrize("stream", [True, False])
def test_both_ways_of_calling_tools_give_the_client_the_same(play: Play, stream: bool) -> None:  # noqa: FBT001 -- both # bug 4
    native = converse(play, play.native, native_script, stream=stream)
    printed = converse(play, play.printing(), printed_script, stream=stream)
    for one, other in zip(native, printed, strict=True):
        assert seen_by_the_client(one) == seen_by_the_client(other)
        assert [call.arguments for call in fold(one).calls] == [call.arguments for call in fold(other).calls]
        for wire in discover_wires().values():
            envelope = Envelope(token="t" * 20, created=1, model="mine", request=request(stream=stream))
            assert wire.encode_answer(fold(one), envelope) == wire.encode_answer(fold(other), envelope)
            assert wire.encoder(envelope).encode(seen_by_the_client(one)) == wire.encoder(envelope).encode(
                seen_by_the_client(other)
            )


def test_a_model_that_prints_gets_its_rules_as_developer_instructions_and_no_tools(play: Play) -> None:
    past = (PastCall(id="a", name="get_weather", arguments=CITY), Result(call_id="a", output="18 degrees"))
    asked = request(Message(role="user", content="hi"), *past, tools=(WEATHER,))
    play.ask(asked, says("It is warm."), backend=play.printing())
    (sent,) = play.requests
    assert sent["tools"] == []
    rules, user, assistant, result = sent["input"]
    assert rules["role"] == "developer"
    assert "get_weather" in rules["content"][0]["text"]
    assert (user["role"], assistant["role"], result["role"]) == ("user", "assistant", "user")
    assert CITY in assistant["content"][0]["text"]
    assert "18 degrees" in result["content"][0]["text"]


@pytest.mark.parametrize("mode", ["required", "named"])
def test_a_choice_that_must_be_met_is_held_to_by_a_schema(play: Play, mode: Any) -> None:  # bug 26
    choice = ToolChoice(mode=mode, names=(("function", "get_weather"),) if mode == "named" else ())
    printed = '{"name": "get_weather", "arguments": {"city":"Paris"}}'
    backend = play.printing("native")
    events = play.ask(request(tools=(WEATHER,), tool_choice=choice), says(printed), backend=backend)
    assert seen_by_the_client(events) == [STARTED, *made(0, "Paris"), CALLED]
    assert play.requests[0]["text"]["format"]["type"] == "json_schema"


def test_a_choice_that_must_be_met_and_is_not_is_an_error(play: Play) -> None:  # bug 26
    asked = request(tools=(WEATHER,), tool_choice=ToolChoice(mode="required"))
    assert error_of(play.ask(asked, says("No."))).code == "tool_choice_unmet"


# Nothing of Codex's own

PATCH = "*** Begin Patch\n*** Add File: hacked\n+x\n*** End Patch"
BUILT_IN = [
    Call("exec_command", {"cmd": "touch hacked"}),
    Call("shell", {"command": ["touch", "hacked"]}),
    Call("shell_command", {"command": "touch hacked"}),
    Call("apply_patch", {"input": PATCH}),
    Call("apply_patch", {"input": PATCH}, kind="custom_tool_call"),
    Call("update_plan", {"plan": []}),
    Call("view_image", {"path": "/etc/passwd"}),
    Call("web_search", {"query": "x"}),
    Call("request_user_input", {"questions": []}),
]


@pytest.mark.parametrize("built_in", BUILT_IN, ids=lambda call: f"{call.name}-{call.kind}")
def test_a_built_in_tool_is_refused_and_the_model_goes_on(play: Play, built_in: Call) -> None:  # bug 28
    events = play.ask(request(tools=(WEATHER,)), calls(built_in), says("Well then."))
    assert text(events) == "Well then."
    assert Noticed(event="tool_block", rule="unknown_tool", tool=built_in.name) in events
    usage = ending(events).usage
    assert usage is not None
    assert usage.total == 20
    assert "unsupported" in json.dumps(play.requests[1]["input"][-1]["output"])
    assert not [path for seat in play.pool._seats for path in seat.process._home.work.iterdir() if path.name == "hacked"]


def test_a_model_that_keeps_calling_built_in_tools_is_stopped(play: Play) -> None:  # bug 47
    events = play.ask(request(), calls(BUILT_IN[0]))
    error = error_of(events)
    assert (error.status, error.code) == (502, "unknown_tool")
    assert Noticed(event="tool_block", rule="refused_too_often", tool="exec_command") in events
    assert MOST_REFUSED <= len(play.requests) <= MOST_REFUSED + 1


@pytest.mark.parametrize("kind", ["local_shell_call", "tool_search_call"])
def test_an_answer_that_is_nothing_but_a_refused_call_is_no_success(play: Play, kind: str) -> None:
    """After the one Codex ends the turn, after the other it asks the model again."""
    members = {"action": {"type": "exec", "command": ["ls"]}, "arguments": {"query": "x"}, "execution": "client"}
    events = play.ask(request(), calls(Call("", {**members, "status": "completed"}, kind=kind)), says("After all."))
    if len(play.requests) == 1:
        assert error_of(events).code == "unknown_tool"
    else:
        assert text(events) == "After all."


# Who leaves


def test_letting_go_of_an_answer_lets_go_of_the_upstream(play: Play) -> None:  # bug 44
    gate = Gate()
    play.script(holds(gate, "one", "two"))

    async def main() -> None:
        stream = play.native.stream(request())
        async with contextlib.aclosing(stream):
            assert text(await anext(stream)) == "one"
        await left(play)

    play.run(main())


def test_a_client_that_leaves_before_the_first_word_lets_go_of_the_upstream(play: Play) -> None:  # bug 44
    gate = Gate()
    play.script((head(), gate))

    async def main() -> None:
        asking = asyncio.create_task(told(play.native, request()))
        await seen(play.upstream.request(0))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await left(play)

    play.run(main())


async def left(play: Play) -> None:
    received = await seen(play.upstream.request(0))
    async with asyncio.timeout(10):
        await seen(play.upstream.links[received.link].left)


def test_many_clients_that_leave_at_any_moment_leave_nothing_behind(play: Play) -> None:  # bug 44
    """Each stays a little longer, until some have got as far as the upstream, which would never end its answer."""
    play.script((head() + begun(*"abcdefgh"), Gate()))
    upstream = play.upstream

    async def main() -> None:
        turns = 0
        while len(upstream.requests) < 5:
            asking = asyncio.create_task(told(play.native, request()))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            turns += 25 + turns // 8
        async with asyncio.timeout(10):
            for received in upstream.requests:
                await seen(upstream.links[received.link].left)

    play.run(main())
    (seat,) = play.pool._seats
    assert seat.turns == 0
    assert seat.process.channels == {}
    assert text(play.ask(request(), says("ok"))) == "ok"
    assert len(play.requests) == 1


# Who dies


def test_a_process_that_dies_before_it_said_anything_is_not_noticed(play: Play) -> None:
    gate = Gate()
    play.script((head(), gate), says("Hello"))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(told(play.native, request()))
        await seen(play.upstream.request(0))
        play.kill()
        return await asking

    assert seen_by_the_client(play.run(main())) == [STARTED, TextDelta("Hello"), DONE]


def test_a_turn_of_which_only_the_log_has_heard_is_tried_again(play: Play) -> None:
    play.script(calls(BUILT_IN[0]), (head(), Gate()), says("Hello"))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(told(play.native, request()))
        await seen(play.upstream.request(1))
        play.kill()
        return await asking

    assert seen_by_the_client(play.run(main())) == [STARTED, TextDelta("Hello"), DONE]


def test_a_process_that_dies_twice_is_an_error(play: Play) -> None:
    play.script((head(), Gate()), (head(), Gate()))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(told(play.native, request()))
        for place in range(2):
            await seen(play.upstream.request(place))
            play.kill()
        return await asking

    error = error_of(play.run(main()))
    assert (error.status, error.code) == (502, "upstream_cut")
    assert "Codex" in error.message


@pytest.mark.parametrize("begins", [begun("Hel"), reasoning("Hm"), call(PARIS)], ids=["text", "reasoning", "a call"])
def test_a_process_that_dies_in_the_middle_is_an_error_and_is_replaced(play: Play, begins: bytes) -> None:  # bug 38
    play.script((head() + begins, Gate()))

    async def main() -> list[StreamEvent]:
        events: list[StreamEvent] = []
        async for batch in play.native.stream(request(tools=(WEATHER,))):
            if not events:
                play.kill()
            events += batch
        return events

    error = error_of(play.run(main()))
    assert (error.status, error.code) == (502, "upstream_cut")
    assert text(play.ask(request(), says("ok"))) == "ok"


def test_a_process_that_dies_between_turns_is_replaced(play: Play) -> None:
    play.ask(request(), says("one"))
    play.kill()
    assert text(play.ask(request(), says("two"))) == "two"


# An upstream that breaks


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (refuses(401, "Incorrect API key provided: sk-secret"), 502, "upstream_auth"),
        (refuses(403, f"The key {KEY} may not do this."), 403, "upstream_error"),
        (refuses(404, "No such model"), 404, "upstream_error"),
        (refuses(429, "Slow down"), 429, "rate_limit_exceeded"),
        (refuses(500), 500, "upstream_error"),
        (refuses(503), 503, "upstream_error"),
        (refuses(400, "Too long", "context_length_exceeded"), 400, "context_length_exceeded"),
        ((head() + failed("context_length_exceeded", "Too long"),), 400, "context_length_exceeded"),
        ((head() + failed("rate_limit_exceeded", "Please try again in 1.5s."),), 429, "rate_limit_exceeded"),
        ((head() + failed("insufficient_quota", "Pay."),), 429, "insufficient_quota"),
        ((head() + failed("server_error", "Sorry."),), 502, "upstream_cut"),
        ((CUT,), 502, "upstream_cut"),
        (breaks_off("Hel"), 502, "upstream_cut"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_upstream_says_goes_on_to_the_client(play: Play, script: Any, status: int, code: str) -> None:
    events = play.ask(request(), script)
    error = error_of(events)
    assert (error.status, error.code) == (status, code)
    assert "sk-secret" not in error.message
    assert KEY not in str(error) + error.message
    assert play.upstream.url not in error.message
    assert len(play.requests) == 1


def test_a_rate_limit_says_when_it_is_lifted(play: Play) -> None:
    script = (head() + failed("rate_limit_exceeded", "Please try again in 1.5s."),)
    assert error_of(play.ask(request(), script)).retry_after == 1.5


def test_an_upstream_that_is_not_there_is_an_error_and_no_client_learns_where(play: Play, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    pool = Pool(replace(place_at(tmp_path, play.upstream), base_url=url), size=1)
    pool._binary = surveyed()
    backend = CodexBackend(play.settings, pool)
    try:
        error = error_of(play.run(told(backend, request())))
    finally:
        play.run(backend.close())
    assert (error.status, error.code) == (502, "upstream_unreachable")
    assert url not in error.message


@pytest.mark.parametrize(
    ("script", "finish"),
    [(stops_short("Hel"), "length"), ((head() + begun("Hel") + incomplete("content_filter"),), "content_filter")],
)
def test_an_answer_that_was_cut_short_has_an_end(play: Play, script: Script, finish: str) -> None:  # bug 5
    events = play.ask(request(), script)
    assert text(events) == "Hel"
    assert ending(events).finish == finish
    usage = ending(events).usage
    assert usage is not None
    assert usage.estimated


def test_an_upstream_that_breaks_off_while_a_call_waits_is_found_out(play: Play) -> None:  # bug 38
    script = (head() + call(PARIS), CUT)
    error = error_of(play.ask(request(tools=(WEATHER,)), script, backend=play.backend(probe_after=0.05)))
    assert error.code == "upstream_cut"


def test_a_model_that_takes_its_time_between_calls_is_waited_for(play: Play) -> None:
    gate = Gate()
    play.script((head() + call(PARIS), gate, call(ROME) + completed()), says("never"))
    backend = play.backend(probe_after=0.01)

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(told(backend, request(tools=(WEATHER,))))
        await seen(gate.reached)
        await asyncio.sleep(0.05)  # it is looked after several times
        gate.open()
        return await asking

    assert [json.loads(call.arguments)["city"] for call in fold(play.run(main())).calls] == ["Paris", "Rome"]


def test_a_model_that_says_nothing_for_too_long_is_an_error(play: Play) -> None:
    error = error_of(play.ask(request(), (head(), Gate()), backend=play.backend(timeout_seconds=0.2)))
    assert (error.status, error.code) == (504, "upstream_timeout")


# Requests that Codex cannot take


def test_what_codex_cannot_say_is_refused_before_it_is_asked(play: Play) -> None:
    error: ToolrelayError = error_of(play.ask(request(sampling=Sampling(n=2)), says("never")))
    assert (error.status, error.param) == (400, "n")
    assert play.requests == []


# The kind


def test_it_is_found_as_the_provider_codex(tmp_path: Path) -> None:
    assert discover_backends()["codex"] is BACKEND
    backend = BACKEND.open(SETTINGS, Surroundings(data_dir=tmp_path, environ={"TOOLRELAY_CODEX": binary_path()}))
    assert isinstance(backend, CodexBackend)
    asyncio.run(backend.close())
    profile = BACKEND.profile(SETTINGS)
    assert (profile.tools, profile.heeds_choice, profile.constrains) == (True, False, True)


def test_a_missing_binary_is_told_before_the_start(tmp_path: Path) -> None:
    surroundings = Surroundings(data_dir=tmp_path, environ={"TOOLRELAY_CODEX": str(tmp_path / "codex")})
    with pytest.raises(ConfigurationError, match="TOOLRELAY_CODEX"):
        BACKEND.open(SETTINGS, surroundings)


def test_a_rail_without_its_directory_is_refused_before_the_start(tmp_path: Path) -> None:
    surroundings = Surroundings(data_dir=tmp_path, environ={"TOOLRELAY_CODEX": binary_path()})
    with pytest.raises(ConfigurationError, match=r"models\.mine\.rails"):
        BACKEND.open(replace(SETTINGS, rails=("apply_patch",)), surroundings)


def test_only_a_model_on_that_rail_is_offered_patches(tmp_path: Path) -> None:
    surroundings = Surroundings(data_dir=tmp_path, environ={"TOOLRELAY_CODEX": binary_path()})
    assert not place_for(SETTINGS, surroundings).patches
    assert place_for(replace(SETTINGS, rails=("apply_patch",)), surroundings).patches
