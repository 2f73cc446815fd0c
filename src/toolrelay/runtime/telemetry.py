"""Log lines and Prometheus metrics of turns.

Turns only add to plain numbers; the Prometheus metrics are built from them on each scrape.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from toolrelay import log
from toolrelay.core.commands import Notice, RecordStep
from toolrelay.core.events import Usage
from toolrelay.core.gateway_calls import MAX_SHOWN_NAME
from toolrelay.core.steps import CallPlanned, QuestionAsked, QuestionClosed, QuestionLeft, StepEvent, ToolRunStarted, VerdictGiven
from toolrelay.runtime.usage import UsageCounter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)  # seconds
_OK = 200


class Histogram:
    """A histogram of durations."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, as Prometheus expects them."""
        bounds = (*(str(float(bound)) for bound in _BOUNDS), "+Inf")
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class ModelMetrics:
    """The figures of one model. `usage` is shared by all."""

    def __init__(self, name: str, usage: UsageCounter) -> None:
        self.name = name
        self.usage = usage
        self.turns: Counter[tuple[str, int]] = Counter()  # by wire and status
        self.calls: Counter[str] = Counter()  # by owner
        self.rules: Counter[str] = Counter()
        self.fallbacks: Counter[tuple[str, str]] = Counter()  # by the model that failed and the one that was asked instead
        self.turn_seconds = Histogram()
        self.first_event_seconds = Histogram()
        self.result_wait_seconds = Histogram()
        self.no_results = 0
        self.input_tokens = 0
        self.output_tokens = 0


