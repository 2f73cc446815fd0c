"""Values in tags."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import ParsedCall, Text, call, scan, tool
from toolrelay.dialects import tagged_parameters
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.tagged_parameters import TagForm, attribute, render_parameters, tagged_call
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader

FRAME = CallFrame(call="<call>", name_ends=(">",), ends=("</call>",))
FORM = TagForm(key_open="<", key_close=">", value_close="</{key}>", frame=FRAME)
KNOWN = tool("f", {"s": {"type": "string"}, "n": {"type": "integer"}})


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from tagged_call(reader, sink, FORM, "f")


DIALECT = Dialect(
    name="tags",
    start_markers=(StartMarker("<call>"),),
    end_markers=("</call>",),
    grammar=grammar,
    render_calls=lambda calls: "".join(f"<call>{render_parameters(call, FORM)}</call>" for call in calls),
    render_results=lambda _results: "",
)


@pytest.mark.parametrize(
    ("inner", "arguments"),
    [
        ("<s>a</s>", '{"s": "a"}'),
        (" <s>a</s>\n<n>1</n> ", '{"s": "a", "n": 1}'),
        ("<s></s>", '{"s": ""}'),
        ("<s>a</s>b</s>", '{"s": "a</s>b"}'),
        ("<s>a</sb</s>", '{"s": "a</sb"}'),
        ("<n>{'a': (1,)}</n>", '{"n": {"a": [1]}}'),
        ("<x>[1]</x>", '{"x": [1]}'),
        ('<s>"\\\n</s>', '{"s": "\\"\\\\\\n"}'),
        ("", "{}"),
    ],
)
def test_values_are_parsed(inner: str, arguments: str) -> None:
    assert scan(DIALECT, f"<call>{inner}</call>!", [KNOWN]) == [ParsedCall("f", arguments), Text("!")]


def test_held_value_is_limited_to_the_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_parameters, "HELD_LIMIT", 5)
    assert scan(DIALECT, "<call><n>12345</n></call>", [KNOWN]) == [ParsedCall("f", '{"n": 12345}')]
    assert scan(DIALECT, "<call><n>123456</n></call>!", [KNOWN]) == [ParsedCall("f", '{"n": ', "held_too_long"), Text("!")]
    assert scan(DIALECT, "<call><s>123456</s></call>", [KNOWN]) == [ParsedCall("f", '{"s": "123456"}')]


def test_overlong_key_breaks_the_call() -> None:
    assert scan(DIALECT, f"<call><{'k' * 300}>1</k></call>.", [KNOWN]) == [ParsedCall("f", "", "malformed"), Text(".")]


def test_attribute_is_found_in_a_tag() -> None:
    assert attribute('key="a" type="b c"', "type") == "b c"
    assert attribute('key="a"', "type") is None
    assert attribute('key="a', "key") is None


def test_parameters_are_rendered_unchanged() -> None:
    made = call("f", '{"s": "a</s>b", "n": 1.50}')
    assert render_parameters(made, FORM) == "<s>a</s>b</s>\n<n>1.50</n>\n"
