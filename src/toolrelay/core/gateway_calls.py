"""The gateway calls of a turn: which are run, asked about, or refused, and when."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from toolrelay.core.commands import AskPerson, Command, Emit, RecordStep, RunTool
from toolrelay.core.events import GatewayCallFinished, GatewayCallStarted, StreamEvent, TextDelta
from toolrelay.core.messages import Message, plain_text
from toolrelay.core.policy import MAX_IDENTICAL_CALLS, GatewayTool
from toolrelay.core.progress import CallState, PendingGatewayCall, TurnProgress
from toolrelay.core.steps import QuestionAsked, StepEvent, ToolRunFinished, ToolRunStarted, VerdictGiven

OUTCOME_UNKNOWN = (
    "This tool was interrupted: the gateway was restarted, or the client had left. "
    "Whether it did its work is unknown. It was not run again."
)
STATUS = re.compile(r"(?:\n\n)?Calling [\w-]{1,64}…\n\n")  # what `status = "text"` shows
MAX_SHOWN_NAME = 100  # characters of a name that the model made up
REPEATED = "This call was made before with the same arguments. It was not run again: use the earlier result."


class GatewayCalls:
    def __init__(
        self, progress: TurnProgress, tools: Mapping[str, GatewayTool], max_tool_calls: int | None, *, status_text: bool
    ) -> None:
        self._progress = progress
        self._tools = tools
        self._max_tool_calls = max_tool_calls
        self._status_text = status_text

    def start(self) -> list[Command]:
        """Start the calls that need not wait for another: one, or several that may run in parallel."""
        commands: list[Command] = []
        active: list[PendingGatewayCall] = []
        for pending in [*self._progress.pending.values()]:
            if pending.state is CallState.DONE:
                continue
            if pending.state is CallState.PLANNED and (refusal := self._refusal(pending)):
                commands += self._finish(pending, ToolRunFinished(call_id=pending.call.id, output=refusal, failed=True))
                continue
            if pending.state in (CallState.PLANNED, CallState.ALLOWED):
                if active and not all(self._runs_beside_others(each) for each in (*active, pending)):
                    break
                commands += self._start(pending)
            active.append(pending)
        return commands

    def handle(self, step: VerdictGiven | ToolRunFinished) -> list[Command]:
        """Take a verdict or a result, unless nobody waits for it."""
        pending = self._progress.pending.get(step.call_id)
        if pending is None or self._progress.has_ended:
            return []
        match pending.state, step:
            case CallState.RUNNING, ToolRunFinished():
                return self._finish(pending, step)
            case CallState.ASKED, VerdictGiven(verdict="allow"):
                return [self._record(step)]
            case CallState.ASKED, VerdictGiven():
                return [self._record(step), Emit([_shown_start(pending), _shown_end(pending, failed=True)])]
            case _:
                return []

    def resume(self) -> list[Command]:
        """Take up the calls that were active when the gateway stopped."""
        commands: list[Command] = []
        for pending in self._progress.active():
            tool = self._tools.get(pending.call.name)
            if pending.state is CallState.ASKED:
                commands.append(AskPerson(pending.call))
            elif tool is not None and tool.idempotent:
                commands.append(RunTool(replace(pending.call, arguments=pending.arguments)))
            else:
                unknown = ToolRunFinished(call_id=pending.call.id, output=OUTCOME_UNKNOWN, failed=True)
                commands += self._finish(pending, unknown)
        return commands

    def _runs_beside_others(self, pending: PendingGatewayCall) -> bool:
        tool = self._tools.get(pending.call.name)
        return tool is not None and tool.parallel and (not tool.needs_approval or pending.state is CallState.RUNNING)

    def _refusal(self, pending: PendingGatewayCall) -> str | None:
        """Return why a call is not run, in words for the model."""
        limit = self._max_tool_calls
        if pending.call.name not in self._tools:
            return f"Unknown tool: {pending.call.name[:MAX_SHOWN_NAME]}"
        if pending.attempt > MAX_IDENTICAL_CALLS:
            return REPEATED
        if limit is not None and self._progress.runs >= limit:
            return f"The limit of {limit} tool calls is reached. This call was not run."
        return None

    def _start(self, pending: PendingGatewayCall) -> list[Command]:
        call = pending.call
        if pending.state is CallState.PLANNED and self._tools[call.name].needs_approval:
            return [self._record(QuestionAsked(call_id=call.id)), AskPerson(call)]
        started = self._record(ToolRunStarted(call_id=call.id, arguments=pending.arguments))
        shown: list[StreamEvent] = [_shown_start(pending)]
        if self._status_text:
            shown.append(TextDelta(self._status(call.name)))
        return [started, Emit(shown), RunTool(replace(call, arguments=pending.arguments))]

    def _status(self, name: str) -> str:
        answer = self._progress.answer
        follows_text = answer is not None and any(type(item) is Message for item in answer.items)
        return ("\n\n" if follows_text else "") + f"Calling {name}…\n\n"

    def _finish(self, pending: PendingGatewayCall, step: ToolRunFinished) -> list[Command]:
        """Record the result. A call that was not run is shown to the client all the same."""
        shown: list[StreamEvent] = [] if pending.state is CallState.RUNNING else [_shown_start(pending)]
        recorded = self._record(step)
        shown.append(_shown_end(pending, failed=step.failed))
        return [recorded, Emit(shown)]

    def _record(self, step: StepEvent) -> RecordStep:
        self._progress.apply(step)
        return RecordStep(step)


def _shown_end(pending: PendingGatewayCall, *, failed: bool) -> GatewayCallFinished:
    return GatewayCallFinished(id=pending.call.id, output=plain_text(pending.output), failed=failed)


def _shown_start(pending: PendingGatewayCall) -> GatewayCallStarted:
    call = pending.call
    return GatewayCallStarted(id=call.id, name=call.name, toolset=pending.toolset, arguments=pending.arguments)
