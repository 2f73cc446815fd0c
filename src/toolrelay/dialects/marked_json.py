"""JSON calls after a mark: Granite 3, Phi 4 mini, Command R, R7B and A, Jamba, Hunyuan, MiniMax M1, InternLM, GigaChat 3,
Nemotron, Apertus. Each is a row of DIALECTS.

Granite 3:  <|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]
Nemotron:   <TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>
Apertus:    <|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>
Command R:  Action: and a fence `json` with [{"tool_name": "get_weather", "parameters": {"city": "Paris"}}]

Sources: vLLM's templates tool_chat_template_{hunyuan_a13b, internlm2_tool, minimax_m1, granite_20b_fc, phi4_mini, apertus} and
tests test_{jamba, gigachat3, apertus}_tool_parser; for Granite's results tool_chat_template_granite; llama.cpp's templates
ibm-granite-granite-3.3-2B-Instruct, GigaChat3.1-10B-A1.8B,
CohereForAI-c4ai-command-{r-plus, r7b-12-2024}-tool_use and NVIDIA-Nemotron-Nano-v2; for Granite 3's calls in history the template
in llama.cpp's test-chat-template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import msgspec

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.json_calls import json_calls
from toolrelay.dialects.rendering import (
    arguments_json,
    framed_results,
    function_schema,
    json_line,
    json_lines,
    openai_schema,
    python_declaration,
    render_json_call,
    render_json_results,
    typescript_declaration,
)
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import json_arguments, short_string
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

_CITED = "</co: "
_CITATION = re.compile(r"[\d:,\[\] ]*")
_Parser = Callable[[Reader, CallSink], Parse[None]]


def _dialect(
    name: str,
    marks: dict[str, str],
    render_calls: Callable[[Sequence[Call]], str],
    render_results: Callable[[Sequence[ToolResult]], str],
    render_tools: Callable[[Sequence[Tool]], str] | None = None,
    *,
    stripped: tuple[str, ...] = (),
    stray_marks: tuple[str, ...] = (),
    parse: _Parser = json_calls,
) -> Dialect:
    """`marks`: start markers, each with its end marker or "". `stripped`: marks around text, and of citations."""

    def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
        if marker in stripped:
            if marker == _CITED:
                yield from reader.read_word(">", of=_CITATION)
            return
        if marker.endswith(("[", "{")):
            reader.unread(marker[-1])
        yield from reader.skip_blanks()
        yield from parse(reader, sink)
        if marks[marker]:
            yield from reader.accept_after_blanks(marks[marker])

    return Dialect(
        name=name,
        start_markers=tuple(StartMarker(mark) for mark in (*marks, *stripped)),
        end_markers=tuple(dict.fromkeys(filter(None, marks.values()))),
        stray_marks=stray_marks,
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    )


def _keyed_calls(reader: Reader, sink: CallSink) -> Parse[None]:
    """Parse `[{"f": {…}}, {"g": {…}}]`, where the key is the name. The brackets may be missing."""
    yield from reader.accept("[")
    while True:
        yield from reader.skip_blanks()
        yield from reader.expect("{")
        yield from reader.skip_blanks()
        name = yield from short_string(reader)
        yield from reader.skip_blanks()
        yield from reader.expect(":")
        yield from reader.skip_blanks()
        if NAME.fullmatch(name) is None:
            raise NotACallError
        sink.start(name)
        yield from json_arguments(reader, sink.arguments)
        sink.finish()
        yield from reader.accept_after_blanks("}")
        if not (yield from reader.accept_after_blanks(",")):
            yield from reader.accept_after_blanks("]")
            return


def _list(before: str = "", after: str = "", item: str = "", key: str = "arguments") -> Callable[[Sequence[Call]], str]:
    """Return a renderer of a list of calls between two marks. `item`: the indentation of each call on a line of its own."""

    def render(calls: Sequence[Call]) -> str:
        written = [item + render_json_call(call, key) for call in calls]
        listed = "\n" + ",\n".join(written) + "\n" if item else ", ".join(written)
        return f"{before}[{listed}]{after}"

    return render


def _each(before: str, after: str = "", separator: str = "") -> Callable[[Sequence[Call]], str]:
    return lambda calls: separator.join(f"{before}{render_json_call(call)}{after}" for call in calls)


def _cohere_calls(calls: Sequence[Call]) -> str:
    written = (
        f'    {{"tool_call_id": "{n}", "tool_name": {json_line(call.name)}, "parameters": {arguments_json(call)}}}'
        for n, call in enumerate(calls)
    )
    return "<|START_ACTION|>[\n" + ",\n".join(written) + "\n]<|END_ACTION|>"


def _cohere_results(results: Sequence[ToolResult]) -> str:
    written = (
        f'    {{\n        "tool_call_id": "{result.place}",\n        "results": {{\n'
        f'            "0": {json_line(result.text)}\n        }},\n        "is_error": null\n    }}'
        for result in results
    )
    return "<|START_TOOL_RESULT|>[\n" + ",\n".join(written) + "\n]<|END_TOOL_RESULT|>"


def _command_r_calls(calls: Sequence[Call]) -> str:
    written = ",\n".join(
        f'    {{\n        "tool_name": {json_line(call.name)},\n        "parameters": {_indented(call)}\n    }}' for call in calls
    )
    return f"Action:\n```json\n[\n{written}\n]```"


def _indented(call: Call) -> str:
    arguments = arguments_json(call)
    try:
        return msgspec.json.format(arguments, indent=4).replace("\n", "\n        ")
    except (msgspec.MsgspecError, RecursionError):
        return arguments


def _command_r_tools(tools: Sequence[Tool]) -> str:
    declared = "\n\n".join(f"```python\n{python_declaration(tool)}\n```" for tool in tools)
    return f"""## Available Tools
