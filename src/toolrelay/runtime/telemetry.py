"""What is told of turns: a log line each, and figures for Prometheus.

Counting is adding to a number; what Prometheus wants to see is made from the numbers when it asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

from toolrelay import log
from toolrelay.core.commands import Notice, Record
from toolrelay.core.events import Usage
from toolrelay.core.steps import CallPlanned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Durations:
    """How often something took how long."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_SECONDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_SECONDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: how many took that long at the most."""
        out, so_far = [], 0
        for bound, count in zip((*map(str, map(float, _SECONDS)), "+Inf"), self.counts, strict=True):
            so_far += count
            out.append((bound, float(so_far)))
        return out


class ModelFigures:
    """One model's."""

    __slots__ = ("blocks", "calls", "first", "input", "no_results", "output", "seconds", "turns", "waits")

    def __init__(self) -> None:
        self.turns: Counter[tuple[str, int]] = Counter()
        self.calls: Counter[str] = Counter()
        self.blocks: Counter[str] = Counter()
        self.seconds = Durations()
        self.first = Durations()
        self.waits = Durations()
        self.no_results = 0
        self.input = 0
        self.output = 0


class Metrics:
    """What Prometheus may ask for."""

    def __init__(self) -> None:
        self.open = 0
        self._models: dict[str, ModelFigures] = {}

    def model(self, name: str) -> ModelFigures:
        found = self._models.get(name)
        if found is None:
            found = self._models[name] = ModelFigures()
        return found

    def exposition(self) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 -- needed when asked for only

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import (  # noqa: PLC0415 -- as above
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        turns = CounterMetricFamily("toolrelay_turns", "Turns by how they ended.", labels=("model", "wire", "status"))
        calls = CounterMetricFamily("toolrelay_tool_calls", "Tool calls by owner.", labels=("model", "owner"))
        blocks = CounterMetricFamily("toolrelay_tool_blocks", "What was odd about calls, by rule.", labels=("model", "rule"))
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
        for name, figures in self._models.items():
            for (wire, status), count in figures.turns.items():
                turns.add_metric((name, wire, str(status)), count)
            for owner, count in figures.calls.items():
                calls.add_metric((name, owner), count)
            for rule, count in figures.blocks.items():
                blocks.add_metric((name, rule), count)
            tokens.add_metric((name, "input"), figures.input)
            tokens.add_metric((name, "output"), figures.output)
            seconds.add_metric((name,), figures.seconds.buckets(), figures.seconds.total)
            first.add_metric((name,), figures.first.buckets(), figures.first.total)
            waits.add_metric((name,), figures.waits.buckets(), figures.waits.total)
            missing.add_metric((name,), figures.no_results)
        yield GaugeMetricFamily("toolrelay_turns_open", "Turns under way.", value=self.open)
        yield from (turns, calls, blocks, tokens, seconds, first, waits, missing)


class TurnLog:
    """One turn's lines and figures."""

    __slots__ = ("_calls", "_fields", "_figures", "_first", "_started", "_wire", "_with_content")

    def __init__(self, figures: ModelFigures, fields: dict[str, Any], wire: str, started: float, *, with_content: bool) -> None:
        self._figures = figures
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
            self._figures.first.add(now - self._started)

    def record(self, command: Record) -> None:
        """Every call has a line: its name, id, owner and size; its arguments only where the configuration asks for content."""
        step = command.step
        if type(step) is not CallPlanned:
            return
        self._calls += 1
        self._figures.calls[step.owner] += 1
        call = step.call
        content = {"arguments": call.arguments} if self._with_content else {}
        size = len(call.arguments.encode(errors="replace"))
        log.info("tool_block", tool=call.name, call_id=call.id, owner=step.owner, bytes=size, **content, **self._fields)

    def notice(self, command: Notice) -> None:
        self._figures.blocks[command.rule] += 1
        if command.split_emitted is not None:
            log.info(command.event, tool=command.tool, split_emitted=command.split_emitted, **self._fields)
            return
        say = log.info if command.event == "tool_cutoff" else log.warning
        say(command.event, rule=command.rule, tool=command.tool, dialect=command.dialect, **self._fields)

    def end(self, now: float, *, status: int, finish: str | None, code: str | None, usage: Usage | None) -> None:
        figures = self._figures
        figures.turns[self._wire, status] += 1
        figures.seconds.add(now - self._started)
        fields = self._fields
        fields["status"] = status
        if finish is not None:
            fields["finish"] = finish
        if code is not None:
            fields["code"] = code
        if usage is not None:
            figures.input += usage.input
            figures.output += usage.output
            fields["input_tokens"] = usage.input
            fields["output_tokens"] = usage.output
        if self._calls:
            fields["calls"] = self._calls
        if self._first is not None:
            fields["first_ms"] = _milliseconds(self._first - self._started)
        fields["ms"] = _milliseconds(now - self._started)
        log.info("turn", wire=self._wire, **fields)


def _milliseconds(seconds: float) -> float:
    return int(seconds * 100_000) / 100  # cut, not rounded: several times as fast
