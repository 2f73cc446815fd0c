"""The rules that a request sets for the calls of an answer: tool_choice and parallel_tool_calls."""

from __future__ import annotations

from toolrelay.core.events import CallStarted, Noticed
from toolrelay.core.request import Request


class CallRules:
    """Judge the calls of one answer as they start."""

    def __init__(self, request: Request) -> None:
        self._choice = request.tool_choice
        self._single = request.parallel_tool_calls is False
        self._declared = frozenset([tool.name for tool in request.functions()])
        self._calling: set[int] = set()  # choices with a call

    def check(self, start: CallStarted) -> Noticed | None:
        """Return a notice for the log if a rule is broken. Then the call must be dropped, unless the rule is UNKNOWN_TOOL."""
        rule = self._breach(start)
        if rule is not None:
            return Noticed(event="tool_block", rule=rule, tool=start.name)
        self._calling.add(start.choice)
        if start.namespace is None and start.name not in self._declared:
            return Noticed(event="tool_block", rule=UNKNOWN_TOOL, tool=start.name)
        return None

    def _breach(self, start: CallStarted) -> str | None:
        choice = self._choice
        if choice is not None and choice.mode == "none":
            return "tool_choice_none"
        if choice is not None and choice.names and (start.kind, start.name) not in choice.names:
            return "not_the_named_tool" if choice.mode == "named" else "not_in_allowed_tools"
        if self._single and start.choice in self._calling:
            return "parallel_tool_calls_false"
        return None


UNKNOWN_TOOL = "unknown_tool"  # the call is passed on all the same: the client may know the tool
