"""The commands of a turn, which the driver executes."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from toolrelay.core.approvals import QuestionKind
from toolrelay.core.events import StreamEvent
from toolrelay.core.messages import Call
from toolrelay.core.request import Request
from toolrelay.core.steps import StepEvent


class CallModel(Struct, frozen=True):
    """Call the model and feed its stream events to the turn."""

    request: Request


class AskAgain(Struct, frozen=True):
    """Call the model again within the same answer, because its output was rejected."""

    request: Request


class DrainModel(Struct, frozen=True):
    """Only usage is still wanted: read on for a moment, then stop the model."""


class RunTool(Struct, frozen=True):
    """Run a gateway tool and feed ToolRunFinished to the turn."""

    call: Call


class AskPerson(Struct, frozen=True):
    """Ask whether the call may run with these arguments, or what to share of its result, and feed the answer to the turn."""

    call: Call
    arguments: str
    kind: QuestionKind = "run"


class Emit(Struct, frozen=True):
    """Send events to the client."""

    events: list[StreamEvent]


class RecordStep(Struct, frozen=True):
    """Record a step before the next commands are executed."""

    step: StepEvent


class Notice(Struct, frozen=True, kw_only=True):
    """Log that something was dropped, cut, or passed on although it is invalid.

    `split_emitted` is set for the blocks of XML clients: whether the block is one of several messages. `failed` and `fallback`
    are the names of models: the one that failed, and the one that is asked instead.
    """

    event: str
    rule: str
    tool: str | None = None
    dialect: str | None = None
    split_emitted: bool | None = None
    failed: str | None = None
    fallback: str | None = None


class End(Struct, frozen=True):
    """End the turn."""


Command: TypeAlias = CallModel | AskAgain | DrainModel | RunTool | AskPerson | Emit | RecordStep | Notice | End
