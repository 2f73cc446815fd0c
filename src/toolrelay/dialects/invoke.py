"""Calls in `<invoke>` tags: Claude's XML, MiniMax M2 and M3, DeepSeek V3.2 and V4, GigaChat 3.5, Step 3, dots, MiniCPM 5. The
outer tags and prefixes differ.

    <function_calls>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </function_calls>

MiniCPM 5:   <function name="get_weather"><param name="city">Paris</param></function>      with CDATA where XML needs it
MiniMax M3:  <invoke name="get_weather"><city>Paris</city><days><item>3</item></days></invoke>      and a mark before each tag

DeepSeek and GigaChat state of each parameter whether it is a string; elsewhere the tool's schema decides. Inside the outer tags
JSON calls are accepted, too, as dots' models print them.
Sources: llama.cpp's templates DeepSeek-V3.2, DeepSeek-V4, unsloth-MiniMax-M2, MiniMax-M3 and openbmb-MiniCPM5-1B; vLLM's tests
test_{deepseekv4, dots}_tool_parser; SGLang's detectors step3, gigachat35 and dots (for calls only: no source for the results of
these three was found).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.json_calls import json_calls
from toolrelay.dialects.parameter_types import ANY, STRING
from toolrelay.dialects.rendering import Argument, framed_results, function_schema, json_line, json_lines, render_json_results
from toolrelay.dialects.tagged_parameters import Header, TagForm, attribute, first_value, render_parameters, tagged_call
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

_DSML, _GCML = "｜DSML｜", "｜GCML｜"
_M3 = "]<]minimax[>["
_NAME_AND_MORE = re.compile(r"""["']?(?:[\w.\-]+(?:["'/\s][^<>]*)?)?""")
_OUTER_TAG = re.compile(r"\w*")


def _parse_header(text: str) -> Header:
    is_string = attribute(text, " string")
    return first_value(text), None if is_string is None else STRING if is_string == "true" else ANY - STRING


def _header(argument: Argument) -> str:
    quote = "'" if '"' in argument.name else '"'
    return quote + argument.name + quote


def _typed_header(argument: Argument) -> str:
    return f'{_header(argument)} string="{"false" if argument.text is None else "true"}"'


def _offered_name(name: str, tools: Collection[str]) -> str:
    """Return the name without a namespace of the same name, as Muse Glimmer writes `f.f`."""
    namespace, _, function = name.partition(".")
    return function if namespace == function and function in tools and name not in tools else name


class InvokeForm(Struct, frozen=True, kw_only=True):
    """The outer tags, the names and the prefix of all inner tags, and the marks around each call.

    `mark`: stands before each tag, and parameters are tags of their own name. `blanks`: what stands before `name=`: in the
    template, and where a model or its server loses the blank or does not decode it.
    """

    opens: str = ""
    closes: str = ""
    prefix: str = ""
    names: tuple[str, str] = ("invoke", "parameter")
    typed: bool = False
    cdata: bool = False
    blanks: tuple[str, ...] = (" ",)
    mark: str = ""
    before: str = ""
    after: str = ""
    line: str = "\n"

    @property
    def stray_marks(self) -> tuple[str, ...]:
        """The marks around each call, and the end of DeepSeek's answer."""
        marks = (self.before, self.before.partition("function")[0], self.after, "<｜end▁of▁sentence｜>" if self.typed else "")
        return tuple(filter(None, marks))

    @property
    def invoke(self) -> str:
        return self.invokes[0]

    @property
    def invokes(self) -> tuple[str, ...]:
        return tuple(f"{self.mark}<{self.prefix}{self.names[0]}{blank}name=" for blank in self.blanks)

    @property
    def token(self) -> str:
        """The special token that begins every tag, if the form has one: what follows it may be any outer tag."""
        return f"<{self.prefix}" if self.prefix.startswith("｜") else ""

    @property
    def spaced(self) -> InvokeForm:
        """The form of DeepSeek V4.1: a blank after each token, and a shorter outer tag."""
        prefix = f"{self.prefix} "
        return replace(self, prefix=prefix, opens=f"<{prefix}calls>", closes=f"</{prefix}calls>")

    @property
    def calls(self) -> tuple[str, ...]:
        """How a call may begin: a part of the mark before it may be missing."""
        mark, _, _ = self.before.partition("function")
        return tuple(dict.fromkeys((self.before + self.invoke, mark + self.invoke, *self.invokes)))

    @property
    def form(self) -> TagForm:
        call, parameter = self.names
        frame = CallFrame(
            call=self.invoke,
            name_ends=(">", " ", "/"),
            ends=(f"{self.mark}</{self.prefix}{call}>",),
            opens=tuple(filter(None, (self.opens, self.before))),
            closes=tuple(filter(None, (self.closes, self.after))),
        )
        if self.mark:
            close = f"{self.mark}</{{key}}>"
            return TagForm(key_open=f"{self.mark}<", key_close=">", value_close=close, frame=frame, nested=self.mark)
        key_open, *variants = (f"<{self.prefix}{parameter}{blank}name=" for blank in self.blanks)
        return TagForm(
            key_open=key_open,
            variants=tuple(variants),
            key_close=">",
            value_close=f"</{self.prefix}{parameter}>",
            frame=frame,
            parse_header=_parse_header,
            render_header=_typed_header if self.typed else _header,
            cdata=self.cdata,
        )

    def render_calls(self, calls: Sequence[Call]) -> str:
        form, line = self.form, self.line
        written = (
            f'{self.before}{self.invoke}"{call.name}">{line}{render_parameters(call, form, line)}{form.frame.ends[0]}{self.after}'
            for call in calls
        )
        return "\n".join(filter(None, (self.opens, *written, self.closes)))

    def grammar(self, reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
        if self.token and marker == self.token:
            marker = yield from self._outer_tag(reader)
            if marker.startswith(self.spaced.token):
                yield from self.spaced.grammar(reader, sink, marker)
                return
        if marker not in self.invokes:
            if self.token and (yield from self._end(reader)):  # an empty block
                return
            yield from reader.skip_blanks()
            if (yield from reader.is_ahead("{", "[{")):
                yield from json_calls(reader, sink, closed=True)
                yield from reader.accept_after_blanks(self.closes)
                return
            yield from reader.expect(*self.calls)
        form = self.form
        while True:
            tag = yield from reader.read_word(">", of=_NAME_AND_MORE)
            function = _offered_name(first_value(tag), sink.tools)
            if NAME.fullmatch(function) is None:
                raise NotACallError
            if tag.endswith("/"):
                sink.start(function)
                sink.finish()
            else:
                yield from tagged_call(reader, sink, form, function)
            if self.after:
                yield from reader.accept_after_blanks(self.after)
            if not (yield from reader.accept_after_blanks(*self.calls)):
                break
        yield from self._end(reader)

    def _outer_tag(self, reader: Reader) -> Parse[str]:
        """Parse the rest of the tag after its token, up to the name of a call; return it."""
        token = self.token + (yield from reader.accept(" "))
        tag = yield from reader.read_match(_OUTER_TAG)
        return token + tag + (yield from reader.expect(" name=" if tag == self.names[0] else ">"))

    def _end(self, reader: Reader) -> Parse[bool]:
        """Consume the closing outer tag; return whether it followed."""
        if self.closes and (yield from reader.accept_after_blanks(self.closes)):
            return True
        ahead = (yield from reader.find_ahead(f"</{self.prefix}")) if self.token else 0
        tag = (yield from reader.word_ahead(">", after=ahead)) if ahead else None
        if tag is None or tag == self.names[0] or _OUTER_TAG.fullmatch(tag) is None:
            return False
        return bool((yield from reader.accept_after_blanks(f"</{self.prefix}{tag}>")))


def _dialect(
    name: str,
    render_results: Callable[[Sequence[ToolResult]], str],
    render_tools: Callable[[Sequence[Tool]], str] | None = None,
) -> Dialect:
    outer = FORMS[name]
    forms = (outer, outer.spaced) if outer.token else (outer,)
    return Dialect(
        name=name,
        start_markers=tuple(
            StartMarker(mark) for mark in ((outer.token,) if outer.token else (outer.opens, *outer.invokes)) if mark
        ),
        end_markers=tuple(mark for form in forms for mark in (form.closes, *form.form.frame.ends) if mark),
        stray_marks=outer.stray_marks,
        grammar=outer.grammar,
        render_calls=outer.render_calls,
        render_results=render_results,
        render_tools=render_tools,
    )


def _claude_results(results: Sequence[ToolResult]) -> str:
    written = (f"<result>\n<tool_name>{r.call.name}</tool_name>\n<stdout>{r.text}</stdout>\n</result>\n" for r in results)
    return f"<function_results>\n{''.join(written)}</function_results>"


def _dsml_results(results: Sequence[ToolResult]) -> str:
    return "<function_results>\n" + "".join(f"<result>{result.text}</result>\n" for result in results) + "</function_results>"


def _minimax_section(tools: Sequence[Tool]) -> str:
    listed = "".join(f"<tool>{json_line(function_schema(tool))}</tool>\n" for tool in tools)
    return f"""# Tools
You may call one or more tools to assist with the user query.
Here are the tools available in JSONSchema format:

<tools>
{listed}</tools>

"""


def _minimax_m2_tools(tools: Sequence[Tool]) -> str:
    return f"""{_minimax_section(tools)}When making tool calls, use XML format to invoke tools and pass parameters:

<minimax:tool_call>
<invoke name="tool-name-1">
<parameter name="param-key-1">param-value-1</parameter>
<parameter name="param-key-2">param-value-2</parameter>
...
</invoke>
</minimax:tool_call>"""


def _minimax_m3_tools(tools: Sequence[Tool]) -> str:
    example = """
<tool_call>
<invoke name="tool-name-1"><param-1>value-1</param-1><param-2><item><key-a>val-a</key-a><key-b>val-b</key-b></item></param-2>\
</invoke>
<invoke name="tool-name-2"><param-1>value-1</param-1></invoke>
</tool_call>"""
    return (
        f"{_minimax_section(tools)}To call tools, wrap all invocations in a single {_M3}<tool_call>{_M3}</tool_call> block. "
        "Parameter values containing nested objects or arrays are recursively expanded into XML elements. Example:\n"
        + example.replace("<", f"{_M3}<")
    )


def _dsml_example(outer: str, name: str) -> str:
    return f"""<{_DSML}{outer}>
<{_DSML}invoke name="${name}">
<{_DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{_DSML}parameter>
...
</{_DSML}invoke>
<{_DSML}invoke name="${name}2">
...
</{_DSML}invoke>
</{_DSML}{outer}>"""


def _function_lines(tools: Sequence[Tool]) -> str:
    return "\n".join(json_line(function_schema(tool)) for tool in tools)


def _deepseek_v32_tools(tools: Sequence[Tool]) -> str:
    return f"""## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<{_DSML}function_calls>" block like the following as part of your reply to the user:
{_dsml_example("function_calls", "FUNCTION_NAME")}

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON \
format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, \
booleans, arrays, objects).

Here are the functions available in JSONSchema format:
<functions>
{_function_lines(tools)}
</functions>"""


def _deepseek_v4_tools(tools: Sequence[Tool]) -> str:
    return f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<{_DSML}tool_calls>" block like the following:

{_dsml_example("tool_calls", "TOOL_NAME")}

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), \
pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any \
tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

{_function_lines(tools)}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls."""


def _minicpm_tools(tools: Sequence[Tool]) -> str:
    return f"""# Tools

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{json_lines(tools)}
</tools>

Tool usage guidelines:
- You may call zero or more functions. If no function calls are needed, just answer normally and do not include any \
<function ... </function>.
- When calling a function, return an XML object within <function ... </function> using:
<function name="function-name"><param name="param-name">param-value</param></function>
- param-value may be multi-line. If it contains <, & or newline characters, wrap it in a CDATA block: \
<param name="param-name"><![CDATA[...multi-line value...]]></param>"""


FORMS = {
    "invoke_xml": InvokeForm(opens="<function_calls>", closes="</function_calls>"),
    "minimax_m2": InvokeForm(opens="<minimax:tool_call>", closes="</minimax:tool_call>"),
    "deepseek_v32": InvokeForm(opens=f"<{_DSML}function_calls>", closes=f"</{_DSML}function_calls>", prefix=_DSML, typed=True),
    "deepseek_v4": InvokeForm(opens=f"<{_DSML}tool_calls>", closes=f"</{_DSML}tool_calls>", prefix=_DSML, typed=True),
    "step3": InvokeForm(
        opens="<｜tool_calls_begin｜>",
        closes="<｜tool_calls_end｜>",
        prefix="steptml:",
        before="<｜tool_call_begin｜>function<｜tool_sep｜>",
        after="<｜tool_call_end｜>",
    ),
    "gigachat35": InvokeForm(opens=f"<{_GCML}tool_calls>", closes=f"</{_GCML}tool_calls>", prefix=_GCML, typed=True),
    "minimax_m3": InvokeForm(opens=f"{_M3}<tool_call>", closes=f"{_M3}</tool_call>", mark=_M3, line=""),
    "dots": InvokeForm(opens="<dots_function_call>", closes="</dots_function_call>"),
    "minicpm5": InvokeForm(names=("function", "param"), cdata=True, blanks=(" ", "", "Ġ"), line=""),
}
DIALECTS = (
    _dialect("invoke_xml", _claude_results),
    _dialect("minimax_m2", framed_results("<response>", "</response>"), _minimax_m2_tools),
    _dialect("minimax_m3", framed_results("<response>", "</response>"), _minimax_m3_tools),
    _dialect("deepseek_v32", _dsml_results, _deepseek_v32_tools),
    _dialect("deepseek_v4", framed_results("<tool_result>", "</tool_result>", "\n\n"), _deepseek_v4_tools),
    _dialect("step3", render_json_results),
    _dialect("gigachat35", render_json_results),
    _dialect("dots", render_json_results),
    _dialect("minicpm5", framed_results("<tool_response>\n", "\n</tool_response>"), _minicpm_tools),
)
