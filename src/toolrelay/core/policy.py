"""Who runs a call, and under which rules: data that the turn reads."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from toolrelay.core.request import Tool
from toolrelay.core.steps import Owner


class GatewayTool(Struct, frozen=True, kw_only=True):
    tool: Tool
    needs_approval: bool = True


class Policy(Struct, frozen=True, kw_only=True):
    """`tools` are the gateway's own for this turn, by name. `keeps`: somebody wants the model's answers recorded whole."""

    tools: Mapping[str, GatewayTool] = {}
    max_tool_rounds: int = 10
    keeps: bool = True

    def owner(self, name: str, declared: frozenset[str]) -> Owner:
        """A name that both declare is the client's."""
        return "gateway" if name in self.tools and name not in declared else "client"
