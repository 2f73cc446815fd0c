"""The demo model's mind: a request into the whole answer, by rule.

    the request                                   the answer
    -------------------------------------------   ---------------------------------------------------------------
    tool_choice required or named                 a call of that tool, or of the one that fits best
    results since the user's last message         what they say, unless the user asked for more calls than were made
    "repeat: TEXT"                                TEXT
    the user's words ask for tools                those calls
    "say TEXT", "count to N"                      that
    a greeting, a question who it is, the rest    what it is, what it heard, which tools it was offered

Where a JSON format is asked for, what is said takes that form. A token is a piece: a delta of text, reasoning or arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolrelay.backends._demo_arguments import made_for
from toolrelay.backends._demo_clues import Clues, each_place, excerpt, name_words, quotes
from toolrelay.backends._demo_hearing import Wish, best_match, wishes
from toolrelay.backends._demo_schema import written
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import Json
from toolrelay.core.messages import Audio, Call, Content, File, Image, Message, Part, Reasoning, Result, plain_text
from toolrelay.core.request import Request, Tool
from toolrelay.errors import ClientError, invalid

NAME = "toolrelay-demo"
WHO = "I am the demo model of Toolrelay: a small script, not a language model."

_RESULT_LENGTH = 500
_EXCERPT_LENGTH = 80
_ARGUMENT_PIECE = 8
_MOST_CHOICES = 128  # as many as OpenAI allows
_MOST_NAMES = 8
_MOST_PIECES = 200_000
_COUNT_LIMIT = 10_000
_PIECE = re.compile(r"\S{1,24}\s*|\s+")
_REPEAT = re.compile(r"\s*repeat: ?(.*)", re.IGNORECASE | re.DOTALL)
_SAY = re.compile(r"\s*(?:please\s)?say:?\s(.*)", re.IGNORECASE | re.DOTALL)
_COUNT = re.compile(r"\bcount\s(?:up\s)?to\s([0-9]{1,9})\b", re.IGNORECASE)
_GREETING = re.compile(
    r"\s*(?:hi|hello|hey|hallo|moin|bonjour|hola|ciao|good (?:morning|afternoon|evening)|greetings)\b", re.IGNORECASE
)
_FAILURE = re.compile(r"\s*(?:an )?(?:error|exception|traceback|failed|failure)\b|\s*the user denied\b", re.IGNORECASE)


class _PlannedCall(Struct, frozen=True):
    tool: Tool
    arguments: str


class _Heard(Struct, frozen=True, kw_only=True):
    """The user's last message, and what has happened since."""

    text: str
    parts: Sequence[Part]
    results: Sequence[tuple[str, Result]]
    calls_made: int


