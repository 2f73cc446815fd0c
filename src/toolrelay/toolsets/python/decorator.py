"""The decorator `@tool`, which marks a function of a module as a tool."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, overload

from msgspec import Struct

from toolrelay.core.json import JsonObject

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = "__toolrelay_tool__"
_MARKED = "__toolrelay_tools__"


class ToolOptions(Struct, frozen=True, kw_only=True):
    """The arguments of `@tool`. They are checked when the toolset is opened."""

    name: str | None = None
    description: str | None = None
    idempotent: bool = False
    timeout_seconds: float | None = None
    hints: JsonObject | None = None


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    timeout_seconds: float | None = None,
    hints: JsonObject | None = None,
) -> Callable[[F], F]: ...


def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    timeout_seconds: float | None = None,
    hints: JsonObject | None = None,
) -> F | Callable[[F], F]:
    """Mark a function as a tool. The function itself stays as it is.

    name              its name for models; default: the function's
    description       default: the text of its docstring
    idempotent        running it twice does no more than running it once: it is repeated after an exception or a time-out
    timeout_seconds   default: that of the toolset
    hints             facts for people, such as {"readOnlyHint": true}
    """
    options = ToolOptions(name=name, description=description, idempotent=idempotent, timeout_seconds=timeout_seconds, hints=hints)

    def mark(marked: F) -> F:
        if not inspect.isfunction(marked):
            raise TypeError(f"@tool marks functions; found {marked!r}")
        setattr(marked, _OPTIONS, options)
        module = sys.modules.get(marked.__module__)
        if module is not None and "." not in marked.__qualname__:
            vars(module).setdefault(_MARKED, []).append(marked)
        return marked

    return mark if function is None else mark(function)


def options_of(function: Callable[..., Any]) -> ToolOptions:
    options: ToolOptions = getattr(function, _OPTIONS)
    return options


def marked_functions(module: ModuleType) -> list[Callable[..., Any]]:
    """Return the marked functions of a module: those that it defines, also if a later one took the name, and imports."""
    own = list(vars(module).get(_MARKED, ()))
    imported = [value for value in vars(module).values() if inspect.isfunction(value) and hasattr(value, _OPTIONS)]
    return list(dict.fromkeys([*own, *imported]))
