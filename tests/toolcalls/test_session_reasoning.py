"""Sessions of models whose chat template opens the reasoning (row B6), and blanks before calls (row D3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.dialects.test_every_dialect import joined
from tests.toolcalls.test_session import REQUEST, STOP, calls, feed_text, fold, render_call, retry, rules
from tests.toolcalls.test_session_limits import LIMIT, NOON, reasoning, text
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.events import (
    AnswerFinished,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.messages import Call, Message, Reasoning
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OutputFormat, ReasoningOptions, Request
from toolrelay.dialects.base import discover
from toolrelay.parsing.triggers import ScanOptions
from toolrelay.runtime.models import tool_calling_mode
from toolrelay.settings import ModelSettings
from toolrelay.toolcalls.limits import MAX_BLANKS
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.pending_calls import MAX_HELD
from toolrelay.toolcalls.relay import can_relay
from toolrelay.toolcalls.session import MAX_DOUBTFUL, ToolCallSession
from toolrelay.toolcalls.states import State

BEGUN = [
    "Qwen/Qwen3.5-397B-A17B",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
    "stepfun-ai/Step-3.5-Flash",
    "StepFun3.5-Flash",
    "baidu/ERNIE-4.5-21B-A3B-Thinking",
    "allenai/Olmo-3-32B-Think",
    "deepseek-ai/DeepSeek-R1",
    "deepseek-ai/DeepSeek-V4",
    "zai-org/GLM-4.7",
    "MiniMaxAI/MiniMax-M2",
    "moonshotai/Kimi-K3",
    "CohereLabs/command-a-plus-05-2026",
]
TIME_CALL: list[tuple[str, Any]] = [("get_time", {})]
WHOLE = replace(REQUEST, stream=False)
PLAIN = replace(REQUEST, tools=())
THINKS = ScanOptions(reasoning=("<think>", "</think>"))
BEGINS = replace(THINKS, begins_in_reasoning=True)


def options_of(model: str, profile: Profile | None = None, **changes: Any) -> ToolCallOptions:
    settings = ModelSettings(name="m", provider="compatible", model=model, **changes)
    return tool_calling_mode(settings, profile or Profile(takes_tools=False), bytes).options


def printed_call(options: ToolCallOptions) -> str:
    return options.dialect.render_calls([Call(id="", name="get_time", arguments="{}")])


def hermes(request: Request = REQUEST, **options: Any) -> ToolCallSession:
    return ToolCallSession(request, ToolCallOptions(dialect=discover()["hermes"], **options))


def begun(request: Request = REQUEST, **options: Any) -> ToolCallSession:
    return hermes(request, scan=BEGINS, **options)


# Row B6: reasoning that the template has begun


@pytest.mark.parametrize("model", BEGUN)
def test_b6_text_up_to_the_end_tag_is_reasoning(model: str) -> None:
    options = options_of(model)
    assert options.scan.reasoning is not None
    events = feed_text(ToolCallSession(REQUEST, options), f"I ponder.{options.scan.reasoning[1]}Hello.")
    assert (reasoning(events), text(events)) == ("I ponder.", "Hello.")


@pytest.mark.parametrize("model", BEGUN)
def test_b6_pondered_call_is_not_made(model: str) -> None:
    options = options_of(model)
    assert options.scan.reasoning is not None
    call = printed_call(options)
    events = feed_text(ToolCallSession(REQUEST, options), f"Call {call}?{options.scan.reasoning[1]}No.")
    assert (calls(events), reasoning(events), text(events)) == ([], f"Call {call}?", "No.")


@pytest.mark.parametrize("model", BEGUN)
def test_b6_answer_without_an_end_tag_is_read_again(model: str) -> None:
    options = options_of(model)
    for request in (REQUEST, WHOLE):
        events = feed_text(ToolCallSession(request, options), "It is noon, as I can see.\n")
        assert (calls(events), reasoning(events), text(events)) == ([], "", "It is noon, as I can see.\n")


@pytest.mark.parametrize("model", BEGUN)
def test_b6_text_before_calls_without_an_end_tag_stays_reasoning(model: str) -> None:
    options = options_of(model)
    for request, pondered in ((REQUEST, "Let me see.\n"), (WHOLE, "Let me see.\n" * 9)):
        events = feed_text(ToolCallSession(request, options), pondered + printed_call(options))
        assert (calls(events), text(events)) == (TIME_CALL, "")
        assert reasoning(events).startswith(pondered)
    assert reasoning(events) == pondered, "without the call's marks in a whole answer"


def test_b6_streamed_text_before_calls_without_an_end_tag_is_shown_once() -> None:
    pondered = "Let me see. " * 9
    events = feed_text(begun(), pondered + render_call("get_time", "{}"))
    assert (calls(events), text(events)) == (TIME_CALL, "")
    assert reasoning(events).count("Let me see.") == 9


# An end tag without a start tag, in families whose template is not known to open reasoning


@pytest.mark.parametrize("model", ["seed-oss", "mimo-v2-flash", "deepseek-v3.2", "glm-4.5", "gemma-4-27b", "olmo-3-7b", "lfm2"])
def test_whole_answer_with_only_an_end_tag_begins_with_reasoning(model: str) -> None:
    options = options_of(model)
    assert options.scan.reasoning is not None
    end = options.scan.reasoning[1]
    for policy in ("retry", "text"):
        for rest, expected in (("Hello.", ([], "Hello.")), (printed_call(options), (TIME_CALL, ""))):
            events = feed_text(ToolCallSession(WHOLE, replace(options, on_bad_call=policy)), f"I ponder.{end}{rest}")
            assert (reasoning(events), (calls(events), text(events))) == ("I ponder.", expected)


@pytest.mark.parametrize("policy", ["retry", "text"])
@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("Hello.</think>", ("", "Hello.")),
        ("Hello.</think> \n", ("", "Hello. \n")),
        ("One `</think>` tag", ("", "One `</think>` tag")),
        ("Hi. <think>Hm.</think>Hello.", ("Hm.", "Hi. Hello.")),
        ("<think>Hm.</think>Hello.</think>You.", ("Hm.", "Hello.You.")),
        ("Hello.", ("", "Hello.")),
    ],
)
def test_whole_answer_without_reasoning_is_text(printed: str, expected: tuple[str, str], policy: Any) -> None:
    events = feed_text(hermes(WHOLE, scan=THINKS, on_bad_call=policy), printed)
    assert (reasoning(events), text(events)) == expected


def test_streamed_text_before_an_end_tag_has_been_sent() -> None:
    events = feed_text(hermes(scan=THINKS), "I ponder.</think>Hello.")
    assert (reasoning(events), text(events)) == ("", "I ponder.Hello.")


def test_end_tag_of_all_messages_does_not_end_reasoning_alone() -> None:
    events = feed_text(ToolCallSession(WHOLE, options_of("inkling")), "<|content_text|>Hi.<|end_message|><|content_text|>Hello.")
    assert (reasoning(events), text(events)) == ("", "Hi.Hello.")


@pytest.mark.parametrize("model", BEGUN)
def test_b6_truncated_answer_without_an_end_tag_stays_reasoning(model: str) -> None:
    for request in (REQUEST, WHOLE):
        events = feed_text(ToolCallSession(request, options_of(model)), "I ponder.", LIMIT)
        assert (reasoning(events), text(events), fold(events).finish) == ("I ponder.", "", "length")


@pytest.mark.parametrize(
    "model",
    [
        "Qwen/Qwen3-8B",
        "qwen3.5:9b",
        "Qwen/Qwen3.5-0.8B",
        "deepseek-ai/DeepSeek-V3.1",
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5",
        "zai-org/GLM-4.6",
        "MiniMaxAI/MiniMax-M1-80k",
        "CohereLabs/c4ai-command-a-03-2025",
    ],
)
def test_b6_other_models_mark_the_beginning(model: str) -> None:
    options = options_of(model)
    assert options.scan.reasoning is not None
    opens, closes = options.scan.reasoning
    assert text(feed_text(ToolCallSession(REQUEST, options), "Hello.")) == "Hello."
    events = feed_text(ToolCallSession(REQUEST, options), f"{opens}I ponder.{closes}Hello.")
    assert (reasoning(events), text(events)) == ("I ponder.", "Hello.")


@pytest.mark.parametrize("model", BEGUN)
def test_b6_answer_that_begins_with_a_call_is_no_reasoning(model: str) -> None:
    options = options_of(model)
    for chunks in ([printed_call(options)], list("\n" + printed_call(options))):
        session = ToolCallSession(REQUEST, options)
        events = [event for chunk in chunks for event in session.feed([TextDelta(chunk)])]
        events += session.feed([STOP])
        assert (calls(events), reasoning(events), text(events).strip()) == (TIME_CALL, "", "")


def test_b6_short_streamed_answer_is_not_repeated() -> None:
    session = begun()
    events = [event for word in ("It ", "is ", "sunny.") for event in session.feed([TextDelta(word)])]
    events += session.feed([STOP])
    assert (reasoning(events), text(events)) == ("", "It is sunny.")


@pytest.mark.parametrize("request_", [REQUEST, WHOLE], ids=["stream", "whole"])
def test_b6_call_at_the_end_of_reasoning_that_was_not_closed_is_made(request_: Request) -> None:
    for scan in (THINKS, BEGINS):
        pondered = "<think>I ponder. " * 5 + render_call("get_time", "{}")
        events = feed_text(hermes(request_, scan=scan), pondered)
        assert (calls(events), text(events)) == (TIME_CALL, "")
        assert reasoning(events).startswith("I ponder.")
        assert calls(feed_text(hermes(request_, scan=scan), f"{pondered} Or not?")) == []
        assert calls(feed_text(hermes(request_, scan=scan), pondered, LIMIT)) == []


def test_b6_reasoning_of_a_whole_answer_that_is_its_text_is_dropped() -> None:
    answer = fold(feed_text(begun(WHOLE), "It is sunny."))
    assert [type(item) for item in answer.items] == [Message]


def test_b6_reasoning_of_a_whole_answer_precedes_its_text() -> None:
    answer = fold(feed_text(begun(replace(WHOLE, tools=())), "I ponder.</think>Hello."))
    assert [type(item) for item in answer.items] == [Reasoning, Message]


@pytest.mark.parametrize(
    "changes",
    [
        {"extra": {"chat_template_kwargs": {"enable_thinking": False}}},
        {"extra": {"chat_template_kwargs": {"thinking": False}}},
        {"extra": {"enable_thinking": False}},
        {"extra": {"thinking": {"type": "disabled"}}},
        {"extra": {"think": False}},
        {"extra": {"reasoning": {"enabled": False}}},
        {"extra": {"reasoning": {"effort": "none"}}},
        {"extra": {"reasoning_budget": 0}},
        {"reasoning": ReasoningOptions(effort="none")},
        {"items": (Message(role="system", content="Be kind. /no_think"), Message(role="user", content="Hi."))},
        {"items": (*REQUEST.items, Message(role="assistant", content="It is"))},
    ],
    ids=str,
)
def test_b6_request_without_thinking_is_answered_with_text(changes: dict[str, Any]) -> None:
    events = feed_text(begun(replace(REQUEST, **changes)), "Hello.")
    assert (reasoning(events), text(events)) == ("", "Hello.")


@pytest.mark.parametrize(
    "extra",
    [
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": [False]},
        {"thinking": {"type": "enabled"}},
        {"think": "high"},
        {"think": [False]},
        {"other": False},
        {"reasoning_budget": -1},
    ],
    ids=str,
)
def test_b6_other_fields_do_not_turn_thinking_off(extra: dict[str, Any]) -> None:
    events = feed_text(begun(replace(REQUEST, extra=extra)), "Hm.</think>Hello.")
    assert (reasoning(events), text(events)) == ("Hm.", "Hello.")


def test_b6_answer_that_the_server_constrains_is_text() -> None:
    formatted = replace(PLAIN, output=OutputFormat(type="json_object"))
    assert text(begun(formatted, constrains_output=True).feed([TextDelta("{}")])) == "{}"
    pondered = "{}" * MAX_DOUBTFUL
    assert reasoning(begun(formatted).feed([TextDelta(pondered)])) == pondered


@pytest.mark.parametrize("blanks", ["", "\n"])
def test_b6_separate_reasoning_makes_the_text_ordinary(blanks: str) -> None:
    for request in (REQUEST, WHOLE):
        session = begun(request)
        events = session.feed([TextDelta(blanks)] if blanks else [])
        events += session.feed([ReasoningDelta("Hm."), TextDelta("Hello "), TextDelta("you."), STOP])
        assert (reasoning(events), text(events)) == ("Hm.", f"{blanks}Hello you.")


def test_b6_native_model_without_tools_is_read_for_reasoning() -> None:
    options = options_of("zai-org/GLM-4.7", Profile())
    assert options.native
    assert not can_relay(PLAIN, options)
    events = feed_text(ToolCallSession(PLAIN, options), f"I ponder.</think>Write {NOON}")
    assert (reasoning(events), text(events)) == ("I ponder.", f"Write {NOON}")
    assert can_relay(PLAIN, options_of("zai-org/GLM-4.7", Profile(), tool_calling="native"))


def test_b6_reasoning_before_a_native_call_is_kept() -> None:
    native: list[StreamEvent] = [CallStarted(0, "get_time"), ArgumentsDelta(0, "{}"), CallFinished(0)]
    for request, ponders in ((REQUEST, "Hm.</think>"), (WHOLE, "Hm.</think>"), (REQUEST, "Hm."), (WHOLE, "Hm.")):
        events = begun(request, native=True, scans_text=True).feed([TextDelta(ponders), *native, STOP])
        assert (reasoning(events), text(events)) == ("Hm.", "")
        assert [made.name for made in fold(events).calls] == ["get_time"]


def test_b6_provider_that_separates_reasoning_is_not_read_for_it() -> None:
    assert not options_of("z-ai/glm-4.7", PROVIDERS["openrouter"].profile).scan.begins_in_reasoning
    assert options_of("z-ai/glm-4.7", PROVIDERS["vllm"].profile).scan.begins_in_reasoning


@pytest.mark.parametrize(("model", "tags"), [("my-model", ("<think>", "</think>")), ("magistral", ("[THINK]", "[/THINK]"))])
def test_b6_thinking_is_configured_for_a_model(model: str, tags: tuple[str, str]) -> None:
    options = options_of(model, thinking="begun")
    assert options.scan == ScanOptions(reasoning=tags, begins_in_reasoning=True)
    assert not can_relay(PLAIN, options_of(model, Profile(), thinking="begun"))
    assert options_of("zai-org/GLM-4.7", thinking="marked").scan == THINKS


def test_b6_very_long_reasoning_is_not_read_again() -> None:
    for request in (REQUEST, WHOLE):
        piece = "a" * (MAX_HELD // 4)
        session = begun(request)
        events = session.feed([TextDelta(piece)] * 5) + session.feed([STOP])
        assert (len(reasoning(events)), text(events)) == (5 * len(piece), "")


# Row D3: blanks before calls


@pytest.mark.parametrize("request_", [REQUEST, WHOLE], ids=["streamed", "whole"])
@pytest.mark.parametrize("cutoff", ["burst", "off"])
def test_d3_blanks_before_and_between_calls_are_dropped(request_: Request, cutoff: str) -> None:
    output = f"<think>\nHm.\n</think>\n\n{NOON}\n\n{render_call('get_time', '{}')}\n"
    events = feed_text(hermes(request_, scan=THINKS, cutoff=cutoff), output)
    assert (calls(events), text(events)) == (TIME_CALL * 2, "")


def test_d3_blanks_before_text_are_kept() -> None:
    for request in (REQUEST, WHOLE):
        events = feed_text(hermes(request, scan=THINKS, cutoff="off"), f"<think>Hm.</think>\n\nSure.\n\n{NOON}\n\nDone.\n")
        assert text(events) == "\n\nSure.\n\n\n\nDone.\n"


def test_d3_blanks_alone_are_kept() -> None:
    assert text(feed_text(hermes(), "\n\n")) == "\n\n"


def test_d3_blanks_before_a_native_call_are_dropped() -> None:
    for request in (REQUEST, WHOLE):
        events = hermes(request, native=True, scans_text=True).feed(
            [TextDelta("\n"), TextDelta("\n"), CallStarted(0, "get_time"), ArgumentsDelta(0, "{}"), CallFinished(0), STOP]
        )
        assert (len(fold(events).calls), text(events)) == (1, "")


def test_d3_empty_reasoning_is_dropped() -> None:
    events = feed_text(hermes(scan=THINKS), "<think>\n\n</think>\n\nHello.")
    assert (reasoning(events), text(events)) == ("", "\n\nHello.")


def test_d3_blanks_of_a_rejected_try_are_dropped() -> None:
    session = hermes()
    events = feed_text(session, "\n\n" + render_call("nope", "{}"))
    assert rules(events) == ["unknown_tool"]
    retry(session)
    events += feed_text(session, "Hello.")
    assert text(events) == "Hello."


def test_d3_many_blanks_are_text() -> None:
    for size in (1, 7, 5000):
        blanks = " " * (MAX_BLANKS + 1)
        session = hermes()
        events: list[StreamEvent] = []
        for place in range(0, len(blanks), size):
            events += session.feed([TextDelta(blanks[place : place + size])])
        events += session.feed([TextDelta(NOON), STOP])
        assert (calls(events), text(events)) == (TIME_CALL, blanks)


PIECES = [
    "<think>",
    "</think>",
    "\n",
    " ",
    "Hm.",
    NOON,
    "<tool_call>",
    "</tool_call>",
    "<th",
    "ink>",
    "{}",
    "`",
    "Sure. ",
    "Sure. ",
]


@given(
    output=joined(PIECES, 8),
    size=st.integers(1, 9),
    scan=st.sampled_from([THINKS, BEGINS]),
    request=st.sampled_from([REQUEST, WHOLE]),
    end=st.sampled_from([STOP, LIMIT]),
    cutoff=st.sampled_from(["burst", "off"]),
)
@settings(max_examples=300)
def test_chunks_make_no_difference_to_reasoning_text_and_calls(
    *, output: str, size: int, scan: ScanOptions, request: Request, end: AnswerFinished, cutoff: str
) -> None:
    def play(chunks: list[str]) -> tuple[str, str, list[tuple[str, Any]], State]:
        session = hermes(request, scan=scan, cutoff=cutoff, on_bad_call="text")
        events: list[StreamEvent] = []
        for chunk in chunks:
            events += session.feed([TextDelta(chunk)])
        events += session.feed([end])
        return reasoning(events), text(events), calls(events), session.state

    chunks = [output[at : at + size] for at in range(0, len(output), size)]
    assert play(chunks) == play([output])
