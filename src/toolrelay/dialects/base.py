"""The interface of a dialect, and the discovery of all dialects."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence

from msgspec import Struct

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.parsing.grammar import Grammar, StartMarker


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of a call as plain text. `place`: the call's index among those of the same answer."""

    call: Call
    text: str
    place: int = 0


class Dialect(Struct, frozen=True, kw_only=True):
    """A form in which models print calls.

    render_tools    writes the tools as the model's chat template does; None: the generic catalog is used
    render_calls    writes an assistant's calls for the history; the grammar can parse them
    render_results  writes their results
    end_markers     end a malformed call: everything up to the next one is skipped
    stray_marks     other marks that are no text, such as those around text; they are removed, as end markers without a call are
    stops           stop sequences: what the model must not go on to write, such as a made-up result
    seal            makes the same dialect with another tag, for a dialect with a tag of its own in each conversation
    """

    name: str
    start_markers: tuple[StartMarker, ...]
    grammar: Grammar
    render_calls: Callable[[Sequence[Call]], str]
    render_results: Callable[[Sequence[ToolResult]], str]
    render_tools: Callable[[Sequence[Tool]], str] | None = None
    end_markers: tuple[str, ...] = ()
    stray_marks: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    seal: Callable[[str], Dialect] | None = None


def discover() -> dict[str, Dialect]:
    """Return all dialects by name: those in `DIALECTS` of any module of this package."""
    import toolrelay.dialects as package  # noqa: PLC0415 -- this module is part of it

    modules = (importlib.import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__))
    return {dialect.name: dialect for module in modules for dialect in getattr(module, "DIALECTS", ())}
