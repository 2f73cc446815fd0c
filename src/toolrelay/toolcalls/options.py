"""Tool-calling options of one model, from its server's profile and its configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from toolrelay.core.request import OpaqueTool, Tool
from toolrelay.dialects.base import Dialect
from toolrelay.parsing.triggers import ScanOptions

OnBadCall = Literal["pass", "retry", "text", "fail"]
Cutoff = Literal["off", "first", "burst"]
OnUnsupportedTool = Literal["drop", "refuse"]
MAX_WARNINGS = 256  # the client chooses what is warned of


def passes_no_tool(_: OpaqueTool) -> bool:
    return False


class ToolCallOptions(Struct, frozen=True, kw_only=True):
    """How calls are offered to one model and read from it.

    dialect               how calls are printed
    native                tools are declared to the server; otherwise they are described in the prompt
    scans_text            a native model's text is scanned too, because some models print calls all the same
    enforces_tool_choice  the server enforces tool_choice; otherwise a required call is asked for as text
    accepts_any_name      the server accepts any tool name
    scan                  how reasoning is marked, and where printed calls do not count
    scans_reasoning       a native model's text is scanned for reasoning, too, even without tools
    constrains_output     the server can constrain output to a JSON schema
    whole_calls           native calls arrive whole and the model does not stop after them: they are checked, and `cutoff` applies
    emulates_stop         the server does not support stop sequences
    secret                returns the key of the `sealed` dialect's tags
    is_gateway_call       returns whether the gateway runs calls of this name; a bad one gets an error result, not `on_bad_call`
    validate              returns the first error of arguments against a tool's schema, or None
    takes_custom_tools    the server accepts custom tools (free text); otherwise they are declared as functions
    passes_tool           returns whether the server takes a tool that is no function as it is
    on_unsupported_tool   what happens to other tools that are no functions
    """

    dialect: Dialect
    native: bool = False
    scans_text: bool = False
    enforces_tool_choice: bool = True
    accepts_any_name: bool = True
    scan: ScanOptions = ScanOptions()
    scans_reasoning: bool = False
    cutoff: Cutoff = "burst"
    on_bad_call: OnBadCall = "retry"
    constrains_output: bool = False
    whole_calls: bool = False
    emulates_stop: bool = False
    secret: Callable[[], bytes] = bytes
    is_gateway_call: Callable[[str], bool] | None = None
    validate: Callable[[Tool, str], str | None] | None = None
    takes_custom_tools: bool = True
    passes_tool: Callable[[OpaqueTool], bool] = passes_no_tool
    on_unsupported_tool: OnUnsupportedTool = "drop"


class ActiveOptions:
    """The current options of one model. `fallback` replaces them when the server refuses tools."""

    def __init__(self, options: ToolCallOptions, fallback: ToolCallOptions | None = None) -> None:
        self.options = options
        self.fallback = fallback
        self._warned: set[str] = set()

    def fall_back(self) -> bool:
        """Return False if the mode has been switched already."""
        if self.fallback is None:
            return False
        self.options, self.fallback = self.fallback, None
        return True

    def warn_once(self, field: str) -> bool:
        if field in self._warned or len(self._warned) >= MAX_WARNINGS:
            return False
        self._warned.add(field)
        return True
