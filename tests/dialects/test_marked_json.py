"""JSON calls after a mark."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Text, call, calls_of, scan, text_of, tool
from toolrelay.core.request import Tool
from toolrelay.dialects.base import ToolResult

ARGUMENTS = '{"city": "Paris"}'
OBJECT = f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}'
PARIS = ParsedCall("get_weather", ARGUMENTS)
NOW = ParsedCall("now", "{}")
MADE = [call("get_weather", ARGUMENTS), call("now")]

OUTPUTS = {
    "granite": [
        f'<|tool_call|>[{OBJECT}, {{"name": "now", "arguments": {{}}}}]',
        f'<|tool_call|> [{OBJECT},\n{{"name": "now"}}]',
        f'<tool_call>[{OBJECT}, {{"name": "now"}}]</tool_call>',
    ],
    "granite_20b_fc": [f'<function_call> {OBJECT}<function_call> {{"name": "now", "arguments": {{}}}}'],
    "phi4_mini": [
        f'functools[{OBJECT}, {{"name": "now", "arguments": {{}}}}]',
        f'<|tool_call|>[{{"type": "function", "function": {OBJECT}}}, {{"name": "now"}}]<|/tool_call|>',
        f'functools{OBJECT}functools{{"name": "now"}}',
    ],
    "cohere": [
        """<|START_ACTION|>[
    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}},
    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}
]<|END_ACTION|>"""
    ],
    "jamba": [f'<tool_calls>[\n    {OBJECT},\n    {{"name": "now", "arguments": {{}}}}\n]</tool_calls>'],
    "hunyuan": [f'<tool_calls>[{OBJECT}, {{"name": "now", "arguments": {{}}}}]</tool_calls>'],
    "minimax_m1": [f'<tool_calls>\n{OBJECT}\n{{"name": "now", "arguments": {{}}}}\n</tool_calls>'],
    "internlm": [
        "".join(f"<|action_start|><|plugin|>\n{one}<|action_end|>" for one in (OBJECT, '{"name": "now", "arguments": {}}'))
    ],
    "gigachat3": [
        f'<|function_call|>{OBJECT}<|function_call|>{{"name": "now", "arguments": {{}}}}',
        f'<|message_sep|>\n\nfunction call<|role_sep|>\n{OBJECT}<|message_sep|>\n\nfunction call<|role_sep|>\n{{"name": "now"}}',
    ],
    "nemotron": [f'<TOOLCALL>[{OBJECT}, {{"name": "now", "arguments": {{}}}}]</TOOLCALL>'],
    "apertus": [
        f'<|tools_prefix|>[{{"get_weather": {ARGUMENTS}}}, {{"now": {{}}}}]<|tools_suffix|>',
        f'<|tools_prefix|>{{"get_weather": {ARGUMENTS}}}, {{"now": {{}}}}<|tools_suffix|>',
        f'<|tools_prefix|>{{"get_weather": {ARGUMENTS}}}<|tools_suffix|><|tools_prefix|> {{"now": {{}}}}<|tools_suffix|>',
    ],
}
EACH = [(name, text) for name, texts in OUTPUTS.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), EACH)
def test_form_of_each_model_is_parsed(name: str, text: str) -> None:
    assert scan(name, f"Sure.\n{text}") == [Text("Sure.\n"), PARIS, NOW]


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_calls_are_rendered_as_models_print_them(name: str) -> None:
    written = DIALECTS[name].render_calls(MADE)
    assert written.replace("\n", "") in [text.replace("\n", "") for text in OUTPUTS[name]]


@pytest.mark.parametrize(("name", "text"), EACH)
def test_truncated_call_is_not_finished(name: str, text: str) -> None:  # bug 5
    found = scan(name, text[: text.index("Paris")])
    assert found == [ParsedCall("get_weather", '{"city": "', "cut")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("granite", "<|tool_call|> comes first"),
        ("phi4_mini", "from functools import reduce; functools[0]"),
        ("phi4_mini", "functools{invalid}"),
        ("apertus", '<|tools_prefix|>{"two words": {}}<|tools_suffix|>'),
        ("jamba", "<tool_calls>are listed</tool_calls>"),
        ("internlm", "<|action_start|> alone"),
        ("apertus", '<|tools_prefix|>[{"two words": {}}]<|tools_suffix|>'),
        ("apertus", "<|tools_prefix|>[1]<|tools_suffix|>"),
        ("hunyuan", "<tool_calls>[]</tool_calls>"),
    ],
)
def test_mark_without_a_call_is_text(name: str, text: str) -> None:  # bug 15
    assert scan(name, text) == [Text(text)]


def test_mark_with_a_partial_call_is_cut() -> None:
    assert scan("granite", '<|tool_call|>[{"na') == [BrokenCall("cut", '<|tool_call|>[{"na')]


def test_command_r_marks_around_text_are_removed() -> None:
    assert scan("cohere", "<|START_RESPONSE|>It is sunny.<|END_RESPONSE|>") == [Text("It is sunny.")]


def test_results_are_rendered_as_in_the_templates() -> None:
    results = [ToolResult(call=MADE[0], text='"sun"'), ToolResult(call=MADE[1], text="noon")]
    assert DIALECTS["cohere"].render_results(results[:1]) == (
        '<|START_TOOL_RESULT|>[\n    {\n        "tool_call_id": "0",\n        "results": {\n            "0": "\\"sun\\""\n'
        '        },\n        "is_error": null\n    }\n]<|END_TOOL_RESULT|>'
    )
    assert (
        DIALECTS["hunyuan"].render_results(results) == '<tool_response>"sun"</tool_response>\n<tool_response>noon</tool_response>'
    )
    assert DIALECTS["apertus"].render_results(results) == '["\\"sun\\"", "noon"]'
    assert DIALECTS["granite_20b_fc"].render_results(results[1:]) == "<function_response> noon"
    assert DIALECTS["nemotron"].render_results(results) == '<TOOL_RESPONSE>["sun", noon]</TOOL_RESPONSE>'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"<TOOLCALL>[{OBJECT}, {OBJECT}]</TOOLCALL>\n", [PARIS, PARIS, Text("\n")]),
        ('<TOOLCALL>[{"name": "f", "arguments": "{\\"a\\": 1}"}]</TOOLCALL>', [ParsedCall("f", '{"a": 1}')]),
        ('<TOOLCALL>[{"name": "f", "arguments": {"a": "</TOOLCALL>"}}]</TOOLCALL>', [ParsedCall("f", '{"a": "</TOOLCALL>"}')]),
        ("<TOOLCALL> is a tag", [Text("<TOOLCALL> is a tag")]),
    ],
)
def test_nemotron_output_is_parsed(text: str, expected: list[object]) -> None:
    assert scan("nemotron", text) == expected


COMMAND_R = """Action:
```json
[
    {
        "tool_name": "get_weather",
        "parameters": {
            "city": "Paris"
        }
    },
    {
        "tool_name": "now",
        "parameters": {}
    }
]```"""


@pytest.mark.parametrize("text", [COMMAND_R, COMMAND_R.replace(":\n", ": "), COMMAND_R.replace("]```", "]\n```\n")])
def test_actions_of_command_r_are_parsed(text: str) -> None:
    found = scan("command_r", f"Plan: I look it up.\n{text}", [tool("get_weather", {"city": {"type": "string"}}), tool("now")])
    assert text_of(found).strip() == "Plan: I look it up."
    assert calls_of(found) == [("get_weather", {"city": "Paris"}), ("now", {})]


def test_marks_of_command_r_around_text_are_removed() -> None:
    assert scan("command_r", "<|CHATBOT_TOKEN|>Hello.<|END_OF_TURN_TOKEN|>") == [Text("Hello.")]


def test_command_r_is_rendered_as_in_its_template() -> None:
    dialect = DIALECTS["command_r"]
    assert dialect.render_calls([call("get_weather", {"city": "Paris"}), call("now")]) == COMMAND_R
    assert dialect.render_results([ToolResult(call=call("now"), text="noon")]) == "<results>\nnoon</results>"
    assert dialect.render_tools is not None
    weather = Tool(
        name="get_weather",
        description='The weather. """Today"""',
        parameters={
            "properties": {
                "city": {"type": "string", "description": "The\ncity."},
                "days": {"type": ["integer", "null"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "options": {"type": "object"},
                "any": True,
            },
            "required": ["city"],
        },
    )
    assert """```python
def get_weather(city: str, days: Optional[Union[int,Any]] = None, tags: Optional[List[str]] = None, \
options: Optional[Dict[str, Any]] = None, any: Optional[Any] = None) -> List[Dict]:
    \"\"\"The weather. " " "Today" " "

    Args:
        city (str): The city.
""" in dialect.render_tools([weather])
