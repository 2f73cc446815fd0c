"""Native and printed tool calls, and refusal of built-in tools: the real binary against a scripted upstream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.backends.codex.harness import (
    BUILT_IN,
    DONE,
    PARIS,
    ROME,
    STARTED,
    WEATHER,
    CodexHarness,
    client_events,
    error_of,
    finish_of,
    fold,
    request,
    text,
)
from tests.backends.codex.upstream import Call, call_frames, calls, head, says, unfinished_message
from tests.upstream import CLOSE, Gate, Script
from toolrelay.backends.base import Backend
from toolrelay.backends.codex.decoder import MAX_REFUSED_RESPONSES
from toolrelay.backends.codex.input_checks import MAX_JSON_DEPTH
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


def test_call_ends_the_answer(codex: CodexHarness) -> None:
    events = codex.ask(request(tools=(WEATHER,)), calls(PARIS, before="Let me see."))
    assert client_events(events) == [STARTED, TextDelta("Let me see."), *made(0, "Paris"), CALLED]
    assert Noticed(event="tool_cutoff", rule="end_of_calls") in events
    assert [tool["name"] for tool in codex.requests[0]["tools"]] == ["get_weather"]


def test_parallel_calls_keep_the_models_order(codex: CodexHarness) -> None:  # bugs 7, 8
    cities = ["Paris", "Rome", "Oslo", "Bern"]
    script = calls(*(Call("get_weather", {"city": city}) for city in cities))
    events = codex.ask(request(tools=(WEATHER,)), script)
    assert [json.loads(call.arguments)["city"] for call in fold(events).calls] == cities


def test_model_is_not_asked_again_after_calls(codex: CodexHarness) -> None:
    """Codex would continue as soon as it had a result."""
    for _ in range(5):
        codex.ask(request(tools=(WEATHER,)), calls(PARIS, ROME), says("never"))
        codex.run(asyncio.sleep(0.02))  # time in which it could
        assert len(codex.requests) == 1


def test_parallel_tool_calls_false_gives_one_call(codex: CodexHarness) -> None:  # bug 27
    events = codex.ask(request(tools=(WEATHER,), parallel_tool_calls=False), calls(PARIS, ROME), backend=codex.layered())
    assert client_events(events) == [STARTED, *made(0, "Paris"), CALLED]


def test_text_after_a_call_is_cut(codex: CodexHarness) -> None:  # bug 13
    gate = Gate()
    script = (head() + call_frames(PARIS) + unfinished_message("The weather in Paris is"), gate, CLOSE)
    events = codex.ask(request(tools=(WEATHER,)), script, backend=codex.layered())
    assert client_events(events)[:-1] == [STARTED, *made(0, "Paris")]
    usage = finish_of(events).usage
    assert usage is not None
    assert usage.estimated


def test_reserved_tool_names_work(codex: CodexHarness) -> None:  # bug 32
    names = ["exec_command", "shell_command", "mcp", "mcp__github__search", "vault.search", "shell", "apply_patch", "web_search"]
    tools = tuple(Tool(name=name, parameters={"type": "object", "properties": {}}) for name in names)
    codex.ask(request(tools=tools), says("ok"))
    known = [tool["name"] for tool in codex.requests[0]["tools"]]
    assert len(known) == len(names)
    events = codex.ask(request(tools=tools), calls(*(Call(name) for name in known)))
    assert [call.name for call in fold(events).calls] == names


def test_tool_choice_none_offers_no_tools(codex: CodexHarness) -> None:  # bug 26
    codex.ask(request(tools=(WEATHER,), tool_choice=ToolChoice(mode="none")), says("ok"))
    assert codex.requests[0]["tools"] == []


def test_invalid_tool_schema_is_a_client_error(codex: CodexHarness) -> None:
    error = error_of(codex.ask(request(tools=(Tool(name="x", parameters={"type": "object", "required": 5}),)), says("never")))
    assert error.status == 400
    assert "x" in error.message


def test_schema_of_maximum_depth_is_accepted_and_a_deeper_one_refused(codex: CodexHarness) -> None:
    schema: JsonObject = {"type": "string"}
    for _ in range(MAX_JSON_DEPTH // 2 - 1):
        schema = {"type": "object", "properties": {"a": schema}}
    form = OutputFormat(type="json_schema", name="it", schema=schema, strict=True)
    assert text(codex.ask(request(tools=(Tool(name="x", parameters=schema),), output=form), says("{}"))) == "{}"
    deeper: JsonObject = {"type": "object", "properties": {"a": schema}}
    error = error_of(codex.ask(request(tools=(Tool(name="x", parameters=deeper),)), says("never")))
    assert (error.status, codex.requests) == (400, [])


# Native and printed

CITY = '{"city":"Paris"}'


def native_script(before: str, *made: Call) -> Script:
    return calls(*made, before=before) if made else says(*before)


def printed_script(before: str, *made: Call) -> Script:
    hermes = discover()["hermes"]
    past = [PastCall(id="", name=call.name, arguments=json.dumps(call.arguments, separators=(",", ":"))) for call in made]
    printed = before + (hermes.render_calls(past) if made else "")
    return says(*(printed[start : start + 7] for start in range(0, len(printed), 7)))


CONVERSATION: list[tuple[str, list[Call], list[str]]] = [
    # text, calls, results
    ("Hello! ", [], []),
    ("", [PARIS], ["18 degrees"]),
    ("And now ", [PARIS, ROME], ["18 degrees", "20 degrees"]),
    ("", [ROME], ["20 degrees"]),
    ("It is warmer in Rome.", [], []),
]


def converse(codex: CodexHarness, backend: Backend, script: Any, *, stream: bool) -> list[list[StreamEvent]]:
    """Run the conversation. Each request contains the previous calls and results."""
    items: list[Item] = [Message(role="system", content="Be brief."), Message(role="user", content="hi")]
    answers = []
    for said, made, results in CONVERSATION:
        events = codex.ask(request(*items, tools=(WEATHER,), stream=stream), script(said, *made), backend=backend)
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
def test_native_and_printed_calls_are_identical_for_the_client(codex: CodexHarness, stream: bool) -> None:  # noqa: FBT001 -- both # bug 4
    native = converse(codex, codex.native, native_script, stream=stream)
    printed = converse(codex, codex.with_dialect(), printed_script, stream=stream)
    for one, other in zip(native, printed, strict=True):
        assert client_events(one) == client_events(other)
        assert [call.arguments for call in fold(one).calls] == [call.arguments for call in fold(other).calls]
        for wire in discover_wires().values():
            envelope = Envelope(token="t" * 20, created=1, model="mine", request=request(stream=stream))
            assert wire.encode_answer(fold(one), envelope) == wire.encode_answer(fold(other), envelope)
            assert wire.encoder(envelope).encode(client_events(one)) == wire.encoder(envelope).encode(client_events(other))


def test_dialect_prompt_is_sent_as_developer_instructions(codex: CodexHarness) -> None:
    past = (PastCall(id="a", name="get_weather", arguments=CITY), Result(call_id="a", output="18 degrees"))
    asked = request(Message(role="user", content="hi"), *past, tools=(WEATHER,))
    codex.ask(asked, says("It is warm."), backend=codex.with_dialect())
    (sent,) = codex.requests
    assert sent["tools"] == []
    rules, user, assistant, result = sent["input"]
    assert rules["role"] == "developer"
    assert "get_weather" in rules["content"][0]["text"]
    assert (user["role"], assistant["role"], result["role"]) == ("user", "assistant", "user")
    assert CITY in assistant["content"][0]["text"]
    assert "18 degrees" in result["content"][0]["text"]


@pytest.mark.parametrize("mode", ["required", "named"])
def test_required_tool_choice_is_enforced_by_a_schema(codex: CodexHarness, mode: Any) -> None:  # bug 26
    choice = ToolChoice(mode=mode, names=(("function", "get_weather"),) if mode == "named" else ())
    printed = '{"name": "get_weather", "arguments": {"city":"Paris"}}'
    backend = codex.with_dialect("native")
    events = codex.ask(request(tools=(WEATHER,), tool_choice=choice), says(printed), backend=backend)
    assert client_events(events) == [STARTED, *made(0, "Paris"), CALLED]
    assert codex.requests[0]["text"]["format"]["type"] == "json_schema"


def test_unmet_tool_choice_is_an_error(codex: CodexHarness) -> None:  # bug 26
    asked = request(tools=(WEATHER,), tool_choice=ToolChoice(mode="required"))
    assert error_of(codex.ask(asked, says("No."), backend=codex.layered())).code == "tool_choice_unmet"


# Built-in tools


@pytest.mark.parametrize("built_in", BUILT_IN, ids=lambda call: f"{call.name}-{call.kind}")
def test_builtin_tool_is_refused_and_the_turn_continues(codex: CodexHarness, built_in: Call) -> None:  # bug 28
    events = codex.ask(request(tools=(WEATHER,)), calls(built_in), says("Well then."))
    assert text(events) == "Well then."
    assert Noticed(event="tool_block", rule="unknown_tool", tool=built_in.name) in events
    usage = finish_of(events).usage
    assert usage is not None
    assert usage.total == 20
    assert "unsupported" in json.dumps(codex.requests[1]["input"][-1]["output"])
    assert not any((pooled.process.home.work_dir / "hacked").exists() for pooled in codex.pool.processes)


def test_repeated_builtin_calls_fail_the_answer(codex: CodexHarness) -> None:  # bug 47
    events = codex.ask(request(), calls(BUILT_IN[0]))
    error = error_of(events)
    assert (error.status, error.code) == (502, "unknown_tool")
    assert Noticed(event="tool_block", rule="refused_too_often", tool="exec_command") in events
    assert MAX_REFUSED_RESPONSES <= len(codex.requests) <= MAX_REFUSED_RESPONSES + 1


@pytest.mark.parametrize("kind", ["local_shell_call", "tool_search_call"])
def test_answer_with_only_a_refused_call_fails(codex: CodexHarness, kind: str) -> None:
    """Codex ends the turn after one kind and asks the model again after the other."""
    members = {"action": {"type": "exec", "command": ["ls"]}, "arguments": {"query": "x"}, "execution": "client"}
    events = codex.ask(request(), calls(Call("", {**members, "status": "completed"}, kind=kind)), says("After all."))
    if len(codex.requests) == 1:
        assert error_of(events).code == "unknown_tool"
    else:
        assert text(events) == "After all."
