"""Objects and lists as nested tags."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.scanning import ParsedCall, calls_of, scan, tool
from tests.strategies import json_values
from toolrelay.dialects.nested_tags import json_to_nested, nested_to_json

NS = "]<]minimax[>["
ORDER = tool(
    "create_order",
    {
        "user_id": {"type": "integer"},
        "note": {"type": "string"},
        "shipping": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "qty": {"type": "integer"}}},
        },
        "labels": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object"},
        "maybe": {"type": ["string", "null"]},
    },
)


def order(body: str) -> str:
    written = f'<tool_call>\n<invoke name="create_order">{body}</invoke>\n</tool_call>'
    return written.replace("<", f"{NS}<")


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("<user_id>42</user_id><note>To the desk.</note>", {"user_id": 42, "note": "To the desk."}),
        ("<shipping><city>Oslo</city><zip>0150</zip></shipping>", {"shipping": {"city": "Oslo", "zip": "0150"}}),
        (
            "<items>\n<item><sku>b-1</sku><qty>2</qty></item>\n<item><sku>7</sku><qty>5</qty></item>\n</items>",
            {"items": [{"sku": "b-1", "qty": 2}, {"sku": "7", "qty": 5}]},
        ),
        ("<labels><label>1</label><label>2</label></labels>", {"labels": ["1", "2"]}),
        ("<labels></labels><options></options>", {"labels": [], "options": {}}),
        ("<options><tag>a</tag><tag>b</tag></options>", {"options": {"tag": ["a", "b"]}}),
        ("<options><options><options>1</options></options></options>", {"options": {"options": {"options": 1}}}),
        ('<labels>["a", "b"]</labels>', {"labels": ["a", "b"]}),
        ("<extra><deep>true</deep></extra>", {"extra": {"deep": True}}),
        ("<maybe><text>hi</text></maybe>", {"maybe": f"{NS}<text>hi{NS}</text>"}),
        ("<items><item><sku>b-1</sku></items>", {"items": [{"sku": "b-1"}]}),
    ],
)
def test_nested_tags_are_typed_by_the_schema(body: str, arguments: Any) -> None:
    found = calls_of(scan("minimax_m3", order(body), [ORDER]))
    assert found == [("create_order", arguments)]


@pytest.mark.parametrize(
    "text", ["", "plain", "<a>", "</a>", "<a>1</b>", "x<a>1</a>", "<a>1</a>x", "<a><b>1</a></b>", "<a>" * 500 + "</a>" * 500]
)
def test_other_text_is_not_nested_tags(text: str) -> None:
    assert nested_to_json(text, "", True, {}) is None


@given(value=st.dictionaries(st.text(max_size=4), json_values(), max_size=3) | st.lists(json_values(), max_size=3))
def test_rendered_value_survives_as_tags_or_as_json(value: Any) -> None:
    written = json_to_nested(json.dumps(value), NS)
    parsed = nested_to_json(written, NS, True, {})
    assert json.loads(written if parsed is None else parsed) == value


def test_object_is_rendered_as_tags_if_they_keep_it() -> None:
    assert json_to_nested('{"a": [1, "x"]}', "") == "<a><item>1</item><item>x</item></a>"
    for text in ('{"a": "1"}', '{"a b": 2}', '{"item": 3}', "{}", "[]", "not json", "[" * 3000):
        assert json_to_nested(text, "") == text


def test_text_between_marked_parameters_is_malformed() -> None:
    found = scan("minimax_m3", order("<user_id>1</user_id>junk<note>x</note>"), [ORDER])
    assert [one.rule for one in found if isinstance(one, ParsedCall)] == ["malformed"]
