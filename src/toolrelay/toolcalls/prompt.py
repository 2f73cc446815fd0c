"""Rendering of a request with tools for a model that can only print.

Tools are described in system text, before the client's own. The same request gives the same bytes, so that prompt caches work.
Foreign text in it (names, descriptions, schemas) is escaped: it cannot contain line breaks or delimiters of the dialect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call, Content, Item, Message, Part, Reasoning, Refusal, Result, Text, plain_text
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.rendering import escape_invisible
from toolrelay.parsing.grammar import StartMarker
from toolrelay.toolcalls.names import ToolNames
from toolrelay.toolcalls.results import TAG, escape_result, has_end_delimiter

MAX_STOPS = 4  # OpenAI and others refuse more; the cut-off works without them
_encode = msgspec.json.Encoder().encode
_decode_tools = msgspec.json.Decoder(list[Tool]).decode


def offered_tools(request: Request) -> tuple[Tool, ...]:
    """Return the tools that tool_choice allows: none, all, or the named ones. With `reads_calls` all stay described."""
    choice = request.tool_choice or ToolChoice()
    if choice.reads_calls:
        return request.functions()
    return tuple(tool for tool in request.functions() if choice.allows(tool.kind, tool.name))


def render_prompt(request: Request, dialect: Dialect, names: ToolNames) -> Request:
    """Return the request without tools: they are described in system text, and calls and results are rendered as text."""
    tools = offered_tools(request)
    rules = _render_rules(request, tools, dialect, names) if tools else ""
    items = _HistoryRenderer(dialect, names).render(request.items)
    instructions = request.instructions
    if rules and instructions is not None:
        instructions = f"{rules}\n\n{instructions}"
    elif rules:
        items = _prepend_rules(items, rules)
    stop = request.sampling.stop
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if tools:
        stops += dialect.stops[: max(0, MAX_STOPS - len(stops))]
    return replace(
        request,
        items=items,
        instructions=instructions,
        tools=tuple(tool for tool in request.tools if not isinstance(tool, Tool)),  # the wire handles a provider's own tools
        tool_choice=None,
        parallel_tool_calls=None,
        stream=True,
        include_usage=True,
        output=None if tools else request.output,  # a format for the whole answer would rule out calls; the rules mention it
        sampling=replace(request.sampling, stop=stops or None, n=None, logprobs=None, top_logprobs=None),
    )


def _prepend_rules(items: tuple[Item, ...], rules: str) -> tuple[Item, ...]:
    """Put the rules before the client's first system text, or into a message of their own."""
    first = items[0] if items else None
    if isinstance(first, Message) and first.role in ("system", "developer"):
        content: Content = (
            f"{rules}\n\n{first.content}" if isinstance(first.content, str) else (Text(text=f"{rules}\n\n"), *first.content)
        )
        return (replace(first, content=content), *items[1:])
    return (Message(role="system", content=rules), *items)


class _HistoryRenderer:
    """Render calls as part of the assistant's message before them, and their results as a user message."""

    def __init__(self, dialect: Dialect, names: ToolNames) -> None:
        self._dialect = dialect
        self._names = names
        self._by_id: dict[str, tuple[Call, int, int]] = {}  # call, its place among those made together, its number among all
        self._count = self._latest = 0  # calls so far; the number of the first of those made last
        self._calls: list[Call] = []
        self._results: list[Result] = []
        self._out: list[Item] = []

    def render(self, items: Sequence[Item]) -> tuple[Item, ...]:
        for item in items:
            match item:
                case Call():
                    self._flush_results()
                    self._calls.append(self._names.rename(item))
                case Result():
                    self._flush_calls()
                    self._results.append(item)
                case Message(role="user") if self._results and has_end_delimiter(self._dialect):
                    self._flush_results(item)
                case _:
                    self._flush_calls()
                    self._flush_results()
                    self._out.append(item)
        self._flush_calls()
        self._flush_results()
        return tuple(self._out)

    def _flush_calls(self) -> None:
        """Append the calls to the assistant's last message, also if reasoning stands between."""
        if not self._calls:
            return
        self._latest = self._count
        self._count += len(self._calls)
        self._by_id |= {call.id: (call, place, self._latest + place) for place, call in enumerate(self._calls)}
        text = self._dialect.render_calls(self._calls)
        self._calls = []
        at = len(self._out) - 1
        while at >= 0 and isinstance(self._out[at], Reasoning):
            at -= 1
        last = self._out[at] if at >= 0 else None
        if isinstance(last, Message) and last.role == "assistant":
            before = plain_text(last.content)
            self._out[at] = replace(last, content=f"{before}\n{text}" if before.strip() else text)
        else:
            self._out.append(Message(role="assistant", content=text))

    def _flush_results(self, next_message: Message | None = None) -> None:
        """Add the results in the order of their calls, in one message with the user's next: some templates require
        alternating roles.
        """
        if not self._results:
            return
        results, self._results = sorted(self._results, key=self._sort_key), []
        text = self._dialect.render_results([self._make_result(result) for result in results])
        others = [part for result in results for part in _parts(result.output) if not isinstance(part, Text | Refusal)]
        content: Content = (Text(text=text), *others) if others else text
        if next_message is None:
            self._out.append(Message(role="user", content=content))
        else:
            self._out.append(replace(next_message, content=_join(content, next_message.content)))

    def _sort_key(self, result: Result) -> tuple[bool, int]:
        """Sort results of earlier calls after those of the latest ones."""
        number = self._by_id[result.call_id][2]
        return number < self._latest, number

    def _make_result(self, result: Result) -> ToolResult:
        call, place, _ = self._by_id[result.call_id]
        return ToolResult(call=call, text=escape_result(plain_text(result.output), self._dialect), place=place)


