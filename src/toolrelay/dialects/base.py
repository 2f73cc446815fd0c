"""What a dialect is: how a model prints calls, and how calls, results and tools are written for it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence

from msgspec import Struct

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.parsing.grammar import Grammar, StartMarker


class ToolResult(Struct, frozen=True, kw_only=True):
    """What came of a call, as plain text. `place` is the call's among those that were made with it, from 0."""

    call: Call
    text: str
    place: int = 0


class Dialect(Struct, frozen=True, kw_only=True):
    """One way of printing calls.

    render_tools     how the model's own template offers tools; None: the house's catalog does
    render_calls     how an assistant's calls stand in the conversation; the grammar reads it back
    render_results  how their results do
    end_markers      what ends a malformed call: all up to it belongs to that call
    stops            what the model must not go on to write after its calls, such as an observation of its own making
    seal             the same dialect with another tag, for one that is made anew for each conversation
    """

    name: str
    start_markers: tuple[StartMarker, ...]
    grammar: Grammar
    render_calls: Callable[[Sequence[Call]], str]
    render_results: Callable[[Sequence[ToolResult]], str]
    render_tools: Callable[[Sequence[Tool]], str] | None = None
    end_markers: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    seal: Callable[[str], Dialect] | None = None


def discover() -> dict[str, Dialect]:
    """Every dialect in this package, by name. A module that begins with an underscore is not one."""
    import toolrelay.dialects as package  # noqa: PLC0415 -- this module is part of it

    found: dict[str, Dialect] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("_") or module.name in ("base", "families"):
            continue
        for dialect in importlib.import_module(f"{package.__name__}.{module.name}").DIALECTS:
            found[dialect.name] = dialect
    return found
