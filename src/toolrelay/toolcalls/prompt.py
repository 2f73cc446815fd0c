"""The prompt side: a request with tools into one for a model that can only print.

Tools are offered in system text only, ahead of the client's own; the same request gives the same bytes, so that prompt caches
work. Everything foreign in it (names, descriptions, schemas) is freed of what ends lines and of marks of the dialect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call, Content, Item, Message, Reasoning, Refusal, Result, Text, plain_text
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.rendering import escape_invisible
from toolrelay.toolcalls.names import Names
from toolrelay.toolcalls.results import TAG, framed, is_closed

_STOPS = 4  # more than that OpenAI and others refuse; the cut-off does without
_encode = msgspec.json.Encoder().encode


def offered(request: Request) -> tuple[Tool, ...]:
    """The tools that the model may use now: none, all, or those that tool_choice allows."""
    choice = request.tool_choice or ToolChoice()
    if choice.mode == "none":
        return ()
    allowed = dict.fromkeys(choice.names)
    return tuple(tool for tool in request.functions() if not allowed or (tool.kind, tool.name) in allowed)


def text_only(request: Request, dialect: Dialect, names: Names) -> Request:
    """The same conversation without any tools in its form: they are described, and calls and results are told as text."""
    tools = offered(request)
    block = rule_block(request, tools, dialect, names) if tools else ""
    items = _Telling(dialect, names).tell(request.items)
    instructions = request.instructions
    if block and instructions is not None:
        instructions = f"{block}\n\n{instructions}"
    elif block:
        items = _with_block(items, block)
    stop = request.sampling.stop
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if tools:
        stops += dialect.stops[: max(0, _STOPS - len(stops))]
    return replace(
        request,
        items=items,
        instructions=instructions,
        tools=tuple(tool for tool in request.tools if not isinstance(tool, Tool)),  # a provider's own are its wire's business
        tool_choice=None,
        parallel_tool_calls=None,
        stream=True,
        include_usage=True,
        output=None if tools else request.output,  # a form for the whole answer would leave no room for calls: it is told, too
        sampling=replace(request.sampling, stop=stops or None, n=None, logprobs=None, top_logprobs=None),
    )


def _with_block(items: tuple[Item, ...], block: str) -> tuple[Item, ...]:
    """The rules stand ahead of the client's first system text, or in a message of their own."""
    first = items[0] if items else None
    if isinstance(first, Message) and first.role in ("system", "developer"):
        own: Content = (
            f"{block}\n\n{first.content}" if isinstance(first.content, str) else (Text(text=f"{block}\n\n"), *first.content)
        )
        return (replace(first, content=own), *items[1:])
    return (Message(role="system", content=block), *items)


class _Telling:
    """Calls become part of what the assistant said, their results a message of the user's."""

    def __init__(self, dialect: Dialect, names: Names) -> None:
        self._dialect = dialect
        self._names = names
        self._made: dict[str, tuple[Call, int, int]] = {}  # with its place among those made with it, and its number among all
        self._number = self._latest = 0
        self._calls: list[Call] = []
        self._results: list[Result] = []
        self._out: list[Item] = []

    def tell(self, items: Sequence[Item]) -> tuple[Item, ...]:
        for item in items:
            match item:
                case Call():
                    self._settle_results()
                    self._calls.append(replace(item, name=self._names.to_model(item.name)))
                case Result():
                    self._settle_calls()
                    self._results.append(item)
                case Message(role="user") if self._results and is_closed(self._dialect):
                    self._settle_results(item)
                case _:
                    self._settle_calls()
                    self._settle_results()
                    self._out.append(item)
        self._settle_calls()
        self._settle_results()
        return tuple(self._out)

    def _settle_calls(self) -> None:
        """They belong to what the assistant has just said; reasoning that stands between is passed over."""
        if not self._calls:
            return
        self._latest = self._number
        self._number += len(self._calls)
        self._made |= {call.id: (call, place, self._latest + place) for place, call in enumerate(self._calls)}
        text = self._dialect.render_calls(self._calls)
        self._calls = []
        at = len(self._out) - 1
        while at >= 0 and isinstance(self._out[at], Reasoning):
            at -= 1
        last = self._out[at] if at >= 0 else None
        if isinstance(last, Message) and last.role == "assistant":
            said = plain_text(last.content)
            self._out[at] = replace(last, content=f"{said}\n{text}" if said.strip() else text)
        else:
            self._out.append(Message(role="assistant", content=text))

    def _settle_results(self, following: Message | None = None) -> None:
        """In the order of their calls. What the user says next is in the same message: some templates want roles to alternate."""
        if not self._results:
            return
        results, self._results = sorted(self._results, key=self._order), []
        text = self._dialect.render_results([self._outcome(result) for result in results])
        others = [
            part
            for result in results
            if isinstance(result.output, tuple)
            for part in result.output
            if not isinstance(part, Text | Refusal)
        ]
        content: Content = (Text(text=text), *others) if others else text
        if following is None:
            self._out.append(Message(role="user", content=content))
        else:
            self._out.append(replace(following, content=_joined(content, following.content)))

    def _order(self, result: Result) -> tuple[bool, int]:
        """Results of the calls that were just made come first, belated ones after them."""
        number = self._made[result.call_id][2]
        return number < self._latest, number

    def _outcome(self, result: Result) -> ToolResult:
        call, place, _ = self._made[result.call_id]
        return ToolResult(call=call, text=framed(plain_text(result.output), self._dialect), place=place)


