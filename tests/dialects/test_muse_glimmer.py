"""Muse Glimmer."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, Output, ParsedCall, Reasoning, Text, call, scan, tool
from toolrelay.dialects.base import ToolResult

TOOLS = [tool("get_weather", {"city": {"type": "string"}})]
PARIS = ParsedCall("get_weather", '{"city": "Paris"}')
BLOCK = """<atem:function_calls>
<atem:invoke name="get_weather">
<atem:parameter name="city">Paris</atem:parameter>
</atem:invoke>
</atem:function_calls>"""
CALL = f" to=get_weather<|message|>{BLOCK}"
NEXT = "<|start|>assistant"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (CALL, [PARIS]),
        (BLOCK, [PARIS]),
        (CALL.replace("get_weather", "get_weather.get_weather"), [PARIS]),
        (f" to=self<|message|>I ponder.<|eom|>{NEXT}{CALL}<|eot|>", [Reasoning("I ponder."), PARIS]),
        (f"to=self<|message|>{BLOCK}<|eom|>{NEXT} to=user<|message|>Hello.<|eot|>", [Reasoning(BLOCK), Text("Hello.")]),
        (f" to=user<|message|>Write {BLOCK}<|eot|>", [Text(f"Write {BLOCK}")]),
        (f" to=self<|message|>Hm.{NEXT}{CALL}<|eom|>{NEXT}{CALL}<|eot|>", [Reasoning("Hm."), PARIS, PARIS]),
        ("<|message|>Hello.<|eot|>", [Text("Hello.")]),
        ("Hello to=you", [Text("Hello to=you")]),
        (" to=be or not", [Text(" to=be or not")]),
    ],
)
def test_messages_are_parsed(text: str, output: list[Output]) -> None:
    assert scan("muse_glimmer", text, TOOLS) == output


def test_texts_are_rendered_as_in_the_template() -> None:
    dialect = DIALECTS["muse_glimmer"]
    made = call("get_weather", {"city": "Paris"})
    assert dialect.render_calls([made, made]) == f"{BLOCK}<|eom|>{NEXT}{CALL}"
    assert dialect.render_results([ToolResult(call=made, text="Fog")]) == '<tool_output name="get_weather">\nFog\n</tool_output>'
    assert dialect.render_tools is not None
    assert dialect.render_tools(TOOLS).endswith('# Valid recipients: "self", "get_weather.*", "user".')
