"""Inkling."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, Output, ParsedCall, Reasoning, Text, call, scan, tool
from toolrelay.core.request import Tool
from toolrelay.dialects.base import ToolResult
from toolrelay.dialects.families import family_of
from toolrelay.parsing.triggers import ScanOptions

TOOLS = [tool("get_weather", {"city": {"type": "string"}})]
PARIS = ParsedCall("get_weather", '{"city": "Paris"}')
BODY = '<|content_invoke_tool_json|>{"name":"get_weather","args":{"city": "Paris"}}<|end_message|>'


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (f"<|message_model|>get_weather{BODY}", [PARIS]),
        (f"get_weather{BODY}", [PARIS]),
        (BODY, [PARIS]),
        (f"<|content_text|>I look.<|end_message|><|message_model|>get_weather{BODY}", [Text("I look."), PARIS]),
        (f"{BODY}<|message_model|>get_weather{BODY}<|content_model_end_sampling|>", [PARIS, PARIS]),
        (
            "<|content_thinking|>Hm.<|end_message|><|message_model|><|content_text|>Hi.<|end_message|>",
            [Reasoning("Hm."), Text("Hi.")],
        ),
        ("<|content_tool_error|>boom<|end_message|>", [Text("boom")]),
        ("<|message_model|>Hello there", [Text("Hello there")]),
        ("get_weather is a tool", [Text("get_weather is a tool")]),
    ],
)
def test_messages_are_parsed(text: str, output: list[Output]) -> None:
    family = family_of("thinkingmachines/Inkling-NVFP4")
    assert family is not None
    assert scan("inkling", text, TOOLS, ScanOptions(reasoning=family.reasoning)) == output


def test_texts_are_rendered_as_by_the_model_s_own_renderer() -> None:
    dialect = DIALECTS["inkling"]
    made = call("get_weather", {"city": "Paris"})
    assert dialect.render_calls([made]) == f"<|message_model|>get_weather{BODY}"
    assert (
        dialect.render_results([ToolResult(call=made, text="sunny")])
        == "<|message_tool|>get_weather<|content_text|>sunny<|end_message|>"
    )
    assert dialect.render_tools is not None
    assert dialect.render_tools([Tool(name="now", description="The time.")]) == (
        '<|message_system|>tool_declare<|content_xml|>[{"name": "now", "description": "The time.", "parameters": '
        '{"type": "object", "properties": {}}, "type": "function"}]<|end_message|>'
    )
