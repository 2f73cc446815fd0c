"""The request as the model gets it, and how the model is asked again.

model                                          tools                      a required call
--------------------------------------------   ------------------------   ---------------------------------------------------
prints its calls                               described in system text   constrained decoding where possible, else retried
is native, its server enforces tool_choice     declared                   passed on
is native, its server does not                 declared; `none`: removed  asked for as text, as for a model that prints
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from toolrelay.core.identity import derived_call_id
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, Message, Result
from toolrelay.core.request import OutputFormat, Request, Tool, ToolChoice
from toolrelay.core.request_checks import without_tools
from toolrelay.dialects.base import Dialect
from toolrelay.errors import invalid
from toolrelay.parsing.scanner import Scanner
from toolrelay.toolcalls.constraint import CONSTRAINED, call_schema
from toolrelay.toolcalls.names import Names
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.prompt import offered, text_only
from toolrelay.toolcalls.seal import tag_for

_encode = msgspec.json.Encoder().encode


class PromptPlan:
    """Hold the request to send now, and change it when the model is asked again.

    request        what to send now
    tools          the tools that may be called, by the client's name for them
    must_call      the answer has to hold a call
    as_text        calls are asked for, and come, as text
    base_dialect   the model's dialect, sealed if it is sealed
    dialect        what its output is scanned with: `base_dialect`, or CONSTRAINED
    """

    def __init__(self, request: Request, options: ToolCallOptions) -> None:
        self.tools = {tool.name: tool for tool in offered(request)}
        self.names = Names(tool.name for tool in request.functions())
        choice = request.tool_choice or ToolChoice()
        self.must_call = bool(self.tools) and choice.mode in ("required", "named") and not choice.raw
        self.as_text = not options.native or (self.must_call and not options.enforces_tool_choice)
        self._received = request
        self._options = options
        self._scan = options.scan
        self.base_dialect: Dialect = options.dialect
        if self.base_dialect.seal is not None and (self.as_text or options.scans_text or self.must_call):
            self.base_dialect = self.base_dialect.seal(tag_for(request, options.secret()))
        if self.as_text and (request.sampling.n or 1) > 1:
            raise invalid("n may only be 1 for this model: its calls are read from its text.", "n")
        self._prepare()

    def _prepare(self) -> None:
        constrained = self.as_text and self.must_call and self._options.constrains
        self.dialect = CONSTRAINED if constrained else self.base_dialect
        self._conversation = _with_functions_only(self._received) if self.as_text else self._native_request()
        self.request = self._render()

    def model_tools(self) -> dict[str, Tool]:
        """Return the tools by the model's name for them, custom ones as functions."""
        return {self.names.to_model(name): as_function(tool) for name, tool in self.tools.items()}

    def _render(self) -> Request:
        if not self.as_text:
            return self._conversation
        rendered = text_only(self._conversation, self.base_dialect, self.names)
        if not self.is_constrained:
            return rendered
        schema = call_schema([replace(tool, name=name) for name, tool in self.model_tools().items()])
        return replace(rendered, output=OutputFormat(type="json_schema", name="call", schema=schema, strict=True))

    def _native_request(self) -> Request:
        request, choice = self._received, self._received.tool_choice
        if not self._options.enforces_tool_choice and choice is not None and choice.mode == "none":
            request = without_tools(request)
        return request if self._options.any_names else _renamed(request, self.names)

    def input_size(self) -> int:
        """Return about how many characters the model was sent."""
        messages = sum(len(item.content) for item in self.request.items if isinstance(item, Message))
        return messages + len(self.request.instructions or "")

    # Scanners

    def make_scanner(self) -> Scanner | None:
        """Return the scanner for the model's text, or None if the text goes out as it is."""
        if self.tools and (self.as_text or self._options.scans_text):
            # A model that is constrained to a schema has no room to reason first.
            scan = replace(self._scan, begins_in_reasoning=False) if self.is_constrained else self._scan
            return Scanner(self.dialect, self.model_tools(), scan)
        if self.as_text and self._scan.reasoning is not None:
            return Scanner(replace(self.base_dialect, start_markers=()), {}, self._scan)
        return None

    def make_scanner_without_reasoning(self) -> Scanner:
        """For an answer that was expected to begin with reasoning and did not."""
        dialect = self.dialect if self.tools else replace(self.base_dialect, start_markers=())
        return Scanner(dialect, self.model_tools(), replace(self._scan, reasoning=None, begins_in_reasoning=False))

    def expect_separate_reasoning(self) -> bool:
        """The server separates reasoning from text: then the text does not begin in reasoning. Return whether this is news."""
        if not self._scan.begins_in_reasoning:
            return False
        self._scan = replace(self._scan, begins_in_reasoning=False)
        return True

    # Asking again

    @property
    def is_constrained(self) -> bool:
        return self.dialect is CONSTRAINED

    def drop_constraint(self) -> None:
        """The server refused the schema, or the model did not keep to it."""
        self.dialect = self.base_dialect
        self.request = self._render()

    def switch_to_text(self) -> None:
        """A native model did not obey tool_choice."""
        if not self.as_text:
            self.as_text = True
            self._prepare()

    def add_correction(self, error: str, printed: str, call: Call | None = None) -> None:
        """Show the model its answer and what was wrong with it."""
        more: list[Item] = [Message(role="assistant", content=printed)] if printed or call is None else []
        if call is None or self.as_text:
            more.append(Message(role="user", content=error))
        else:
            identity = derived_call_id(len(self._conversation.items), call.name, call.arguments)
            more += [replace(call, id=identity), Result(call_id=identity, output=error, kind=call.kind)]
        self._conversation = replace(self._conversation, items=(*self._conversation.items, *more))
        self.request = self._render()


