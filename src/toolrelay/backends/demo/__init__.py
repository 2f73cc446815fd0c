"""The demo model: a script that calls tools without a language model. docs/demo-model.md has its rules."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence

from msgspec.structs import replace

from toolrelay.backends.base import BackendKind, Deliver, deliver_all
from toolrelay.backends.demo.calls import call_best_tool, fill_schema, find_calls, to_json
from toolrelay.core import events as ev
from toolrelay.core.messages import Call, Message, Result, Text, plain_text
from toolrelay.core.request import Request, ToolChoice
from toolrelay.errors import invalid
from toolrelay.settings import ModelSettings

_MAX_BATCHES = 400
_MAX_CHOICES = 128  # OpenAI's limit
_MAX_PIECES = 200_000
_MAX_COUNT = 10_000
_PIECE = re.compile(r"\S{1,24}\s*|\s+")
_REPEAT = re.compile(r"\s*repeat: ?(.*)", re.IGNORECASE | re.DOTALL)
_SAY = re.compile(r"\s*(?:please\s)?say:?\s(.*)", re.IGNORECASE | re.DOTALL)
_COUNT = re.compile(r"\bcount\s(?:up\s)?to\s([0-9]{1,9})\b", re.IGNORECASE)
_JSON_ERROR = r'\{\s*"(?:is_?)?error"\s*:\s*(?!\s|null|false|0|"")'
_FAILURE = re.compile(rf"(?i)\s*(?:(?:an )?(?:error|exception|traceback|failed|failure)\b|the user denied\b|{_JSON_ERROR})")


class DemoBackend:
    """Answers by `respond`. A streamed answer has a pause of `delay` seconds between batches."""

    def __init__(self, *, delay: float = 0.015) -> None:
        self._delay = delay

    async def stream(self, request: Request) -> AsyncGenerator[list[ev.StreamEvent], None]:
        events = respond(request)
        size = 1 + len(events) // _MAX_BATCHES if request.stream else len(events)
        for start in range(0, len(events), size):
            if start:
                await asyncio.sleep(self._delay)
            yield events[start : start + size]

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        await deliver_all(self.stream(request), deliver)

    async def close(self) -> None:
        pass


def respond(request: Request) -> list[ev.StreamEvent]:
    """Return the whole answer. A token is a piece: a delta of text, reasoning or arguments."""
    sampling = request.sampling
    if sampling.max_output_tokens is not None and sampling.max_output_tokens < 1:
        field = sampling.max_tokens_field or "max_output_tokens"
        return [ev.AnswerFailed(invalid(f"{field!r} must be at least 1.", field, code="integer_below_min_value"))]
    message, results, past_calls = _read(request)
    calls = _plan(request, message, past_calls)
    text = "" if calls else _text(request, message, results)
    for stop in (sampling.stop,) if isinstance(sampling.stop, str) else sampling.stop or ():
        text = text.split(stop, 1)[0] if stop else text
    choices = min(max(sampling.n or 1, 1), _MAX_CHOICES)
    limit = min(_MAX_PIECES // choices, sampling.max_output_tokens or _MAX_PIECES)
    finish: ev.Finish = "calls" if calls else "stop"
    deltas = list(_deltas(request, message, text, calls))
    pieces = [place for place, event in enumerate(deltas) if not isinstance(event, ev.CallStarted | ev.CallFinished)]
    if len(pieces) > limit:
        end, finish = pieces[limit], "length"
        deltas = deltas[: end - isinstance(deltas[end - 1], ev.CallStarted)]  # a call without any piece is not begun
    answer: list[ev.StreamEvent] = [ev.AnswerStarted(model="toolrelay-demo"), *deltas]
    for choice in range(1, choices):
        answer += [*(replace(event, choice=choice) for event in deltas), ev.ChoiceFinished(choice, finish)]
    return [*answer, ev.AnswerFinished(finish=finish, usage=_usage(request, answer))]


def _read(request: Request) -> tuple[str, str, int]:
    """Return the user's last message, and a report of the results and the number of calls since then."""
    message, calls = "", 0
    results: list[str] = []
    names: dict[str, str] = {}
    for item in request.items:
        if isinstance(item, Message) and item.role == "user":
            message, results, calls = plain_text(item.content), [], 0
        elif isinstance(item, Call):
            calls, names[item.id] = calls + 1, item.name
        elif isinstance(item, Result):
            text = plain_text(item.output)
            others = 0 if isinstance(item.output, str) else sum(not isinstance(part, Text) for part in item.output)
            shown = " ".join(filter(None, [_shorten(text, 500), f"({others} attached)" if others else ""])) or "(nothing)"
            name = names.get(item.call_id) or item.name or "The tool"
            results.append(f"{name} {'failed' if _FAILURE.match(text) else 'says'}: {shown}")
    return message, "\n".join(results), calls