Here is a list of tools that you have available to you:

{declared}

If tools are needed, write 'Action:' followed by a json-formatted list of actions that you want to perform in order to produce a \
good response to the user's last input. You can use any of the supplied tools any number of times, but you should aim to execute \
the minimum number of necessary actions for the input. The list of actions you want to call should be formatted as a list of \
json objects, for example:
```json
[
    {{
        "tool_name": title of the tool in the specification,
        "parameters": a dict of parameters to input into the tool as they are defined in the specs, or {{}} if it takes no \
parameters
    }}
]```"""


def _minimax_calls(calls: Sequence[Call]) -> str:
    return "<tool_calls>\n" + "".join(render_json_call(call) + "\n" for call in calls) + "</tool_calls>"


def _minimax_tools(tools: Sequence[Tool]) -> str:
    return f"""You are provided with these tools:
<tools>
{json_lines(tools)}
</tools>

If you need to call tools, please respond with <tool_calls></tool_calls> XML tags, and provide tool-name and json-object of \
arguments, following the format below:
<tool_calls>
{{"name": <tool-name>, "arguments": <args-json-object>}}
...
</tool_calls>"""


def _granite_tools(tools: Sequence[Tool]) -> str:
    return (
        "You are a helpful assistant with access to the following tools. When a tool is required to answer the user's query, "
        "respond only with <|tool_call|> followed by a JSON list of tools used. If a tool does not exist in the provided list of "
        "tools, notify the user that you do not have the ability to fulfill the request.\n"
        + json.dumps([openai_schema(tool) for tool in tools], indent=4, ensure_ascii=False)
    )


def _apertus_calls(calls: Sequence[Call]) -> str:
    listed = ", ".join(f"{{{json_line(call.name)}: {arguments_json(call)}}}" for call in calls)
    return f"<|tools_prefix|>[{listed}]<|tools_suffix|>"


def _apertus_results(results: Sequence[ToolResult]) -> str:
    return json_line([result.text for result in results])


def _apertus_tools(tools: Sequence[Tool]) -> str:
    return "Tool Capabilities:\n" + "\n".join(map(typescript_declaration, tools))


def _function_list(tools: Sequence[Tool]) -> str:
    return json_line([function_schema(tool) for tool in tools])


def _nemotron_results(results: Sequence[ToolResult]) -> str:
    return f"<TOOL_RESPONSE>[{', '.join(result.text for result in results)}]</TOOL_RESPONSE>"


def _nemotron_tools(tools: Sequence[Tool]) -> str:
    return f"""You can use the following tools to assist the user if required:
