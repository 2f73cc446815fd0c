"""The tool-calling layer, with a turn above it and a scripted backend below."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.layered import layered
from tests.scripted_backend import ScriptedBackend, ScriptStep
from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.commands import Notice, RecordStep
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
from toolrelay.core.steps import AnswerReceived, AnswerRejected
from toolrelay.core.turn import Turn
from toolrelay.dialects.base import discover
from toolrelay.errors import BackendError, InternalError
from toolrelay.runtime.driver import USAGE_SECONDS, drive
from toolrelay.runtime.models import tool_calling_mode
from toolrelay.settings import ModelSettings
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.toolcalls.options import ActiveOptions, ToolCallOptions

DIALECTS = discover()
HERMES = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
BAD = '<tool_call>\n{"name": "never", "arguments": {}}\n</tool_call>'
REQUEST = Request(
    wire="openai_chat",
    model="m",
    items=(Message(role="user", content="What time is it?"),),
    tools=(Tool(name="now"),),
    stream=True,
)
PROFILE = Profile()
STOP = AnswerFinished(finish="stop", usage=Usage(input=10, output=5))
REFUSAL = AnswerFailed(BackendError("registry.ollama.ai/library/gemma3:4b does not support tools", status=400))


def make_model(backend: ScriptedBackend, profile: Profile = PROFILE, **settings: Any) -> Any:
    given = {"name": "m", "provider": "compatible", "model": "plain", **settings}
    return layered(backend, profile, **given)


def script(*answers: list[ScriptStep]) -> ScriptedBackend:
    return ScriptedBackend(answers)


def run(backend: Any, request: Request = REQUEST) -> list[StreamEvent]:
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


# What is relayed


@pytest.mark.parametrize("chosen", ["off", "native", "auto"])
def test_request_without_tools_is_relayed_unchanged(chosen: str) -> None:
    backend = script([TextDelta(HERMES), STOP])
    plain = replace(REQUEST, tools=())
    assert run(make_model(backend, tool_calling=chosen), plain) == [TextDelta(HERMES), STOP]
    assert backend.requests[0] is plain


def test_native_model_with_auto_choice_is_relayed_unchanged() -> None:
    """Decision 0007: nothing is held, checked or renamed where nothing could have to be."""
    backend = script([CallStarted(0, "now"), ArgumentsDelta(0, "{"), CallFinished(0), STOP])
    auto = make_model(backend, tool_calling="auto", model="plain")
    events = run(auto)
    assert [type(event) for event in events if not isinstance(event, Noticed)] == [
        CallStarted,
        ArgumentsDelta,
        CallFinished,
        AnswerFinished,
    ]
    assert backend.requests[0] is REQUEST


def test_text_of_a_native_model_without_a_family_is_not_scanned() -> None:
    backend = script([TextDelta(HERMES), STOP])
    plain = make_model(backend, tool_calling="native")
    assert run(plain) == [TextDelta(HERMES), STOP]
    assert backend.requests[0] is REQUEST


@pytest.mark.parametrize(
    ("chosen", "name", "profile", "form"),
    [
        ("auto", "qwen2.5:7b", Profile(), "native"),
        ("auto", "qwen2.5:7b", Profile(takes_tools=False), "<tool_call>"),
        ("auto", "plain", Profile(takes_tools=False), "<tool_call:"),
        ("hermes", "plain", Profile(), "<tool_call>"),
        ("mistral", "qwen2.5:7b", Profile(), "[AVAILABLE_TOOLS]"),
    ],
)
def test_settings_and_profile_decide_how_tools_are_offered(chosen: str, name: str, profile: Profile, form: str) -> None:
    backend = script([TextDelta("Hm."), STOP])
    run(make_model(backend, profile, tool_calling=chosen, model=name))
    asked = backend.requests[0]
    assert bool(asked.tools) is (form == "native")
    assert form == "native" or form in str(asked.items[0])


def test_request_without_tools_is_relayed_to_a_model_of_a_known_family() -> None:
    backend = script([TextDelta(HERMES), STOP])
    plain = replace(REQUEST, tools=())
    assert run(make_model(backend, model="qwen3"), plain) == [TextDelta(HERMES), STOP]
    assert backend.requests[0] is plain


def test_calls_in_reasoning_count_for_some_families_only() -> None:
    call = DIALECTS["kimi_k2"].render_calls([Call(id="functions.now:0", name="now", arguments="{}")])
    thoughts = f"<think>Let me see. {call}"
    kimi = run(make_model(script([TextDelta(thoughts), STOP]), tool_calling="auto", model="Kimi-K2-Thinking"))
    assert [call.name for call in fold(kimi).calls] == ["now"]
    pondered = f"<think>{HERMES}</think>No."  # at the end of reasoning that was not closed, it would count in every family
    other = run(make_model(script([TextDelta(pondered), STOP]), tool_calling="auto", model="qwen3:8b"))
    assert fold(other).calls == ()


# What is changed


def test_printed_call_is_found_however_it_is_chunked() -> None:
    split = [TextDelta(character) for character in HERMES]
    ways: list[list[ScriptStep]] = [[TextDelta(HERMES), STOP], [*split, STOP], [[*split, STOP]]]
    for steps in ways:
        answer = fold(run(make_model(script(steps), tool_calling="hermes")))
        assert [(call.name, call.arguments) for call in answer.calls] == [("now", "{}")]
        assert answer.finish == "calls"
        assert answer.usage == STOP.usage


def test_model_is_stopped_after_its_calls_and_usage_is_estimated() -> None:
    backend = script([TextDelta(f"{HERMES}\nIt is noon"), asyncio.Event()])
    answer = fold(run(make_model(backend, tool_calling="hermes")))
    assert backend.abandoned.is_set()
    assert [call.name for call in answer.calls] == ["now"]
    assert answer.usage is not None
    assert answer.usage.estimated


def test_usage_of_a_cut_answer_is_read_if_it_comes_soon() -> None:
    backend = script([TextDelta(f"{HERMES}\nIt is noon"), TextDelta(" here"), STOP])
    answer = fold(run(make_model(backend, tool_calling="hermes")))
    assert answer.usage == STOP.usage
    assert "noon" not in str(answer)


class SlowClient:
    """A sink that blocks from the second batch on, until it is released."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []
        self.blocked = asyncio.Event()
        self.released = asyncio.Event()

    async def put(self, events: list[StreamEvent]) -> None:
        if self.events:
            self.blocked.set()
            await self.released.wait()
        self.events += events

    def record(self, command: RecordStep) -> None: ...

    def notice(self, command: Notice) -> None: ...


