"""Codex as a backend: each request takes one answer of the model from the real app-server.

Nothing is kept between requests. Each request opens a thread of its own, injects the whole conversation, and ends the turn when
the answer has ended or is no longer wanted.
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
from toolrelay.backends.codex.decoder import PATCH_EVENT, CodexDecoder, DecoderOptions
from toolrelay.backends.codex.errors import NOT_SIGNED_IN, CodexError, to_gateway_error
from toolrelay.backends.codex.pool import Lease, ProcessPool
from toolrelay.backends.codex.process import Channel
from toolrelay.backends.codex.rails import rails_from
from toolrelay.backends.codex.refused_schemas import RefusedSchemas
from toolrelay.backends.codex.request import TurnPlan, plan_turn
from toolrelay.backends.codex.rpc import object_of
from toolrelay.backends.codex.settings import CodexSettings, location_for
from toolrelay.backends.codex.status import inspect
from toolrelay.backends.redaction import redact, redact_failure
from toolrelay.core.events import UPSTREAM_RETRIED, AnswerFailed, Noticed, StreamEvent
from toolrelay.core.json import JsonObject
from toolrelay.core.request import OpaqueTool, Request
from toolrelay.errors import BackendError, ToolrelayError
from toolrelay.settings import Environment

MAX_ATTEMPTS = 2
MAX_DEAD_PROCESSES = 4  # that one attempt may get from the pool before it fails
PROBE_SECONDS = 5.0  # of silence, while a call waits, before the upstream is probed
MAX_WARNINGS = 256

# Codex refuses invalid calls and asks the model again. That is what `retry` wants, and `text` cannot show more.
_REPORTED_CALLS: dict[str, Literal["none", "runnable", "all"]] = {"pass": "runnable", "fail": "all"}

# An ephemeral thread leaves no file behind. Without environments no command could run anywhere.
THREAD_PARAMS: JsonObject = {
    "ephemeral": True,
    "environments": [],
    "approvalPolicy": "never",
    "sandbox": "read-only",
    "experimentalRawEvents": True,
}


class CodexBackend:
    """`auth_file`, if given, has to exist before a turn is tried."""

    def __init__(
        self, settings: CodexSettings, pool: ProcessPool, *, probe_seconds: float = PROBE_SECONDS, auth_file: str = ""
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._probe_seconds = probe_seconds
        self._auth_file = auth_file
        self._options = DecoderOptions(
            model=settings.model or settings.name,
            reported_calls=_REPORTED_CALLS.get(settings.on_bad_call, "none"),
            rails=rails_from(settings),
            is_account=not (settings.base_url or settings.api_key),
        )
        self._warned: set[str] = set()
        self._refused_schemas = RefusedSchemas()

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        async with aclosing(self._stream(request)) as batches:
            async for decoder, batch in batches:
                wanted = await deliver_batch(deliver, batch)
                if wanted is Wanted.NOTHING:
                    return
                if wanted is Wanted.USAGE and decoder is not None:
                    decoder.discard_output()

    async def close(self) -> None:
        await self._pool.close()

    async def _stream(self, request: Request) -> AsyncGenerator[tuple[CodexDecoder | None, list[StreamEvent]], None]:
        """Retry once if the process ended before anything was emitted, or if the turn started too early."""
        try:
            plan = plan_turn(request, rails=self._options.rails, is_other_provider=bool(self._settings.base_url))
            self._refused_schemas.check(plan)
        except ToolrelayError as error:
            yield None, [AnswerFailed(error)]
            return
        self._warn(plan.dropped)
        key = self._settings.api_key
        for attempt in range(1, MAX_ATTEMPTS + 1):
            is_final = attempt == MAX_ATTEMPTS
            try:
                async with aclosing(self._run_turn(plan, waits_for_items=attempt > 1)) as batches:
                    async for decoder, batch in batches:
                        is_final = is_final or not all(map(_is_repeatable, batch))
                        self._refused_schemas.add(plan, batch)
                        yield decoder, redact_failure(batch, key)
            except CodexError as error:
                if is_final or not (error.is_gone or isinstance(error, _StartedTooEarlyError)):
                    yield None, redact_failure([AnswerFailed(to_gateway_error(error))], key)
                    return
                log.warning("codex_turn_retried", model=self._settings.name, reason=redact(error.message, key))
                rule = "process_gone" if error.is_gone else "started_too_early"
                yield None, [Noticed(event=UPSTREAM_RETRIED, rule=rule)]
            except ToolrelayError as error:
                yield None, redact_failure([AnswerFailed(error)], key)
                return
            else:
                return

    async def _run_turn(
        self, plan: TurnPlan, *, waits_for_items: bool
    ) -> AsyncGenerator[tuple[CodexDecoder, list[StreamEvent]], None]:
        """Run one turn. The end of its lease interrupts it."""
        self._check_sign_in()
        async with self._open_thread(plan) as (lease, thread_id):
            channel = lease.open_channel(thread_id)
            turn_id = await _start_turn(lease, thread_id, plan, waits_for_items=waits_for_items)
            decoder = CodexDecoder(plan, turn_id, options=self._options, now=datetime.now())  # noqa: DTZ005 -- Codex uses local time
            while not decoder.is_finished:
                events = await self._next_events(decoder, channel)
                if events:
                    yield decoder, events
                events = decoder.answer_patches()
                for request, result in decoder.answers:
                    channel.answer(request, result)
                decoder.answers.clear()
                if events:
                    yield decoder, events

    @asynccontextmanager
    async def _open_thread(self, plan: TurnPlan) -> AsyncIterator[tuple[Lease, str]]:
        """Open a thread on a running process. If several processes die at once, each is noticed only by its first call."""
        for dead in range(MAX_DEAD_PROCESSES + 1):
            async with self._pool.lease() as lease:
                params: JsonObject = {
                    "model": self._options.model,
                    "cwd": str(lease.process.home.work_dir),
                    **THREAD_PARAMS,
                    **plan.thread,
                }
                try:
                    thread_id = _id_of(await lease.call("thread/start", params), "thread")
                except CodexError as error:
                    if error.is_gone and dead < MAX_DEAD_PROCESSES:
                        continue
                    raise
                yield lease, thread_id
                return

    async def _next_events(self, decoder: CodexDecoder, channel: Channel) -> list[StreamEvent]:
        timeout = self._settings.timeout_seconds
        try:
            async with asyncio.timeout((self._probe_seconds if decoder.is_waiting else timeout) or None):
                return decoder.feed(await channel.next())
        except TimeoutError:
            if not decoder.is_waiting:
                message = f"The model said nothing for {timeout:g} seconds."
                raise BackendError(message, status=504, code="upstream_timeout") from None
            decoder.probe()
            return []

    def _check_sign_in(self) -> None:
        """Fail at once: Codex would try OpenAI without a sign-in for half a minute."""
        if self._auth_file and not Path(self._auth_file).exists():
            raise BackendError(NOT_SIGNED_IN, code="upstream_auth")

    def _warn(self, dropped: tuple[str, ...]) -> None:
        for field in dropped:
            if field not in self._warned and len(self._warned) < MAX_WARNINGS:
                self._warned.add(field)
                log.warning("field_dropped", model=self._settings.name, field=field[:100], wire="codex")


def _is_repeatable(event: StreamEvent) -> bool:
    """Only log entries may be repeated by a retry, and of these not an accepted patch."""
    return isinstance(event, Noticed) and event.event != PATCH_EVENT


class _StartedTooEarlyError(CodexError):
    """The turn started before its conversation was injected."""


async def _start_turn(lease: Lease, thread_id: str, plan: TurnPlan, *, waits_for_items: bool) -> str:
    """Inject the conversation, start the turn, and return the turn's id.

    Unless `waits_for_items`, both requests are sent at once, which saves a round trip. Codex handles the requests of one thread
    in order and replies in that order, too. If the turn's reply comes first, the turn started without the conversation: the
    injection was refused or retried, or this version does not keep the order.
    """
    params: JsonObject = {"threadId": thread_id, **plan.turn}
    if not plan.items:
        return _id_of(await lease.call("turn/start", params), "turn")
    injection = asyncio.create_task(lease.call("thread/inject_items", {"threadId": thread_id, "items": plan.items}))
    try:
        await (injection if waits_for_items else asyncio.sleep(0))  # the injection is sent before the turn
        turn_id = _id_of(await lease.call("turn/start", params), "turn")
        if injection.done() and injection.exception() is None:
            return turn_id
        with suppress(CodexError):
            await lease.call("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        if injection.done():
            injection.result()
        raise _StartedTooEarlyError("Codex began a turn before it had the conversation")
    finally:
        injection.cancel()
        await asyncio.gather(injection, return_exceptions=True)


def _id_of(result: JsonObject, kind: str) -> str:
    found = object_of(result.get(kind)).get("id")
    if not isinstance(found, str):
        raise CodexError(f"Codex began a {kind} without an id")
    return found


def open_backend(settings: CodexSettings, environment: Environment) -> Backend:
    location = location_for(settings, environment)
    return CodexBackend(settings, ProcessPool(location), auth_file=location.auth_file if location.is_account else "")


def passes_tool(settings: CodexSettings, tool: OpaqueTool) -> bool:
    """A client's web_search is Codex's own, if that is allowed."""
    return "web_search" in settings.rails and str(tool.raw.get("type")).startswith("web_search")


BACKEND = BackendKind(settings=CodexSettings, open=open_backend, passes_tool=passes_tool, inspect=inspect)
