"""A model behind an interpreter, as the gateway sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.layered import layered
from toolrelay.backends.demo import ScriptedBackend, ScriptStep
from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import (
    AnswerFailed,
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
from toolrelay.core.messages import Call, Message
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.dialects.base import discover
from toolrelay.errors import BackendError, InternalError

DIALECTS = discover()
HERMES = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
BAD = '<tool_call>\n{"name": "never", "arguments": {}}\n</tool_call>'
ASKED = Request(
    wire="openai_chat",
    model="m",
    items=(Message(role="user", content="What time is it?"),),
    tools=(Tool(name="now"),),
    stream=True,
)
PROFILE = Profile()
STOP = AnswerFinished(finish="stop", usage=Usage(input=10, output=5))
REFUSAL = AnswerFailed(BackendError("registry.ollama.ai/library/gemma3:4b does not support tools", status=400))


def model(backend: ScriptedBackend, profile: Profile = PROFILE, **settings: Any) -> Any:
    given = {"name": "m", "provider": "compatible", "model": "plain", **settings}
    return layered(backend, profile, **given)


def script(*answers: list[ScriptStep]) -> ScriptedBackend:
    return ScriptedBackend(answers)


def said(backend: Any, request: Request = ASKED) -> list[StreamEvent]:
    events: list[StreamEvent] = []

    async def main() -> None:
        await backend.stream_into(request, events.extend)

    asyncio.run(main())
    return events


def fold(events: list[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


# Who needs one


@pytest.mark.parametrize("chosen", ["off", "native", "auto"])
def test_request_without_tools_is_relayed_unchanged(chosen: str) -> None:
    backend = script([TextDelta(HERMES), STOP])
    plain = replace(ASKED, tools=())
    assert said(model(backend, tool_calling=chosen), plain) == [TextDelta(HERMES), STOP]
    assert backend.requests[0] is plain


def test_native_model_with_auto_choice_is_relayed_unchanged() -> None:
    """Decision 0007: nothing is held, checked or renamed where nothing could have to be."""
    backend = script([CallStarted(0, "now"), ArgumentsDelta(0, "{"), CallFinished(0), STOP])
    auto = model(backend, tool_calling="auto", model="plain")
    events = said(auto)
    assert [type(event) for event in events if not isinstance(event, Noticed)] == [
        CallStarted,
        ArgumentsDelta,
        CallFinished,
        AnswerFinished,
    ]
    assert backend.requests[0] is ASKED


def test_what_is_asked_of_a_native_model_without_quirks_goes_as_it_came() -> None:
    backend = script([TextDelta(HERMES), STOP])
    plain = model(backend, tool_calling="native")
    assert said(plain) == [TextDelta(HERMES), STOP]
    assert backend.requests[0] is ASKED


@pytest.mark.parametrize(
    ("chosen", "name", "profile", "form"),
    [
        ("auto", "qwen2.5:7b", Profile(), "native"),
        ("auto", "qwen2.5:7b", Profile(tools=False), "<tool_call>"),
        ("auto", "plain", Profile(tools=False), "<tool_call:"),
        ("hermes", "plain", Profile(), "<tool_call>"),
        ("mistral", "qwen2.5:7b", Profile(), "[AVAILABLE_TOOLS]"),
    ],
)
def test_the_model_is_asked_in_the_manner_that_its_table_and_profile_come_to(
    chosen: str, name: str, profile: Profile, form: str
) -> None:
    backend = script([TextDelta("Hm."), STOP])
    said(model(backend, profile, tool_calling=chosen, model=name))
    asked = backend.requests[0]
    assert bool(asked.tools) is (form == "native")
    assert form == "native" or form in str(asked.items[0])


def test_a_request_without_tools_goes_to_a_native_model_as_it_came() -> None:
    backend = script([TextDelta(HERMES), STOP])
    plain = replace(ASKED, tools=())
    assert said(model(backend, model="qwen3"), plain) == [TextDelta(HERMES), STOP]
    assert backend.requests[0] is plain


def test_a_quirk_of_the_family_counts_and_of_no_other() -> None:
    call = DIALECTS["kimi_k2"].render_calls([Call(id="functions.now:0", name="now", arguments="{}")])
    thoughts = f"<think>Let me see. {call}"
    kimi = said(model(script([TextDelta(thoughts), STOP]), tool_calling="auto", model="Kimi-K2-Thinking"))
    assert [call.name for call in fold(kimi).calls] == ["now"]
    other = said(model(script([TextDelta(f"<think>{HERMES}"), STOP]), tool_calling="auto", model="qwen3:8b"))
    assert fold(other).calls == ()


# What it does


def test_printed_calls_come_out_as_calls_whichever_way_they_are_split() -> None:
    split = [TextDelta(character) for character in HERMES]
    ways: list[list[ScriptStep]] = [[TextDelta(HERMES), STOP], [*split, STOP], [[*split, STOP]]]
    for steps in ways:
        answer = fold(said(model(script(steps), tool_calling="hermes")))
        assert [(call.name, call.arguments) for call in answer.calls] == [("now", "{}")]
        assert answer.finish == "calls"
        assert answer.usage == STOP.usage


def test_after_its_calls_the_model_is_let_go_and_its_cost_is_estimated() -> None:
    backend = script([TextDelta(f"{HERMES}\nIt is noon"), asyncio.Event()])
    answer = fold(said(model(backend, tool_calling="hermes")))
    assert backend.abandoned.is_set()
    assert [call.name for call in answer.calls] == ["now"]
    assert answer.usage is not None
    assert answer.usage.estimated


def test_the_cost_of_a_cut_answer_is_waited_for_briefly() -> None:
    backend = script([TextDelta(f"{HERMES}\nIt is noon"), TextDelta(" here"), STOP])
    answer = fold(said(model(backend, tool_calling="hermes")))
    assert answer.usage == STOP.usage
    assert "noon" not in str(answer)


def test_a_bad_call_is_asked_for_again_and_costs_are_added_up() -> None:
    start = AnswerStarted(model="m")
    backend = script([start, TextDelta(BAD), STOP], [start, TextDelta(HERMES), STOP])
    events = said(model(backend, tool_calling="hermes"))
    assert len(backend.requests) == 2
    assert events.count(start) == 1
    answer = fold(events)
    assert [call.name for call in answer.calls] == ["now"]
    assert answer.usage == Usage(input=20, output=10)
    assert [(event.event, event.rule, event.dialect) for event in events if isinstance(event, Noticed)] == [
        ("tool_block", "unknown_tool", "hermes")
    ]


def test_a_server_that_takes_no_tools_is_spoken_to_in_text_from_then_on() -> None:
    backend = script([REFUSAL], [TextDelta(HERMES), STOP])
    auto = model(backend, model="qwen2:0.5b", tool_calling="auto")
    events = said(auto)
    answer = fold(events)
    assert [bool(request.tools) for request in backend.requests] == [True, False]
    assert [call.name for call in answer.calls] == ["now"]
    assert [event.event for event in events if isinstance(event, Noticed)] == ["native_tools_refused"]
    assert auto.rejected == ["native_tools_refused"]
    said(auto)
    assert [bool(request.tools) for request in backend.requests] == [True, False, False]


def test_requests_that_are_refused_at_the_same_time_are_all_answered() -> None:
    gate = asyncio.Event()
    backend = script([gate, REFUSAL], [gate, REFUSAL], [TextDelta(HERMES), STOP])
    auto = model(backend, model="qwen2:0.5b")

    async def main() -> list[list[StreamEvent]]:
        heard: list[list[StreamEvent]] = [[], []]
        asking = [asyncio.ensure_future(auto.stream_into(ASKED, events.extend)) for events in heard]
        await asyncio.sleep(0)
        assert len(backend.requests) == 2, "both wait at the gate"
        gate.set()
        await asyncio.gather(*asking)
        return heard

    for events in asyncio.run(main()):
        assert [call.name for call in fold(events).calls] == ["now"]


def test_words_of_a_client_that_the_server_quotes_are_no_refusal() -> None:
    refusal = AnswerFailed(BackendError("Invalid value: 'does not support tools'.", status=400))
    backend = script([refusal], [TextDelta("Hi."), STOP])
    auto = model(backend, model="qwen3")
    quoting = replace(ASKED, user="does not support tools")
    assert said(auto, quoting) == [refusal]
    said(auto)
    assert backend.requests[-1].tools


def test_what_the_owner_wants_of_bad_calls_holds_after_a_refusal_too() -> None:
    backend = script([REFUSAL], [TextDelta(BAD), STOP])
    last = said(model(backend, model="qwen2", on_bad_call="fail"))[-1]
    assert isinstance(last, AnswerFailed)
    assert last.error.code == "bad_call"


def test_another_refusal_is_the_clients_to_see() -> None:
    refusal = AnswerFailed(BackendError("The key is wrong.", status=401))
    backend = script([refusal])
    assert said(model(backend, model="qwen3", tool_calling="auto")) == [refusal]
    assert said(model(script([REFUSAL]), model="qwen3", tool_calling="native", on_bad_call="fail")) == [REFUSAL]


def test_a_native_model_that_prints_a_call_all_the_same_is_caught_by_its_familys_dialect() -> None:
    answer = fold(said(model(script([TextDelta(HERMES), STOP]), model="qwen2.5:7b")))
    assert [call.name for call in answer.calls] == ["now"]


def test_a_native_call_of_a_known_family_passes_untouched() -> None:
    events: list[ScriptStep] = [CallStarted(0, "now"), ArgumentsDelta(0, "{}"), CallFinished(0), replace(STOP, finish="calls")]
    assert said(model(script(events), model="qwen2.5:7b")) == events


def test_more_than_one_choice_of_a_model_that_prints_is_refused() -> None:
    several = replace(ASKED, sampling=replace(ASKED.sampling, n=2))
    [failed] = said(model(script([STOP]), tool_calling="hermes"), several)
    assert isinstance(failed, AnswerFailed)
    assert (failed.error.status, failed.error.param) == (400, "n")


def test_log_probabilities_of_a_model_that_prints_are_dropped_with_a_warning() -> None:
    backend = script([TextDelta("Hi."), STOP])
    printing = model(backend, tool_calling="hermes")
    wanted = replace(ASKED, sampling=replace(ASKED.sampling, logprobs=True, top_logprobs=2))
    events = [*said(printing, wanted), *said(printing, wanted)]
    assert (backend.requests[0].sampling.logprobs, backend.requests[0].sampling.top_logprobs) == (None, None)
    assert [event.rule for event in events if isinstance(event, Noticed) and event.event == "field_dropped"] == ["logprobs"]


def test_a_choice_that_is_not_met_is_an_error_after_two_tries() -> None:
    backend = script([TextDelta("No."), STOP])
    events = said(model(backend, tool_calling="hermes"), replace(ASKED, tool_choice=ToolChoice(mode="required")))
    assert len(backend.requests) == 2
    assert not any(isinstance(event, TextDelta) for event in events)
    last = events[-1]
    assert isinstance(last, AnswerFailed)
    assert last.error.code == "tool_choice_unmet"


def test_backend_that_ends_without_an_end_is_an_error() -> None:
    first, last = said(model(script([TextDelta("Hm.")]), tool_calling="hermes"))
    assert first == TextDelta("Hm.")
    assert isinstance(last, AnswerFailed)
    assert isinstance(last.error, InternalError)
