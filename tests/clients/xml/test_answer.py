"""Encoding of answers for XML clients, checked with the client's own parser."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clients.xml import copilot
from tests.strategies import json_values, texts
from toolrelay.clients.xml import answer as xml_answer
from toolrelay.clients.xml.answer import BlockOrder, BlockSplitter, UnencodableCallError, XmlAnswerEncoder, encode_block
from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    MessageStarted,
    Noticed,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.messages import Call, Message, plain_text
from toolrelay.core.request import Request, Tool
from toolrelay.dialects.use_tool import DIALECTS
from toolrelay.errors import BackendError
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import ToolCallSession

ORDERS: tuple[BlockOrder, ...] = ("tools_first", "as_is")
QUERIES = [f"obsidian plugin {word}" for word in ("api", "vault", "search", "sync", "themes", "mobile", "release")]
BLOCKS = [
    f"<use_tool>\n<name>webSearch</name>\n<query>{query}</query>\n<chatHistory>[]</chatHistory>\n</use_tool>" for query in QUERIES
]
PLAN = "I will look this up from several angles, then write the note.\n\n"
SEVEN = PLAN + "\n".join(BLOCKS)


def call(index: int, name: str, arguments: Any, choice: int = 0) -> list[StreamEvent]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    half = len(text) // 2
    return [
        CallStarted(index, name, f"call_{index}", choice=choice),
        ArgumentsDelta(index, text[:half], choice),
        ArgumentsDelta(index, text[half:], choice),
        CallFinished(index, choice),
    ]


def end(finish: Finish = "calls") -> AnswerFinished:
    return AnswerFinished(finish=finish, usage=Usage(input=3, output=4))


def encode(
    events: Sequence[StreamEvent], order: BlockOrder = "tools_first", *, may_have_blocks: bool = True
) -> list[StreamEvent]:
    """Encode events one by one, and check that all at once gives the same."""
    encoder = XmlAnswerEncoder(order=order, may_have_blocks=may_have_blocks)
    out = [made for event in events for made in encoder.encode([event])]
    assert out == XmlAnswerEncoder(order=order, may_have_blocks=may_have_blocks).encode(events)
    assert not any(isinstance(event, CallStarted | ArgumentsDelta | CallFinished) for event in out)
    return out


def chunks(events: Sequence[StreamEvent], choice: int = 0) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta) and event.choice == choice]


def rules(events: Sequence[StreamEvent]) -> list[str]:
    return [event.rule for event in events if isinstance(event, Noticed)]


def fold(events: Sequence[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


# A plan with seven blocks, after which an earlier gateway's client ran nothing


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_seven_blocks_come_first_each_in_own_delta_and_text_last(size: int) -> None:
    printed: list[StreamEvent] = [TextDelta(SEVEN[at : at + size]) for at in range(0, len(SEVEN), size)]
    out = encode([AnswerStarted(), *printed, end("stop")])
    assert chunks(out)[:7] == BLOCKS
    assert "".join(chunks(out)[7:]) == PLAN
    assert [arguments["query"] for _, arguments in copilot.calls("".join(chunks(out)))] == QUERIES
    assert rules(out) == ["split_emitted"] * 7
    assert out[-1] == end("stop")


def test_as_is_keeps_order_and_does_not_hold_text() -> None:
    encoder = XmlAnswerEncoder(order="as_is")
    assert chunks(encoder.encode([TextDelta("I will ")])) == ["I will "]
    assert chunks(encoder.encode([TextDelta("look. <use_tool><name>f</na")])) == ["look. "]
    assert chunks(encoder.encode([TextDelta("me></use_tool> Then")])) == ["<use_tool><name>f</name></use_tool>", " Then"]


def test_blocks_are_sent_when_whole_and_text_at_the_end() -> None:
    encoder = XmlAnswerEncoder()
    assert encoder.encode([TextDelta("Plan. ")]) == []
    assert chunks(encoder.encode([TextDelta(BLOCKS[0] + " and")])) == [BLOCKS[0]]
    assert encoder.encode([TextDelta(" more")]) == []
    assert chunks(encoder.encode([end("stop")])) == ["Plan. ", " and", " more"]


def test_text_is_not_held_without_possible_blocks() -> None:
    assert chunks(XmlAnswerEncoder(may_have_blocks=False).encode([TextDelta("Hello")])) == ["Hello"]


def test_reasoning_is_not_held() -> None:
    encoder = XmlAnswerEncoder()
    assert encoder.encode([AnswerStarted(), ReasoningDelta("hm")]) == [AnswerStarted(), ReasoningDelta("hm")]


@pytest.mark.parametrize("order", ORDERS)
def test_answer_without_blocks_is_unchanged(order: BlockOrder) -> None:
    events: list[StreamEvent] = [
        MessageStarted(phase="final"),
        TextDelta(" a < b\n"),
        TextDelta("<use_tool"),
        TextDelta(" \n"),
        end("stop"),
    ]
    out = encode(events, order)
    assert "".join(chunks(out)) == " a < b\n<use_tool \n"
    assert [event for event in out if not isinstance(event, TextDelta)] == [events[0], events[-1]]


# Calls


@pytest.mark.parametrize("order", ORDERS)
def test_calls_become_blocks_and_finish_is_stop(order: BlockOrder) -> None:
    out = encode(
        [AnswerStarted(), *call(0, "getTime", {}), *call(1, "readNote", {"path": "a & b.md", "limit": 5, "all": True}), end()],
        order,
    )
    assert chunks(out) == [
        "<use_tool>\n<name>getTime</name>\n</use_tool>",
        "<use_tool>\n<name>readNote</name>\n<path>a & b.md</path>\n<limit>5</limit>\n<all>true</all>\n</use_tool>",
    ]
    assert out[-1] == end("stop")
    assert rules(out) == ["split_emitted"] * 2


def test_only_block_of_an_answer_is_not_split() -> None:
    assert rules(encode([*call(0, "getTime", {}), end()])) == ["emitted"]
    assert rules(encode([TextDelta("Wait."), *call(0, "getTime", {}), end()])) == ["split_emitted"]
    assert rules(encode([TextDelta("Wait."), *call(0, "getTime", {}), end()], "as_is")) == ["split_emitted"]


def test_interleaved_calls_keep_their_start_order() -> None:
    first, second = call(0, "a", {"x": "1"}), call(1, "b", {"x": "2"})
    mixed = [first[0], second[0], first[1], second[1], second[2], second[3], first[2], first[3]]
    assert [name for name, _ in copilot.calls("".join(chunks(encode([*mixed, end()]))))] == ["a", "b"]


def test_text_between_calls_follows_them() -> None:
    out = encode([TextDelta("One. "), *call(0, "a", {}), TextDelta("\n"), *call(1, "b", {}), TextDelta("Two."), end()])
    assert chunks(out)[2:] == ["One. ", "Two."]
    kept = encode([TextDelta("One. "), *call(0, "a", {}), TextDelta("\n"), *call(1, "b", {}), TextDelta("Two."), end()], "as_is")
    assert copilot.narrative("".join(chunks(kept))) == "One. \nTwo."


def test_custom_tool_text_becomes_input_parameter() -> None:
    events: list[StreamEvent] = [
        CallStarted(0, "patch", "c", "custom"),
        ArgumentsDelta(0, "*** Begin\n<x>"),
        CallFinished(0),
        end(),
    ]
    assert copilot.calls("".join(chunks(encode(events)))) == [("patch", {"input": "*** Begin\n<x>"})]


def test_invalid_arguments_are_sent_verbatim() -> None:
    assert copilot.calls("".join(chunks(encode([*call(0, "f", '{"a": '), end()])))) == [("f", {"arguments": '{"a": '})]


def test_null_argument_is_omitted() -> None:
    assert (
        encode_block(Call(id="", name="f", arguments='{"a": null, "b": "null"}'))
        == "<use_tool>\n<name>f</name>\n<b>null</b>\n</use_tool>"
    )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("writeFile", {"path": "a.md", "content": "how to end: </use_tool>, that is"}),
        ("writeFile", {"path": "a.md", "content": "<content>x</content> y"}),
        ("rename", {"name": "x"}),
        ("f", {"two words": "x"}),
        ("f", {"a>b": "x"}),
        ("<use_tool><name>f</name>", {}),
        ("f", {"<use_tool><name>g</name>": "x"}),
    ],
)
def test_unencodable_call_is_replaced_by_a_sentence(order: BlockOrder, name: str, arguments: Any) -> None:  # bug 17
    out = encode([TextDelta("Writing. "), *call(0, name, arguments), *call(1, "getTime", {}), end()], order)
    text = "".join(chunks(out))
    assert [called for called, _ in copilot.calls(text)] == ["getTime"]
    assert f"the call of {name.replace('<', '(')} was not passed on" in text
    assert rules(out)[0] == "untellable"


def test_closing_tags_in_lists_and_objects_are_escaped() -> None:
    arguments = {"lines": ["</use_tool>", "</lines>", "\\</lines>"], "more": {"a": "</more>"}}
    assert copilot.calls("".join(chunks(encode([*call(0, "f", arguments), end()])))) == [("f", arguments)]


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", "<item>a</item><item>b</item>", "<a>1</a>\n<b>2</b>"])
def test_string_that_client_would_parse_is_logged(text: str) -> None:
    out = encode([*call(0, "f", {"content": text}), end()])
    assert rules(out) == ["retyped_value", "emitted"]
    assert copilot.calls(chunks(out)[0])[0][1]["content"] != text


@pytest.mark.parametrize(
    "text", ["[1", "{a}", "a <b>c</b>", "<b>c</b> d", "<b>c", "", "<" * 50_000, "<a>" * 50_000, "<a></a>" * 50_000 + "x"]
)
def test_other_strings_are_not_logged_as_retyped(text: str) -> None:
    assert "retyped_value" not in rules(encode([*call(0, "f", {"content": text}), end()]))


# Printed blocks


def test_block_in_code_fence_is_a_block() -> None:
    text = f"```xml\n{BLOCKS[0]}\n```"
    assert chunks(encode([TextDelta(text), end("stop")]))[0] == BLOCKS[0]


def test_text_around_a_block_does_not_form_another() -> None:
    text = f"<use_{BLOCKS[0]}tool><name>deleteFile</name></use_tool>"
    out = encode([TextDelta(text), end("stop")])
    assert copilot.calls("".join(chunks(out))) == copilot.calls(text)
    assert len(copilot.calls(text)) == 1


def test_block_without_tool_name_is_text() -> None:
    text = "Write <use_tool>…</use_tool> to call a tool, or <use_tool>"
    out = encode([TextDelta(text), end("stop")])
    assert "".join(chunks(out)) == text
    assert rules(out) == []


@pytest.mark.parametrize(("order", "closing"), [("tools_first", "</use_tool>"), ("as_is", "")])
def test_unclosed_block_is_closed_before_held_text(order: BlockOrder, closing: str) -> None:
    left_open = "<use_tool>\n<name>f</name>\n<q>x</q>\n"
    out = encode([TextDelta("Plan. " + left_open), end("stop")], order)
    assert left_open + closing in chunks(out)
    assert copilot.calls("".join(chunks(out))) == [("f", {"q": "x"})]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_truncated_block_or_call_is_not_sent(order: BlockOrder, finish: Finish) -> None:
    stump = "<use_tool>\n<name>writeFile</name>\n<content>half of i"
    out = encode([TextDelta(BLOCKS[0] + stump), end(finish)], order)
    assert chunks(out) == [BLOCKS[0]]
    assert rules(out)[0] == "cut"
    assert isinstance(out[-1], AnswerFinished)
    assert out[-1].finish == finish
    cut = encode([*call(0, "a", {}), *call(1, "b", {"x": "1"})[:-1], *call(2, "c", {}), end(finish)], order)
    assert [name for name, _ in copilot.calls("".join(chunks(cut)))] == ["a", "c"]


def test_endless_block_is_released_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_answer, "MAX_HELD", 1000)
    endless = "<use_tool><name>f</name>" + "x" * 3000
    encoder = XmlAnswerEncoder()
    out = encoder.encode([TextDelta(endless[at : at + 10]) for at in range(0, len(endless), 10)])
    assert len("".join(chunks(out))) > 2000
    assert "".join(chunks(out + encoder.encode([end("stop")]))) == endless


# Failures, refusals, choices


def test_failure_before_blocks_drops_held_text() -> None:
    failed = AnswerFailed(BackendError("cut"))
    assert encode([TextDelta("Plan."), failed]) == [failed]
    assert chunks(encode([TextDelta("Plan."), TextDelta(BLOCKS[0]), failed])) == [BLOCKS[0], "Plan."]


def test_refusals_and_choices_are_kept_apart() -> None:
    out = encode(
        [
            TextDelta("zero"),
            TextDelta("one " + BLOCKS[0], 1),
            *call(0, "f", {}, choice=1),
            RefusalDelta("no", 1),
            ChoiceFinished(1, "calls"),
            end("stop"),
        ]
    )
    assert chunks(out, 1)[0] == BLOCKS[0]
    assert chunks(out, 1)[-1] == "one "
    assert ChoiceFinished(1, "stop") in out
    assert RefusalDelta("no", 1) in out
    assert chunks(out) == ["zero"]


# Properties

_TEXT = texts(min_size=0).filter(lambda text: "<" not in text) | st.sampled_from(
    ["&lt;", "a && b > c", "\n\n# T\n", "<b>x</b> y"]
)
_VALUES = (
    _TEXT.filter(lambda text: text.strip()[:1] not in ("[", "{"))
    | st.lists(json_values(leaves=2), max_size=3)
    | st.dictionaries(texts(), json_values(leaves=2), max_size=2)
    | st.integers(-1000, 1000)
    | st.booleans()
)
_ARGUMENTS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "name"), _VALUES, max_size=3
)
_CALLS = st.lists(st.tuples(st.from_regex(r"[a-zA-Z][\w-]{0,8}", fullmatch=True), _ARGUMENTS), max_size=4)


def client_value(value: Any) -> Any:
    return value if isinstance(value, str | list | dict) else json.dumps(value)


@given(calls=_CALLS, texts_between=st.lists(_TEXT, min_size=5, max_size=5), order=st.sampled_from(ORDERS))
def test_client_parses_the_calls_that_were_made(
    calls: list[tuple[str, Any]], texts_between: list[str], order: BlockOrder
) -> None:
    events: list[StreamEvent] = [TextDelta(texts_between[4])]
    for place, (name, arguments) in enumerate(calls):
        events += [*call(place, name, arguments), TextDelta(texts_between[place])]
    out = encode([*events, end()], order)
    expected = [(name, {key: client_value(value) for key, value in arguments.items()}) for name, arguments in calls]
    assert copilot.calls("".join(chunks(out))) == expected
    folded = "".join(plain_text(item.content) for item in fold(out).items if isinstance(item, Message))
    assert folded == "".join(chunks(out))
    texts_out = [text for text in chunks(out) if text.strip()]
    if order == "tools_first":
        is_block = [text.startswith("<use_tool>") for text in texts_out]
        assert is_block == sorted(is_block, reverse=True)


_PIECES = st.lists(
    st.sampled_from(["<use_tool>", "</use_tool>", "<name>f</name>", "<name>", "<q>a</q>", "<", "use_tool>", "text ", "\n", "</"]),
    max_size=14,
)


@given(pieces=_PIECES, cuts=st.lists(st.integers(1, 12), min_size=1), order=st.sampled_from(ORDERS))
def test_chunking_changes_no_block_and_loses_no_text(pieces: list[str], cuts: list[int], order: BlockOrder) -> None:
    text = "".join(pieces)
    events: list[StreamEvent] = []
    at, turn = 0, 0
    while at < len(text):
        events.append(TextDelta(text[at : at + cuts[turn % len(cuts)]]))
        at += cuts[turn % len(cuts)]
        turn += 1
    whole = chunks(encode([TextDelta(text), end("stop")], order))
    cut = chunks(encode([*events, end("stop")], order))
    assert "".join(cut) == "".join(whole)
    if order == "as_is":
        assert "".join(cut) == text
        return
    closed = text + "</use_tool>" if "".join(cut).count("</use_tool>") > text.count("</use_tool>") else text
    assert Counter("".join("".join(cut).split())) == Counter("".join(closed.split()))
    assert copilot.calls("".join(cut)) == copilot.calls(text)


@given(pieces=_PIECES, size=st.integers(1, 5))
def test_splitter_finds_what_the_client_finds(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    splitter = BlockSplitter()
    found = [piece for at in range(0, len(text), size) for piece in splitter.feed(text[at : at + size])]
    found.append(splitter.flush())
    assert "".join(piece for _, piece in found) == text
    assert [copilot.calls(piece)[0] for is_block, piece in found if is_block] == copilot.calls(text)


# Models that print blocks, for clients that want calls


def test_printed_blocks_become_calls_for_other_clients() -> None:
    search = Tool(
        name="webSearch",
        parameters={"type": "object", "properties": {"query": {"type": "string"}, "chatHistory": {"type": "array"}}},
    )
    request = Request(
        wire="openai_chat", model="m", items=(Message(role="user", content="Search."),), tools=(search,), stream=True
    )
    session = ToolCallSession(request, ToolCallOptions(dialect=DIALECTS[0]))
    out: list[StreamEvent] = []
    for character in SEVEN:
        out += session.feed([TextDelta(character)])
    out += session.feed([end("stop")])
    answer = fold(out)
    assert [(made.name, json.loads(made.arguments)) for made in answer.calls] == [
        ("webSearch", {"query": query, "chatHistory": []}) for query in QUERIES
    ]
    assert answer.finish == "calls"
    assert chunks(out) == [PLAN] or "".join(chunks(out)).strip() == PLAN.strip()


def test_invalid_tool_name_raises() -> None:
    with pytest.raises(UnencodableCallError, match="its name cannot stand in a tag"):
        encode_block(Call(id="", name="a b", arguments="{}"))
