"""The steps of a turn as entries on a time axis. Pure: no I/O and no clock.

kind          from                                               lasts
-----------   ------------------------------------------------   -------------------------------------------
accepted      TurnAccepted                                       a moment
taken_up      CallsTakenUp                                       a moment
model         AnswerReceived; TurnFailed while it was waited for  from calling the model to the end of its answer
rejected      AnswerRejected                                     from calling the model to the rejection
call          CallPlanned                                        a moment
question      QuestionAsked, kind "run"                          until VerdictGiven, QuestionClosed, QuestionLeft
share         QuestionAsked, kind "share"                        likewise
run           ToolRunStarted                                     until ToolRunFinished
handed_over   CallsHandedOver                                    a moment
finished, failed, resumed                                        a moment
unreadable    a step that cannot be decoded                      a moment

An entry without its end is open; if the turn has ended or was resumed since, it was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from toolrelay.core.events import Usage
from toolrelay.core.json import JsonObject
from toolrelay.core.steps import (
    AnswerReceived,
    AnswerRejected,
    CallPlanned,
    CallsHandedOver,
    CallsTakenUp,
    QuestionAsked,
    QuestionClosed,
    QuestionLeft,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    TurnResumed,
    VerdictGiven,
    status_of,
)
from toolrelay.stores.turn_lists import TurnRecord, UnreadableStep
from toolrelay.stores.turns import StoredStep

EntryKind: TypeAlias = Literal[
    "accepted",
    "taken_up",
    "model",
    "rejected",
    "call",
    "question",
    "share",
    "run",
    "handed_over",
    "finished",
    "failed",
    "resumed",
    "unreadable",
]
_WAITS: dict[str, EntryKind] = {"run": "question", "share": "share"}
_ENDED = ("finished", "failed", "cancelled")


class TraceEntry(Struct, kw_only=True, eq=False):
    """Something that happened in a turn.

    started   milliseconds since the turn began
    ms        how long it took. None: it has no end yet, or none was recorded
    steps     the seq of the steps that it is made of; of a model call that is under way, the one that will end it
    """

    kind: EntryKind
    title: str
    started: float
    ms: float | None
    status: str
    steps: list[int]
    detail: dict[str, Any]

    @property
    def key(self) -> str:
        """Return a name that stays the same while the turn goes on."""
        return f"{self.kind}-{self.steps[0]}"

    @property
    def is_open(self) -> bool:
        return self.ms is None and self.status in ("running", "pending")


def make_timeline(record: TurnRecord) -> list[TraceEntry]:
    """Return the entries of a turn, in the order in which they began."""
    timeline = _Timeline(record.row.created_at)
    both: list[StoredStep | UnreadableStep] = [*record.steps, *record.unreadable]
    for stored in sorted(both, key=lambda each: each.seq):
        timeline.add(stored)
    timeline.end(record)
    return sorted(timeline.entries, key=lambda entry: entry.started)


def total_usage(steps: Sequence[StoredStep]) -> Usage | None:
    """Return the tokens of all answers."""
    total: Usage | None = None
    for stored in steps:
        if isinstance(stored.step, AnswerReceived) and stored.step.usage is not None:
            total = stored.step.usage if total is None else total + stored.step.usage
    return total


class _Timeline:
    def __init__(self, created_at: float) -> None:
        self.entries: list[TraceEntry] = []
        self._created_at = created_at
        self._open: dict[tuple[EntryKind, str], TraceEntry] = {}
        self._tools: dict[str, str] = {}  # names, by call
        self._unresolved: set[str] = set()  # gateway calls of the current answer without a result
        self._has_client_calls = False
        self._calls_model = False
        self._called_at = 0.0
        self._model_calls = 0
        self._last_seq = -1

    def add(self, stored: StoredStep | UnreadableStep) -> None:
        at = max(0.0, round((stored.at - self._created_at) * 1000, 2))
        seq = self._last_seq = stored.seq
        if isinstance(stored, UnreadableStep):
            detail = {"step": stored.kind, "reason": stored.reason}
            self._moment("unreadable", f"Step {seq} cannot be read", at, seq, detail, status="failed")
            return
        step = stored.step
        match step:
            case TurnAccepted() | CallsTakenUp() | TurnResumed():
                self._begin(step, at, seq)
            case AnswerReceived() | AnswerRejected():
                self._answer(step, at, seq)
            case CallPlanned():
                self._plan(step, at, seq)
            case QuestionAsked():
                self._ask(step, at, seq)
            case VerdictGiven() | QuestionClosed() | QuestionLeft():
                self._close_question(step, at, seq)
            case ToolRunStarted():
                self._start_run(step, at, seq)
            case ToolRunFinished():
                self._finish_run(step, at, seq)
            case CallsHandedOver(call_ids=call_ids):
                tools = [self._tool(each) for each in call_ids]
                title = f"Handed over to the client: {', '.join(tools)}"
                self._moment("handed_over", title, at, seq, {"call_ids": list(call_ids), "tools": tools})
            case TurnFinished() | TurnFailed():
                self._finish(step, at, seq)

    def end(self, record: TurnRecord) -> None:
        """Add the model call that is under way. What is open in a turn that has ended was interrupted."""
        if record.row.status in _ENDED:
            self._interrupt(None)
        elif self._calls_model and not self._open and record.row.status == "running":
            self._add_model_call(self._called_at, None, "running", self._last_seq + 1, {})

    # Moments

    def _moment(self, kind: EntryKind, title: str, at: float, seq: int, detail: dict[str, Any], *, status: str = "done") -> None:
        self.entries.append(TraceEntry(kind=kind, title=title, started=at, ms=0.0, status=status, steps=[seq], detail=detail))

    def _begin(self, step: TurnAccepted | CallsTakenUp | TurnResumed, at: float, seq: int) -> None:
        self._called_at = at
        match step:
            case TurnAccepted(request=request):
                self._calls_model = True
                sent = builtins_of(request)
                sent.pop("key", None)
                detail = {"request": sent, "items": len(request.items), "tools": [tool.name for tool in request.functions()]}
                self._moment("accepted", "Request accepted", at, seq, detail)
            case CallsTakenUp(calls=calls):
                self._tools |= {each.call.id: each.call.name for each in calls}
                self._unresolved |= {each.call.id for each in calls if each.output is None}
                self._calls_model = not self._unresolved
                names = ", ".join(each.call.name for each in calls)
                detail = {"calls": [builtins_of(each) for each in calls]}
                self._moment("taken_up", f"Calls of the turn before: {names}", at, seq, detail)
            case TurnResumed():
                self._interrupt(at)
                self._calls_model = not self._unresolved and not self._has_client_calls
                self._moment("resumed", "Resumed: the request was repeated", at, seq, {})

    def _finish(self, step: TurnFinished | TurnFailed, at: float, seq: int) -> None:
        if isinstance(step, TurnFinished):
            detail = {"finish": step.finish, "usage": builtins_or_none(step.usage)}
            self._moment("finished", f"Finished: {step.finish}", at, seq, detail)
        else:
            if self._calls_model and not self._open:
                self._add_model_call(self._called_at, at - self._called_at, "failed", seq, {"error": step.message})
            self._interrupt(at)
            detail = builtins_of(step)
            self._moment("failed", f"Failed: {step.code or step.error_type}", at, seq, detail, status="failed")
        self._calls_model = False

    def _interrupt(self, at: float | None) -> None:
        """Close what is open without an end of its own."""
        for entry in self._open.values():
            entry.status = "interrupted"
            entry.ms = None if at is None else max(0.0, round(at - entry.started, 2))
        self._open.clear()

    # The model

    def _answer(self, step: AnswerReceived | AnswerRejected, at: float, seq: int) -> None:
        if isinstance(step, AnswerRejected):
            started = self._called_at
            detail: dict[str, Any] = {"rule": step.rule, "raw": step.raw}
            title = f"Answer rejected: {step.rule}"
            ms = max(0.0, round(at - started, 2))
            entry = TraceEntry(
                kind="rejected", title=title, started=started, ms=ms, status="rejected", steps=[seq], detail=detail
            )
            self.entries.append(entry)
            self._called_at = at
            return
        started = self._called_at if step.ms is None else max(0.0, round(at - step.ms, 2))
        detail = {
            "finish": step.finish,
            "first_ms": step.first_ms,
            "retries": list(step.retries),
            "usage": builtins_or_none(step.usage),
            "service_tier": step.service_tier,
            "cut": step.cut,
            "raw": step.raw,
            "items": [builtins_of(item) for item in step.items],
        }
        self._add_model_call(started, at - started, "done", seq, detail)
        self._calls_model = False
        self._has_client_calls = False
        self._unresolved.clear()

    def _add_model_call(self, started: float, ms: float | None, status: str, seq: int, detail: dict[str, Any]) -> None:
        self._model_calls += 1
        self.entries.append(
            TraceEntry(
                kind="model",
                title=f"Model call {self._model_calls}",
                started=started,
                ms=None if ms is None else max(0.0, round(ms, 2)),
                status=status,
                steps=[seq],
                detail=detail,
            )
        )

    # Calls

    def _tool(self, call_id: str) -> str:
        return self._tools.get(call_id, call_id)

    def _plan(self, step: CallPlanned, at: float, seq: int) -> None:
        call = step.call
        self._tools[call.id] = call.name
        if step.owner == "gateway":
            self._unresolved.add(call.id)
        else:
            self._has_client_calls = True
        detail = {
            "call_id": call.id,
            "tool": call.name,
            "owner": step.owner,
            "toolset": step.toolset,
            "arguments": call.arguments,
        }
        who = "gateway" if step.owner == "gateway" else "client"
        self._moment("call", f"Call of {call.name}, for the {who}", at, seq, detail)

    def _resolve(self, call_id: str, at: float) -> None:
        """Note that a gateway call has its result. After the last one the model is called again."""
        self._unresolved.discard(call_id)
        if not self._unresolved and not self._has_client_calls:
            self._calls_model = True
            self._called_at = at

    def _ask(self, step: QuestionAsked, at: float, seq: int) -> None:
        tool = step.tool or self._tool(step.call_id)
        title = f"May {tool} run?" if step.kind == "run" else f"May the model see the result of {tool}?"
        detail = {
            "call_id": step.call_id,
            "tool": tool,
            "toolset": step.toolset,
            "arguments": step.arguments,
        }
        entry = TraceEntry(kind=_WAITS[step.kind], title=title, started=at, ms=None, status="pending", steps=[seq], detail=detail)
        self._open_entry(entry, step.call_id)

    def _open_entry(self, entry: TraceEntry, call_id: str) -> None:
        before = self._open.pop((entry.kind, call_id), None)
        if before is not None:  # the gateway was restarted in between
            before.status = "interrupted"
            before.ms = max(0.0, round(entry.started - before.started, 2))
        self._open[entry.kind, call_id] = entry
        self.entries.append(entry)

    def _close_question(self, step: VerdictGiven | QuestionClosed | QuestionLeft, at: float, seq: int) -> None:
        kind = "run" if isinstance(step, QuestionLeft) else step.kind
        entry = self._open.pop((_WAITS[kind], step.call_id), None)
        if entry is None:  # asked in an earlier turn, which its client answers with this one
            tool = self._tool(step.call_id)
            detail: dict[str, Any] = {"call_id": step.call_id, "tool": tool}
            self._moment(_WAITS[kind], f"Answer about {tool}", at, seq, detail)
            entry = self.entries[-1]
        else:
            entry.steps.append(seq)
        entry.ms = max(0.0, round(at - entry.started, 2))
        entry.status = "returned" if isinstance(step, QuestionLeft) else status_of(step)
        if isinstance(step, VerdictGiven):
            entry.detail["answer"] = {
                "verdict": step.verdict,
                "by": step.by,
                "arguments": step.arguments,
                "reason": step.reason,
                "output": builtins_or_none(step.output),
            }
        if entry.status in ("denied", "expired") or (kind == "share" and entry.status != "withdrawn"):
            self._resolve(step.call_id, at)
        elif isinstance(step, QuestionLeft):
            self._unresolved.discard(step.call_id)
            self._has_client_calls = True  # the turn ends, and the client goes on

    def _start_run(self, step: ToolRunStarted, at: float, seq: int) -> None:
        tool = self._tool(step.call_id)
        detail: dict[str, Any] = {"call_id": step.call_id, "tool": tool, "arguments": step.arguments}
        entry = TraceEntry(kind="run", title=f"Tool {tool}", started=at, ms=None, status="running", steps=[seq], detail=detail)
        self._open_entry(entry, step.call_id)

    def _finish_run(self, step: ToolRunFinished, at: float, seq: int) -> None:
        entry = self._open.pop(("run", step.call_id), None)
        if entry is None:
            tool = self._tool(step.call_id)
            detail: dict[str, Any] = {"call_id": step.call_id, "tool": tool}
            self._moment("run", f"Tool {tool} was not run", at, seq, detail, status="not_run")
            entry = self.entries[-1]
        else:
            entry.steps.append(seq)
            entry.ms = max(0.0, round(at - entry.started, 2))
            entry.status = "failed" if step.failed else "done"
        entry.detail |= {
            "output": builtins_of(step.output),
            "failed": step.failed,
            "private": step.private,
            "withheld": step.withheld,
        }
        if not step.withheld:
            self._resolve(step.call_id, at)


def builtins_of(value: object) -> Any:  # noqa: ANN401 -- any JSON
    return msgspec.to_builtins(value)


def builtins_or_none(value: object | None) -> JsonObject | None:
    return None if value is None else builtins_of(value)
