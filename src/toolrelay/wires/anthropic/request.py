"""Anthropic Messages, a client's request: bytes into a Request."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Content, Item, Message, OpaqueItem, Part, Reasoning, Result, Role
from toolrelay.core.request import AnyTool, OpaqueTool, OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice
from toolrelay.errors import ClientError, invalid
from toolrelay.wires.anthropic.content import decode_part, unknown
from toolrelay.wires.anthropic.thinking import NAME, decode_thinking, seal_block
from toolrelay.wires.extra import unknown_members
from toolrelay.wires.json import arguments_text, convert, decode_body

_MAX_SHOWN = 100


class _MessagesBody(Struct, kw_only=True):
    """The members that the gateway understands; the others are `extra`. Numbers keep the form that the client gave them."""

    model: str
    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    temperature: int | float | None = None
    top_p: int | float | None = None
    stream: bool | None = None
    output_config: dict[str, Any] | None = None


_KNOWN = frozenset(_MessagesBody.__struct_fields__)


def decode_request(body: bytes) -> Request:
    value = decode_body(body)
    if "messages" not in value and "input" in value:
        raise invalid("This is /v1/messages, which takes 'messages'. 'input' belongs to /v1/responses.", "messages")
    if value.get("thread") is not None:  # the SDK's tool runner goes on without one after an error with this code
        message = "The gateway keeps no threads of messages. Send the whole conversation in 'messages'."
        raise invalid(message, "thread", code="thread_unsupported_request")
    fields = convert(value, _MessagesBody, "")
    if not fields.messages:
        raise invalid("'messages' must hold at least one message.", "messages", code="empty_array")
    if fields.max_tokens is not None and fields.max_tokens < 1:
        raise invalid("'max_tokens' must be at least 1.", "max_tokens", code="integer_below_min_value")
    extra = unknown_members(value, _KNOWN) or {}
    output, reasoning = _decode_output(fields.output_config, extra) if fields.output_config else (None, None)
    instructions, system = _decode_system(fields.system)
    tools = _decode_tools(fields.tools or [])
    choice, is_parallel = _decode_choice(fields.tool_choice, tools) if fields.tool_choice is not None else (None, None)
    return Request(
        wire=NAME,
        model=fields.model,
        instructions=instructions,
        items=(*system, *_MessageListDecoder().decode(fields.messages)),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=is_parallel,
        sampling=Sampling(
            temperature=fields.temperature,
            top_p=fields.top_p,
            max_output_tokens=fields.max_tokens,
            stop=tuple(fields.stop_sequences) if fields.stop_sequences else None,
        ),
        output=output,
        reasoning=reasoning,
        stream=bool(fields.stream),
        include_usage=bool(fields.stream),
        extra=extra or None,
    )


def _decode_system(system: str | list[dict[str, Any]] | None) -> tuple[str | None, tuple[Item, ...]]:
    """Return the system text as instructions, or as a message if it has several blocks."""
    if isinstance(system, str):
        return system or None, ()
    if not system:
        return None, ()
    parts = tuple([decode_part(raw, f"system[{number}]") for number, raw in enumerate(system)])
    return None, (Message(role="system", content=parts),)


class _OutputConfig(Struct):
    effort: str | None = None
    format: dict[str, Any] | None = None


class _OutputSchema(Struct):
    type: str
    schema: dict[str, Any] | None = None


def _decode_output(raw: dict[str, Any], extra: JsonObject) -> tuple[OutputFormat | None, ReasoningOptions | None]:
    """Decode format and effort. Unknown members go to `extra`, at their level; a format of unknown type as a whole."""
    config = convert(raw, _OutputConfig, "output_config")
    rest: JsonObject = unknown(raw, _OutputConfig) or {}
    output = None
    if config.format is not None:
        wanted = convert(config.format, _OutputSchema, "output_config.format")
        if wanted.type == "json_schema":
            if wanted.schema is None:
                message = "A format of type json_schema needs 'schema'."
                raise invalid(message, "output_config.format.schema", code="missing_required_parameter")
            output = OutputFormat(type="json_schema", schema=wanted.schema)
            inner = unknown(config.format, _OutputSchema)
            rest |= {"format": inner} if inner else {}
        else:
            rest["format"] = config.format
    if rest:
        extra["output_config"] = rest
    return output, None if config.effort is None else ReasoningOptions(effort=config.effort, encrypted=True)


# Tools


class _ToolBlock(Struct):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    type: str | None = None


def _decode_tools(raw: list[dict[str, Any]]) -> tuple[AnyTool, ...]:
    """Decode tools in the client's order. Those that only Anthropic defines (web_search_…, bash_…) stay as they are."""
    tools: list[AnyTool] = []
    names: set[str] = set()
    for number, each in enumerate(raw):
        param = f"tools[{number}]"
        if each.get("type") not in (None, "custom"):
            tools.append(OpaqueTool(wire=NAME, raw=each))
            continue
        tool = convert(each, _ToolBlock, param)
        if not tool.name:
            raise invalid("A tool needs a name.", f"{param}.name")
        if tool.name in names:
            raise invalid(f"The tool {tool.name!r} is declared twice.", param, code="duplicate_tool")
        names.add(tool.name)
        extra = _set(unknown(each, _ToolBlock))
        parameters, about = tool.input_schema, tool.description
        tools.append(Tool(name=tool.name, description=about, parameters=parameters, strict=tool.strict, extra=extra))
    return tuple(tools)


def _set(extra: JsonObject | None) -> JsonObject | None:
    return ({key: value for key, value in extra.items() if value is not None} or None) if extra else None


