"""The gateway's own tools in a turn, and the rules for running them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from toolrelay.core.request import Tool
from toolrelay.core.steps import Owner


class GatewayTool(Struct, frozen=True, kw_only=True):
    tool: Tool
    needs_approval: bool = True


class Policy(Struct, frozen=True, kw_only=True):
    """`tools` are the gateway's, by name. With `records_answers` each answer of the model is recorded as a step."""

    tools: Mapping[str, GatewayTool] = {}
    max_tool_rounds: int = 10
    records_answers: bool = True

    def owner(self, name: str, declared: frozenset[str]) -> Owner:
        """Return who runs a call of the tool; `declared` are the client's names, which take precedence."""
        return "gateway" if name in self.tools and name not in declared else "client"
