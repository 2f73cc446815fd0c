"""What becomes of a request before any model is asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.playbook import asked
from toolrelay.core.messages import Call, Content, Image, Item, Message, OpaqueItem, Result, Text, plain_text
from toolrelay.core.request import OpaqueTool, Request, Tool, ToolChoice
from toolrelay.core.request_checks import check_tool_choice, orphan, with_results_cut, without_tools
from toolrelay.errors import ClientError

HELLO = Message(role="user", content="hello")


def made(identifier: str) -> Call:
    return Call(id=identifier, name="f", arguments="{}")


def answered(identifier: str, output: Content = "") -> Result:
    return Result(call_id=identifier, output=output)


def with_output(output: Content) -> Request:
    return replace(asked(), items=(HELLO, made("a"), answered("a", output)))


def cut(output: Content, limit: int) -> Content:
    result = with_results_cut(with_output(output), limit).items[-1]
    assert isinstance(result, Result)
    return result.output


@pytest.mark.parametrize(
    ("items", "place"),
    [
        ([], None),
        ([HELLO, made("a"), made("b"), answered("b"), answered("a")], None),
        ([made("a"), HELLO, answered("a"), HELLO], None),
        ([made("a"), answered("b")], 1),
        ([answered("a"), made("a")], 0),
        ([made("a"), answered("a"), answered("c"), answered("d")], 2),
        ([OpaqueItem(wire="w", raw={"call_id": "a"}), answered("a")], 1),
    ],
)
def test_a_result_needs_its_call_before_it(items: list[Item], place: int | None) -> None:  # bug 30
    assert orphan(items) == place


FUNCTION = Tool(name="f")
CUSTOM = Tool(name="c", kind="custom")
HOSTED = OpaqueTool(wire="openai_responses", raw={"type": "web_search"})


@pytest.mark.parametrize(
    "choice",
    [
        None,
        ToolChoice(),
        ToolChoice(mode="none"),
        ToolChoice(mode="required"),
        ToolChoice(mode="named", names=(("function", "f"),)),
        ToolChoice(mode="named", names=(("custom", "c"),)),
        ToolChoice(mode="required", names=(("custom", "c"), ("function", "f"))),
        ToolChoice(raw={"type": "file_search"}),
    ],
)
def test_a_choice_that_can_be_met_is_fine(choice: ToolChoice | None) -> None:
    check_tool_choice(replace(asked(), tools=(FUNCTION, CUSTOM, HOSTED), tool_choice=choice))


@pytest.mark.parametrize(
    "choice",
    [
        ToolChoice(mode="named", names=(("function", "nope"),)),
        ToolChoice(mode="named", names=(("custom", "f"),)),
        ToolChoice(mode="named", names=(("function", "c"),)),
        ToolChoice(names=(("function", "f"), ("function", "nope"))),
    ],
)
def test_a_choice_of_a_tool_that_was_not_declared_is_refused(choice: ToolChoice) -> None:  # bug 26
    with pytest.raises(ClientError) as refused:
        check_tool_choice(replace(asked(), tools=(FUNCTION, CUSTOM), tool_choice=choice))
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, "tool_choice", "unknown_tool")
    assert repr(choice.names[-1][1]) in refused.value.message


def test_a_call_cannot_be_required_without_tools() -> None:  # bug 26
    request = asked(tool_choice=ToolChoice(mode="required"))
    with pytest.raises(ClientError) as refused:
        check_tool_choice(request)
    assert (refused.value.status, refused.value.param) == (400, "tool_choice")
    check_tool_choice(replace(request, tools=(HOSTED,)))


def test_a_model_without_tools_is_offered_none() -> None:
    request = asked("f", tool_choice=ToolChoice(mode="required"), parallel_tool_calls=False, user="u")
    assert without_tools(request) == asked(user="u")


SHORT: list[Content] = [
    "",
    "abcd",
    "\u00e9\u00e9",
    "\U0001f600",
    (),
    (Text(text="ab"), Text(text="cd")),
    (Image(url="long" * 9),),
]


@pytest.mark.parametrize("output", SHORT)
def test_results_within_the_limit_leave_the_request_as_it_is(output: Content) -> None:
    request = with_output(output)
    assert with_results_cut(request, 4) is request


def test_a_result_over_the_limit_is_cut_and_says_so() -> None:
    assert cut("abcdefgh", 4) == "abcd\n[cut here by the gateway: at most 4 of 8 bytes are shown]"


def test_only_the_results_over_the_limit_are_cut() -> None:
    long = "x" * 100
    items: tuple[Item, ...] = (Message(role="user", content=long), made("a"), made("b"), answered("a", "y"), answered("b", long))
    after = with_results_cut(replace(asked(), items=items), 4).items
    assert after[:4] == items[:4]
    assert after[4] != items[4]


@pytest.mark.parametrize(
    ("limit", "kept"), [(0, ""), (1, ""), (2, "\u00e9"), (3, "\u00e9"), (5, "\u00e9"), (6, "\u00e9\U0001f600")]
)
def test_no_character_is_cut_in_two(limit: int, kept: str) -> None:  # bug 24
    shown = plain_text(cut("\u00e9\U0001f600x", limit))
    assert shown == f"{kept}\n[cut here by the gateway: at most {limit} of 7 bytes are shown]"


def test_the_limit_is_for_all_parts_together() -> None:  # bug 34
    image = Image(url="data:,")
    output = cut((Text(text="abc"), image, Text(text="defg"), Text(text="hij"), image), 5)
    assert output == (
        Text(text="abc"),
        image,
        Text(text="de\n[cut here by the gateway: at most 5 of 10 bytes are shown]"),
        image,
    )


def test_the_mark_is_there_where_the_limit_falls_between_two_parts() -> None:
    output = cut((Text(text="abc"), Text(text=""), Text(text="def"), Text(text="g")), 3)
    assert output == (
        Text(text="abc"),
        Text(text=""),
        Text(text="\n[cut here by the gateway: at most 3 of 7 bytes are shown]"),
    )


@given(st.lists(st.text(max_size=12), max_size=4), st.integers(0, 40))
def test_what_is_left_is_the_beginning_and_within_the_limit(texts: list[str], limit: int) -> None:
    whole = "".join(texts)
    left = plain_text(cut(tuple(Text(text=text) for text in texts), limit))
    if len(whole.encode()) <= limit:
        assert left == whole
    else:
        kept, mark, _ = left.partition("\n[cut here by the gateway")
        assert mark
        assert whole.startswith(kept)
        assert limit - 4 < len(kept.encode()) <= limit


@given(st.text(st.characters(), max_size=30), st.integers(0, 60))
def test_a_lone_surrogate_breaks_nothing(text: str, limit: int) -> None:  # bug 24
    size = len(text.encode(errors="surrogatepass"))
    assert (cut(text, limit) == text) is (size <= limit)
