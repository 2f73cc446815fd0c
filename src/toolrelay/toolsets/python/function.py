"""Tools from functions: signature, type hints and docstring become a definition; arguments become Python values."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.validation import can_validate
from toolrelay.errors import ConfigurationError, ToolError
from toolrelay.setting_types import Seconds, accepts
from toolrelay.toolsets.base import ToolContext, ToolDefinition
from toolrelay.toolsets.python.decorator import ToolOptions, options_of
from toolrelay.toolsets.python.docstring import parse_docstring
from toolrelay.toolsets.python.schema import UnsupportedTypeError, make_schema


class PythonTool(Struct, frozen=True, kw_only=True):
    """A function with its definition. `types` are the hints of its parameters, except those that get the context."""

    definition: ToolDefinition
    function: Callable[..., Any]
    types: dict[str, Any]
    required: tuple[str, ...]
    context_parameters: tuple[str, ...]

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def convert(self, arguments: JsonObject, context: ToolContext) -> dict[str, Any]:
        """Return the keyword arguments of the function, or raise ToolError."""
        values: dict[str, Any] = dict.fromkeys(self.context_parameters, context)
        for name, value in arguments.items():
            if name not in self.types:
                raise ToolError(f"Invalid arguments: {self.definition.name} has no parameter {name[:100]!r}.")
            try:
                values[name] = msgspec.convert(_join_number_types(value), self.types[name], str_keys=True)
            except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
                raise ToolError(f"Invalid arguments: {name}: {str(error)[:300]}") from None
        missing = [name for name in self.required if name not in values]
        if missing:
            raise ToolError(f"Invalid arguments: {', '.join(missing)} missing.")
        return values


def _join_number_types(value: Json) -> Json:
    """Return the value with 2 instead of 2.0, which JSON schemas take for an integer, too."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_join_number_types(each) for each in value]
        case dict():
            return {key: _join_number_types(each) for key, each in value.items()}
        case _:
            return value


def read_function(function: Callable[..., Any]) -> PythonTool:
    """Return the tool that a marked function is, or raise ConfigurationError with file, line, function and what to do."""
    try:
        return _read(function)
    except _UnusableError as error:
        raise ConfigurationError(f"{describe_place(function)}: {error}") from None


def describe_place(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}, line {code.co_firstlineno}: {function.__name__}"


class _UnusableError(Exception):
    pass


def _read(function: Callable[..., Any]) -> PythonTool:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _UnusableError("this is a generator; return a list or a string instead of `yield`")
    options = options_of(function)
    _check_options(options)
    hints = _type_hints(function)
    documented = parse_docstring(inspect.getdoc(function) or "")
    properties: dict[str, Json] = {}
    required: list[str] = []
    context_parameters: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = _checked_hint(parameter, hints)
        if _is_context(hint):
            context_parameters.append(name)
            continue
        properties[name] = _describe_parameter(parameter, hint, documented.parameters.get(name, ""))
        if parameter.default is parameter.empty:
            required.append(name)
    parameters: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": list[Json](required),
        "additionalProperties": False,
    }
    if not can_validate(parameters):
        raise _UnusableError("no JSON schema can check its types: they are too large, or a pattern is invalid; simplify them")
    definition = ToolDefinition(
        name=options.name or function.__name__,
        description=documented.text if options.description is None else options.description,
        parameters=parameters,
        idempotent=options.idempotent,
        timeout_seconds=options.timeout_seconds,
        hints=options.hints,
    )
    return PythonTool(
        definition=definition,
        function=function,
        types={name: hints[name] for name in properties},
        required=tuple(required),
        context_parameters=tuple(context_parameters),
    )


def _check_options(options: ToolOptions) -> None:
    for name, type_form, expected in (
        ("name", str | None, "a string"),
        ("description", str | None, "a string"),
        ("idempotent", bool, "True or False"),
        ("timeout_seconds", Seconds | None, "a number of seconds above 0, a year at most"),
        ("hints", dict[str, Any] | None, "a dictionary"),
    ):
        if not accepts(type_form, getattr(options, name)):
            raise _UnusableError(f"@tool({name}=…): expected {expected}, found {getattr(options, name)!r}")


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # noqa: BLE001 -- a hint is an expression, which may raise anything
        raise _UnusableError(
            f"its type hints cannot be read: {type(error).__name__}: {error}; import their names, and not only for type checkers"
        ) from None


def _checked_hint(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:  # noqa: ANN401 -- a type form
    name = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise _UnusableError(f"a tool has no *{name}; write a parameter for each value, or `{name}: list[str]`")
    if parameter.kind is parameter.VAR_KEYWORD:
        raise _UnusableError(f"a tool has no **{name}; write a parameter for each value, or `{name}: dict[str, str]`")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise _UnusableError(f"the parameter {name} is positional-only, but arguments are passed by name; remove the `/`")
    if name not in hints:
        raise _UnusableError(f"the parameter {name} has no type hint; write one, such as `{name}: str`")
    return hints[name]


def _is_context(hint: Any) -> bool:  # noqa: ANN401 -- a type form
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (typing.Union, types.UnionType):
        return ToolContext in get_args(hint)
    return hint is ToolContext


def _describe_parameter(parameter: inspect.Parameter, hint: Any, documented: str) -> JsonObject:  # noqa: ANN401 -- a type form
    try:
        schema = make_schema(hint)
    except UnsupportedTypeError as error:
        raise _UnusableError(
            f"the type of the parameter {parameter.name} cannot be used: {error}; "
            "use str, int, float, bool, Literal, Enum, list, dict, a TypedDict, a dataclass or a msgspec Struct"
        ) from None
    description = _annotated_text(hint) or documented
    if description and "description" not in schema:
        schema["description"] = description
    if parameter.default is not parameter.empty and "default" not in schema:
        with suppress(TypeError, ValueError, RecursionError):  # a default that is not JSON cannot be shown to the model
            schema["default"] = msgspec.json.decode(msgspec.json.encode(parameter.default))
    return schema


def _annotated_text(hint: Any) -> str:  # noqa: ANN401 -- a type form
    """Return the text of Annotated[…, "text"] or of its Meta."""
    for each in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
        if isinstance(each, str):
            return each
        if isinstance(each, Meta) and each.description:
            return each.description
    return ""
