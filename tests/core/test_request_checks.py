"""Checks and limits before a model is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.playbook import make_request
from toolrelay.core.messages import Call, Content, Image, Item, Message, OpaqueItem, Result, Text, plain_text
from toolrelay.core.request import OpaqueTool, Request, Tool, ToolChoice
from toolrelay.core.request_checks import check_tool_choice, find_orphan_result, remove_tools, truncate_results
from toolrelay.errors import ClientError

HELLO = Message(role="user", content="hello")


def call(identifier: str) -> Call:
    return Call(id=identifier, name="f", arguments="{}")


def result(identifier: str, output: Content = "") -> Result:
    return Result(call_id=identifier, output=output)


def with_output(output: Content) -> Request:
    return replace(make_request(), items=(HELLO, call("a"), result("a", output)))


def truncate(output: Content, limit: int) -> Content:
    item = truncate_results(with_output(output), limit).items[-1]
    assert isinstance(item, Result)
    return item.output


@pytest.mark.parametrize(
    ("items", "place"),
    [
        ([], None),
        ([HELLO, call("a"), call("b"), result("b"), result("a")], None),
        ([call("a"), HELLO, result("a"), HELLO], None),
        ([call("a"), result("b")], 1),
        ([result("a"), call("a")], 0),
        ([call("a"), result("a"), result("c"), result("d")], 2),
        ([OpaqueItem(wire="w", raw={"call_id": "a"}), result("a")], 1),
    ],
)
def test_result_without_a_call_before_it_is_found(items: list[Item], place: int | None) -> None:  # bug 30
    assert find_orphan_result(items) == place


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
def test_valid_tool_choice_is_accepted(choice: ToolChoice | None) -> None:
    check_tool_choice(replace(make_request(), tools=(FUNCTION, CUSTOM, HOSTED), tool_choice=choice))


@pytest.mark.parametrize(
    "choice",
    [
        ToolChoice(mode="named", names=(("function", "nope"),)),
        ToolChoice(mode="named", names=(("custom", "f"),)),
        ToolChoice(mode="named", names=(("function", "c"),)),
        ToolChoice(names=(("function", "f"), ("function", "nope"))),
    ],
)
def test_choice_of_an_undeclared_tool_is_refused(choice: ToolChoice) -> None:  # bug 26
    with pytest.raises(ClientError) as refused:
        check_tool_choice(replace(make_request(), tools=(FUNCTION, CUSTOM), tool_choice=choice))
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, "tool_choice", "unknown_tool")
    assert repr(choice.names[-1][1]) in refused.value.message


def test_required_choice_without_tools_is_refused() -> None:  # bug 26
    request = make_request(tool_choice=ToolChoice(mode="required"))
    with pytest.raises(ClientError) as refused:
        check_tool_choice(request)
    assert (refused.value.status, refused.value.param) == (400, "tool_choice")
    check_tool_choice(replace(request, tools=(HOSTED,)))


def test_remove_tools_removes_all_tool_fields() -> None:
    request = make_request("f", tool_choice=ToolChoice(mode="required"), parallel_tool_calls=False, user="u")
    assert remove_tools(request) == make_request(user="u")


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
def test_results_within_the_limit_leave_the_request_unchanged(output: Content) -> None:
    request = with_output(output)
    assert truncate_results(request, 4) is request


def test_result_over_the_limit_is_truncated_with_a_note() -> None:
    assert truncate("abcdefgh", 4) == "abcd\n[cut here by the gateway: at most 4 of 8 bytes are shown]"


def test_only_results_over_the_limit_are_truncated() -> None:
    long = "x" * 100
    items: tuple[Item, ...] = (Message(role="user", content=long), call("a"), call("b"), result("a", "y"), result("b", long))
    after = truncate_results(replace(make_request(), items=items), 4).items
    assert after[:4] == items[:4]
    assert after[4] != items[4]


@pytest.mark.parametrize(
    ("limit", "kept"), [(0, ""), (1, ""), (2, "\u00e9"), (3, "\u00e9"), (5, "\u00e9"), (6, "\u00e9\U0001f600")]
)
def test_characters_are_not_split(limit: int, kept: str) -> None:  # bug 24
    shown = plain_text(truncate("\u00e9\U0001f600x", limit))
    assert shown == f"{kept}\n[cut here by the gateway: at most {limit} of 7 bytes are shown]"


def test_limit_applies_to_all_parts_together() -> None:  # bug 34
    image = Image(url="data:,")
    output = truncate((Text(text="abc"), image, Text(text="defg"), Text(text="hij"), image), 5)
    assert output == (
        Text(text="abc"),
        image,
        Text(text="de\n[cut here by the gateway: at most 5 of 10 bytes are shown]"),
        image,
    )


def test_note_is_added_if_the_limit_is_between_two_parts() -> None:
    output = truncate((Text(text="abc"), Text(text=""), Text(text="def"), Text(text="g")), 3)
    assert output == (
        Text(text="abc"),
        Text(text=""),
        Text(text="\n[cut here by the gateway: at most 3 of 7 bytes are shown]"),
    )


@given(st.lists(st.text(max_size=12), max_size=4), st.integers(0, 40))
def test_truncated_text_is_a_prefix_within_the_limit(texts: list[str], limit: int) -> None:
    whole = "".join(texts)
    left = plain_text(truncate(tuple(Text(text=text) for text in texts), limit))
    if len(whole.encode()) <= limit:
        assert left == whole
    else:
        kept, mark, _ = left.partition("\n[cut here by the gateway")
        assert mark
        assert whole.startswith(kept)
        assert limit - 4 < len(kept.encode()) <= limit


@given(st.text(st.characters(), max_size=30), st.integers(0, 60))
def test_lone_surrogates_are_counted_and_kept(text: str, limit: int) -> None:  # bug 24
    size = len(text.encode(errors="surrogatepass"))
    assert (truncate(text, limit) == text) is (size <= limit)
