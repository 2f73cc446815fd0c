"""Who runs a call."""

from __future__ import annotations

from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Tool

POLICY = Policy(tools={"g": GatewayTool(tool=Tool(name="g"))})


def test_the_gateway_runs_what_it_declared() -> None:
    assert POLICY.owner("g", frozenset()) == "gateway"


def test_a_name_that_both_declare_is_the_clients() -> None:
    assert POLICY.owner("g", frozenset({"g"})) == "client"


def test_a_name_that_nobody_declared_is_the_clients() -> None:
    assert POLICY.owner("nope", frozenset({"f"})) == "client"
    assert Policy().owner("g", frozenset()) == "client"


def test_a_gateway_tool_needs_approval_unless_the_policy_says_otherwise() -> None:  # bug 48
    assert POLICY.tools["g"].needs_approval
