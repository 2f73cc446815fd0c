"""Values in tags: where they end, when they go out."""

from __future__ import annotations

import pytest

from tests.dialects.hearing import Heard, Text, call, hear, tool
from toolrelay.dialects import _tags
from toolrelay.dialects._tags import TagForm, attribute, render_parameters, tagged_call
from toolrelay.dialects.base import Dialect
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader

FORM = TagForm(key_open="<", key_close=">", value_close="</{key}>", ends=("</call>",))
KNOWN = tool("f", {"s": {"type": "string"}, "n": {"type": "integer"}})


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from tagged_call(reader, sink, FORM, "f")


DIALECT = Dialect(
    name="tags",
    start_markers=(StartMarker("<call>"),),
    end_markers=("</call>",),
    grammar=grammar,
    render_calls=lambda calls: "".join(f"<call>{render_parameters(call, FORM)}</call>" for call in calls),
    render_results=lambda _outcomes: "",
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
def test_values(inner: str, arguments: str) -> None:
    assert hear(DIALECT, f"<call>{inner}</call>!", [KNOWN]) == [Heard("f", arguments), Text("!")]


def test_a_value_that_must_be_held_has_a_limit_to_the_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tags, "HELD_LIMIT", 5)
    assert hear(DIALECT, "<call><n>12345</n></call>", [KNOWN]) == [Heard("f", '{"n": 12345}')]
    assert hear(DIALECT, "<call><n>123456</n></call>!", [KNOWN]) == [Heard("f", '{"n": ', "held_too_long"), Text("!")]
    assert hear(DIALECT, "<call><s>123456</s></call>", [KNOWN]) == [Heard("f", '{"s": "123456"}')]


def test_a_key_that_is_too_long_breaks_the_call() -> None:
    assert hear(DIALECT, f"<call><{'k' * 300}>1</k></call>.", [KNOWN]) == [Heard("f", "", "malformed"), Text(".")]


def test_attributes_of_a_tag() -> None:
    assert attribute('key="a" type="b c"', "type") == "b c"
    assert attribute('key="a"', "type") is None
    assert attribute('key="a', "key") is None


def test_parameters_are_written_as_they_are_read() -> None:
    made = call("f", '{"s": "a</s>b", "n": 1.50}')
    assert render_parameters(made, FORM) == "<s>a</s>b</s>\n<n>1.50</n>\n"
