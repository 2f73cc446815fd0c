"""What a turn wants done. The driver does it and hands back what came of it."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from toolrelay.core.events import StreamEvent
from toolrelay.core.messages import Call
from toolrelay.core.request import Request
from toolrelay.core.steps import StepEvent


class CallModel(Struct, frozen=True):
    """Ask the model; its stream events come back."""

    request: Request


class AskAgain(Struct, frozen=True):
    """Ask the model once more within the same answer: what it said was rejected."""

    request: Request


class DrainModel(Struct, frozen=True):
    """The rest of the answer is wanted for its usage only: read on for a moment, then stop the model."""


class RunTool(Struct, frozen=True):
    """Run a gateway tool; RunFinished comes back."""

    call: Call


class AskPerson(Struct, frozen=True):
    """Ask whether the call may run; VerdictGiven comes back."""

    call: Call


class Emit(Struct, frozen=True):
    """For the client."""

    events: list[StreamEvent]


class Record(Struct, frozen=True):
    """For the ledger, before the commands after it are done."""

    step: StepEvent


class Notice(Struct, frozen=True, kw_only=True):
    """For the log: something was dropped, cut or passed on although it is odd. Nothing is swallowed in silence.

    `split_emitted` is for the blocks of XML clients: whether the block is one of several messages.
    """

    event: str
    rule: str
    tool: str | None = None
    dialect: str | None = None
    split_emitted: bool | None = None


class End(Struct, frozen=True):
    """The turn is over."""


Command: TypeAlias = CallModel | AskAgain | DrainModel | RunTool | AskPerson | Emit | Record | Notice | End