def _joined(first: Content, second: Content) -> Content:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    parts = (Text(text=first),) if isinstance(first, str) else first
    return (*parts, Text(text="\n\n"), *((Text(text=second),) if isinstance(second, str) else second))


# The rules


def rule_block(request: Request, tools: Sequence[Tool], dialect: Dialect, names: Names) -> str:
    """What the model is told of its tools and of how to call them."""
    offer = _Offer([replace(tool, name=names.to_model(tool.name)) for tool in tools])
    return "\n".join([_offered(offer, dialect), *_choice_rules(request, tools, names)])


class _Offer:
    """Tools, known by their bytes: agents send the same ones with each request."""

    __slots__ = ("_bytes", "tools")

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tools
        self._bytes = _encode(tools)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Offer) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)


@lru_cache(maxsize=256)
def _offered(offer: _Offer, dialect: Dialect) -> str:
    marks = _marks(dialect)
    harmless = [_harmless(tool, marks) for tool in offer.tools]
    return dialect.render_tools(harmless) if dialect.render_tools is not None else _catalog(harmless, dialect)


_PROBE = Tool(name="f", description="")


@lru_cache(maxsize=256)
def _marks(dialect: Dialect) -> re.Pattern[str]:
    """Finds the first character of all that means something to the dialect's models: around its calls, and around its catalog."""
    catalog = dialect.render_tools([_PROBE]) if dialect.render_tools is not None else ""
    marks = {*(marker.text for marker in dialect.start_markers), *dialect.end_markers}
    marks |= set(TAG.findall(catalog + dialect.render_calls([Call(id="", name="f", arguments="{}")])))
    known = "|".join(sorted(re.escape(mark) for mark in marks if len(mark) > 2 and mark[0] in "<[`"))
    return re.compile(f"(?={known or '(?!)'}).")


def _harmless(tool: Tool, marks: re.Pattern[str]) -> Tool:
    """The same without anything in it that could look like the catalog's end, a call or another line."""

    def text(said: str) -> str:
        return marks.sub(r"\g<0> ", escape_invisible(said.replace("\r\n", "\n")))

    def value(said: Json) -> Json:
        match said:
            case str():
                return text(said)
            case list():
                return [value(item) for item in said]
            case dict():
                return {text(key): value(item) for key, item in said.items()}
            case _:
                return said

    parameters = value(tool.parameters)
    return replace(
        tool,
        description=None if tool.description is None else text(tool.description),
        parameters=parameters if isinstance(parameters, dict) else None,
    )


def _catalog(tools: Sequence[Tool], dialect: Dialect) -> str:
    listed = "\n".join(_line(tool) for tool in tools)
    example = dialect.render_calls([_example(tools[0])])
    return f"""# Tools

You can call the tools listed here, one JSON object a line:
{listed}

To call a tool, write a call in exactly this form, for example:
{example}

Rules:
- Use a name from the list and exactly the parameters of its schema; a tool without parameters takes {{}}.
- Write calls as they are: no code fence around them, nothing inside them but the call, each closed once.
- After your calls, stop. Their results come in the next message. Never make up a result.
- When no tool is needed, answer in plain text without any call."""


def _line(tool: Tool) -> str:
    described: JsonObject = {"name": tool.name}
    if tool.description:
        described["description"] = tool.description
    described["parameters"] = tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}
    return _encode(described).decode()


_PLAIN = re.compile(r"[\w.\- ]{1,64}")


def _example(tool: Tool) -> Call:
    """A call of the right shape; its values are only there to show where values go."""
    properties = (tool.parameters or {}).get("properties")
    required = (tool.parameters or {}).get("required")
    shown = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    if not shown and isinstance(properties, dict):
        shown = list(properties)[:1]
    shown = [name for name in shown if _PLAIN.fullmatch(name)]  # not every dialect can write any name
    arguments = {name: _example_value(properties.get(name) if isinstance(properties, dict) else None) for name in shown}
    return Call(id="example", name=tool.name, arguments=_encode(arguments).decode())


def _example_value(schema: object) -> Json:
    if not isinstance(schema, dict):
        return "…"
    values = schema.get("enum")
    if isinstance(values, list) and values:
        first: Json = values[0]
        return first if not isinstance(first, str) or _PLAIN.fullmatch(first) else "…"
    examples: dict[object, Json] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    kind = schema.get("type")
    return examples.get(kind if isinstance(kind, str) else None, "…")


def _choice_rules(request: Request, tools: Sequence[Tool], names: Names) -> list[str]:
    choice = request.tool_choice or ToolChoice()
    rules: list[str] = []
    if choice.mode == "required":
        rules.append("- In this answer you must call at least one tool. Begin with the call; write nothing before it.")
    elif choice.mode == "named":
        name = _encode(names.to_model(choice.names[0][1])).decode()
        rules.append(f"- In this answer you must call the tool {name}. Begin with the call; write nothing before it.")
    if request.parallel_tool_calls is False:
        rules.append("- Make one call at the most in an answer.")
    elif len(tools) > 1 or request.parallel_tool_calls:
        rules.append("- Several calls may follow each other in one answer.")
    form = request.output
    if form is not None and form.type == "json_schema":
        schema = escape_invisible(_encode(form.schema).decode())
        rules.append(
            f"- When you answer without a call, answer with one JSON value that fits this schema, and nothing else: {schema}"
        )
    elif form is not None and form.type == "json_object":
        rules.append("- When you answer without a call, answer with one JSON object, and nothing else.")
    return rules
