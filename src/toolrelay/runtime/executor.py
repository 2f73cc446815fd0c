"""Execution of tool calls: checks, time-outs, retries, concurrency, and results that a model can use."""

from __future__ import annotations

import asyncio
import json
import random
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolrelay import log
from toolrelay.core.json import JsonObject
from toolrelay.core.json_truncation import fit_json
from toolrelay.core.messages import Call, Content, Part, Text, plain_text
from toolrelay.core.request_checks import truncate_content
from toolrelay.core.steps import ToolRunFinished
from toolrelay.core.surrogates import join_surrogates
from toolrelay.core.validation import describe_invalid, validate
from toolrelay.errors import ToolError
from toolrelay.runtime.gateway_tools import GatewayTools, OpenTool
from toolrelay.runtime.run_slots import AllStuckError, RunSlots
from toolrelay.runtime.telemetry import Metrics
from toolrelay.toolsets.base import PlainOutput, PrivateOutput, Progress, Report, ToolContext

MAX_TRIES = 3
RETRY_SECONDS = 0.2  # before the second try; doubled for each further one
STUCK_SECONDS = 1.0  # how long a cancelled run may take to end before it counts as stuck
MAX_ERROR_LENGTH = 1000  # characters
MAX_NAME_LENGTH = 100  # of an unknown tool
MAX_RESULT_BYTES = 262_144
CHANGED = "Error: the settings of this tool were changed in the meantime, so it was not run."

RunStatus: TypeAlias = Literal["ok", "error", "timeout", "cancelled", "stuck", "invalid_arguments", "unknown_tool"]


class RunOutcome(Struct, frozen=True, kw_only=True):
    """How a run, or one try of it, ended. `exception` is for the log only."""

    status: RunStatus
    output: Content = ""
    private: bool = False
    exception: BaseException | None = None
    may_retry: bool = False