@pytest.mark.parametrize("usage", [True, False])
def test_slow_client_gets_the_whole_cut_answer(*, usage: bool) -> None:
    """A client that takes longer than the wait for usage still gets the end of the answer."""

    async def main() -> tuple[list[StreamEvent], ScriptedBackend]:
        client, mode = SlowClient(), ActiveOptions(ToolCallOptions(dialect=DIALECTS["hermes"]))
        backend = script([TextDelta("Let me see. "), TextDelta(f"{HERMES}\nIt is noon"), STOP if usage else asyncio.Event()])
        layer = ToolCallLayer(Turn(token="t", request=REQUEST), mode)
        driving = asyncio.ensure_future(drive(layer, backend, client, client))
        await client.blocked.wait()
        await asyncio.sleep(2 * USAGE_SECONDS)
        client.released.set()
        await driving
        return client.events, backend

    events, backend = asyncio.run(main())
    answer = fold(events)
    assert [call.name for call in answer.calls] == ["now"]
    assert isinstance(events[-1], AnswerFinished)
    assert answer.usage is not None
    assert answer.usage.estimated is not usage
    assert backend.abandoned.is_set() is not usage


def test_client_that_blocks_at_the_end_of_a_cut_answer_gets_it() -> None:
    """The wait for usage is over when the usage has come, however long the client takes then."""

    async def main() -> list[StreamEvent]:
        client, mode = SlowClient(), ActiveOptions(ToolCallOptions(dialect=DIALECTS["hermes"]))
        backend = script([TextDelta(f"{HERMES}\nIt is noon"), STOP])
        layer = ToolCallLayer(Turn(token="t", request=REQUEST), mode)
        driving = asyncio.ensure_future(drive(layer, backend, client, client))
        await client.blocked.wait()
        await asyncio.sleep(2 * USAGE_SECONDS)
        client.released.set()
        await driving
        return client.events

    assert isinstance(asyncio.run(main())[-1], AnswerFinished)


