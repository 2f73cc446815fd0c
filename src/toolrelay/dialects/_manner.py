"""How one model is spoken with: what its profile and its table in the configuration come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from toolrelay.core.request import Tool
from toolrelay.dialects._watch import Quoting
from toolrelay.dialects.base import Dialect

OnBadCall = Literal["pass", "retry", "text", "fail"]
Cutoff = Literal["off", "first", "burst"]


class Manner(Struct, frozen=True, kw_only=True):
    """What is known of a model, and what its owner wants.

    dialect       how calls are printed
    native        tools are declared to the model, and it makes calls of its own; else it can only print them
    catches       a native model's text is listened to as well, because some print calls in their dialect all the same
    heeds_choice  a native model's server sees to tool_choice; else a choice that must be met is met by printing
    any_names     a native model's server takes any tool name
    quoting       where printed calls do not count, and how reasoning is marked
    single_text   the model has a single text for its input: the conversation is flattened
    constrains    its server can hold it to a JSON schema
    secret        gives what the tag of sealed calls is made with
    check         what a tool's schema has against arguments, if anything
    """

    dialect: Dialect
    native: bool = False
    catches: bool = False
    heeds_choice: bool = True
    any_names: bool = True
    quoting: Quoting = Quoting()
    cutoff: Cutoff = "burst"
    on_bad_call: OnBadCall = "retry"
    single_text: bool = False
    constrains: bool = False
    secret: Callable[[], bytes] = bytes
    check: Callable[[Tool, str], str | None] | None = None
