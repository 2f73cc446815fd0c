"""The gateway calls of a turn: which are run, asked about, or refused, and when."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from toolrelay.core.approvals import (
    CHANGED,
    NOT_SHAREABLE,
    PATHS,
    QuestionKind,
    approval_digest,
    approval_id,
    keep_paths,
    shared_paths,
)
from toolrelay.core.commands import AskPerson, Command, Emit, RecordStep, RunTool
from toolrelay.core.events import ApprovalRequested, GatewayCallFinished, GatewayCallStarted, StreamEvent, TextDelta
from toolrelay.core.messages import Content, Message, plain_text
from toolrelay.core.policy import MAX_IDENTICAL_CALLS, GatewayTool
from toolrelay.core.progress import CallState, PendingGatewayCall, TurnProgress
from toolrelay.core.steps import (
    QuestionAsked,
    QuestionClosed,
    QuestionLeft,
    ReceivedStep,
    StepEvent,
    ToolRunFinished,
    ToolRunStarted,
    VerdictGiven,
)
from toolrelay.core.validation import describe_invalid, validate

OUTCOME_UNKNOWN = (
    "This tool was interrupted: the gateway was restarted, or the client had left. "
    "Whether it did its work is unknown. It was not run again."
)
STATUS = re.compile(r"(?:\n\n)?(?:Calling|Waiting for approval:) [\w-]{1,64}…\n\n")  # what `status = "text"` shows
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
            if pending.state in (CallState.DONE, CallState.LEFT):
                continue
            if refusal := self._refusal(pending):
                commands += self._finish(pending, ToolRunFinished(call_id=pending.call.id, output=refusal, failed=True))
                continue
            if pending.state in (CallState.PLANNED, CallState.ALLOWED):
                if active and not all(self._runs_beside_others(each) for each in (*active, pending)):
                    break
                commands += self._start(pending)
            elif pending.state is CallState.RAN and not self._progress.asked():
                commands += self._ask(pending, "share")
            active.append(pending)
        return commands

    def handle(self, step: ReceivedStep) -> list[Command]:
        """Take a verdict or a result, unless nobody waits for it."""
        pending = self._progress.pending.get(step.call_id)
        if pending is None or self._progress.has_ended:
            return []
        match pending.state, step:
            case CallState.RUNNING, ToolRunFinished():
                return self._finish(pending, step)
            case CallState.ASKED, VerdictGiven(kind="run", verdict="allow"):
                arguments = pending.arguments if step.arguments is None else step.arguments
                definition = pending.definition or self._definition(pending)
                digest = approval_digest(pending.call.id, definition, arguments)
                return [self._record(replace(step, digest=digest))]
            case CallState.ASKED, VerdictGiven(kind="run") | QuestionClosed(kind="run", status="expired"):
                return [self._record(step), Emit([shown_start(pending), shown_end(pending, failed=True)])]
            case CallState.ASKED, QuestionLeft():
                return [self._record(step), Emit([shown_request(pending)])]
            case CallState.SHARE_ASKED, VerdictGiven(kind="share", verdict="allow"):
                shared = self._record(replace(step, output=_shared(pending, step)))
                return [shared, Emit([shown_end(pending, failed=False)])]
            case CallState.SHARE_ASKED, VerdictGiven(kind="share") | QuestionClosed(kind="share", status="expired"):
                return [self._record(step), Emit([shown_end(pending, failed=True)])]
            case _:
                return []

    def withdraw(self) -> list[Command]:
        """Close the open questions, also those to the client: the turn fails, and cannot be taken up by their answers."""
        return [self._record(step) for step in self._progress.withdrawals()]

    def resume(self) -> list[Command]:
        """Take up the calls that were active when the gateway stopped."""
        commands: list[Command] = []
        for pending in self._progress.active():
            tool = self._tools.get(pending.call.name)
            if pending.state is CallState.SHARE_ASKED:
                commands.append(_ask_to_share(pending))
            elif tool is not None and pending.state is CallState.ASKED:
                commands.append(AskPerson(pending.call, pending.arguments))
            elif pending.state is CallState.ASKED:  # the tool is gone: nobody need answer, and `start` refuses the call
                commands.append(self._record(QuestionClosed(call_id=pending.call.id, status="withdrawn")))
            elif tool is not None and tool.idempotent:
                commands.append(RunTool(replace(pending.call, arguments=pending.arguments)))
            else:
                finished = ToolRunFinished(call_id=pending.call.id, output=OUTCOME_UNKNOWN, failed=True)
                commands += self._finish(pending, finished)
        return commands

    def _runs_beside_others(self, pending: PendingGatewayCall) -> bool:
        tool = self._tools.get(pending.call.name)
        return tool is not None and tool.parallel and (not tool.needs_approval or pending.state is CallState.RUNNING)

    def _refusal(self, pending: PendingGatewayCall) -> str | None:
        """Return why a call is not run, in words for the model."""
        if pending.state not in (CallState.PLANNED, CallState.ALLOWED):
            return None
        if pending.call.name not in self._tools:
            return _unknown_tool(pending)
        if pending.state is CallState.ALLOWED:
            digest = approval_digest(pending.call.id, self._definition(pending), pending.arguments)
            return None if digest == pending.digest else CHANGED
        limit = self._max_tool_calls
        if pending.attempt > MAX_IDENTICAL_CALLS:
            return REPEATED
        if limit is not None and self._progress.runs >= limit:
            return f"The limit of {limit} tool calls is reached. This call was not run."
        return self._invalid_arguments(pending)

    def _invalid_arguments(self, pending: PendingGatewayCall) -> str | None:
        """Nobody is asked about a call that could not run. The arguments of other calls are checked when they run."""
        tool = self._tools[pending.call.name]
        problem = validate(tool.tool, pending.arguments.strip() or "{}") if tool.needs_approval else None
        return None if problem is None else describe_invalid(pending.call.name, problem)

    def _definition(self, pending: PendingGatewayCall) -> str:
        tool = self._tools.get(pending.call.name)
        return "" if tool is None else tool.definition

    def _start(self, pending: PendingGatewayCall) -> list[Command]:
        call = pending.call
        if pending.state is CallState.PLANNED and self._tools[call.name].needs_approval:
            return self._ask(pending, "run")
        started = self._record(ToolRunStarted(call_id=call.id, arguments=pending.arguments))
        shown: list[StreamEvent] = [shown_start(pending)]
        if self._status_text:
            shown.append(TextDelta(self._status("Calling", pending)))
        return [started, Emit(shown), RunTool(replace(call, arguments=pending.arguments))]

    def _ask(self, pending: PendingGatewayCall, kind: QuestionKind) -> list[Command]:
        question = AskPerson(pending.call, pending.arguments) if kind == "run" else _ask_to_share(pending)
        status = self._status("Waiting for approval:", pending) if self._status_text else ""
        asked = QuestionAsked(
            call_id=pending.call.id,
            kind=kind,
            tool=pending.call.name,
            toolset=pending.toolset,
            arguments=question.arguments,
            definition=self._definition(pending) if kind == "run" else "",
        )
        shown: list[Command] = [Emit([TextDelta(status)])] if status else []
        return [self._record(asked), *shown, question]

    def _status(self, doing: str, pending: PendingGatewayCall) -> str:
        answer = self._progress.answer
        is_first = not pending.was_asked  # what was shown before ends with a break
        follows_text = answer is not None and any(type(item) is Message for item in answer.items)
        return ("\n\n" if is_first and follows_text else "") + f"{doing} {pending.call.name}…\n\n"

    def _finish(self, pending: PendingGatewayCall, step: ToolRunFinished) -> list[Command]:
        """Record the result. A call that was not run is shown to the client all the same."""
        shown: list[StreamEvent] = [] if pending.state is CallState.RUNNING else [shown_start(pending)]
        tool = self._tools.get(pending.call.name)
        if tool is not None and tool.asks_to_share and not step.failed:
            paths = shared_paths(step.output)
            if paths is None:  # nobody could decide about it
                step = replace(step, output=NOT_SHAREABLE, failed=True)
            elif paths:
                return [self._record(replace(step, withheld=True))]
        recorded = self._record(step)
        shown.append(shown_end(pending, failed=step.failed))
        return [recorded, Emit(shown)]

    def _record(self, step: StepEvent) -> RecordStep:
        self._progress.apply(step)
        return RecordStep(step)


def _unknown_tool(pending: PendingGatewayCall) -> str:
    return f"Unknown tool: {pending.call.name[:MAX_SHOWN_NAME]}"


def _ask_to_share(pending: PendingGatewayCall) -> AskPerson:
    arguments = msgspec.json.encode({PATHS: shared_paths(pending.output) or []}).decode()
    return AskPerson(pending.call, arguments, "share")


def _shared(pending: PendingGatewayCall, step: VerdictGiven) -> Content:
    """Return the part of a result that a person shares: all of it, or the entries with the paths of the verdict."""
    if step.arguments is None:
        return pending.output
    return keep_paths(pending.output, msgspec.json.decode(step.arguments, type=dict[str, list[str]])[PATHS])


# What the client is shown


def shown_start(pending: PendingGatewayCall) -> GatewayCallStarted:
    call = pending.call
    approval = approval_id(call.id) if pending.was_asked else None
    return GatewayCallStarted(id=call.id, name=call.name, toolset=pending.toolset, arguments=pending.arguments, approval=approval)


def shown_end(pending: PendingGatewayCall, *, failed: bool) -> GatewayCallFinished:
    return GatewayCallFinished(id=pending.call.id, output=plain_text(pending.output), failed=failed)


def shown_request(pending: PendingGatewayCall) -> ApprovalRequested:
    call = pending.call
    return ApprovalRequested(id=approval_id(call.id), name=call.name, toolset=pending.toolset, arguments=pending.arguments)