class _ChoiceObject(Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def _decode_choice(raw: dict[str, Any], tools: tuple[AnyTool, ...]) -> tuple[ToolChoice, bool | None]:
    """Return the choice, and whether several calls are allowed; None: not said."""
    choice = convert(raw, _ChoiceObject, "tool_choice")
    is_parallel = None if choice.disable_parallel_tool_use is None else not choice.disable_parallel_tool_use
    match choice:
        case _ChoiceObject(type="auto" | "none" as mode):
            return ToolChoice(mode="none" if mode == "none" else "auto"), is_parallel
        case _ChoiceObject(type="any"):
            return ToolChoice(mode="required"), is_parallel
        case _ChoiceObject(type="tool", name=str(name)):
            if any(isinstance(tool, OpaqueTool) and tool.raw.get("name") == name for tool in tools):
                return ToolChoice(mode="named", raw=raw), is_parallel
            return ToolChoice(mode="named", names=(("function", name),)), is_parallel
        case _ChoiceObject(type="tool"):
            raise invalid("A tool_choice of type 'tool' needs 'name'.", "tool_choice.name", code="missing_required_parameter")
        case _:
            message = f"tool_choice.type must be 'auto', 'any', 'tool' or 'none', not {choice.type[:_MAX_SHOWN]!r}."
            raise invalid(message, "tool_choice.type", code="invalid_value")


# Messages


class _SentMessage(Struct):
    role: str
    content: str | list[dict[str, Any]]


class _ToolUse(Struct):
    type: str
    id: str
    name: str
    input: Any = None


class _ToolResult(Struct):
    type: str
    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None


class _Thinking(Struct):
    type: str
    thinking: str
    signature: str | None = None


class _RedactedThinking(Struct):
    type: str
    data: str


class _MessageListDecoder:
    """Decodes messages into items. A message is cut where a block is an item of its own."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._call_ids: set[str] = set()

    def decode(self, messages: list[dict[str, Any]]) -> tuple[Item, ...]:
        for number, raw in enumerate(messages):
            param = f"messages[{number}]"
            message = convert(raw, _SentMessage, param)
            extra = unknown(raw, _SentMessage)
            match message.role:
                case "user" | "assistant" | "system" as role:
                    self._decode_content(role, message.content, extra, f"{param}.content")
                case _:
                    got = repr(message.role[:_MAX_SHOWN])
                    text = f"Unknown role: expected 'user', 'assistant' or 'system', got {got}."
                    raise invalid(text, f"{param}.role", code="invalid_value")
        return tuple(self._items)

    def _decode_content(self, role: Role, content: str | list[dict[str, Any]], extra: JsonObject | None, param: str) -> None:
        if isinstance(content, str):
            self._items.append(Message(role=role, content=content, extra=extra))
            return
        if not content:
            if role != "assistant":
                raise invalid(f"A {role} message needs content.", param, code="empty_array")
            self._items.append(Message(role=role, content="", extra=extra))
            return
        parts: list[Part] = []

        def end_message() -> None:
            nonlocal extra
            if parts:
                self._items.append(Message(role=role, content=tuple(parts), extra=extra))
                parts.clear()
                extra = None

        for number, block in enumerate(content):
            place = f"{param}[{number}]"
            item = self._decode_item(role, block, place)
            if item is None:
                parts.append(decode_part(block, place))
            else:
                end_message()
                self._items.append(item)
        end_message()

    def _decode_item(self, role: Role, block: dict[str, Any], param: str) -> Item | None:
        """Decode a block that is an item of its own. None: it is a part of a message."""
        match role, block.get("type"):
            case "user", "tool_result":
                return self._decode_result(block, param)
            case "assistant", "tool_use":
                call = convert(block, _ToolUse, param)
                self._call_ids.add(call.id)
                arguments = arguments_text(call.input) or "{}"
                return Call(id=call.id, name=call.name, arguments=arguments, extra=_set(unknown(block, _ToolUse)))
            case "assistant", "thinking":
                thinking = convert(block, _Thinking, param)
                return decode_thinking(thinking.thinking, thinking.signature or "")
            case "assistant", "redacted_thinking":
                return Reasoning(encrypted=seal_block("redacted_thinking", convert(block, _RedactedThinking, param).data))
            case "assistant", str(kind) if kind not in ("text", "image", "document"):
                return OpaqueItem(wire=NAME, raw=block)
            case _, "tool_use" | "tool_result" | "thinking" | "redacted_thinking" as kind:
                raise _misplaced(str(kind), role, param)
            case _:
                return None

    def _decode_result(self, block: dict[str, Any], param: str) -> Result:
        result = convert(block, _ToolResult, param)
        if result.tool_use_id not in self._call_ids:
            message = f"The tool_result answers the call {result.tool_use_id!r}, which no assistant message before it made."
            raise invalid(message, f"{param}.tool_use_id", code="unknown_call")
        content: Content = result.content if isinstance(result.content, str) else ""
        if isinstance(result.content, list):
            content = tuple([decode_part(raw, f"{param}.content[{number}]") for number, raw in enumerate(result.content)])
        extra = _set(unknown(block, _ToolResult)) or {}
        if extra.get("is_error") is False:
            del extra["is_error"]
        return Result(call_id=result.tool_use_id, output=content, extra=extra or None)


def _misplaced(kind: str, role: Role, param: str) -> ClientError:
    return invalid(f"A {kind} block cannot be in a {role} message.", f"{param}.type", code="invalid_value")
