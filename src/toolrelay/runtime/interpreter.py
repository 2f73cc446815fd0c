"""Stands between the gateway and a model whose calls want an interpreter: one that prints them, or whose server is careless.

To everyone else it is a backend like any other. What it does is decided in dialects/_conversation; here are only the waiting
and the asking again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from toolrelay import log
from toolrelay.backends.base import Backend, Take, relayed, taken
from toolrelay.core.arguments import breach
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.core.messages import Call
from toolrelay.core.profiles import Habits, Profile, habits_of
from toolrelay.core.request import Request
from toolrelay.dialects._conversation import Conversation
from toolrelay.dialects._manner import Manner
from toolrelay.dialects._watch import Quoting
from toolrelay.dialects.base import discover
from toolrelay.errors import ToolrelayError
from toolrelay.settings import ModelSettings

USAGE_WITHIN = 0.1  # seconds that a cut answer's cost is waited for

# How servers say that a model of theirs knows no tools: Ollama, llama.cpp without --jinja, vLLM without a parser, OpenRouter.
_NO_TOOLS = re.compile(
    r"does not support (tools|function)|tools? param(eter)? requires|requires --enable-auto-tool-choice|support tool use"
    r"|tools? (is|are) not supported|does not support tool",
    re.IGNORECASE,
)


def interpreted(settings: ModelSettings, backend: Backend, profile: Profile, secret: Callable[[], bytes]) -> Backend:
    """The backend, behind an interpreter where its model needs one."""
    chosen = settings.tool_calling
    if chosen == "off":
        return backend
    dialects = discover()
    habits = habits_of(settings.model or settings.name)
    native = profile.tools if chosen == "auto" else chosen == "native"
    name = chosen if chosen in dialects else habits.dialect if habits is not None else "sealed"
    dialect = dialects[name]
    manner = Manner(
        dialect=dialect,
        native=native,
        catches=native and chosen == "auto" and habits is not None,
        heeds_choice=profile.heeds_choice,
        any_names=profile.tool_names == "any",
        quoting=_quoting(habits),
        cutoff=settings.cutoff,
        on_bad_call=settings.on_bad_call or ("pass" if native else "retry"),
        single_text=profile.single_text,
        constrains=profile.constrains,
        secret=secret,
        check=breach,
    )
    printing = replace(manner, native=False, catches=False, on_bad_call=settings.on_bad_call or "retry")
    return Interpreter(settings.name, backend, manner, printing if native and chosen == "auto" else None)


def _quoting(habits: Habits | None) -> Quoting:
    if habits is None:
        return Quoting()
    return Quoting(
        reasoning=habits.reasoning,
        begins_in_reasoning=habits.begins_in_reasoning,
        calls_in_reasoning=habits.calls_in_reasoning,
        calls_in_fences=habits.calls_in_fences,
    )


class Interpreter:
    """`printing`: how a native model is spoken with once its server has refused to take tools; None: not at all."""

    def __init__(self, name: str, backend: Backend, manner: Manner, printing: Manner | None = None) -> None:
        self._name = name
        self._backend = backend
        self._manner = manner
        self._printing = printing
        self._warned: set[str] = set()

    async def relay(self, request: Request, take: Take) -> None:
        if self._passes(request):
            await relayed(self._backend, request, take)
            return
        try:
            conversation = Conversation(request, self._manner)
        except ToolrelayError as error:
            await taken(take, [AnswerFailed(error)])
            return
        if request.sampling.logprobs or request.sampling.top_logprobs:
            self._warn("logprobs")
        hearing = _Hearing(conversation, take, request if self._printing is not None else None)
        while True:
            await hearing.listen(self._backend)
            if hearing.refused:
                self._print_from_now_on()
                await self.relay(request, take)
                return
            if not conversation.again:
                return  # if the backend gave no end, the driver sees to it
            conversation.next_try()

    def _warn(self, field: str) -> None:
        """Calls are taken out of the text, so that what is said of its tokens fits no longer."""
        if field not in self._warned:
            self._warned.add(field)
            log.warning("field_dropped", model=self._name, field=field, wire=self._manner.dialect.name)

    def _print_from_now_on(self) -> None:
        """Another request that was refused at the same time may have come first."""
        if self._printing is not None:
            log.warning("native_tools_refused", model=self._name, dialect=self._manner.dialect.name)
            self._manner, self._printing = self._printing, None

    def _passes(self, request: Request) -> bool:
        """There is nothing to interpret."""
        manner = self._manner
        if not manner.native:
            plain = not manner.single_text and manner.quoting.reasoning is None
            return plain and not request.tools and not any(isinstance(item, Call) for item in request.items)
        if not request.tools:
            return True
        sampling, choice = request.sampling, request.tool_choice
        if (sampling.n or 1) > 1 or sampling.logprobs:
            return True
        if choice is not None and choice.mode != "auto":
            return False
        careless = self._printing is not None or manner.catches or manner.on_bad_call != "pass" or not manner.any_names
        return not careless

    async def close(self) -> None:
        await self._backend.close()


class _Hearing:
    """What a backend says, taken through the conversation.

    `asked`: what was asked, where a refusal to take tools would be understood.
    """

    def __init__(self, conversation: Conversation, take: Take, asked: Request | None) -> None:
        self.refused = False
        self._conversation = conversation
        self._take = take
        self._asked = asked
        self._limit = asyncio.timeout(None)

    async def listen(self, backend: Backend) -> None:
        self._limit = asyncio.timeout(None)
        conversation = self._conversation
        try:
            async with self._limit:
                await relayed(backend, conversation.request, self._hear)
        except _EnoughError:
            return
        except TimeoutError:
            if not self._limit.expired():
                raise
        if not conversation.over and (conversation.was_cut or conversation.again):
            await taken(self._take, conversation.settle())

    def _hear(self, batch: list[StreamEvent]) -> Awaitable[None] | None:
        conversation = self._conversation
        if self._asked is not None:
            asked, self._asked = self._asked, None
            if _refuses_tools(batch[0], asked):
                self.refused = True
                raise _EnoughError
        events = conversation.hear(batch)
        if conversation.over or (conversation.again and conversation.costed):
            return self._stop(events)
        if (conversation.was_cut or conversation.again) and self._limit.when() is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + USAGE_WITHIN)
        return self._take(events) if events else None

    async def _stop(self, events: list[StreamEvent]) -> None:
        """The last of it is taken; then the backend is let go."""
        if events:
            await taken(self._take, events)
        raise _EnoughError


class _EnoughError(Exception):
    """No more is to be heard of this answer."""


def _refuses_tools(event: StreamEvent, asked: Request) -> bool:
    """Servers quote what they were sent: words of the client's own do not count."""
    said = _NO_TOOLS.search(event.error.message) if isinstance(event, AnswerFailed) else None
    return said is not None and said.group() not in str(asked)
