"""Log lines and metrics. Names, sizes and times; never a key, and no content unless the configuration asks for it."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from toolrelay.core.commands import Notice, Record
from toolrelay.core.events import Usage
from toolrelay.core.steps import CallPlanned

_encode = msgspec.json.Encoder(enc_hook=str).encode
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


def configure_logging(form: Literal["json", "text"], level: str) -> None:
    """Structured lines to stderr: one JSON object a line, or text for people."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if form == "text" else _render
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.ExceptionRenderer()] if form == "json" else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_Bridge()], force=True)


def _render(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return _encode(event).decode()


class _Bridge(logging.Handler):
    """Lines that libraries write through the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        logger: FilteringBoundLogger = structlog.get_logger()
        logger.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


class Metrics:
    """What Prometheus may ask for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.turns = Counter("toolrelay_turns", "Turns by how they ended.", ("model", "wire", "status"), registry=self.registry)
        self.open = Gauge("toolrelay_turns_open", "Turns under way.", registry=self.registry)
        self.seconds = Histogram(
            "toolrelay_turn_seconds", "From a request to its end.", ("model",), registry=self.registry, buckets=_SECONDS
        )
        self.first = Histogram(
            "toolrelay_first_event_seconds",
            "From a request to the first thing the model said.",
            ("model",),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.tokens = Counter("toolrelay_tokens", "Tokens.", ("model", "direction"), registry=self.registry)
        self.calls = Counter("toolrelay_tool_calls", "Tool calls by owner.", ("model", "owner"), registry=self.registry)
        self.blocks = Counter(
            "toolrelay_tool_blocks", "Calls that broke a rule, by rule.", ("model", "rule"), registry=self.registry
        )
        self._for_model: dict[str, ModelMetrics] = {}

    def model(self, name: str) -> ModelMetrics:
        """That model's own, looked up once."""
        found = self._for_model.get(name)
        if found is None:
            found = self._for_model[name] = ModelMetrics(self, name)
        return found

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


class ModelMetrics:
    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics = metrics
        self._name = name
        self.log: FilteringBoundLogger = structlog.get_logger().bind()  # bound once: binding costs more than a line
        self.seconds = metrics.seconds.labels(name)
        self.first = metrics.first.labels(name)
        self.input = metrics.tokens.labels(name, "input")
        self.output = metrics.tokens.labels(name, "output")
        self._turns: dict[tuple[str, int], Counter] = {}

    def turn(self, wire: str, status: int) -> Counter:
        found = self._turns.get((wire, status))
        if found is None:
            found = self._turns[wire, status] = self._metrics.turns.labels(self._name, wire, str(status))
        return found

    def call(self, owner: str) -> None:
        self._metrics.calls.labels(self._name, owner).inc()

    def block(self, rule: str) -> None:
        self._metrics.blocks.labels(self._name, rule).inc()


class TurnLog:
    """One turn's lines. Tells the metrics as well."""

    __slots__ = ("_calls", "_fields", "_first", "_metrics", "_started", "_wire", "_with_content")

    def __init__(self, metrics: ModelMetrics, fields: dict[str, Any], wire: str, started: float, *, with_content: bool) -> None:
        self._metrics = metrics
        self._with_content = with_content
        self._fields = fields
        self._wire = wire
        self._started = started
        self._first: float | None = None
        self._calls = 0

    def spoke(self, now: float) -> None:
        """The model said its first thing."""
        if self._first is None:
            self._first = now
            self._metrics.first.observe(now - self._started)

    def record(self, command: Record) -> None:
        """Every call has a line: its name, id, owner and size; its arguments only where the configuration asks for content."""
        step = command.step
        if not isinstance(step, CallPlanned):
            return
        self._calls += 1
        self._metrics.call(step.owner)
        call = step.call
        content = {"arguments": call.arguments} if self._with_content else {}
        self._metrics.log.info(
            "tool_block",
            tool=call.name,
            call_id=call.id,
            owner=step.owner,
            bytes=len(call.arguments.encode(errors="replace")),
            **content,
            **self._fields,
        )

    def notice(self, command: Notice) -> None:
        self._metrics.block(command.rule)
        self._metrics.log.warning(command.event, rule=command.rule, tool=command.tool, dialect=command.dialect, **self._fields)

    def end(self, now: float, *, status: int, finish: str | None, code: str | None, usage: Usage | None) -> None:
        metrics = self._metrics
        metrics.turn(self._wire, status).inc()
        metrics.seconds.observe(now - self._started)
        fields = self._fields
        fields["status"] = status
        if finish is not None:
            fields["finish"] = finish
        if code is not None:
            fields["code"] = code
        if usage is not None:
            metrics.input.inc(usage.input)
            metrics.output.inc(usage.output)
            fields["input_tokens"] = usage.input
            fields["output_tokens"] = usage.output
        if self._calls:
            fields["calls"] = self._calls
        if self._first is not None:
            fields["first_ms"] = round((self._first - self._started) * 1000, 2)
        fields["ms"] = round((now - self._started) * 1000, 2)
        metrics.log.info("turn", wire=self._wire, **fields)
