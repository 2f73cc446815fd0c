"""What a model is asked, in its manner, and how it is asked again.

model                                       tools                           a choice that must be met
-----------------------------------------   -----------------------------   ------------------------------------------------
prints its calls                            told of in system text          its server's constraint, else checked and retried
is native, and its server heeds the choice  declared                        passed on
is native, and its server does not          declared; for none: not at all  as for one that prints
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from toolrelay.core.identity import derived_call_id
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, Message, Result
from toolrelay.core.names import Names
from toolrelay.core.plan import without_tools
from toolrelay.core.request import OutputFormat, Request, Tool, ToolChoice
from toolrelay.dialects._constraint import CONSTRAINED, call_schema
from toolrelay.dialects._manner import Manner
from toolrelay.dialects._prompt import offered, text_only
from toolrelay.dialects._seal import tag_for
from toolrelay.dialects._transcript import flattened
from toolrelay.dialects.base import Dialect
from toolrelay.errors import invalid

_encode = msgspec.json.Encoder().encode


class Asking:
    """`request` is what to ask now. `tools` are those that the model may use, by the client's name for them.

    must     the answer must hold a call
    prints   calls come as text
    dialect  how they are printed, where they are
    """

    def __init__(self, request: Request, manner: Manner) -> None:
        self.tools = {tool.name: tool for tool in offered(request)}
        self.names = Names(tool.name for tool in request.functions())
        choice = request.tool_choice or ToolChoice()
        self.must = bool(self.tools) and choice.mode in ("required", "named") and not choice.raw
        self.prints = not manner.native or (self.must and not manner.heeds_choice)
        self._came = request
        self._manner = manner
        self.spoken: Dialect = manner.dialect
        if self.spoken.seal is not None and (self.prints or manner.catches or self.must):
            self.spoken = self.spoken.seal(tag_for(request, manner.secret()))
        if self.prints and (request.sampling.n or 1) > 1:
            raise invalid("n may only be 1 for this model: its calls are read from its text.", "n")
        self._ask()

    def _ask(self) -> None:
        self.dialect = CONSTRAINED if self.prints and self.must and self._manner.constrains else self.spoken
        self._asked = _all_functions(self._came) if self.prints else self._native(self._came, self._manner)
        self.request = self._told()

    def known(self) -> dict[str, Tool]:
        """The tools by the model's name for them, each as a function."""
        return {self.names.to_model(name): as_function(tool) for name, tool in self.tools.items()}

    def _told(self) -> Request:
        if not self.prints:
            return self._asked
        told = (flattened if self._manner.single_text else text_only)(self._asked, self.spoken, self.names)
        if self.dialect is not CONSTRAINED:
            return told
        schema = call_schema([replace(tool, name=name) for name, tool in self.known().items()])
        return replace(told, output=OutputFormat(type="json_schema", name="call", schema=schema, strict=True))

    def _native(self, request: Request, manner: Manner) -> Request:
        choice = request.tool_choice
        if not manner.heeds_choice and choice is not None and choice.mode == "none":
            request = without_tools(request)
        return request if manner.any_names else _renamed(request, self.names)

    @property
    def is_constrained(self) -> bool:
        return self.dialect is CONSTRAINED

    def unconstrained(self) -> None:
        """The server would not take the schema: the model is asked as one that nothing holds."""
        self.dialect = self.spoken
        self.request = self._told()

    def print_from_now_on(self) -> None:
        """A native model did not heed the choice."""
        if not self.prints:
            self.prints = True
            self._ask()

    def again(self, error: str, printed: str, call: Call | None = None) -> None:
        """The model sees what it did and what was wrong with it."""
        more: list[Item] = [Message(role="assistant", content=printed)] if printed or call is None else []
        if call is None or self.prints:
            more.append(Message(role="user", content=error))
        else:
            identity = derived_call_id(len(self._asked.items), call.name, call.arguments)
            more += [replace(call, id=identity), Result(call_id=identity, output=error, kind=call.kind)]
        self._asked = replace(self._asked, items=(*self._asked.items, *more))
        self.request = self._told()

    def size(self) -> int:
        """How many characters the model was asked, about."""
        request = self.request
        said = sum(len(item.content) for item in request.items if isinstance(item, Message))
        return said + len(request.instructions or "")


# A custom tool takes free text. A model that prints is offered a function with that text as its one argument.

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
    told = [tool.description or ""]
    if tool.format is not None and isinstance(grammar, str):
        told.append(f"Its input has to match this grammar ({tool.format.get('syntax', 'lark')}): {grammar}")
    return replace(tool, kind="function", format=None, parameters=_INPUT, description="\n".join(filter(None, told)) or None)


def _all_functions(request: Request) -> Request:
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
    """The same with names that the model's server takes."""
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


# What the model is told was wrong with what it did

EXPLAINED = {
    "unknown_tool": "There is no tool named {name!r}. Use one of the tools that you were given, or answer in plain text.",
    "invalid_json": "The arguments of your call of {name!r} were not a valid JSON object. Write the call again, correctly.",
    "schema": "The arguments of your call of {name!r} do not fit the tool's schema: {why}. Write the call again, correctly.",
    "no_call": "You must call a tool in this answer. Write the call now, and nothing else.",
    "malformed": "Your call could not be read. Write it again in exactly the form that you were given.",
}
