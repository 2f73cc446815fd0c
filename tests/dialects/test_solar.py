"""Solar Open."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, Output, ParsedCall, Text, call, scan, tool
from toolrelay.core.identity import shorten_id
from toolrelay.dialects.base import ToolResult

TOOLS = [tool("get_weather", {"city": {"type": "string"}})]
PARIS = ParsedCall("get_weather", '{"city": "Paris"}')
ONE = '<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}<|tool_call:end|>'


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (f"<|tool_calls|>{ONE}<|calls|>", [PARIS]),
        (f"<|tool_calls|>{ONE}{ONE}<|calls|>", [PARIS, PARIS]),
        (ONE, [PARIS]),
        (f"<|tool_calls|>{ONE}{ONE}<|calls|>".replace("<|tool_call:end|>", ""), [PARIS, PARIS]),
        ("<|begin|>assistant<|content|>Hello.<|end|>", [Text("Hello.")]),
        (ONE[:-30], [ParsedCall("get_weather", '{"ci', "cut")]),
    ],
)
def test_calls_are_parsed(text: str, output: list[Output]) -> None:
    assert scan("solar", text, TOOLS) == output


def test_texts_are_rendered_as_in_the_template() -> None:
    dialect, made = DIALECTS["solar"], call("get_weather", {"city": "Paris"})
    written = ONE.replace("a1b2c3d4e5", shorten_id(made.id))
    assert dialect.render_calls([made]) == f"<|tool_calls|>{written}<|calls|>"
    assert dialect.render_results([ToolResult(call=made, text="Fog")]) == (
        f"<|tool_response|><|tool_response:begin|>{shorten_id(made.id)}<|tool_response:name|>get_weather"
        "<|tool_response:result|>Fog<|tool_response:end|>"
    )
