"""The gateway's own tools in a turn, and the rules for running them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from toolrelay.core.request import Tool

BREAK = "\n\n"  # between the texts of two answers that a client gets as one
MAX_IDENTICAL_CALLS = 2  # the third identical call of a turn is not run


class GatewayTool(Struct, frozen=True, kw_only=True):
    """A tool that the gateway runs.

    toolset          the name of its toolset in the configuration
    definition       a digest of the tool and of where it comes from
    parallel         it may run beside other calls of the same answer
    idempotent       it may be run again if a run's outcome is unknown
    asks_to_share    a person decides which entries of its result the model sees
    """

    tool: Tool
    toolset: str = ""
    definition: str = ""
    needs_approval: bool = True
    parallel: bool = False
    idempotent: bool = False
    asks_to_share: bool = False


class Policy(Struct, frozen=True, kw_only=True):
    """`tools` are the gateway's, by name. With `records_answers` each answer of the model is recorded as a step.

    `same_name` decides whose tool a name is that the client declares too. `status_text`: tell Chat clients in text which tool
    runs. `joins_answers`: the client gets the texts of all answers as one, so that each must be a paragraph.
    `sees_private`: the model may see private results.
    """

    tools: Mapping[str, GatewayTool] = {}
    max_tool_rounds: int = 10
    records_answers: bool = True
    same_name: Literal["client", "gateway"] = "client"
    status_text: bool = False
    joins_answers: bool = False
    sees_private: bool = True