class Executor:
    """Runs calls of gateway tools.

    jitter   returns a number from 0 to 1: the pause before a retry is random, so that retries of many calls spread
    pause    waits before a retry
    """

    def __init__(
        self,
        tools: GatewayTools,
        metrics: Metrics | None = None,
        *,
        log_content: bool = False,
        jitter: Callable[[], float] = random.random,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self._tools = tools
        self._metrics = metrics or Metrics()
        self._log_content = log_content
        self._jitter = jitter
        self._pause = pause
        self._stuck_seconds = stuck_seconds
        self._slots: dict[str, RunSlots] = {}
        self._abandoned: set[asyncio.Task[RunOutcome]] = set()

    async def run(
        self, call: Call, context: ToolContext, *, max_result_bytes: int = MAX_RESULT_BYTES, definition: str | None = None
    ) -> ToolRunFinished:
        """Run the call and return its result, which may be an error. Raises nothing but CancelledError.

        `context.model` and `context.key` decide which tools there are. Each try gets a context of its own. `definition` is the
        digest of the tool that the model and the approver saw: if it is another one now, it is not run.
        """
        record = _RunRecord(call, context)
        record.max_result_bytes = max_result_bytes
        tool = self._tools.find(call.name, model=context.model, key=context.key)
        outcome = RunOutcome(status="cancelled")
        try:
            if tool is None:
                outcome = _failed("unknown_tool", f"Unknown tool: {call.name[:MAX_NAME_LENGTH]}")
            elif definition not in (None, tool.gateway_tool.definition):
                outcome = _failed("error", CHANGED)
            else:
                outcome = await self._run_tool(tool, call, context, record)
                outcome = replace(outcome, output=truncate_content(outcome.output, max_result_bytes))
        finally:
            self._log(record, tool, outcome)
        failed = outcome.status != "ok"
        return ToolRunFinished(call_id=call.id, output=outcome.output, failed=failed, private=outcome.private)

    async def close(self) -> None:
        """Leave runs behind that do not end. The toolsets are closed first, which ends most of them."""
        if self._abandoned:
            await asyncio.wait(self._abandoned, timeout=self._stuck_seconds)
        for task in self._abandoned:
            # asyncio.run would wait for ever for a coroutine that ignores its cancellation.
            asyncio._unregister_task(task)  # noqa: SLF001 -- public: docs, "Extending asyncio"

    async def _run_tool(self, tool: OpenTool, call: Call, context: ToolContext, record: _RunRecord) -> RunOutcome:
        text = call.arguments.strip() or "{}"  # models often send nothing to a tool without parameters
        problem = validate(tool.gateway_tool.tool, text)
        if problem is not None:
            return _failed("invalid_arguments", describe_invalid(call.name, problem))
        while True:
            outcome = await self._try(tool, msgspec.json.decode(text), context, record.max_result_bytes)
            record.tries += 1
            if not (outcome.may_retry and tool.definition.idempotent) or record.tries >= MAX_TRIES:
                return outcome
            await self._pause(RETRY_SECONDS * 2 ** (record.tries - 1) * (0.5 + self._jitter()))

    async def _try(self, tool: OpenTool, arguments: JsonObject, context: ToolContext, max_bytes: int) -> RunOutcome:
        """Run the tool once, in a task of its own: a run that ignores its cancellation is left behind."""
        own_context = context.renew(_on_loop(asyncio.get_running_loop()))
        slots = self._slots.get(tool.settings.name)
        if slots is None:
            slots = self._slots[tool.settings.name] = RunSlots(tool.settings.max_concurrent)
        attempt = _Attempt(tool, arguments, own_context, slots, max_bytes)
        task = asyncio.ensure_future(attempt.run())
        try:
            await asyncio.wait({task}, timeout=tool.timeout_seconds)
            if task.done():
                return task.result()
        finally:
            own_context.cancel()  # also when it has ended: what it started need not go on
            if not task.done():
                self._abandon(task, attempt)
        seconds = f"{tool.timeout_seconds:g} s"
        if not attempt.started:
            return _failed("timeout", f"Error: the tool did not run: its toolset was busy for {seconds}.", may_retry=True)
        return _failed("timeout", f"Error: the tool did not finish within {seconds}. Its outcome is unknown.", may_retry=True)

    def _abandon(self, task: asyncio.Task[RunOutcome], attempt: _Attempt) -> None:
        """Cancel the task. If it has not ended after a moment, it counts as stuck until it ends."""
        task.cancel()
        self._abandoned.add(task)

        def check() -> None:
            if not task.done() and attempt.started:
                attempt.slots.mark_stuck()
                task.add_done_callback(lambda _: attempt.slots.unmark_stuck())

        timer = asyncio.get_running_loop().call_later(self._stuck_seconds, check)

        def forget(ended: asyncio.Task[RunOutcome]) -> None:
            timer.cancel()
            self._abandoned.discard(ended)

        task.add_done_callback(forget)

    def _log(self, record: _RunRecord, tool: OpenTool | None, outcome: RunOutcome) -> None:
        """Write one line for the run, and one with the traceback of an exception. Content only if the configuration allows it."""
        seconds = time.monotonic() - record.started
        # The name of an unknown tool is the model's: as a label it would make a time series of its own.
        self._metrics.add_tool_run("" if tool is None else record.call.name, outcome.status, seconds)
        toolset = None if tool is None else tool.settings.name
        fields: dict[str, Any] = {"tool": record.call.name[:MAX_NAME_LENGTH], "toolset": toolset, "call_id": record.call.id}
        if outcome.exception is not None:
            log.warning("tool_error", **fields, exception=_format_traceback(outcome.exception, with_message=self._log_content))
        text = plain_text(outcome.output)
        if self._log_content:
            fields |= {"arguments": record.call.arguments, "output": text}
        log.info(
            "tool_run",
            **fields,
            model=record.context.model,
            key=record.context.key and self._tools.keys.name_of(record.context.key),
            outcome=outcome.status,
            failed=outcome.status != "ok",
            tries=record.tries,
            bytes=len(text.encode(errors="replace")),
            ms=int(seconds * 100_000) / 100,
        )


class _RunRecord:
    """What the log line of a run says."""

    def __init__(self, call: Call, context: ToolContext) -> None:
        self.call = call
        self.context = context
        self.tries = 0
        self.max_result_bytes = MAX_RESULT_BYTES
        self.started = time.monotonic()


class _Attempt:
    """One try of a run. `started` is set once it holds a slot of its toolset."""

    def __init__(self, tool: OpenTool, arguments: JsonObject, context: ToolContext, slots: RunSlots, max_bytes: int) -> None:
        self.slots = slots
        self.started = False
        self._tool = tool
        self._arguments = arguments
        self._context = context
        self._max_bytes = max_bytes

    async def run(self) -> RunOutcome:
        try:
            await self.slots.take()
        except AllStuckError:
            message = f"Error: the tool cannot run: all {self.slots.size} runs of its toolset are stuck. Do not call it again."
            return _failed("stuck", message)
        self.started = True
        try:
            output = await self._tool.toolset.run(self._tool.definition.name, self._arguments, self._context)
            if isinstance(output, PrivateOutput):
                return RunOutcome(status="ok", output=_encode(output.value, self._max_bytes), private=True)
            return RunOutcome(status="ok", output=_encode(output, self._max_bytes))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return _describe_exception(error)
        except BaseException as error:  # noqa: BLE001 -- a tool may raise anything, and must not end the gateway
            return _describe_exception(error)
        finally:
            self.slots.release()


def _encode(output: PlainOutput, max_bytes: int) -> Content:
    """Return the content of a result: text and parts as they are, any other value as JSON text.

    JSON that is too large is cut within its strings, if that is enough. Text and parts are truncated later.
    """
    if isinstance(output, str):
        return join_surrogates(output)
    if isinstance(output, tuple) and output and all(isinstance(part, Part) for part in output):
        return tuple(replace(part, text=join_surrogates(part.text)) if isinstance(part, Text) else part for part in output)
    try:
        encoded = msgspec.json.encode(output)
        if len(encoded) > max_bytes:
            encoded = fit_json(msgspec.json.decode(encoded), max_bytes) or encoded
        return encoded.decode()
    except UnicodeEncodeError:  # a lone surrogate, as in the name of a file: JSON can escape it
        return json.dumps(msgspec.to_builtins(output, str_keys=True))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ToolError(f"the tool returned a value of type {type(output).__name__} that is not JSON: {reason}") from None


def _describe_exception(error: BaseException) -> RunOutcome:
    if isinstance(error, ToolError):
        return _failed("error", f"Error: {error.message}", exception=error.__cause__)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 -- the class is the tool's
        text = ""
    name = type(error).__name__
    return _failed("error", f"Error: {name}: {text}" if text else f"Error: {name}", exception=error, may_retry=True)


def _failed(status: RunStatus, message: str, *, exception: BaseException | None = None, may_retry: bool = False) -> RunOutcome:
    message = message if len(message) <= MAX_ERROR_LENGTH else f"{message[:MAX_ERROR_LENGTH]}…"
    return RunOutcome(status=status, output=join_surrogates(message), exception=exception, may_retry=may_retry)


def _on_loop(loop: asyncio.AbstractEventLoop) -> Callable[[Report], Report]:
    """Return a function that makes reports of any thread arrive on the event loop."""

    def wrap(report: Report) -> Report:
        def put(progress: Progress) -> None:
            with suppress(RuntimeError):  # the loop is closed: the gateway has stopped
                loop.call_soon_threadsafe(report, progress)

        return put

    return wrap


def _format_traceback(error: BaseException, *, with_message: bool) -> str:
    """Format where the exception was raised. Its message may quote arguments."""
    if with_message:
        return "".join(traceback.format_exception(error))
    return "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
