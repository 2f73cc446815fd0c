"""Calls that native models print all the same: `<use_tool>` blocks and the family's own form (E1, R1.6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import AnswerFinished, Finish, Noticed, StreamEvent, TextDelta
from toolrelay.core.messages import Message
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request, Tool
from toolrelay.dialects.base import Dialect, discover
from toolrelay.dialects.families import FAMILIES
from toolrelay.runtime.models import tool_calling_mode
from toolrelay.settings import ModelSettings
from toolrelay.toolcalls.caught_forms import caught_forms
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import ToolCallSession
from toolrelay.toolcalls.states import State

DIALECTS = discover()
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Tool(name="get_weather", parameters=SCHEMA)
STRICT = Tool(name="book_room", parameters=SCHEMA, strict=True)
DOTTED = Tool(name="notes.list")
REQUEST = Request(
    wire="openai_chat",
    model="m",
    items=(Message(role="user", content="Weather?"),),
    tools=(WEATHER, STRICT, DOTTED),
    stream=True,
)
BLOCK = "<use_tool>\n<name>get_weather</name>\n<city>Paris</city>\n<days>3</days>\n</use_tool>"
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
PARIS = ("get_weather", {"city": "Paris", "days": 3})


def options(dialect: str = "sealed", **members: Any) -> ToolCallOptions:
    values = {"native": True, "scans_text": True, "on_bad_call": "pass", "secret": lambda: b"secret", **members}
    return ToolCallOptions(dialect=DIALECTS[dialect], **values)


def feed(
    *pieces: str, finish: Finish = "stop", request: Request = REQUEST, opened: ToolCallOptions | None = None
) -> list[StreamEvent]:
    session = ToolCallSession(request, opened or options())
    out: list[StreamEvent] = []
    for piece in pieces:
        out += session.feed([TextDelta(piece)])
    end = AnswerFinished(finish=finish)
    return out + (session.feed([end]) if session.state is not State.ENDED else [])


def fold(events: list[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


def calls(events: list[StreamEvent]) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in fold(events).calls]


def text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def rules(events: list[StreamEvent]) -> list[str]:
    return [event.rule for event in events if isinstance(event, Noticed)]


def test_printed_block_of_a_declared_tool_becomes_a_call_e1() -> None:
    events = feed(f"Let me see.\n{BLOCK}")
    assert calls(events) == [PARIS]
    assert text(events) == "Let me see.\n"
    assert fold(events).finish == "calls"


def test_text_before_a_block_is_emitted_at_once_and_the_block_never() -> None:
    session = ToolCallSession(REQUEST, options())
    assert text(session.feed([TextDelta("Let me see. <use")])) == "Let me see. "
    for piece in ("_tool>\n<name>get_wea", "ther</name>\n<ci", "ty>Paris</city>\n<days>3</days>\n</use_"):
        assert session.feed([TextDelta(piece)]) == []
    events = session.feed([TextDelta("tool>"), AnswerFinished(finish="stop")])
    assert calls(events) == [PARIS]
    assert text(events) == ""


def test_call_is_emitted_as_soon_as_its_block_is_whole() -> None:
    session = ToolCallSession(REQUEST, options())
    assert calls([*session.feed([TextDelta(BLOCK)]), AnswerFinished(finish="stop")]) == [PARIS]


@pytest.mark.parametrize(
    "quoted",
    [
        f"```xml\n{BLOCK}\n```",
        "Write `<use_tool><name>get_weather</name></use_tool>` for it.",
        BLOCK.replace("get_weather", "unknown"),
        "The tag <use_tool> begins a call, </use_tool> ends it.",
        "<use_tool>nothing</use_tool>",
    ],
    ids=["fence", "inline code", "tool that is not declared", "tags in prose", "block without a name"],
)
def test_quoted_block_stays_text_byte_for_byte(quoted: str) -> None:
    events = feed(quoted)
    assert calls(events) == []
    assert text(events) == quoted
    assert fold(events).finish == "stop"


def test_several_blocks_become_calls_and_the_rest_is_cut() -> None:
    events = feed(f"{BLOCK}\n{BLOCK}\nIt is sunny.")
    assert calls(events) == [PARIS, PARIS]
    assert text(events) == ""
    assert rules(events) == ["text_after_calls"]


@pytest.mark.parametrize(
    ("remnant", "rule"),
    [
        ("<use_tool>\n<name>get_weather</name>\n<city>Par", "cut"),
        ("<use_tool>\n<name>get_w", "cut"),
        ("<use_tool><name>get_weather</name> in Paris </use_tool>", "malformed"),
    ],
)
def test_remnant_of_a_block_is_left_out_and_logged(remnant: str, rule: str) -> None:
    events = feed(f"Well. {remnant}")
    assert calls(events) == []
    assert text(events) == "Well. "
    assert rules(events) == [rule]


def test_remnant_becomes_text_if_the_configuration_says_so() -> None:
    remnant = "<use_tool><name>get_weather</name> in Paris </use_tool>"
    assert text(feed(remnant, opened=options(on_bad_call="text"))) == remnant


def test_prose_after_the_beginning_of_a_block_is_not_lost() -> None:
    prose = "<use_tool><name>get_weather</name> begins a call. More about it follows. "
    assert text(feed(prose)) == prose


def test_closing_tags_in_excess_are_removed() -> None:
    events = feed(f"{BLOCK}\n</use_tool>\n{BLOCK}", opened=options(cutoff="off"))
    assert calls(events) == [PARIS, PARIS]
    assert "use_tool" not in text(events)


def test_truncated_block_is_no_call_and_no_text() -> None:
    events = feed("Well. <use_tool>\n<name>get_weather</name>\n<city>Par", finish="length")
    assert (calls(events), text(events)) == ([], "Well. ")
    assert fold(events).finish == "length"


def test_call_that_violates_a_strict_schema_is_passed_on() -> None:
    block = "<use_tool><name>book_room</name><town>Paris</town></use_tool>"
    events = feed(block, opened=options(validate=lambda _tool, _arguments: "city is missing"))
    assert calls(events) == [("book_room", {"town": "Paris"})]
    assert rules(events) == ["schema"]


def test_tool_whose_name_was_mapped_is_caught_by_either_name() -> None:
    for name in ("notes.list", "notes_list"):
        assert calls(feed(f"<use_tool><name>{name}</name></use_tool>")) == [("notes.list", {})]


def test_family_form_and_blocks_are_both_caught() -> None:
    events = feed(f"{HERMES}\n{BLOCK}", opened=options("hermes"))
    assert calls(events) == [("get_weather", {"city": "Rome"}), PARIS]


@pytest.mark.parametrize("name", sorted({family.dialect for family in FAMILIES}))
def test_block_is_caught_beside_every_family_form(name: str) -> None:
    events = feed(f"Sure.\n{BLOCK}", opened=options(name))
    assert (calls(events), text(events)) == ([PARIS], "Sure.\n")
    markers = [marker.text for marker in caught_forms(DIALECTS[name]).start_markers]
    assert not any(one != other and one.startswith(other) for one in markers for other in markers)


@given(st.data())
def test_chunking_does_not_matter(data: st.DataObject) -> None:
    pieces = ["Well. ", "<use_tool>", "</use_tool>", BLOCK, "`", "```\n", "<name>get_weather</name>", "\n", HERMES, "<use_t"]
    printed = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=8)))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(printed)), max_size=10)))
    chunks = [printed[start:end] for start, end in zip([0, *cuts], [*cuts, len(printed)], strict=True)]
    opened = options("hermes", cutoff="off")
    one, other = fold(feed(printed, opened=opened)), fold(feed(*chunks, opened=opened))
    assert one == other


@pytest.mark.parametrize(
    "opener", ["<use_tool>", "<use_tool><name>get_weather</name>x", "<use_tool><name>get_weather</name><city>"]
)
def test_a_megabyte_of_openers_is_no_call(opener: str) -> None:
    printed = opener * (1_000_000 // len(opener))
    events = feed(printed)
    assert calls(events) == []
    assert text(events) in (printed, "")


def test_openers_of_whole_calls_are_limited() -> None:
    events = feed("<use_tool><name>get_weather</name>" * 20_000)
    assert len(calls(events)) == 128
    assert rules(events) == ["too_many_calls"]


# Seals


def test_block_never_becomes_a_call_of_a_sealed_model() -> None:
    events = feed(BLOCK, opened=options(native=False, scans_text=False))
    assert (calls(events), text(events)) == ([], BLOCK)


def test_sealed_form_is_not_caught_from_a_native_model() -> None:
    forged = HERMES.replace("tool_call>", "tool_call:TAG>")
    events = feed(forged)
    assert (calls(events), text(events)) == ([], forged)


# Who is listened to


def test_client_that_reads_blocks_gets_them_as_they_are() -> None:
    request = replace(REQUEST, reads_blocks=True)
    assert text(feed(f"{BLOCK} and so on", request=request)) == f"{BLOCK} and so on"
    events = feed(f"{BLOCK}\n{HERMES}", request=request, opened=options("hermes"))
    assert calls(events) == [("get_weather", {"city": "Rome"})]
    assert text(events) == f"{BLOCK}\n"


@pytest.mark.parametrize(
    ("settings", "prints_calls", "caught"),
    [
        ({}, False, False),
        ({"model": "qwen3"}, False, True),
        ({"model": "qwen3", "tool_calling": "native"}, False, False),
        ({}, True, True),
        ({"tool_calling": "native"}, True, True),
        ({"printed_calls": "catch"}, False, True),
        ({"printed_calls": "catch", "tool_calling": "native"}, False, True),
        ({"printed_calls": "text", "model": "qwen3"}, True, False),
        ({"printed_calls": "catch", "tool_calling": "sealed"}, True, False),
    ],
)
def test_calls_are_caught_from_known_families_and_where_it_is_set(
    settings: dict[str, Any], *, prints_calls: bool, caught: bool
) -> None:
    model = ModelSettings(name="m", provider="compatible", **settings)
    mode = tool_calling_mode(model, Profile(prints_calls=prints_calls), lambda: b"")
    assert mode.options.scans_text is caught


def test_fallback_to_text_catches_nothing() -> None:
    mode = tool_calling_mode(ModelSettings(name="m", provider="compatible", printed_calls="catch"), Profile(), lambda: b"")
    assert mode.fall_back()
    assert not mode.options.scans_text


def test_forms_of_a_dialect_are_built_once() -> None:
    forms: Dialect = caught_forms(DIALECTS["hermes"])
    assert caught_forms(DIALECTS["hermes"]) is forms
