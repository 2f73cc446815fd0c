"""Tools through Codex in both ways, native and printed, and none of its own: the real binary against a scripted upstream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.backends.codex.play import (
    BUILT_IN,
    DONE,
    PARIS,
    ROME,
    STARTED,
    WEATHER,
    Play,
    ending,
    error_of,
    fold,
    request,
    seen_by_the_client,
    text,
)
from tests.backends.codex.upstream import Call, begun, call, calls, head, says
from tests.upstream import CUT, Gate, Script
from toolrelay.backends.base import Backend
from toolrelay.backends.codex.decoder import MOST_REFUSED
from toolrelay.backends.codex.schemas import MOST_LEVELS
from toolrelay.core.events import AnswerFinished, ArgumentsDelta, CallFinished, CallStarted, Noticed, StreamEvent, TextDelta
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call as PastCall
from toolrelay.core.messages import Item, Message, Result
from toolrelay.core.request import OutputFormat, Tool, ToolChoice
from toolrelay.dialects.base import discover
from toolrelay.wires.base import Envelope
from toolrelay.wires.base import discover as discover_wires

CALLED = AnswerFinished(finish="calls", usage=DONE.usage)


def made(index: int, city: str) -> list[StreamEvent]:
    return [CallStarted(index, "get_weather"), ArgumentsDelta(index, f'{{"city":"{city}"}}'), CallFinished(index)]


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
    events = play.ask(request(tools=(WEATHER,), parallel_tool_calls=False), calls(PARIS, ROME), backend=play.layered())
    assert seen_by_the_client(events) == [STARTED, *made(0, "Paris"), CALLED]


def test_narration_after_a_call_does_not_leak_and_is_not_waited_for(play: Play) -> None:  # bug 13
    gate = Gate()
    script = (head() + call(PARIS) + begun("The weather in Paris is"), gate, CUT)
    events = play.ask(request(tools=(WEATHER,)), script, backend=play.layered())
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
    assert error_of(play.ask(asked, says("No."), backend=play.layered())).code == "tool_choice_unmet"


# Nothing of Codex's own


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