def test_bad_call_is_retried_and_usage_is_summed() -> None:
    start = AnswerStarted(model="m")
    backend = script([start, TextDelta(BAD), STOP], [start, TextDelta(HERMES), STOP])
    events = run(make_model(backend, tool_calling="hermes"))
    assert len(backend.requests) == 2
    assert events.count(start) == 1
    answer = fold(events)
    assert [call.name for call in answer.calls] == ["now"]
    assert answer.usage == Usage(input=20, output=10)
    assert [(event.event, event.rule, event.dialect) for event in events if isinstance(event, Noticed)] == [
        ("tool_block", "unknown_tool", "hermes")
    ]


def test_server_that_refuses_tools_after_an_upstream_retry_is_asked_in_text() -> None:
    retried = Noticed(event="upstream_retried", rule="status_503")
    backend = script([retried, REFUSAL], [TextDelta(HERMES), STOP])
    auto = make_model(backend, model="qwen2:0.5b", tool_calling="auto")
    assert [call.name for call in fold(run(auto)).calls] == ["now"]
    assert auto.rejected == ["native_tools_refused"]


def test_server_that_refuses_tools_is_asked_in_text_from_then_on() -> None:
    backend = script([REFUSAL], [TextDelta(HERMES), STOP])
    auto = make_model(backend, model="qwen2:0.5b", tool_calling="auto")
    events = run(auto)
    answer = fold(events)
    assert [bool(request.tools) for request in backend.requests] == [True, False]
    assert [call.name for call in answer.calls] == ["now"]
    assert [event.event for event in events if isinstance(event, Noticed)] == ["native_tools_refused"]
    assert auto.rejected == ["native_tools_refused"]
    run(auto)
    assert [bool(request.tools) for request in backend.requests] == [True, False, False]


def test_concurrent_refusals_are_all_answered_with_one_notice() -> None:
    gate = asyncio.Event()
    backend = script([gate, REFUSAL], [gate, REFUSAL], [TextDelta(HERMES), STOP])
    auto = make_model(backend, model="qwen2:0.5b")

    async def main() -> list[list[StreamEvent]]:
        received: list[list[StreamEvent]] = [[], []]
        tasks = [asyncio.ensure_future(auto.stream_into(REQUEST, events.extend)) for events in received]
        await asyncio.sleep(0)
        assert len(backend.requests) == 2, "both wait at the gate"
        gate.set()
        await asyncio.gather(*tasks)
        return received

    answers = asyncio.run(main())
    for events in answers:
        assert [call.name for call in fold(events).calls] == ["now"]
    notices = [event.rule for events in answers for event in events if isinstance(event, Noticed)]
    assert notices == ["native_tools_refused"]
    assert auto.rejected == ["native_tools_refused"] * 2
    assert [bool(request.tools) for request in backend.requests] == [True, True, False, False]


def test_logprobs_are_dropped_with_a_warning_after_a_refusal() -> None:
    wanted = replace(REQUEST, sampling=replace(REQUEST.sampling, logprobs=True))
    backend = script([REFUSAL], [TextDelta(HERMES), STOP])
    events = run(make_model(backend, model="qwen2:0.5b"), wanted)
    assert [event.rule for event in events if isinstance(event, Noticed)] == ["native_tools_refused", "logprobs"]
    assert [request.sampling.logprobs for request in backend.requests] == [True, None]


def test_several_choices_are_refused_after_a_refusal_of_tools() -> None:
    several = replace(REQUEST, sampling=replace(REQUEST.sampling, n=2))
    *_, failed = run(make_model(script([REFUSAL]), model="qwen2:0.5b"), several)
    assert isinstance(failed, AnswerFailed)
    assert failed.error.param == "n"


def test_quoted_text_of_the_client_is_not_a_refusal() -> None:
    refusal = AnswerFailed(BackendError("Invalid value: 'does not support tools'.", status=400))
    backend = script([refusal], [TextDelta("Hi."), STOP])
    auto = make_model(backend, model="qwen3")
    quoting = replace(REQUEST, user="does not support tools")
    assert run(auto, quoting) == [refusal]
    run(auto)
    assert backend.requests[-1].tools


def test_on_bad_call_still_applies_after_a_refusal() -> None:
    backend = script([REFUSAL], [TextDelta(BAD), STOP])
    last = run(make_model(backend, model="qwen2", on_bad_call="fail"))[-1]
    assert isinstance(last, AnswerFailed)
    assert last.error.code == "bad_call"


