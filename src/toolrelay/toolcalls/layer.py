"""The layer between a turn and the model. It has the turn's protocol: events in, commands out.

    command of the turn    command of the layer
    --------------------   ----------------------------------------------------------------------------------
    CallModel(request)     CallModel with the request that the model needs; a session reads the answer
    AskAgain(request)      the same; the session begins its next try
    RecordStep of an       the same, with the text that the model printed, if calls were read from it
      answer
    all others             the same

    from the driver        to the turn
    --------------------   ----------------------------------------------------------------------------------
    events of the model    the session's events; `ask_again` if the session rejects the answer
    the model has stopped  the end of the answer, with estimated usage; a failure if the answer had not been cut

The layer adds one command: DrainModel, when only the usage of an answer is still wanted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.commands import AskAgain, CallModel, Command, DrainModel, Notice, RecordStep
from toolrelay.core.events import UPSTREAM_FALLBACK, AnswerFailed, Noticed, StreamEvent
from toolrelay.core.request import Request
from toolrelay.core.steps import AnswerReceived, AnswerRejected, ReceivedStep
from toolrelay.core.turn import Turn
from toolrelay.errors import BackendError, ToolrelayError
from toolrelay.toolcalls.flattening import FlatTools, needs_flattening
from toolrelay.toolcalls.options import ActiveOptions
from toolrelay.toolcalls.relay import RelaySession, can_relay
from toolrelay.toolcalls.session import ToolCallSession
from toolrelay.toolcalls.states import READING, WAITING, State
from toolrelay.toolcalls.targets import Target, TargetChooser

# Errors of servers whose model takes no tools: Ollama, llama.cpp without --jinja, vLLM without a parser, OpenRouter.
_NO_TOOLS = re.compile(
    r"does not support (tools|function)|tools? param(eter)? requires|requires --enable-auto-tool-choice|support tool use"
    r"|tools? (is|are) not supported|does not support tool",
    re.IGNORECASE,
)


_WITH_TEXT = (AnswerReceived, AnswerRejected)
_CALLS_MODEL = frozenset({CallModel, AskAgain})


class ToolCallLayer:
    """`mode` is shared by all turns of the model."""

    def __init__(self, turn: Turn, mode: ActiveOptions, chooser: TargetChooser | None = None) -> None:
        self._turn = turn
        self._mode = mode
        self._chooser = chooser
        self._tried: list[Target] = []  # the models that were asked for the current answer, of a model with fallbacks
        self._request: Request = turn.request  # the turn's request for the current answer
        self._session: ToolCallSession | RelaySession = RelaySession(turn.request)
        self._flat: FlatTools | None = None  # the request's tools as the model knows them, if they are others
        self._may_drop_tools = False  # the model can be asked for calls as text, if its server refuses tools
        self._is_unanswered = False  # nothing of the answer has arrived, and a failure can be made good

    def start(self) -> list[Command]:
        return self._translate(self._turn.start())

    def resume(self) -> list[Command]:
        """Return the first commands of a turn that was replayed."""
        return self._translate(self._turn.resume())

    def fail(self, error: ToolrelayError) -> list[Command]:
        return self._translate(self._turn.fail(error))

    def handle(self, events: Sequence[StreamEvent]) -> list[Command]:
        """Process a batch of the model's events."""
        if self._is_unanswered and events and type(events[0]) is not Noticed:
            self._is_unanswered = False
            if isinstance(events[0], AnswerFailed) and (commands := self._replace_answer(events[0])):
                return commands
        session = self._session
        before = session.state
        out = session.feed(events)
        if self._flat is not None:
            out = self._flat.restore(out)
        if session.state is READING:
            return self._turn.handle(out) if out else []
        commands = self._forward(out)
        if before is READING and session.state in WAITING:
            commands.append(DrainModel())
        return commands

    def handle_step(self, step: ReceivedStep) -> list[Command]:
        return self._translate(self._turn.handle_step(step))

    def handle_model_stop(self) -> list[Command]:
        """End the answer: the model's stream ended, or was ended, before the answer did."""
        session = self._session
        if isinstance(session, ToolCallSession) and session.state in WAITING:
            last = session.finish_with_estimate()
            return self._forward(last if self._flat is None else self._flat.restore(last))
        return self._turn.handle_model_stop()

    def _forward(self, events: Sequence[StreamEvent]) -> list[Command]:
        commands = self._turn.handle(events) if events else []
        session = self._session
        if session.state is State.RETRY:
            commands += self._turn.ask_again(session.rejected_for, session.request)
        return self._translate(commands)

    def _translate(self, commands: list[Command]) -> list[Command]:
        if _CALLS_MODEL.isdisjoint(map(type, commands)) and not self._session.printed:
            return commands
        out: list[Command] = []
        for command in commands:
            if type(command) is CallModel:
                self._request = command.request
                out += self._choose_target()  # sets the mode
                self._may_drop_tools = self._mode.fallback is not None
                self._is_unanswered = self._chooser is not None or self._may_drop_tools
                out += self._begin_answer()
                continue
            if type(command) is RecordStep and isinstance(command.step, _WITH_TEXT) and self._session.printed:
                out.append(RecordStep(replace(command.step, raw=self._session.printed)))
                continue
            if type(command) is AskAgain and isinstance(self._session, ToolCallSession):
                self._session.retry()
            out.append(command)
        return out

    def _begin_answer(self, rejected_for: str = "") -> list[Command]:
        """Open a session and ask the model; with `rejected_for`, ask it again."""
        request, options = self._request, self._mode.options
        if self._chooser is not None and self._tried[-1] is not self._chooser.primary:
            request = replace(request, model=self._tried[-1].name)
        if self._turn.has_gateway_tools:
            options = replace(options, is_gateway_call=self._turn.is_gateway_call)
        self._flat = None
        try:
            if needs_flattening(request, options):
                self._flat = FlatTools(request, options)
                request = self._flat.request
            session = RelaySession(request) if can_relay(request, options) else ToolCallSession(request, options)
        except ToolrelayError as error:
            return self._turn.handle([AnswerFailed(error)])
        self._session = session
        commands: list[Command] = [CallModel(session.request)]
        if rejected_for:
            commands = self._turn.ask_again(rejected_for, session.request)
        wants_logprobs = request.sampling.logprobs or request.sampling.top_logprobs
        if wants_logprobs and isinstance(session, ToolCallSession) and self._mode.warn_once("logprobs"):
            # Calls are taken out of the text, so that log probabilities no longer match it.
            commands.insert(0, Notice(event="field_dropped", rule="logprobs", dialect=options.dialect.name))
        dropped = [] if self._flat is None else [kind for kind in self._flat.dropped if self._mode.warn_once(f"tool {kind}")]
        return [*(Notice(event="tool_dropped", rule="unsupported_tool", tool=kind) for kind in dropped), *commands]

    # Other ways to an answer, as long as nothing of it has arrived

    def _replace_answer(self, failed: AnswerFailed) -> list[Command]:
        """Ask without native tools, or ask another model; return nothing if neither can help."""
        if self._may_drop_tools and self._refuses_tools(failed):
            self._may_drop_tools = False
            self._is_unanswered = self._chooser is not None
            return self._fall_back()
        if self._chooser is None:
            return []
        before = self._tried[-1]
        target = self._chooser.choose_after(before, failed.error, [each.name for each in self._tried])
        if target is None:
            return []
        self._use(target)
        self._may_drop_tools = self._mode.fallback is not None
        self._is_unanswered = True
        return [_fallback_notice(_reason(failed.error), before, target), *self._begin_answer(rejected_for=UPSTREAM_FALLBACK)]

    def _choose_target(self) -> list[Command]:
        if self._chooser is None:
            return []
        target, primary = self._chooser.choose(), self._chooser.primary
        self._tried = []
        self._use(target)
        return [] if target is primary else [_fallback_notice("cooling_down", primary, target)]

    def _use(self, target: Target) -> None:
        self._tried.append(target)
        self._mode = target.mode

    def _refuses_tools(self, failed: AnswerFailed) -> bool:
        """Return whether the server refuses tools. Servers quote the request: text of the client does not count."""
        if not self._request.tools:
            return False
        found = _NO_TOOLS.search(failed.error.message)
        return found is not None and found.group() not in str(self._request)

    def _fall_back(self) -> list[Command]:
        """Ask for calls as text, now and in all later turns. A concurrent turn may have switched the mode already."""
        rule = "native_tools_refused"
        switched = self._mode.fall_back()
        notices = [Notice(event=rule, rule=rule, dialect=self._mode.options.dialect.name)] if switched else []
        return [*notices, *self._begin_answer(rejected_for=rule)]


def _fallback_notice(rule: str, failed: Target, fallback: Target) -> Notice:
    return Notice(event=UPSTREAM_FALLBACK, rule=rule, failed=failed.name, fallback=fallback.name)


def _reason(error: ToolrelayError) -> str:
    """Return the gateway's own code of a fault, or the status of the server's response."""
    code = error.code or ""
    return code if code.startswith("upstream_") and code != BackendError.code else f"status_{error.status}"