def _plan(request: Request, message: str, past_calls: int) -> list[Call]:
    choice = request.tool_choice or ToolChoice()
    mode, tools = choice.mode, [tool for tool in request.functions() if choice.allows(tool.kind, tool.name)]
    if not tools or (mode == "auto" and _REPEAT.match(message)):
        return []
    calls = find_calls(message, tools)
    obligatory = [] if mode == "auto" else calls or call_best_tool(message, tools)
    pending = calls[past_calls:] or obligatory
    return pending[:1] if mode == "named" or request.parallel_tool_calls is False else pending


def _text(request: Request, message: str, results: str) -> str:
    output, tools = request.output, request.functions()
    if output and output.schema is not None:
        return to_json(fill_schema(output.schema, results or message, message))
    if results:
        text = results
    elif command := _REPEAT.match(message) or _SAY.match(message):
        text = command[1]
    elif count := _COUNT.search(message[:4000]):
        to = int(count[1])
        text = " ".join(map(str, range(min(to, 1), to + 1))) if to <= _MAX_COUNT else f"I count to {_MAX_COUNT} at most."
    else:
        offered = f"these tools: {_shorten(', '.join(tool.name for tool in tools), 200)}" if tools else "no tools"
        text = (
            f'I am the demo model of Toolrelay: a small script, not a language model. You said: "{_shorten(message)}". '
            f"I was offered {offered}. Name a tool and I call it. Try also: count to 10, or repeat: TEXT."
        )
    return to_json({"answer": text}) if output and output.type != "text" else text


def _shorten(text: str, length: int = 80) -> str:
    return text if len(text) <= length else text[:length].rstrip() + "…"


def _deltas(request: Request, message: str, text: str, calls: Sequence[Call]) -> Iterator[ev.StreamEvent]:
    options = request.reasoning
    if options and options.effort not in (None, "none", "minimal"):
        plan = f"call {' and '.join(call.name for call in calls)}" if calls else "answer"
        for piece in _PIECE.findall(f'The user asks: "{_shorten(message)}". I will {plan}.'):
            yield ev.ReasoningDelta(piece, "summary" if options.summary else "text")
    yield from map(ev.TextDelta, _PIECE.findall(text))
    for index, call in enumerate(calls):
        yield ev.CallStarted(index, call.name, kind=call.kind)
        for start in range(0, len(call.arguments), 8):
            yield ev.ArgumentsDelta(index, call.arguments[start : start + 8])
        yield ev.CallFinished(index)


def _usage(request: Request, answer: Sequence[ev.StreamEvent]) -> ev.Usage:
    texts = [request.instructions or "", *(f"{tool.name} {tool.description}" for tool in request.functions())]
    texts += [plain_text(item.content) for item in request.items if isinstance(item, Message)]
    texts += [plain_text(item.output) for item in request.items if isinstance(item, Result)]
    texts += [f"{item.name} {item.arguments}" for item in request.items if isinstance(item, Call)]
    read = sum(len(_PIECE.findall(text)) for text in texts)
    reasoning = sum(isinstance(event, ev.ReasoningDelta) for event in answer)
    written = reasoning + sum(isinstance(event, ev.TextDelta | ev.ArgumentsDelta) for event in answer)
    return ev.Usage(input=read, output=written, total=read + written, reasoning=reasoning)


BACKEND = BackendKind(settings=ModelSettings, open=lambda *_: DemoBackend())
