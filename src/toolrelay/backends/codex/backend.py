"""Codex as a backend: the real app-server, of which every request takes one answer of the model and nothing else.

Nothing is kept between requests. Each one opens a thread of its own, gives it the whole conversation, and lets the turn go when
the answer has ended, or when nobody wants it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from toolrelay import log
from toolrelay.backends.base import Backend, BackendKind, Deliver, Wanted, deliver_batch
from toolrelay.backends.codex.decoder import PATCHED, CodexDecoder, DecoderOptions
from toolrelay.backends.codex.errors import SIGN_IN
from toolrelay.backends.codex.home import location_for
from toolrelay.backends.codex.pool import Lease, Pool
from toolrelay.backends.codex.process import Channel, CodexError
from toolrelay.backends.codex.rails import rails_of
from toolrelay.backends.codex.request import Plan, plan_for
from toolrelay.backends.codex.settings import CodexSettings
from toolrelay.backends.codex.status import inspect
from toolrelay.backends.redaction import redact, redact_failure
from toolrelay.core.events import AnswerFailed, Noticed, StreamEvent
from toolrelay.core.json import JsonObject
from toolrelay.core.request import Request
from toolrelay.errors import BackendError, ClientError, ToolrelayError
from toolrelay.settings import Environment

TRIES = 2
MOST_DEAD = 4  # processes that a turn may be given which have died meanwhile
PROBE_AFTER = 5.0  # seconds without a word, while a call waits, until it is looked whether the upstream still speaks
MAX_WARNINGS = 256
_REFUSED = (-32600, -32602)

# Codex refuses bad calls by itself and asks the model again, which is what `retry` wants, and more than `text` could show.
_REPORTED_CALLS: dict[str, Literal["none", "runnable", "all"]] = {"pass": "runnable", "fail": "all"}

# An ephemeral thread leaves no file behind; without environments there is nothing that a command could run in.
THREAD: JsonObject = {
    "ephemeral": True,
    "environments": [],
    "approvalPolicy": "never",
    "sandbox": "read-only",
    "experimentalRawEvents": True,
}


class CodexBackend:
    """`probe_after`: see PROBE_AFTER. `sign_in`: the file without which nothing need be tried."""

    def __init__(self, settings: CodexSettings, pool: Pool, *, probe_after: float = PROBE_AFTER, sign_in: str = "") -> None:
        self._name = settings.name
        self._model = settings.model or settings.name
        self._pool = pool
        self._silence = settings.timeout_seconds
        self._probe_after = probe_after
        self._keeps_plain_reasoning = bool(settings.base_url)
        self._rails = rails_of(settings)
        self._options = DecoderOptions(
            model=self._model,
            reported_calls=_REPORTED_CALLS.get(settings.on_bad_call, "none"),
            rails=self._rails,
            is_account=not (settings.base_url or settings.api_key),
        )
        self._key = settings.api_key
        self._sign_in = sign_in
        self._warned: set[str] = set()

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        answer = _AnswerStream()
        async with aclosing(self._stream(request, answer)) as batches:
            async for batch in batches:
                wanted = await deliver_batch(deliver, batch)
                if wanted is Wanted.NOTHING:
                    return
                if wanted is Wanted.USAGE:
                    answer.discard_output()

    async def _stream(self, request: Request, answer: _AnswerStream) -> AsyncGenerator[list[StreamEvent], None]:
        """A turn that had emitted nothing when its process ended is tried once more, and so is one that began too early."""
        try:
            plan = plan_for(request, rails=self._rails, keeps_plain_reasoning=self._keeps_plain_reasoning)
        except ToolrelayError as error:
            yield [AnswerFailed(error)]
            return
        self._warn(plan.dropped)
        for tries in range(1, TRIES + 1):
            said = False
            try:
                async with aclosing(self._answer(plan, answer, at_once=tries == 1)) as batches:
                    async for batch in batches:
                        said = said or any(map(_is_lasting, batch))
                        yield redact_failure(batch, self._key)
            except CodexError as error:
                if said or tries == TRIES or not (error.gone or isinstance(error, _TooEarlyError)):
                    yield redact_failure([AnswerFailed(_explained(error))], self._key)
                    return
                log.warning("codex_turn_retried", model=self._name, reason=redact(error.message, self._key))
            except ToolrelayError as error:
                yield redact_failure([AnswerFailed(error)], self._key)
                return
            else:
                return

    async def close(self) -> None:
        await self._pool.close()

    async def _answer(self, plan: Plan, answer: _AnswerStream, *, at_once: bool) -> AsyncGenerator[list[StreamEvent], None]:
        """Ending the lease interrupts a turn that still runs."""
        self._check_sign_in()
        async with self._thread(plan) as (lease, thread_id):
            channel = lease.listen(thread_id)
            turn_id = await _begin(lease, thread_id, plan, at_once=at_once)
            decoder = CodexDecoder(plan, turn_id, options=self._options, now=datetime.now())  # noqa: DTZ005 -- Codex tells local time
            answer.decoder = decoder
            reader = _TurnReader(decoder, channel, silence=self._silence, probe_after=self._probe_after)
            while not decoder.over:
                events = await reader.next()
                if events:
                    yield events
                events = reader.answer_requests()
                if events:
                    yield events

    @asynccontextmanager
    async def _thread(self, plan: Plan) -> AsyncIterator[tuple[Lease, str]]:
        """A thread on a process that lives. If several die at once, each is found out only when it is asked."""
        for dead in range(MOST_DEAD + 1):
            async with self._pool.lease() as lease:
                thread: JsonObject = {"model": self._model, "cwd": lease.work, **THREAD, **plan.thread}
                try:
                    thread_id = _id(await lease.call("thread/start", thread), "thread")
                except CodexError as error:
                    if error.gone and dead < MOST_DEAD:
                        continue
                    raise
                yield lease, thread_id
                return

    def _check_sign_in(self) -> None:
        """Codex itself would ask OpenAI without one, again and again for half a minute."""
        if self._sign_in and not Path(self._sign_in).exists():
            raise BackendError(SIGN_IN, code="upstream_auth")

    def _warn(self, dropped: tuple[str, ...]) -> None:
        for field in dropped:
            if field not in self._warned and len(self._warned) < MAX_WARNINGS:
                self._warned.add(field)
                log.warning("field_dropped", model=self._name, field=field[:100], wire="codex")


def _is_lasting(event: StreamEvent) -> bool:
    """Whether a second try would repeat it: a note for the log it may, but not a patch."""
    return not isinstance(event, Noticed) or event.event == PATCHED


class _TooEarlyError(CodexError):
    """A turn that began before it had been given the conversation."""


async def _begin(lease: Lease, thread_id: str, plan: Plan, *, at_once: bool) -> str:
    """Gives the thread its conversation, begins its turn, and returns the turn's id.

    `at_once`: without waiting in between, which saves a way there and back. Codex does what concerns one thread in the order in
    which it is asked to. It answers in that order too, so that a turn whose answer comes first was begun without a conversation:
    because giving that was refused, or had to be repeated, or because another version keeps another order.
    """
    turn: JsonObject = {"threadId": thread_id, **plan.turn}
    if not plan.items:
        return _id(await lease.call("turn/start", turn), "turn")
    giving = asyncio.create_task(lease.call("thread/inject_items", {"threadId": thread_id, "items": plan.items}))
    try:
        await (asyncio.sleep(0) if at_once else giving)  # it is on its way before the turn is
        turn_id = _id(await lease.call("turn/start", turn), "turn")
        if giving.done() and giving.exception() is None:
            return turn_id
        with suppress(CodexError):
            await lease.call("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        if giving.done():
            giving.result()
        raise _TooEarlyError("Codex began a turn before it had the conversation")
    finally:
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)


class _AnswerStream:
    """The answer under way, as far as there is one."""

    decoder: CodexDecoder | None = None

    def discard_output(self) -> None:
        if self.decoder is not None:
            self.decoder.discard_output()


class _TurnReader:
    """Read a turn's messages with a timeout, which depends on what is waited for."""

    def __init__(self, decoder: CodexDecoder, channel: Channel, *, silence: float, probe_after: float) -> None:
        self._decoder = decoder
        self._channel = channel
        self._silence = silence
        self._probe_after = probe_after

    async def next(self) -> list[StreamEvent]:
        decoder = self._decoder
        try:
            async with asyncio.timeout((self._probe_after if decoder.waits else self._silence) or None):
                events = decoder.feed(await self._channel.next())
        except TimeoutError:
            self._handle_silence()
            return []
        return events

    def answer_requests(self) -> list[StreamEvent]:
        """Called after the events were delivered."""
        decoder = self._decoder
        events = decoder.answer_patches()
        for request, result in decoder.answers:
            self._channel.answer(request, result)
        decoder.answers.clear()
        return events

    def _handle_silence(self) -> None:
        if self._decoder.waits:
            self._decoder.probe()
            return
        raise BackendError(f"The model said nothing for {self._silence:g} seconds.", status=504, code="upstream_timeout")


def _id(result: JsonObject, of: str) -> str:
    held = result.get(of)
    found = held.get("id") if isinstance(held, dict) else None
    if not isinstance(found, str):
        raise CodexError(f"Codex began a {of} without an id")
    return found


def _explained(error: CodexError) -> ToolrelayError:
    if error.code in _REFUSED:
        return ClientError(f"Codex refused the request: {error.message}", code="unsupported_by_upstream")
    if error.code is not None:
        return BackendError(f"Codex refused the request: {error.message}", status=503 if error.code == -32001 else 502)
    status, code = (502, "upstream_cut") if error.gone else (504, "upstream_timeout")
    return BackendError(f"{error.message}.", status=status, code=code)


def open_backend(settings: CodexSettings, environment: Environment) -> Backend:
    place = location_for(settings, environment)
    return CodexBackend(settings, Pool(place), sign_in=place.sign_in if place.is_account else "")


BACKEND = BackendKind(settings=CodexSettings, open=open_backend, inspect=inspect)
