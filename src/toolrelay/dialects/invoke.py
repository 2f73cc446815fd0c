"""Calls in `<invoke>` tags: Claude's XML, MiniMax M2, DeepSeek V3.2 and V4, Step 3. The outer tags and prefixes differ.

    <function_calls>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </function_calls>

DeepSeek states of each parameter whether it is a string; elsewhere the tool's schema decides.
Sources: llama.cpp's DeepSeek-V3.2 and unsloth-MiniMax-M2 templates, vLLM's test_deepseekv4_tool_parser, SGLang's step3_detector
(calls only: no source for Step 3's results was found).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.parameter_types import ANY, STRING
from toolrelay.dialects.rendering import Argument, framed_results, function_schema, json_line, render_json_results
from toolrelay.dialects.tagged_parameters import Header, TagForm, attribute, render_parameters, tagged_call
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

_DSML = "｜DSML｜"
_NAME_AND_MORE = re.compile(r'[\w.\-]*(?:"[^<>]*)?')


def _parse_header(text: str) -> Header:
    is_string = attribute(text, " string")
    return text.partition('"')[0], None if is_string is None else STRING if is_string == "true" else ANY - STRING


def _typed_header(argument: Argument) -> str:
    return f'{argument.name}" string="{"false" if argument.text is None else "true"}"'


class _InvokeForm(Struct, frozen=True, kw_only=True):
    """The outer tags, the prefix of all inner tags, and the marks around each call."""

    opens: str
    closes: str
    prefix: str = ""
    typed: bool = False
    before: str = ""
    after: str = ""

    @property
    def invoke(self) -> str:
        return f'<{self.prefix}invoke name="'

    @property
    def calls(self) -> tuple[str, ...]:
        """How a call may begin: a part of the mark before it may be missing."""
        mark, _, _ = self.before.partition("function")
        return tuple(dict.fromkeys((self.before + self.invoke, mark + self.invoke, self.invoke)))

    @property
    def form(self) -> TagForm:
        return TagForm(
            key_open=f'<{self.prefix}parameter name="',
            key_close=">",
            value_close=f"</{self.prefix}parameter>",
            frame=CallFrame(
                call=self.invoke,
                name_ends=('"',),
                ends=(f"</{self.prefix}invoke>",),
                opens=(self.opens, *filter(None, [self.before])),
                closes=(self.closes, *filter(None, [self.after])),
            ),
            parse_header=_parse_header,
            render_header=_typed_header if self.typed else lambda argument: f'{argument.name}"',
        )

    def render_calls(self, calls: Sequence[Call]) -> str:
        form = self.form
        written = (
            f'{self.before}{self.invoke}{call.name}">\n{render_parameters(call, form)}{form.frame.ends[0]}{self.after}\n'
            for call in calls
        )
        return f"{self.opens}\n{''.join(written)}{self.closes}"


def _dialect(
    name: str,
    render_results: Callable[[Sequence[ToolResult]], str],
    render_tools: Callable[[Sequence[Tool]], str] | None = None,
) -> Dialect:
    outer = FORMS[name]
    form = outer.form

    def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
        if marker != outer.invoke:
            yield from reader.skip_blanks()
            yield from reader.expect(*outer.calls)
        while True:
            tag = yield from reader.read_word(">", of=_NAME_AND_MORE)
            function = tag.partition('"')[0]
            if NAME.fullmatch(function) is None:
                raise NotACallError
            if tag.endswith("/"):
                sink.start(function)
                sink.finish()
            else:
                yield from tagged_call(reader, sink, form, function)
            if outer.after:
                yield from reader.accept_after_blanks(outer.after)
            if not (yield from reader.accept_after_blanks(*outer.calls)):
                break
        yield from reader.accept_after_blanks(outer.closes)

    return Dialect(
        name=name,
        start_markers=(StartMarker(outer.opens), StartMarker(outer.invoke)),
        end_markers=(outer.closes, *form.frame.ends),
        grammar=grammar,
        render_calls=outer.render_calls,
        render_results=render_results,
        render_tools=render_tools,
    )


def _claude_results(results: Sequence[ToolResult]) -> str:
    written = (f"<result>\n<tool_name>{r.call.name}</tool_name>\n<stdout>{r.text}</stdout>\n</result>\n" for r in results)
    return f"<function_results>\n{''.join(written)}</function_results>"


def _dsml_results(results: Sequence[ToolResult]) -> str:
    return "<function_results>\n" + "".join(f"<result>{result.text}</result>\n" for result in results) + "</function_results>"


def _minimax_tools(tools: Sequence[Tool]) -> str:
    listed = "".join(f"<tool>{json_line(function_schema(tool))}</tool>\n" for tool in tools)
    return f"""# Tools
You may call one or more tools to assist with the user query.
Here are the tools available in JSONSchema format:

<tools>
{listed}</tools>

When making tool calls, use XML format to invoke tools and pass parameters:

<minimax:tool_call>
<invoke name="tool-name-1">
<parameter name="param-key-1">param-value-1</parameter>
<parameter name="param-key-2">param-value-2</parameter>
...
</invoke>
</minimax:tool_call>"""


def _dsml_tools(outer: str) -> Callable[[Sequence[Tool]], str]:
    def render(tools: Sequence[Tool]) -> str:
        listed = "\n".join(json_line(function_schema(tool)) for tool in tools)
        return f"""## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<{_DSML}{outer}>" block like the following as part of your reply to the user:
<{_DSML}{outer}>
<{_DSML}invoke name="$FUNCTION_NAME">
<{_DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{_DSML}parameter>
...
</{_DSML}invoke>
<{_DSML}invoke name="$FUNCTION_NAME2">
...
</{_DSML}invoke>
</{_DSML}{outer}>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON \
format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, \
booleans, arrays, objects).

Here are the functions available in JSONSchema format:
<functions>
{listed}
</functions>"""

    return render


FORMS = {
    "invoke_xml": _InvokeForm(opens="<function_calls>", closes="</function_calls>"),
    "minimax_m2": _InvokeForm(opens="<minimax:tool_call>", closes="</minimax:tool_call>"),
    "deepseek_v32": _InvokeForm(opens=f"<{_DSML}function_calls>", closes=f"</{_DSML}function_calls>", prefix=_DSML, typed=True),
    "deepseek_v4": _InvokeForm(opens=f"<{_DSML}tool_calls>", closes=f"</{_DSML}tool_calls>", prefix=_DSML, typed=True),
    "step3": _InvokeForm(
        opens="<｜tool_calls_begin｜>",
        closes="<｜tool_calls_end｜>",
        prefix="steptml:",
        before="<｜tool_call_begin｜>function<｜tool_sep｜>",
        after="<｜tool_call_end｜>",
    ),
}
DIALECTS = (
    _dialect("invoke_xml", _claude_results),
    _dialect("minimax_m2", framed_results("<response>", "</response>"), _minimax_tools),
    _dialect("deepseek_v32", _dsml_results, _dsml_tools("function_calls")),
    _dialect("deepseek_v4", _dsml_results, _dsml_tools("tool_calls")),
    _dialect("step3", render_json_results),
)