class Metrics:
    def __init__(self) -> None:
        self.open = 0
        self.websockets = 0
        self.usage = UsageCounter()
        self._models: dict[str, ModelMetrics] = {}
        self._tool_runs: Counter[tuple[str, str]] = Counter()  # by tool and result
        self._tool_seconds: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.approvals: Counter[str] = Counter()  # answered questions, by status

    def model(self, name: str) -> ModelMetrics:
        found = self._models.get(name)
        if found is None:
            found = self._models[name] = ModelMetrics(name, self.usage)
        return found

    def add_tool_run(self, tool: str, result: str, seconds: float) -> None:
        self._tool_runs[tool, result] += 1
        self._tool_seconds[tool].add(seconds)

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 -- only scrapes need it

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; Prometheus' registry calls this."""
        from prometheus_client.core import (  # noqa: PLC0415 -- as above
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        turns = CounterMetricFamily("toolrelay_turns", "Turns by how they ended.", labels=("model", "wire", "status"))
        calls = CounterMetricFamily("toolrelay_tool_calls", "Tool calls by owner.", labels=("model", "owner"))
        blocks = CounterMetricFamily("toolrelay_tool_blocks", "What was odd about calls, by rule.", labels=("model", "rule"))
        fallbacks = CounterMetricFamily(
            "toolrelay_fallbacks", "Requests that another model was asked.", labels=("model", "failed", "fallback")
        )
        tokens = CounterMetricFamily("toolrelay_tokens", "Tokens.", labels=("model", "direction"))
        seconds = HistogramMetricFamily("toolrelay_turn_seconds", "From a request to its end.", labels=("model",))
        first = HistogramMetricFamily(
            "toolrelay_first_event_seconds", "From a request to the first thing the model said.", labels=("model",)
        )
        waits = HistogramMetricFamily(
            "toolrelay_result_wait_seconds", "From blocks to their results, of XML clients that are watched.", labels=("model",)
        )
        missing = CounterMetricFamily(
            "toolrelay_no_results", "Answers with blocks to which an XML client sent no results in time.", labels=("model",)
        )
        for name, model in self._models.items():
            for (wire, status), count in model.turns.items():
                turns.add_metric((name, wire, str(status)), count)
            for owner, count in model.calls.items():
                calls.add_metric((name, owner), count)
            for rule, count in model.rules.items():
                blocks.add_metric((name, rule), count)
            for pair, count in model.fallbacks.items():
                fallbacks.add_metric((name, *pair), count)
            tokens.add_metric((name, "input"), model.input_tokens)
            tokens.add_metric((name, "output"), model.output_tokens)
            seconds.add_metric((name,), model.turn_seconds.buckets(), model.turn_seconds.total)
            first.add_metric((name,), model.first_event_seconds.buckets(), model.first_event_seconds.total)
            waits.add_metric((name,), model.result_wait_seconds.buckets(), model.result_wait_seconds.total)
            missing.add_metric((name,), model.no_results)
        yield GaugeMetricFamily("toolrelay_turns_open", "Turns under way.", value=self.open)
        yield GaugeMetricFamily("toolrelay_websockets_open", "Open WebSocket connections.", value=self.websockets)
        yield from (turns, calls, blocks, fallbacks, tokens, seconds, first, waits, missing)
        runs = CounterMetricFamily("toolrelay_tool_runs", "Runs of gateway tools.", labels=("tool", "outcome"))
        for (tool, outcome), count in self._tool_runs.items():
            runs.add_metric((tool, outcome), count)
        run_seconds = HistogramMetricFamily(
            "toolrelay_tool_run_seconds", "Runs of gateway tools, with retries.", labels=("tool",)
        )
        for tool, histogram in self._tool_seconds.items():
            run_seconds.add_metric((tool,), histogram.buckets(), histogram.total)
        approvals = CounterMetricFamily("toolrelay_approvals", "Questions to people, by how they ended.", labels=("status",))
        for ended, count in self.approvals.items():
            approvals.add_metric((ended,), count)
        yield from (runs, run_seconds, approvals)


_OF_QUESTIONS = frozenset({QuestionAsked, VerdictGiven, QuestionClosed, QuestionLeft})


class QuestionTimer:
    """Denials of one turn, and the time in which at least one of its questions to people was open."""

    __slots__ = ("_open", "_seconds", "_since", "denials")

    def __init__(self) -> None:
        self.denials = 0
        self._open = 0
        self._since = 0.0
        self._seconds = 0.0

    def note(self, step: StepEvent, now: float) -> None:
        """Take note of a step that is about a question."""
        if isinstance(step, QuestionAsked):
            if not self._open:
                self._since = now
            self._open += 1
            return
        if isinstance(step, VerdictGiven) and step.verdict == "deny":
            self.denials += 1
        if self._open:  # else it was asked in an earlier turn, or before a restart
            self._seconds = self.seconds(now)
            self._since = now
            self._open -= 1

    def seconds(self, now: float) -> float:
        return self._seconds + (now - self._since if self._open else 0.0)


class TurnLog:
    """Writes one turn's log lines and adds to its model's metrics."""

    __slots__ = (
        "_calls",
        "_fields",
        "_first",
        "_is_continued",
        "_metrics",
        "_owner",
        "_questions",
        "_started",
        "_tool_runs",
        "_wire",
        "_with_content",
    )

    def __init__(
        self, metrics: ModelMetrics, fields: dict[str, Any], wire: str, started: float, *, owner: str, with_content: bool
    ) -> None:
        self._metrics = metrics
        self._with_content = with_content
        self._fields = fields
        self._wire = wire
        self._started = started
        self._first: float | None = None
        self._calls = 0
        self._owner = owner
        self._tool_runs = 0
        self._questions: QuestionTimer | None = None
        self._is_continued = False

    def continue_turn(self) -> None:
        """Say that the turn began before this log: how long it takes is not known."""
        self._is_continued = True

    def mark_first_event(self, now: float) -> None:
        if self._first is None:
            self._first = now
            self._metrics.first_event_seconds.add(now - self._started)

    def record(self, command: RecordStep) -> None:
        step = command.step
        kind = type(step)
        if kind is ToolRunStarted:
            self._tool_runs += 1
        elif kind in _OF_QUESTIONS:
            if self._questions is None:
                self._questions = QuestionTimer()
            self._questions.note(step, time.monotonic())
        elif type(step) is CallPlanned:
            self._log_call(step)

    def _log_call(self, step: CallPlanned) -> None:
        """Log a planned call; its arguments only if the configuration allows content."""
        self._calls += 1
        self._metrics.calls[step.owner] += 1
        call = step.call
        content = {"arguments": call.arguments} if self._with_content else {}
        size = len(call.arguments.encode(errors="replace"))
        log.info(
            "tool_block",
            tool=call.name[:MAX_SHOWN_NAME],
            call_id=call.id,
            owner=step.owner,
            bytes=size,
            **content,
            **self._fields,
        )

    def notice(self, command: Notice) -> None:
        if command.failed is not None and command.fallback is not None:
            self._metrics.fallbacks[command.failed, command.fallback] += 1
            log.warning(command.event, rule=command.rule, failed=command.failed, fallback=command.fallback, **self._fields)
            return
        self._metrics.rules[command.rule] += 1
        tool = None if command.tool is None else command.tool[:MAX_SHOWN_NAME]
        if command.split_emitted is not None:
            log.info(command.event, tool=tool, split_emitted=command.split_emitted, **self._fields)
            return
        write = log.info if command.event == "tool_cutoff" else log.warning
        write(command.event, rule=command.rule, tool=tool, dialect=command.dialect, **self._fields)

    def suspend_turn(self, now: float) -> None:
        """Log that the gateway stops and that the turn will go on after the next start."""
        denials = 0 if self._questions is None else self._questions.denials
        self._metrics.usage.add_part(self._metrics.name, self._owner, tool_runs=self._tool_runs, denials=denials)
        log.info("turn_suspended", wire=self._wire, **self._fields, ms=_milliseconds(now - self._started))

    def finish_turn(self, now: float, *, status: int, finish: str | None, code: str | None, usage: Usage | None) -> None:
        metrics, fields = self._metrics, self._fields
        metrics.turns[self._wire, status] += 1
        questions, first, seconds = self._questions, self._first, now - self._started
        metrics.turn_seconds.add(seconds)
        is_timed = status == _OK and not self._is_continued
        metrics.usage.add_turn(
            metrics.name,
            self._owner,
            failed=status != _OK,
            usage=usage,
            tool_runs=self._tool_runs,
            denials=0 if questions is None else questions.denials,
            first_seconds=first - self._started if is_timed and first is not None else None,
            seconds=(seconds if questions is None else seconds - questions.seconds(now)) if is_timed else None,
        )
        fields["status"] = status
        if finish is not None:
            fields["finish"] = finish
        if code is not None:
            fields["code"] = code
        if usage is not None:
            metrics.input_tokens += usage.input
            metrics.output_tokens += usage.output
            fields["input_tokens"] = usage.input
            fields["output_tokens"] = usage.output
        if self._calls:
            fields["calls"] = self._calls
        if first is not None:
            fields["first_ms"] = _milliseconds(first - self._started)
        fields["ms"] = _milliseconds(seconds)
        log.info("turn", wire=self._wire, **fields)


def _milliseconds(seconds: float) -> float:
    return int(seconds * 100_000) / 100  # truncated, not rounded: several times as fast
