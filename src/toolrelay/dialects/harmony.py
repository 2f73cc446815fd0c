"""Harmony, the format of gpt-oss: messages in channels.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

The analysis channel is reasoning; the final channel is text, and so is commentary without a recipient, or with one that is no
offered tool if it is no JSON, such as code for `python`. The recipient may precede or follow the channel.
Sources: OpenAI's guide to the format (openai-cookbook, articles/openai-harmony.md) and gpt-oss's chat template.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.rendering import arguments_json, json_line, typescript_declaration
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import json_arguments
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_RECIPIENT = " to=functions."
_TO = r"(?: ?to=([\w.\-]+))?"
_IN = r"(?:<\|channel\|>(\w+))?"
_HEADER = re.compile(rf"(?:assistant)?{_TO}{_IN}{_TO}{_IN}{_TO}\s*(?:(?:<\|constrain\|>)?\s*\w+)?\s*")
_HEADER_CHARACTERS = re.compile(r"[\w.\-=<|> ]*")


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    start = marker
    if marker == _START:
        start = yield from reader.expect("assistant")
    elif marker == _CHANNEL:
        start += yield from reader.expect("analysis", "commentary", "final")
    header = _HEADER.fullmatch(start + (yield from reader.read_word(_MESSAGE, of=_HEADER_CHARACTERS)))
    if header is None:
        raise NotACallError
    recipients, channel = header.group(1, 3, 5), header.group(4) or header.group(2)
    name = next((to for to in recipients if to and to != "assistant"), "").removeprefix("functions.")
    if name and NAME.fullmatch(name) and (name in sink.tools or (yield from reader.is_ahead("{", "<", "`"))):
        yield from _call(reader, sink, name)
        return
    emit = sink.reasoning if channel == "analysis" else sink.text
    emit("")
    if (yield from reader.read_until(*_ENDS, _START, emit=emit, or_end=True)) == _START:
        reader.unread(_START)


def _call(reader: Reader, sink: CallSink, name: str) -> Parse[None]:
    sink.start(name)
    yield from reader.skip_blanks()
    if (yield from reader.peek()) != "<":
        yield from json_arguments(reader, sink.arguments)
    yield from reader.skip_blanks()
    if (yield from reader.peek()):  # servers remove the last mark
        yield from reader.expect(*_ENDS)
    sink.finish()


def render_calls(calls: Sequence[Call]) -> str:
    """Render calls as they follow `<|start|>assistant`, with which the template begins an answer."""
    return f"{_START}assistant".join(
        f"{_CHANNEL}commentary to=functions.{call.name} <|constrain|>json{_MESSAGE}{arguments_json(call)}<|call|>"
        for call in calls
    )


def render_results(results: Sequence[ToolResult]) -> str:
    return "".join(
        f"{_START}functions.{result.call.name} to=assistant{_CHANNEL}commentary{_MESSAGE}{json_line(result.text)}<|end|>"
        for result in results
    )


def render_tools(tools: Sequence[Tool]) -> str:
    declared = "".join(typescript_declaration(tool) + "\n\n" for tool in tools)
    return (
        "Calls to these tools must go to the commentary channel: 'functions'.\n\n"
        f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{declared}}} // namespace functions"
    )


DIALECTS = (
    Dialect(
        name="harmony",
        start_markers=(
            StartMarker(_CHANNEL),
            StartMarker(_START),
            StartMarker(_RECIPIENT, "start"),
            StartMarker(_RECIPIENT.lstrip(), "start"),
        ),
        end_markers=_ENDS,
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    ),
)
