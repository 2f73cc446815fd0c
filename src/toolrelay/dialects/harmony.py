"""gpt-oss: messages in channels, `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>`.

The analysis channel is reasoning, the final one text, and so is commentary that is addressed to nobody. Whom a message is for may
stand before or after its channel.
Sources: OpenAI's guide to the format (openai-cookbook, articles/openai-harmony.md) and gpt-oss's chat template.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._json_calls import NAME
from toolrelay.dialects._typescript import declaration
from toolrelay.dialects._writing import arguments, json_line
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import json_value
from toolrelay.parsing.stream_reader import Parse, Reader

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_ADDRESSED = " to=functions."
_TO = r"(?: ?to=([\w.\-]+))?"
_HEADER = re.compile(rf"(?:assistant)?{_TO}(?:<\|channel\|>(\w+))?{_TO}\s*(?:(?:<\|constrain\|>)?\s*\w+)?\s*")
_MAY_BE_HEADER = re.compile(r"[\w.\-=<|> ]*")


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    begun = marker
    if marker == _START:
        begun = yield from reader.literal("assistant")
    elif marker == _CHANNEL:
        begun += yield from reader.literal("analysis", "commentary", "final")
    header = _HEADER.fullmatch(begun + (yield from reader.word(_MESSAGE, of=_MAY_BE_HEADER)))
    if header is None:
        raise NotACallError
    name = (header.group(1) or header.group(3) or "").removeprefix("functions.")
    if name and NAME.fullmatch(name):
        yield from _call(reader, sink, name)
        return
    said = sink.reasoning if header.group(2) == "analysis" else sink.text
    said("")
    if (yield from reader.until(*_ENDS, _START, emit=said, or_end=True)) == _START:
        reader.unread(_START)


def _call(reader: Reader, sink: CallSink, name: str) -> Parse[None]:
    sink.start(name)
    yield from reader.blanks()
    if (yield from reader.peek()) != "<":
        yield from json_value(reader, sink.arguments)
    yield from reader.blanks()
    if (yield from reader.peek()):  # servers take the last mark away
        yield from reader.literal(*_ENDS)
    sink.finish()


def render_calls(calls: Sequence[Call]) -> str:
    """As they stand after `<|start|>assistant`, with which the template begins what the model says."""
    return f"{_START}assistant".join(
        f"{_CHANNEL}commentary to=functions.{call.name} <|constrain|>json{_MESSAGE}{arguments(call)}<|call|>" for call in calls
    )


def render_results(outcomes: Sequence[ToolResult]) -> str:
    return "".join(
        f"{_START}functions.{outcome.call.name} to=assistant{_CHANNEL}commentary{_MESSAGE}{json_line(outcome.text)}<|end|>"
        for outcome in outcomes
    )


def render_tools(tools: Sequence[Tool]) -> str:
    declared = "".join(declaration(tool) + "\n\n" for tool in tools)
    return (
        "Calls to these tools must go to the commentary channel: 'functions'.\n\n"
        f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{declared}}} // namespace functions"
    )


DIALECTS = (
    Dialect(
        name="harmony",
        start_markers=(StartMarker(_CHANNEL), StartMarker(_START), StartMarker(_ADDRESSED, "start")),
        end_markers=_ENDS,
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    ),
)