# A custom tool takes free text. A model that prints calls is offered a function with that text as its one argument.

_INPUT: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def as_function(tool: Tool) -> Tool:
    if tool.kind != "custom":
        return tool
    grammar = tool.format.get("definition") if tool.format is not None else None
    lines = [tool.description or ""]
    if tool.format is not None and isinstance(grammar, str):
        lines.append(f"Its input has to match this grammar ({tool.format.get('syntax', 'lark')}): {grammar}")
    return replace(tool, kind="function", format=None, parameters=_INPUT, description="\n".join(filter(None, lines)) or None)


def _with_functions_only(request: Request) -> Request:
    custom = any(isinstance(tool, Tool) and tool.kind == "custom" for tool in request.tools)
    if not custom and not any(isinstance(item, Call) and item.kind == "custom" for item in request.items):
        return request
    choice = request.tool_choice
    if choice is not None:
        choice = replace(choice, names=tuple(("function", name) for _, name in choice.names))
    return replace(
        request,
        tools=tuple(as_function(tool) if isinstance(tool, Tool) else tool for tool in request.tools),
        items=tuple(_as_function_call(item) if isinstance(item, Call) else item for item in request.items),
        tool_choice=choice,
    )


def _as_function_call(call: Call) -> Call:
    if call.kind != "custom":
        return call
    return replace(call, kind="function", arguments=_encode({"input": call.arguments}).decode())


def _renamed(request: Request, names: Names) -> Request:
    """Return the request with tool names that the server accepts."""
    if names.are_fit and not any(isinstance(item, Call) and names.to_model(item.name) != item.name for item in request.items):
        return request
    choice = request.tool_choice
    if choice is not None:
        choice = replace(choice, names=tuple((kind, names.to_model(name)) for kind, name in choice.names))
    return replace(
        request,
        tools=tuple(replace(tool, name=names.to_model(tool.name)) if isinstance(tool, Tool) else tool for tool in request.tools),
        items=tuple(replace(item, name=names.to_model(item.name)) if isinstance(item, Call) else item for item in request.items),
        tool_choice=choice,
    )


# Corrections, as the model reads them

CORRECTIONS = {
    "unknown_tool": "There is no tool named {name!r}. Use one of the tools that you were given, or answer in plain text.",
    "invalid_json": "The arguments of your call of {name!r} were not a valid JSON object. Write the call again, correctly.",
    "schema": "The arguments of your call of {name!r} do not fit the tool's schema: {why}. Write the call again, correctly.",
    "no_call": "You must call a tool in this answer. Write the call now, and nothing else.",
    "malformed": "Your call could not be read. Write it again in exactly the form that you were given.",
}
