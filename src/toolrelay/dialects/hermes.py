"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes 2 Pro, Qwen 2.5 and 3, Granite 4 and many more.

Source: the chat templates of Qwen2.5-Instruct and Hermes-2-Pro.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.dialects._json_calls import json_calls
from toolrelay.dialects._reader import Reader, Reading
from toolrelay.dialects.base import Dialect, Opener, Outcome, Speaker


def grammar(reader: Reader, speaker: Speaker, opener: str) -> Reading[None]:
    close = f"</{opener[1:]}"
    yield from reader.blanks()
    while (yield from reader.option(opener)):  # some say it twice
        yield from reader.blanks()
    if (yield from reader.option("```json", "```")):
        yield from reader.blanks()
    yield from json_calls(reader, speaker)
    yield from reader.blanks()
    if (yield from reader.option("```")):
        yield from reader.blanks()
    yield from reader.option(close)


def render_calls(calls: Sequence[Call]) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": {_quoted(call.name)}, "arguments": {call.arguments or "{}"}}}\n</tool_call>' for call in calls
    )


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def render_outcomes(outcomes: Sequence[Outcome]) -> str:
    return "\n".join(f"<tool_response>\n{outcome.text}\n</tool_response>" for outcome in outcomes)


DIALECTS = (
    Dialect(
        name="hermes",
        openers=(Opener("<tool_call>"),),
        grammar=grammar,
        render_calls=render_calls,
        render_outcomes=render_outcomes,
    ),
)
