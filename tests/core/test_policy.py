"""Ownership of calls."""

from __future__ import annotations

from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Tool

POLICY = Policy(tools={"g": GatewayTool(tool=Tool(name="g"))})


def test_gateway_owns_its_own_tools() -> None:
    assert POLICY.owner("g", frozenset()) == "gateway"


def test_client_owns_a_name_that_both_declare() -> None:
    assert POLICY.owner("g", frozenset({"g"})) == "client"


def test_client_owns_an_undeclared_name() -> None:
    assert POLICY.owner("nope", frozenset({"f"})) == "client"
    assert Policy().owner("g", frozenset()) == "client"


def test_gateway_tool_needs_approval_by_default() -> None:  # bug 48
    assert POLICY.tools["g"].needs_approval
