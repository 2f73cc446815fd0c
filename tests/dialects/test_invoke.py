"""Calls in `<invoke>` tags: Claude's XML, MiniMax M2, DeepSeek V3.2 and V4, GigaChat 3.5, Step 3, dots, MiniCPM 5."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Text, call, calls_of, scan, tool
from toolrelay.dialects.base import ToolResult

WEATHER = tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}})
CLAUDE = """<function_calls>
<invoke name="get_weather">
<parameter name="city">San Francisco</parameter>
<parameter name="days">3</parameter>
</invoke>
</function_calls>"""
MINIMAX = CLAUDE.replace("function_calls", "minimax:tool_call")
DSML = """<｜DSML｜function_calls>
<｜DSML｜invoke name="get_weather">
<｜DSML｜parameter name="city" string="true">San Francisco</｜DSML｜parameter>
<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>"""
STEP = """<｜tool_calls_begin｜>
<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">
<steptml:parameter name="city">San Francisco</steptml:parameter>
<steptml:parameter name="days">3</steptml:parameter>
</steptml:invoke><｜tool_call_end｜>
<｜tool_calls_end｜>"""
MINICPM = '<function name="get_weather"><param name="city">San Francisco</param><param name="days">3</param></function>'
M3 = """<tool_call>
<invoke name="get_weather"><city>San Francisco</city><days>3</days></invoke>
</tool_call>""".replace("<", "]<]minimax[>[<")
FORMS = {
    "invoke_xml": CLAUDE,
    "minimax_m2": MINIMAX,
    "deepseek_v32": DSML,
    "deepseek_v4": DSML.replace("function_calls", "tool_calls"),
    "step3": STEP,
    "gigachat35": DSML.replace("function_calls", "tool_calls").replace("DSML", "GCML"),
    "dots": CLAUDE.replace("function_calls", "dots_function_call"),
    "minicpm5": MINICPM,
    "minimax_m3": M3,
}
MADE = call("get_weather", {"city": "San Francisco", "days": 3})


@pytest.mark.parametrize("name", FORMS)
def test_form_of_each_model_is_parsed(name: str) -> None:
    found = scan(name, f"Looking.\n{FORMS[name]}\nDone.", [WEATHER])
    assert found == [Text("Looking.\n"), ParsedCall("get_weather", '{"city": "San Francisco", "days": 3}'), Text("\nDone.")]


@pytest.mark.parametrize("name", FORMS)
def test_calls_are_rendered_as_models_print_them(name: str) -> None:
    assert DIALECTS[name].render_calls([MADE]) == FORMS[name]


@pytest.mark.parametrize("name", sorted(set(FORMS) - {"deepseek_v32", "deepseek_v4"}))
def test_form_of_another_model_is_text(name: str) -> None:
    assert scan(name, DSML, [WEATHER]) == [Text(DSML)]


def test_several_calls_in_one_block_are_parsed() -> None:
    text = CLAUDE.replace("</invoke>\n", '</invoke>\n<invoke name="now">\n</invoke>\n')
    assert [name for name, _ in calls_of(scan("invoke_xml", text, [WEATHER]))] == ["get_weather", "now"]


def test_outer_tag_may_be_missing() -> None:
    assert scan("invoke_xml", '<invoke name="now"></invoke>!') == [ParsedCall("now", "{}"), Text("!")]


def test_deepseek_string_attribute_overrides_the_schema() -> None:
    parameter = '<｜DSML｜parameter name="{}" string="{}">{}</｜DSML｜parameter>'
    inner = parameter.format("a", "true", "12") + parameter.format("b", "false", "12") + parameter.format("c", "false", '["x"]')
    text = f'<｜DSML｜function_calls><｜DSML｜invoke name="f">{inner}</｜DSML｜invoke></｜DSML｜function_calls>'
    assert calls_of(scan("deepseek_v32", text)) == [("f", {"a": "12", "b": 12, "c": ["x"]})]


def test_closing_tags_in_values_do_not_end_them() -> None:  # bug 17
    value = "a </parameter> b </invoke> <invoke name="
    text = CLAUDE.replace("San Francisco", value)
    assert calls_of(scan("invoke_xml", text, [WEATHER])) == [("get_weather", {"city": value, "days": 3})]


def test_truncated_call_is_not_finished() -> None:  # bug 5
    assert scan("invoke_xml", CLAUDE[: CLAUDE.index("Francisco")], [WEATHER]) == [
        ParsedCall("get_weather", '{"city": "San ', "cut")
    ]
    assert scan("invoke_xml", CLAUDE[:30], [WEATHER]) == [BrokenCall("cut", CLAUDE[:30])]


def test_similar_html_is_text() -> None:  # bug 15
    for text in ("<function_calls> are listed below", '<invoke name="a b">x', "<function_calls>\n<table>"):
        assert scan("invoke_xml", text) == [Text(text)]


def test_results_are_rendered_as_in_the_templates() -> None:
    result = ToolResult(call=MADE, text="Fog")
    assert DIALECTS["minimax_m2"].render_results([result]) == "<response>Fog</response>"
    assert DIALECTS["deepseek_v32"].render_results([result]) == "<function_results>\n<result>Fog</result>\n</function_results>"
    assert "<tool_name>get_weather</tool_name>\n<stdout>Fog</stdout>" in DIALECTS["invoke_xml"].render_results([result])


@pytest.mark.parametrize("value", ["a < b", "Tom & Jerry", "one\ntwo", "</param></function>", "<![CDATA[x]]>", "]]>", "\n"])
def test_minicpm_wraps_what_xml_would_escape(value: str) -> None:
    made = call("get_weather", {"city": value})
    written = DIALECTS["minicpm5"].render_calls([made])
    assert ("CDATA" in written) == (value != "]]>")
    assert calls_of(scan("minicpm5", written, [WEATHER])) == [("get_weather", {"city": value})]


def test_cdata_is_ended_only_by_its_own_mark() -> None:
    value = 'x</param>\n<param name="days">4</param>\n</function>\n<function name="get_weather">'
    text = MINICPM.replace("San Francisco", f"\n<![CDATA[{value}]]>\n")
    assert calls_of(scan("minicpm5", text, [WEATHER])) == [("get_weather", {"city": value, "days": 3})]


@pytest.mark.parametrize("blank", ["", "Ġ"])
def test_blank_of_a_tag_may_be_lost_or_not_decoded(blank: str) -> None:
    text = MINICPM.replace("function name", f"function{blank}name").replace("param name", f"param{blank}name")
    made = ("get_weather", {"city": "San Francisco", "days": 3})
    assert calls_of(scan("minicpm5", f"Looking.\n{text}\n{MINICPM}", [WEATHER])) == [made, made]
    assert calls_of(scan("minicpm5", MINICPM.replace("param name", f"param{blank}name"), [WEATHER])) == [made]
    for quoted in (f"`{text}`", f'The tag <function{blank}name="…"> begins a call.'):
        assert scan("minicpm5", quoted, [WEATHER]) == [Text(quoted)]


def test_arguments_in_a_parameter_named_properties_are_unwrapped() -> None:
    text = "<function name=\"get_weather\"><param name=\"properties\">{'city': 'Rome'}</param></function>"
    assert calls_of(scan("minicpm5", text, [WEATHER])) == [("get_weather", {"city": "Rome"})]


def test_json_calls_inside_the_outer_tags_are_parsed() -> None:
    text = '<dots_function_call>{"name":"get_weather","arguments":{"city":"Rome"}}</dots_function_call>'
    assert scan("dots", f"A{text}B", [WEATHER]) == [Text("A"), ParsedCall("get_weather", '{"city":"Rome"}'), Text("B")]
    both = text + CLAUDE.replace("function_calls", "dots_function_call")
    assert [name for name, _ in calls_of(scan("dots", both, [WEATHER]))] == ["get_weather", "get_weather"]