def think(request: Request) -> list[StreamEvent]:
    """The answer, whole."""
    most = request.sampling.max_output_tokens
    if most is not None and most < 1:
        return [AnswerFailed(_no_room(request))]
    heard = _hear(request)
    calls = _planned(request, heard)
    text = "" if calls else _until_stop(_said(request, heard), request.sampling.stop)
    thought = _thought(request, heard, calls)
    choices = min(max(request.sampling.n or 1, 1), _MOST_CHOICES)
    limit = min(_MOST_PIECES // choices, _MOST_PIECES if most is None else most)
    events: list[StreamEvent] = [AnswerStarted(model=NAME)]
    finish: Finish = "stop"
    for choice in range(choices):
        whole = _deltas(thought, calls, text, choice)
        spoken, was_cut = _cut(whole, limit)
        finish = "length" if was_cut else "calls" if calls else "stop"
        events += spoken
        if choice:
            events.append(ChoiceFinished(choice, finish))
    events.append(AnswerFinished(finish=finish, usage=_usage(request, events)))
    return events


def _no_room(request: Request) -> ClientError:
    field = request.sampling.max_tokens_field or "max_output_tokens"
    return invalid(f"{field!r} must be at least 1.", field, code="integer_below_min_value")


def _hear(request: Request) -> _Heard:
    items = request.items
    last = max((place for place, item in enumerate(items) if isinstance(item, Message) and item.role == "user"), default=-1)
    message = items[last] if last >= 0 else None
    content: Content = message.content if isinstance(message, Message) else ""
    names = {item.id: item.name for item in items if isinstance(item, Call)}
    since = items[last + 1 :]
    return _Heard(
        text=plain_text(content),
        parts=() if isinstance(content, str) else content,
        results=[(names.get(item.call_id) or item.name or "The tool", item) for item in since if isinstance(item, Result)],
        calls_made=sum(isinstance(item, Call) for item in since),
    )


# Calls


def _planned(request: Request, heard: _Heard) -> list[_PlannedCall]:
    choice = request.tool_choice
    mode = choice.mode if choice else "auto"
    names = choice.names if choice else ()
    tools = [tool for tool in request.functions() if not names or (tool.kind, tool.name) in names]
    if mode == "none" or not tools:
        return []
    text = heard.text
    parallel = request.parallel_tool_calls is not False
    if mode == "named":
        return _calls(best_match(text, tools), text)[:1]
    if mode == "auto" and _REPEAT.match(heard.text):
        return []
    wanted = [call for wish in wishes(text, tools) for call in _calls(wish, text)]
    pending = wanted[heard.calls_made :]
    if not pending and mode == "required":
        pending = _calls(best_match(text, tools), text)
    return pending if parallel else pending[:1]


def _calls(wish: Wish, text: str) -> list[_PlannedCall]:
    """One call, or one for each place that the user lists, unless the tool takes the list itself."""
    if wish.arguments is not None:
        return [_PlannedCall(wish.tool, wish.arguments)]
    if wish.tool.kind == "custom":
        return [_PlannedCall(wish.tool, next(iter(quotes(excerpt(wish.clause))), text.strip()))]
    whole = _arguments(wish, wish.clause, text)
    if any(isinstance(value, list) for value in whole.values()):
        made = [whole]
    else:
        made = [_arguments(wish, clause, text) for clause in each_place(wish.clause)]
    distinct = dict.fromkeys(written(arguments) for arguments in made)
    return [_PlannedCall(wish.tool, arguments) for arguments in distinct]


def _arguments(wish: Wish, clause: str, text: str) -> dict[str, Json]:
    clues = Clues(clause, whole=text, after=wish.after, ignored=name_words(wish.tool.name))
    value = made_for(wish.tool.parameters or {"type": "object"}, clues)
    return value if isinstance(value, dict) else {}


# Words


def _said(request: Request, heard: _Heard) -> str:
    output = request.output
    text = _plainly(request, heard)
    if output is None or output.type == "text":
        return text
    if output.schema is None:
        return written({"answer": text})
    whole = "\n".join(_report(name, result) for name, result in heard.results) or heard.text
    return written(made_for(output.schema, Clues(heard.text, whole=whole)))


def _plainly(request: Request, heard: _Heard) -> str:
    if heard.results:
        return "\n".join(_report(name, result) for name, result in heard.results)
    if command := _REPEAT.match(heard.text) or _SAY.match(heard.text):
        return command[1]
    if count := _COUNT.search(excerpt(heard.text)):
        return _counting(int(count[1]))
    said = _shortened(heard.text, _EXCERPT_LENGTH)
    greeting = "Hello!" if _GREETING.match(said) else ""
    echo = f'You said: "{said}".' if said else "You said nothing that I can read."
    if greeting and len(said.split()) <= 2:
        echo = ""
    return " ".join(filter(None, [greeting, WHO, echo, _attachments(heard.parts), _offer(request)]))


def _counting(to: int) -> str:
    if to > _COUNT_LIMIT:
        return f"I count to {_COUNT_LIMIT} at most."
    return " ".join(str(number) for number in range(min(to, 1), to + 1))


def _report(name: str, result: Result) -> str:
    text = plain_text(result.output)
    shown = text if len(text) <= _RESULT_LENGTH else text[:_RESULT_LENGTH] + "…"
    others = [] if isinstance(result.output, str) else _counted(result.output)
    shown = " ".join(filter(None, [shown, f"({', '.join(others)})" if others else ""])) or "(nothing)"
    return f"{name} {'failed' if _failed(text) else 'says'}: {shown}"


def _failed(text: str) -> bool:
    """Results carry no mark for failure, only their words."""
    if _FAILURE.match(text):
        return True
    if not text.lstrip().startswith("{"):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and any(value.get(key) for key in ("error", "isError", "is_error"))


def _attachments(parts: Sequence[Part]) -> str:
    counted = _counted(parts)
    if not counted:
        return ""
    one = len(counted) == 1 and counted[0].startswith("1 ")
    return f"I see {' and '.join(counted)}, but I cannot look at {'it' if one else 'them'}."


def _counted(parts: Sequence[Part]) -> list[str]:
    counts = [
        (sum(isinstance(part, kind) for part in parts), word)
        for kind, word in ((Image, "image"), (File, "file"), (Audio, "recording"))
    ]
    return [f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count]


def _offer(request: Request) -> str:
    tools = request.functions()
    if not tools:
        return "I was offered no tools; declare some, and I call those you ask for. Try also: count to 10, or repeat: TEXT."
    names = ", ".join(tool.name for tool in tools[:_MOST_NAMES])
    more = f" and {len(tools) - _MOST_NAMES} more" if len(tools) > _MOST_NAMES else ""
    if request.tool_choice and request.tool_choice.mode == "none":
        return f"I was offered these tools: {names}{more}; but tool_choice is none, so I call nothing."
    example = _shortened(_calls(Wish(tool=tools[0], clause="Paris"), "Paris")[0].arguments, _EXCERPT_LENGTH)
    return f"I was offered these tools: {names}{more}. Name one and I call it. For example: {tools[0].name} {example}"


def _thought(request: Request, heard: _Heard, calls: Sequence[_PlannedCall]) -> ReasoningDelta | None:
    wish = request.reasoning
    if wish is None or wish.effort in (None, "none", "minimal"):
        return None
    plan = (
        f"call {' and '.join(call.tool.name for call in calls)}"
        if calls
        else "report what the tools said"
        if heard.results
        else "answer"
    )
    text = f'The user asks: "{_shortened(heard.text, _EXCERPT_LENGTH)}". I will {plan}.'
    return ReasoningDelta(text, "summary" if wish.summary else "text")


def _shortened(text: str, length: int) -> str:
    text = " ".join(text[: length * 4].split())
    return text if len(text) <= length else text[:length].rstrip() + "…"


def _until_stop(text: str, stop: str | Sequence[str] | None) -> str:
    for end in (stop,) if isinstance(stop, str) else stop or ():
        text = text.split(end, 1)[0] if end else text
    return text


# Deltas


def _deltas(thought: ReasoningDelta | None, calls: Sequence[_PlannedCall], text: str, choice: int) -> Iterator[StreamEvent]:
    if thought:
        for piece in _PIECE.findall(thought.text):
            yield ReasoningDelta(piece, thought.kind, 0, choice)
    for piece in _PIECE.findall(text):
        yield TextDelta(piece, choice)
    for index, call in enumerate(calls):
        yield CallStarted(index, call.tool.name, kind=call.tool.kind, choice=choice)
        for start in range(0, len(call.arguments), _ARGUMENT_PIECE):
            yield ArgumentsDelta(index, call.arguments[start : start + _ARGUMENT_PIECE], choice)
        yield CallFinished(index, choice)


def _cut(events: Iterator[StreamEvent], limit: int) -> tuple[list[StreamEvent], bool]:
    """The events up to that many pieces. A call of which nothing would be left is not begun."""
    kept: list[StreamEvent] = []
    spent = 0
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta):
            if spent >= limit:
                if kept and isinstance(kept[-1], CallStarted):
                    kept.pop()
                return kept, True
            spent += 1
        kept.append(event)
    return kept, False


def _usage(request: Request, events: Sequence[StreamEvent]) -> Usage:
    spent = _read(request)
    thought = sum(isinstance(event, ReasoningDelta) for event in events)
    said = sum(isinstance(event, TextDelta | ArgumentsDelta) for event in events)
    return Usage(input=spent, output=thought + said, total=spent + thought + said, reasoning=thought)


def _read(request: Request) -> int:
    """The pieces of everything that a model would have to read."""
    texts = [request.instructions or ""]
    others = 0
    for tool in request.functions():
        texts += [tool.name, tool.description or "", written(tool.parameters) if tool.parameters else ""]
    for item in request.items:
        match item:
            case Message(content=content) | Result(output=content):
                texts.append(plain_text(content))
                others += 0 if isinstance(content, str) else sum(isinstance(part, Image | Audio | File) for part in content)
            case Call():
                texts += [item.name, item.arguments]
            case Reasoning():
                texts += [*item.text, *item.summary]
            case _:
                others += 1
    return others + sum(len(_PIECE.findall(text)) for text in texts)