def _join(first: Content, second: Content) -> Content:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return (*_parts(first), Text(text="\n\n"), *_parts(second))


def _parts(content: Content) -> tuple[Part, ...]:
    return (Text(text=content),) if isinstance(content, str) else content


# The description of the tools, and the rules for calling them


def _render_rules(request: Request, tools: Sequence[Tool], dialect: Dialect, names: ToolNames) -> str:
    catalog = _render_catalog(_encode([names.rename(tool) for tool in tools]), dialect)
    return "\n".join([catalog, *_choice_rules(request, tools, names)])


@lru_cache(maxsize=256)
def _render_catalog(encoded: bytes, dialect: Dialect) -> str:
    """Render the tools, which are encoded to be a cache key: agents send the same ones with every request."""
    delimiters = _delimiters(dialect)
    tools = [_escape_tool(tool, delimiters) for tool in _decode_tools(encoded)]
    return dialect.render_tools(tools) if dialect.render_tools is not None else _default_catalog(tools, dialect)


@lru_cache(maxsize=256)
def _delimiters(dialect: Dialect) -> re.Pattern[str]:
    """Return a pattern for the first character of each delimiter around the dialect's calls and tools."""
    catalog = dialect.render_tools([Tool(name="f", description="")]) if dialect.render_tools is not None else ""
    found = {*(marker.text for marker in dialect.start_markers), *dialect.end_markers}
    found |= set(TAG.findall(catalog + dialect.render_calls([Call(id="", name="f", arguments="{}")])))
    patterns = [re.escape(text) for text in found if len(text) > 2 and text[0] in "<[`"]
    if StartMarker("<") in dialect.start_markers:  # tags named after tools
        patterns.append(r"</?\w")
    alternatives = "|".join(sorted(patterns))
    return re.compile(f"(?={alternatives or '(?!)'}).")


def _escape_tool(tool: Tool, delimiters: re.Pattern[str]) -> Tool:
    """Escape everything in the tool that could look like the end of the catalog, a call or another line."""

    def escape_text(text: str) -> str:
        return delimiters.sub(r"\g<0> ", escape_invisible(text.replace("\r\n", "\n")))

    def escape(value: Json) -> Json:
        match value:
            case str():
                return escape_text(value)
            case list():
                return [escape(item) for item in value]
            case dict():
                return {escape_text(key): escape(item) for key, item in value.items()}
            case _:
                return value

    parameters = escape(tool.parameters)
    return replace(
        tool,
        description=None if tool.description is None else escape_text(tool.description),
        parameters=parameters if isinstance(parameters, dict) else None,
    )


def _default_catalog(tools: Sequence[Tool], dialect: Dialect) -> str:
    listed = "\n".join(_render_tool(tool) for tool in tools)
    example = dialect.render_calls([_make_example(tools[0])])
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


def _render_tool(tool: Tool) -> str:
    described: JsonObject = {"name": tool.name}
    if tool.description:
        described["description"] = tool.description
    described["parameters"] = tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}
    return _encode(described).decode()


_PLAIN = re.compile(r"[\w.\- ]{1,64}")


def _make_example(tool: Tool) -> Call:
    """Return a call with placeholder values of the right types."""
    schema = tool.parameters or {}
    found, required = schema.get("properties"), schema.get("required")
    properties = found if isinstance(found, dict) else {}
    shown = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    # Not every dialect can represent every name.
    shown = [name for name in shown or list(properties)[:1] if _PLAIN.fullmatch(name)]
    arguments = {name: _example_value(properties.get(name)) for name in shown}
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


def _choice_rules(request: Request, tools: Sequence[Tool], names: ToolNames) -> list[str]:
    choice = request.tool_choice or ToolChoice()
    rules: list[str] = []
    if choice.mode == "required":
        rules.append("- In this answer you must call at least one tool. Begin with the call; write nothing before it.")
    elif choice.mode == "named":
        name = _encode(names.to_model(choice.names[0][1])).decode()
        rules.append(f"- In this answer you must call the tool {name}. Begin with the call; write nothing before it.")
    if choice.mode == "none":
        rules.append("- Make no more calls: answer now with what you know.")
    elif request.parallel_tool_calls is False:
        rules.append("- Make one call at the most in an answer.")
    elif len(tools) > 1 or request.parallel_tool_calls:
        rules.append("- Several calls may follow each other in one answer.")
    output = request.output
    if output is not None and output.type == "json_schema":
        schema = escape_invisible(_encode(output.schema).decode())
        rules.append(
            f"- When you answer without a call, answer with one JSON value that fits this schema, and nothing else: {schema}"
        )
    elif output is not None and output.type == "json_object":
        rules.append("- When you answer without a call, answer with one JSON object, and nothing else.")
    return rules
