"""JSON calls after a mark: Granite 3, Phi 4 mini, Command R7B and A, Jamba, Hunyuan, InternLM, MiniMax M1, GigaChat 3, Apertus.

Sources: vLLM's templates tool_chat_template_{hunyuan_a13b, internlm2_tool, minimax_m1, granite_20b_fc, phi4_mini, apertus} and
tests test_{jamba, gigachat3, apertus}_tool_parser; llama.cpp's templates ibm-granite-granite-3.3-2B-Instruct and
CohereForAI-c4ai-command-r7b-12-2024-tool_use; for Granite 3's calls in history the template in llama.cpp's test-chat-template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._json_calls import NAME, json_calls
from toolrelay.dialects._typescript import declaration
from toolrelay.dialects._writing import arguments, as_json_lines, function, json_line, json_object, openai_tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import json_value, short_string
from toolrelay.parsing.stream_reader import Parse, Reader

_Read = Callable[[Reader, CallSink], Parse[None]]


def _dialect(
    name: str,
    marks: dict[str, str],
    render_calls: Callable[[Sequence[Call]], str],
    render_results: Callable[[Sequence[ToolResult]], str],
    render_tools: Callable[[Sequence[Tool]], str] | None = None,
    *,
    silent: tuple[str, ...] = (),
    read: _Read = json_calls,
) -> Dialect:
    """`marks`: what stands before the calls, and after them, if anything does. `silent`: marks around the text, which go away."""

    def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
        if marker in silent:
            return
        if marker.endswith("["):
            reader.unread("[")
        yield from reader.blanks()
        yield from read(reader, sink)
        if marks[marker]:
            yield from reader.closing(marks[marker])

    return Dialect(
        name=name,
        start_markers=tuple(StartMarker(mark) for mark in (*marks, *silent)),
        end_markers=tuple(dict.fromkeys(filter(None, marks.values()))),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    )


def _keyed_calls(reader: Reader, sink: CallSink) -> Parse[None]:
    """`[{"f": {…}}, {"g": {…}}]`: the name is the key."""
    yield from reader.literal("[")
    while True:
        yield from reader.blanks()
        yield from reader.literal("{")
        yield from reader.blanks()
        name = yield from short_string(reader)
        yield from reader.blanks()
        yield from reader.literal(":")
        yield from reader.blanks()
        if NAME.fullmatch(name) is None:
            raise NotACallError
        sink.start(name)
        yield from json_value(reader, sink.arguments)
        sink.finish()
        yield from reader.closing("}")
        if not (yield from reader.closing(",")):
            yield from reader.closing("]")
            return


def _list(before: str = "", after: str = "", item: str = "", key: str = "arguments") -> Callable[[Sequence[Call]], str]:
    """A writer of a list of calls between two marks. `item` stands before each call on a line of its own."""

    def render(calls: Sequence[Call]) -> str:
        written = [item + json_object(call, key) for call in calls]
        listed = "\n" + ",\n".join(written) + "\n" if item else ", ".join(written)
        return f"{before}[{listed}]{after}"

    return render


def _each(before: str, after: str = "", separator: str = "") -> Callable[[Sequence[Call]], str]:
    return lambda calls: separator.join(f"{before}{json_object(call)}{after}" for call in calls)


def _texts(before: str = "", after: str = "", separator: str = "\n") -> Callable[[Sequence[ToolResult]], str]:
    return lambda outcomes: separator.join(f"{before}{outcome.text}{after}" for outcome in outcomes)


def _cohere_calls(calls: Sequence[Call]) -> str:
    written = (
        f'    {{"tool_call_id": "{n}", "tool_name": {json_line(call.name)}, "parameters": {arguments(call)}}}'
        for n, call in enumerate(calls)
    )
    return "<|START_ACTION|>[\n" + ",\n".join(written) + "\n]<|END_ACTION|>"


def _cohere_outcomes(outcomes: Sequence[ToolResult]) -> str:
    written = (
        f'    {{\n        "tool_call_id": "{outcome.place}",\n        "results": {{\n'
        f'            "0": {json_line(outcome.text)}\n        }},\n        "is_error": null\n    }}'
        for outcome in outcomes
    )
    return "<|START_TOOL_RESULT|>[\n" + ",\n".join(written) + "\n]<|END_TOOL_RESULT|>"


def _minimax_calls(calls: Sequence[Call]) -> str:
    return "<tool_calls>\n" + "".join(json_object(call) + "\n" for call in calls) + "</tool_calls>"


def _minimax_tools(tools: Sequence[Tool]) -> str:
    listed = "".join(json_line(openai_tool(tool)) + "\n" for tool in tools)
    return f"""You are provided with these tools:
<tools>
{listed}</tools>

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
        + json.dumps([openai_tool(tool) for tool in tools], indent=4, ensure_ascii=False)
    )


def _apertus_calls(calls: Sequence[Call]) -> str:
    return (
        "<|tools_prefix|>[" + ", ".join(f"{{{json_line(call.name)}: {arguments(call)}}}" for call in calls) + "]<|tools_suffix|>"
    )


def _apertus_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return json_line([outcome.text for outcome in outcomes])


def _apertus_tools(tools: Sequence[Tool]) -> str:
    return "Tool Capabilities:\n" + "\n".join(map(declaration, tools))


def _internlm_tools(tools: Sequence[Tool]) -> str:
    return json_line([function(tool) for tool in tools])


DIALECTS = (
    _dialect(
        "granite", {"<|tool_call|>": "", "<tool_call>[": "</tool_call>"}, _list("<|tool_call|>"), as_json_lines, _granite_tools
    ),
    _dialect("granite_20b_fc", {"<function_call>": ""}, _each("<function_call> "), _texts("<function_response> ")),
    _dialect("phi4_mini", {"functools[": "", "<|tool_call|>": "<|/tool_call|>"}, _list("functools"), as_json_lines),
    _dialect(
        "cohere",
        {"<|START_ACTION|>": "<|END_ACTION|>"},
        _cohere_calls,
        _cohere_outcomes,
        silent=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    _dialect("jamba", {"<tool_calls>": "</tool_calls>"}, _list("<tool_calls>", "</tool_calls>", "    "), as_json_lines),
    _dialect(
        "hunyuan",
        {"<tool_calls>": "</tool_calls>"},
        _list("<tool_calls>", "</tool_calls>"),
        _texts("<tool_response>", "</tool_response>"),
    ),
    _dialect(
        "minimax_m1", {"<tool_calls>": "</tool_calls>"}, _minimax_calls, _texts("tool result: ", "\n\n", ""), _minimax_tools
    ),
    _dialect(
        "internlm",
        {"<|action_start|><|plugin|>": "<|action_end|>"},
        _each("<|action_start|><|plugin|>\n", "<|action_end|>"),
        as_json_lines,
        _internlm_tools,
    ),
    _dialect(
        "gigachat3",
        {"<|function_call|>": "", "<|message_sep|>\n\nfunction call<|role_sep|>\n": ""},
        _each("<|function_call|>", separator="\n"),
        as_json_lines,
    ),
    _dialect(
        "apertus", {"<|tools_prefix|>": "<|tools_suffix|>"}, _apertus_calls, _apertus_outcomes, _apertus_tools, read=_keyed_calls
    ),
)
