"""Values of turns: their rows, steps, streams and messages."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from toolrelay.core.steps import StepEvent

TurnStatus: TypeAlias = Literal["running", "parked", "finished", "failed", "cancelled"]


class TurnRow(Struct, frozen=True, kw_only=True):
    """A turn without its steps.

    id               the turn's token; a Responses id is "resp_" and this
    owner            the client's key: its id in the store, its name if it is in the configuration file; or "local"
    created_at       Unix seconds
    previous         the turn that this one continues (previous_response_id)
    stored           a Responses resource that may be retrieved
    request_digest   tells whether a repeated Idempotency-Key comes with the same request
    """

    id: str
    owner: str
    model: str
    wire: str
    created_at: float
    status: TurnStatus = "running"
    conversation: str | None = None
    previous: str | None = None
    stored: bool = False
    background: bool = False
    idempotency_key: str | None = None
    request_digest: str | None = None


class StoredStep(Struct, frozen=True, kw_only=True):
    seq: int
    at: float
    step: StepEvent


class StoredTurn(Struct, frozen=True, kw_only=True):
    row: TurnRow
    steps: tuple[StoredStep, ...]


class Frame(Struct, frozen=True):
    """One SSE frame of a background stream."""

    seq: int
    data: bytes


class MessageRow(Struct, frozen=True, kw_only=True):
    """A message in the shape of Chat Completions. `content_json`, `tool_calls` and `function_call` are JSON texts."""

    role: str
    content: str | None = None
    content_json: str | None = None
    tool_calls: str | None = None
    tool_call_id: str | None = None
    function_call: str | None = None
