"""The request as the model gets it, and its changes when the model is asked again.

model                                          tools                      a required call
--------------------------------------------   ------------------------   ---------------------------------------------------
prints its calls                               described in system text   constrained decoding if possible, else retried
chooses, its server constrains that (CHOICE)   described in system text   constrained decoding, as is every other answer
is native, its server enforces tool_choice     declared                   passed on
is native, its server does not                 declared; `none`: removed  asked for as text, as for a model that prints
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from toolrelay.core.identity import derive_call_id
from toolrelay.core.messages import Call, Item, Message, Result
from toolrelay.core.request import OutputFormat, Request, Tool, ToolChoice
from toolrelay.core.request_checks import remove_tools
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.hermes import DIALECTS as HERMES_DIALECTS
from toolrelay.errors import invalid
from toolrelay.parsing.scanner import Scanner
from toolrelay.parsing.triggers import ScanOptions
from toolrelay.toolcalls.caught_forms import caught_forms, is_remnant
from toolrelay.toolcalls.constraint import CHOICE, CONSTRAINED, NO_TOOL, build_call_schema, build_choice_schema
from toolrelay.toolcalls.custom_tools import as_function, as_function_call
from toolrelay.toolcalls.names import ToolNames
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.prompt import offered_tools, render_prompt
from toolrelay.toolcalls.seal import derive_tag
from toolrelay.toolcalls.thinking import continues_text, turns_thinking_off


class ModelRequest:
    """Hold the request to send now, and change it when the model is asked again.

    request        what to send now
    tools          the tools that may be called, by the client's names
    must_call      the answer must contain a call
    as_text        calls are asked for, and come, as text
    base_dialect   the model's dialect, with its tag if it is sealed
    dialect        the dialect for scanning: `base_dialect`, CONSTRAINED, or what a native model may print all the same
    is_constrained the server constrains the output to a schema of calls
    """

    def __init__(self, request: Request, options: ToolCallOptions) -> None:
        self.tools = {tool.name: tool for tool in offered_tools(request)}
        self.names = ToolNames(tool.name for tool in request.functions())
        choice = request.tool_choice or ToolChoice()
        self.must_call = bool(self.tools) and choice.mode in ("required", "named") and not choice.raw
        self.as_text = not options.native or (self.must_call and not options.enforces_tool_choice)
        self._received = request
        self._options = options
        self._scan = options.scan
        if self._scan.begins_in_reasoning and not _opens_reasoning(request, options):
            self._scan = replace(self._scan, begins_in_reasoning=False)
        self.base_dialect: Dialect = options.dialect
        if self.base_dialect is CHOICE and NO_TOOL in map(self.names.to_model, self.tools):
            self.base_dialect = HERMES_DIALECTS[0]
        if self.base_dialect.seal is not None and (self.as_text or self.must_call):
            self.base_dialect = self.base_dialect.seal(derive_tag(request, options.secret()))
        if self.as_text and (request.sampling.n or 1) > 1:
            raise invalid("n may only be 1 for this model: its calls are read from its text.", "n")
        self._prepare()

    def _prepare(self) -> None:
        chooses = self.base_dialect is CHOICE and bool(self.tools)
        self.is_constrained = self.as_text and self._options.constrains_output and (self.must_call or chooses)
        if self.is_constrained and not chooses:
            self.dialect = CONSTRAINED
        else:
            self.dialect = self.base_dialect if self.as_text else self._native_dialect()
        # The conversation before it is rendered; corrections are added to it.
        if self.as_text:
            self._conversation = _map_tools(self._received, as_function, as_function_call)
        else:
            self._conversation = self._make_native_request()
        self.request = self._render()

    def _native_dialect(self) -> Dialect:
        """Return the dialect of calls in a native model's text. A client that reads blocks gets them as they are."""
        catches_blocks = self._options.scans_text and not self._received.reads_blocks
        return caught_forms(self.base_dialect) if catches_blocks else self.base_dialect

    def _make_native_request(self) -> Request:
        request, choice = self._received, self._received.tool_choice
        if not self._options.enforces_tool_choice and choice is not None and choice.mode == "none":
            request = remove_tools(request)
        return request if self._options.accepts_any_name else _map_tools(request, self.names.rename, self.names.rename)

    def _model_tools(self) -> dict[str, Tool]:
        """Return the tools by the model's names, custom ones as functions."""
        functions = [as_function(tool) for tool in self.tools.values()]
        known = {tool.name: tool for tool in map(self.names.rename, functions)}
        if not self.as_text and self._options.accepts_any_name:
            known |= {tool.name: tool for tool in functions}
        return known

    def _render(self) -> Request:
        if not self.as_text:
            return self._conversation
        rendered = render_prompt(self._conversation, self.base_dialect, self.names)
        if not self.is_constrained:
            return rendered
        tools = list(self._model_tools().values())
        if self.base_dialect is not CHOICE:
            schema = build_call_schema(tools)
        elif self.must_call:
            schema = build_call_schema(tools, name_key="tool")
        else:
            schema = build_choice_schema(self._choosable(tools))
        return replace(rendered, output=OutputFormat(type="json_schema", name="call", schema=schema, strict=True))

    def _choosable(self, tools: Sequence[Tool]) -> list[Tool]:
        """Return the tools not called since the user's last message: a small model would repeat its call for ever."""
        choice, called = self._received.tool_choice, set[str]()
        if choice is not None and choice.mode == "none":
            return []
        for item in self._received.items:
            if isinstance(item, Message) and item.role == "user":
                called.clear()
            elif isinstance(item, Call):
                called.add(self.names.to_model(item.name))
        return [tool for tool in tools if tool.name not in called]

    def input_size(self) -> int:
        """Return about how many characters the model was sent."""
        messages = sum(len(item.content) for item in self.request.items if isinstance(item, Message))
        return messages + len(self.request.instructions or "")

    # Scanners

    def make_scanner(self) -> Scanner | None:
        """Return the scanner for the model's text, or None if text is passed on unscanned."""
        scans_reasoning = self._scan.reasoning is not None and (self.as_text or self._options.scans_reasoning)
        if not (self._scans_calls or scans_reasoning):
            return None
        # A model that is constrained to a schema cannot reason first.
        return self._build_scanner(replace(self._scan, begins_in_reasoning=False) if self.is_constrained else self._scan)

    def make_scanner_without_reasoning(self) -> Scanner:
        """Return a scanner for an answer that was expected to begin with reasoning and did not."""
        return self._build_scanner(replace(self._scan, reasoning=None, begins_in_reasoning=False))

    def after_reasoning_tag(self, text: str) -> str:
        """Return the text after the last start tag of reasoning."""
        return text if self._scan.reasoning is None else text.rpartition(self._scan.reasoning[0])[2]

    @property
    def _scans_calls(self) -> bool:
        return bool(self.tools) and (self.as_text or (self._options.scans_text and self.dialect.seal is None))

    def _build_scanner(self, scan: ScanOptions) -> Scanner:
        dialect = self.dialect if self._scans_calls else replace(self.base_dialect, start_markers=())
        return Scanner(dialect, self._model_tools(), scan, reports_calls=True)

    def render_call(self, call: Call, *, printed: bool) -> str:
        """Render a call of the model as text, in the form in which a native model printed it."""
        dialect = self.dialect if printed and not self.as_text else self.base_dialect
        return dialect.render_calls([call])

    def is_remnant(self, text: str, rule: str) -> bool:
        """Return whether a broken call in a native model's text is left out, because it is no text for a reader."""
        return not self.as_text and is_remnant(text, rule)

    def expect_separate_reasoning(self) -> bool:
        """Stop expecting reasoning in the text, because the server sends it separately. Return whether this is a change."""
        if not self._scan.begins_in_reasoning:
            return False
        self._scan = replace(self._scan, begins_in_reasoning=False)
        return True

    # Asking again

    def drop_constraint(self) -> None:
        """Continue without the schema: the server refused it, or the model ignored it."""
        self.is_constrained = False
        self.dialect = self.base_dialect
        self.request = self._render()

    def switch_to_text(self) -> None:
        """Ask for calls as text: a native model did not obey tool_choice."""
        if not self.as_text:
            self.as_text = True
            self._prepare()

    def add_correction(self, correction: str, printed: str, call: Call | None = None) -> None:
        """Show the model its output and what was wrong with it. `call` is a native call."""
        more: list[Item] = [Message(role="assistant", content=printed)] if printed or call is None else []
        if call is None or self.as_text:
            more.append(Message(role="user", content=correction))
        else:
            call_id = derive_call_id(len(self._conversation.items), call.name, call.arguments)
            named = call if self._options.accepts_any_name else self.names.rename(call)
            more += [replace(named, id=call_id), Result(call_id=call_id, output=correction, kind=call.kind)]
        self._conversation = replace(self._conversation, items=(*self._conversation.items, *more))
        self.request = self._render()


def _opens_reasoning(request: Request, options: ToolCallOptions) -> bool:
    """Return whether the model's chat template opens the reasoning of this answer, as it does by default."""
    # Tools described in the prompt exclude a format for the whole answer.
    is_constrained = options.constrains_output and request.output is not None and request.output.type != "text"
    is_constrained = is_constrained and (options.native or not request.tools)
    return not (is_constrained or turns_thinking_off(request) or continues_text(request))


def _map_tools(request: Request, map_tool: Callable[[Tool], Tool], map_call: Callable[[Call], Call]) -> Request:
    """Change the tools wherever they occur: declared, called, and in tool_choice."""
    choice = request.tool_choice
    if choice is not None:
        chosen = [map_tool(Tool(name=name, kind=kind)) for kind, name in choice.names]
        choice = replace(choice, names=tuple((tool.kind, tool.name) for tool in chosen))
    return replace(
        request,
        tools=tuple(map_tool(tool) if isinstance(tool, Tool) else tool for tool in request.tools),
        items=tuple(map_call(item) if isinstance(item, Call) else item for item in request.items),
        tool_choice=choice,
    )