<AVAILABLE_TOOLS>{_function_list(tools)}</AVAILABLE_TOOLS>

If you decide to call any tool(s), use the following format:
<TOOLCALL>[{{"name": "tool_name1", "arguments": "tool_args1"}}, {{"name": "tool_name2", "arguments": "tool_args2"}}]</TOOLCALL>

The user will execute tool-calls and return responses from tool(s) in this format:
<TOOL_RESPONSE>[{{"tool_response1"}}, {{"tool_response2"}}]</TOOL_RESPONSE>

Based on the tool responses, you can call additional tools if needed, correct tool calls if any errors are found, or just \
respond to the user."""


DIALECTS = (
    _dialect(
        "granite",
        {"<|tool_call|>": "", "<tool_call>": "</tool_call>"},
        _list("<|tool_call|>"),
        framed_results("<|start_of_role|>tool_response<|end_of_role|>", separator="<|end_of_text|>\n"),
        _granite_tools,
        stray_marks=("<response>", "</response>"),
    ),
    _dialect("granite_20b_fc", {"<function_call>": ""}, _each("<function_call> "), framed_results("<function_response> ")),
    _dialect(
        "phi4_mini",
        {"functools[": "", "functools{": "", "<|tool_call|>": "<|/tool_call|>"},
        _list("functools"),
        render_json_results,
    ),
    _dialect(
        "cohere",
        {"<|START_ACTION|>": "<|END_ACTION|>"},
        _cohere_calls,
        _cohere_results,
        stripped=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>", "<co>", _CITED),
    ),
    _dialect(
        "command_r",
        {f"Action:{blank}```json": "```" for blank in ("\n", " ", "")},
        _command_r_calls,
        framed_results("<results>\n", "</results>"),
        _command_r_tools,
        stripped=("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
    ),
    _dialect("jamba", {"<tool_calls>": "</tool_calls>"}, _list("<tool_calls>", "</tool_calls>", "    "), render_json_results),
    _dialect(
        "hunyuan",
        {"<tool_calls>": "</tool_calls>"},
        _list("<tool_calls>", "</tool_calls>"),
        framed_results("<tool_response>", "</tool_response>"),
        stray_marks=("<answer>", "</answer>"),
    ),
    _dialect(
        "minimax_m1",
        {"<tool_calls>": "</tool_calls>"},
        _minimax_calls,
        framed_results("tool result: ", "\n\n", ""),
        _minimax_tools,
    ),
    _dialect(
        "internlm",
        {"<|action_start|><|plugin|>": "<|action_end|>", "<|action_start|> <|plugin|>": "<|action_end|>"},
        _each("<|action_start|><|plugin|>\n", "<|action_end|>"),
        render_json_results,
        _function_list,
    ),
    _dialect(
        "gigachat3",
        {"<|function_call|>": "", "<|message_sep|>\n\nfunction call<|role_sep|>\n": ""},
        _each("<|function_call|>", separator="\n"),
        framed_results("function result<|role_sep|>\n", separator="<|message_sep|>\n\n"),
    ),
    _dialect("nemotron", {"<TOOLCALL>": "</TOOLCALL>"}, _list("<TOOLCALL>", "</TOOLCALL>"), _nemotron_results, _nemotron_tools),
    _dialect(
        "apertus", {"<|tools_prefix|>": "<|tools_suffix|>"}, _apertus_calls, _apertus_results, _apertus_tools, parse=_keyed_calls
    ),
)
