"""The layer between a turn and the model: it speaks the turn's protocol, events in and commands out.

    the turn's command     the layer's
    --------------------   ----------------------------------------------------------------------------------
    CallModel(request)     CallModel with the request as the model needs it; a session reads the answer
    AskAgain(request)      the same command; the session begins its next try
    all others             the same

    from the driver        to the turn
    --------------------   ----------------------------------------------------------------------------------
    the model's events     the session's events; `retry` if the session rejects the answer
    the model has stopped  the end of the answer, with usage estimated; or a failure, if nothing had cut the answer

The layer adds one command: DrainModel, when the rest of an answer is wanted for its usage only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from toolrelay.core.commands import AskAgain, CallModel, Command, DrainModel, Notice
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.core.request import Request
from toolrelay.core.steps import RunFinished, VerdictGiven
from toolrelay.core.turn import Turn
from toolrelay.errors import ToolrelayError
from toolrelay.toolcalls.options import ModelMode
from toolrelay.toolcalls.relay import RelaySession, can_relay
from toolrelay.toolcalls.session import WAITING, State, ToolCallSession

# How servers say that a model of theirs takes no tools: Ollama, llama.cpp without --jinja, vLLM without a parser, OpenRouter.
_NO_TOOLS = re.compile(
    r"does not support (tools|function)|tools? param(eter)? requires|requires --enable-auto-tool-choice|support tool use"
    r"|tools? (is|are) not supported|does not support tool",
    re.IGNORECASE,
)


class ToolCallLayer:
    """`mode` is shared by all turns of the model."""

    def __init__(self, turn: Turn, mode: ModelMode) -> None:
        self._turn = turn
        self._mode = mode
        self._request: Request = turn.request  # the turn's, of the answer at hand
        self._session: ToolCallSession | RelaySession = RelaySession(turn.request)
        self._is_fresh = True  # nothing of the answer has arrived
        self._is_waiting = False

    def start(self) -> list[Command]:
        return self._translate(self._turn.start())

    def handle(self, events: Sequence[StreamEvent]) -> list[Command]:
        """Take a batch of the model's events."""
        if self._is_fresh and events:
            self._is_fresh = False
            if self._refuses_tools(events[0]):
                return self._fall_back()
        return self._forward(self._session.feed(events))

    def handle_step(self, step: VerdictGiven | RunFinished) -> list[Command]:
        return self._translate(self._turn.handle_step(step))

    def handle_model_stop(self) -> list[Command]:
        """The model's stream has ended, or was ended, without an end of the answer."""
        session = self._session
        if isinstance(session, ToolCallSession) and session.state in WAITING:
            return self._forward(session.finish_with_estimate())
        return self._turn.handle_model_stop()

    def _forward(self, events: Sequence[StreamEvent]) -> list[Command]:
        commands = self._turn.handle(events) if events else []
        session = self._session
        if session.state is State.READING:
            return commands
        if session.state is State.RETRY:
            commands += self._turn.ask_again(session.rejected_for, session.request)
        elif session.state in WAITING and not self._is_waiting:
            self._is_waiting = True
            commands.append(DrainModel())
        return self._translate(commands)

    def _translate(self, commands: Iterable[Command]) -> list[Command]:
        out: list[Command] = []
        for command in commands:
            if type(command) is CallModel:
                out += self._open(command.request)
            elif type(command) is AskAgain:
                self._is_waiting = False
                if isinstance(self._session, ToolCallSession):
                    self._session.retry()
                out.append(command)
            else:
                out.append(command)
        return out

    def _open(self, request: Request) -> list[Command]:
        """Begin an answer."""
        self._request = request
        self._is_fresh = self._mode.fallback is not None
        self._is_waiting = False
        try:
            self._session = self._make_session(request)
        except ToolrelayError as error:
            return self._turn.handle([AnswerFailed(error)])
        commands: list[Command] = [CallModel(self._session.request)]
        asked = request.sampling.logprobs or request.sampling.top_logprobs
        if asked and isinstance(self._session, ToolCallSession) and self._mode.warn_once("logprobs"):
            # Calls are taken out of the text, so that log probabilities no longer match it.
            commands.insert(0, Notice(event="field_dropped", rule="logprobs", dialect=self._mode.options.dialect.name))
        return commands

    def _make_session(self, request: Request) -> ToolCallSession | RelaySession:
        options = self._mode.options
        return RelaySession(request) if can_relay(request, options) else ToolCallSession(request, options)

    # Servers that refuse tools

    def _refuses_tools(self, event: StreamEvent) -> bool:
        """Servers quote what they were sent: words of the client's own do not count."""
        if not isinstance(event, AnswerFailed) or not self._request.tools:
            return False
        found = _NO_TOOLS.search(event.error.message)
        return found is not None and found.group() not in str(self._request)

    def _fall_back(self) -> list[Command]:
        """Ask for calls as text, now and in all later turns. A concurrent turn may have switched already."""
        commands: list[Command] = []
        if self._mode.fall_back():
            dialect = self._mode.options.dialect.name
            commands.append(Notice(event="native_tools_refused", rule="native_tools_refused", dialect=dialect))
        try:
            self._session = session = self._make_session(self._request)
        except ToolrelayError as error:
            return [*commands, *self._turn.handle([AnswerFailed(error)])]
        return [*commands, *self._turn.ask_again("native_tools_refused", session.request)]
