"""Defaults of gateway tools."""

from __future__ import annotations

from toolrelay.core.policy import GatewayTool
from toolrelay.core.request import Tool


def test_gateway_tool_needs_approval_by_default() -> None:  # bug 48
    assert GatewayTool(tool=Tool(name="g")).needs_approval


def test_gateway_tool_is_neither_parallel_nor_idempotent_by_default() -> None:  # bug 45
    tool = GatewayTool(tool=Tool(name="g"))
    assert not tool.parallel
    assert not tool.idempotent