def test_other_errors_are_passed_on() -> None:
    refusal = AnswerFailed(BackendError("The key is wrong.", status=401))
    backend = script([refusal])
    assert run(make_model(backend, model="qwen3", tool_calling="auto")) == [refusal]
    assert run(make_model(script([REFUSAL]), model="qwen3", tool_calling="native", on_bad_call="fail")) == [REFUSAL]


def test_printed_call_of_a_native_model_is_found_in_its_familys_dialect() -> None:
    answer = fold(run(make_model(script([TextDelta(HERMES), STOP]), model="qwen2.5:7b")))
    assert [call.name for call in answer.calls] == ["now"]


def test_native_call_of_a_known_family_is_unchanged() -> None:
    events: list[ScriptStep] = [CallStarted(0, "now"), ArgumentsDelta(0, "{}"), CallFinished(0), replace(STOP, finish="calls")]
    assert run(make_model(script(events), model="qwen2.5:7b")) == events


def test_several_choices_of_a_printing_model_are_refused() -> None:
    several = replace(REQUEST, sampling=replace(REQUEST.sampling, n=2))
    [failed] = run(make_model(script([STOP]), tool_calling="hermes"), several)
    assert isinstance(failed, AnswerFailed)
    assert (failed.error.status, failed.error.param) == (400, "n")


def test_logprobs_of_a_printing_model_are_dropped_with_one_warning() -> None:
    backend = script([TextDelta("Hi."), STOP])
    printing = make_model(backend, tool_calling="hermes")
    wanted = replace(REQUEST, sampling=replace(REQUEST.sampling, logprobs=True, top_logprobs=2))
    events = [*run(printing, wanted), *run(printing, wanted)]
    assert (backend.requests[0].sampling.logprobs, backend.requests[0].sampling.top_logprobs) == (None, None)
    assert [event.rule for event in events if isinstance(event, Noticed) and event.event == "field_dropped"] == ["logprobs"]


def test_unmet_tool_choice_is_an_error_after_two_tries() -> None:
    backend = script([TextDelta("No."), STOP])
    events = run(make_model(backend, tool_calling="hermes"), replace(REQUEST, tool_choice=ToolChoice(mode="required")))
    assert len(backend.requests) == 2
    assert not any(isinstance(event, TextDelta) for event in events)
    last = events[-1]
    assert isinstance(last, AnswerFailed)
    assert last.error.code == "tool_choice_unmet"


def test_model_stream_without_an_end_is_an_error() -> None:
    first, last = run(make_model(script([TextDelta("Hm.")]), tool_calling="hermes"))
    assert first == TextDelta("Hm.")
    assert isinstance(last, AnswerFailed)
    assert isinstance(last.error, InternalError)


class Recorder:
    """Keeps what is recorded of an answer: which step, by which rule, and what the model printed."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str | None]] = []

    def put(self, events: list[StreamEvent]) -> None: ...

    def notice(self, command: Notice) -> None: ...

    def record(self, command: RecordStep) -> None:
        match command.step:
            case AnswerRejected(rule=rule, raw=raw):
                self.answers.append((rule, raw))
            case AnswerReceived(raw=raw):
                self.answers.append(("received", raw))


@pytest.mark.parametrize(
    ("dialect", "answers", "recorded"),
    [
        ("hermes", [BAD, f"Hm. {HERMES}"], [("unknown_tool", BAD), ("received", f"Hm. {HERMES}")]),
        ("hermes", ["Plain text."], [("received", "Plain text.")]),
        ("native", ["Plain text."], [("received", None)]),
    ],
)
def test_record_has_what_the_model_printed_and_why_it_was_asked_again(
    dialect: str, answers: list[str], recorded: list[tuple[str, str | None]]
) -> None:
    settings = ModelSettings(name="m", provider="compatible", tool_calling=dialect)
    layer = ToolCallLayer(Turn(token="t", request=REQUEST), tool_calling_mode(settings, PROFILE, bytes))
    recorder = Recorder()
    scripts: list[list[Any]] = [[TextDelta(text), STOP] for text in answers]
    asyncio.run(drive(layer, script(*scripts), recorder, recorder))
    assert recorder.answers == recorded
