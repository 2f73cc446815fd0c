"""Calls in the form of Obsidian Copilot."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, ParsedCall, Text, call, calls_of, fold, scan, scan_chunks, tool
from toolrelay.dialects.base import ToolResult

SEARCH = tool(
    "localSearch",
    {
        "query": {"type": "string"},
        "salientTerms": {"type": "array", "items": {"type": "string"}},
        "limit": {"type": "integer"},
        "timeRange": {"type": "object"},
    },
)


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("<query>notes</query>", {"query": "notes"}),
        ('<query>a</query>\n<salientTerms>["x", "y"]</salientTerms>', {"query": "a", "salientTerms": ["x", "y"]}),
        ("<salientTerms><item>x</item><item>a & b</item></salientTerms>", {"salientTerms": ["x", "a & b"]}),
        ("<timeRange><start>1</start><end>2</end></timeRange>", {"timeRange": {"start": "1", "end": "2"}}),
        ("<limit>5</limit>", {"limit": 5}),
        ("<query>if a &lt; b && c > d</query>", {"query": "if a &lt; b && c > d"}),
        ("<query>\n# Title\n\ntext\n</query>", {"query": "\n# Title\n\ntext\n"}),
        ("", {}),
    ],
)
def test_typical_output_is_parsed(inner: str, expected: object) -> None:
    text = f"<use_tool>\n<name>localSearch</name>\n{inner}\n</use_tool>"
    assert calls_of(scan("use_tool", text, [SEARCH])) == [("localSearch", expected)]


def test_several_blocks_between_text_are_parsed() -> None:
    one = "<use_tool>\n<name>getCurrentTime</name>\n</use_tool>"
    assert scan("use_tool", f"First.\n{one}\nthen {one} end") == [
        Text("First.\n"),
        ParsedCall("getCurrentTime", "{}"),
        Text("\nthen "),
        ParsedCall("getCurrentTime", "{}"),
        Text(" end"),
    ]


def test_other_tags_in_a_value_are_part_of_it() -> None:  # bug 17
    text = "<use_tool><name>localSearch</name><query>a <b>c</b> </use_tool> d</query></use_tool>"
    assert calls_of(scan("use_tool", text, [SEARCH])) == [("localSearch", {"query": "a <b>c</b> </use_tool> d"})]


def test_block_without_a_name_is_text() -> None:
    assert scan("use_tool", "<use_tool>please</use_tool>") == [Text("<use_tool>please</use_tool>")]


def test_calls_and_results_are_rendered_as_in_the_client() -> None:
    made = call("localSearch", {"query": "a < b", "salientTerms": ["x"]})
    assert DIALECTS["use_tool"].render_calls([made]) == (
        '<use_tool>\n<name>localSearch</name>\n<query>a < b</query>\n<salientTerms>["x"]</salientTerms>\n</use_tool>'
    )
    assert DIALECTS["use_tool"].render_results([ToolResult(call=made, text="3 notes")]) == "Tool 'localSearch' result: 3 notes"


BLOCK = "<use_tool>\n<name>localSearch</name>\n<query>x</query>\n</use_tool>"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(("opening", "closing"), ['""', "''", "“”", "«»"])
def test_block_in_quotation_marks_inside_a_line_is_text(opening: str, closing: str, size: int) -> None:
    quoted = f"Write {opening}{BLOCK}{closing} to search."
    found = fold(scan_chunks(DIALECTS["use_tool"], chunks(quoted, size), [SEARCH]))
    assert found == [Text(quoted)]
    found = fold(scan_chunks(DIALECTS["use_tool"], chunks(f"{quoted}\n{BLOCK}", size), [SEARCH]))
    assert found == [Text(f"{quoted}\n"), ParsedCall("localSearch", '{"query": "x"}')]
    for before in ("", "\n", f"{opening}Fine.{closing}", f"Say {opening}x{closing} ", f"{opening}\n"):
        found = fold(scan_chunks(DIALECTS["use_tool"], chunks(before + BLOCK, size), [SEARCH]))
        assert calls_of(found) == [("localSearch", {"query": "x"})], before


def chunks(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]
