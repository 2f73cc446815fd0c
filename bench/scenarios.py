"""What is measured, for how long, and what has to come out of it."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.gateways import ROOT, Place, Row, Running, busy_s, cpu_s, on_core
from bench.load import Moment, Order, Outcome

_CHUNKS = 200
"""Per stream: enough that the request before them does not weigh; with --quick it does, a little."""

_STALL_S = 3.0
_SAMPLE_S = 0.05
NEVER = "never noticed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`limit` is the most that is allowed: as it stands, or as a multiple of nginx in the same run."""

    key: str
    title: str
    unit: str
    limit: float | None = None
    of_nginx: bool = False
    digits: int = 1

    @property
    def compared(self) -> bool:
        """CPU time is what one run compares well; the rest stands for itself."""
        return self.unit.startswith("CPU")

    @property
    def target(self) -> str:
        if self.limit is None:
            return ""
        return f"≤ {self.limit:g} x nginx" if self.of_nginx else f"≤ {self.limit:g} {self.unit.partition(' per ')[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """`values` by metric, and what tells whether to believe them: the share of a core that upstream and load generator took
    together, of the two cores that other processes took, and of the time that paced streams took beyond their own.
    """

    values: dict[str, float]
    trouble: dict[str, int] = field(default_factory=dict)
    harness: float = 0
    strangers: float = 0
    late: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A running gateway and the upstream behind it; `quick` halves and quarters."""

    running: Running
    row: Row
    place: Place
    upstream_pid: int
    quick: bool

    def order(self, **details: Any) -> Order:  # noqa: ANN401 -- an Order's own fields, checked by its constructor
        return Order(
            port=self.place.port, upstream_port=self.place.upstream_port, door=self.row.door, model=self.row.model, **details
        )


Measure = Callable[[Bench], Measurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`once`: in the first round only. `doors`: for every pair of wires, not for the first row of a gateway alone."""

    name: str
    metrics: tuple[Metric, ...]
    measure: Measure
    once: bool = False
    doors: bool = False


# --- running the load generator


@contextlib.contextmanager
def _load(bench: Bench, order: Order) -> Iterator[subprocess.Popen[str]]:
    with on_core(bench.place.tool_core):
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.load", order.encode()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _finish(process: subprocess.Popen[str]) -> Outcome:
    printed, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the load generator ended with {process.returncode}")
    return Outcome(**json.loads(printed.splitlines()[-1]))


def run_load(bench: Bench, order: Order) -> Outcome:
    with _load(bench, order) as process:
        return _finish(process)


def _trouble(outcome: Outcome) -> dict[str, int]:
    counts = {
        "errors": outcome.errors,
        "bad": outcome.bad,
        "unfinished": outcome.unfinished,
        NEVER: outcome.missing,
    }
    return {what: count for what, count in counts.items() if count}


def _measured(
    bench: Bench, order: Order, values: Callable[[Outcome, float], dict[str, float]], nominal_s: float = 0
) -> Measurement:
    pids, cores = bench.running.pids(), {bench.place.tool_core, bench.place.gateway_core}
    began, all_before = time.monotonic(), busy_s(cores)
    gateway, upstream = cpu_s(pids), cpu_s({bench.upstream_pid})
    outcome = run_load(bench, order)
    spent = cpu_s(pids | bench.running.pids()) - gateway
    tools = cpu_s({bench.upstream_pid}) - upstream + outcome.cpu_s
    strangers = (busy_s(cores) - all_before - spent - tools) / (time.monotonic() - began) / len(cores)
    return Measurement(
        values=values(outcome, spent * 1e6 / max(1, outcome.units)),
        trouble=_trouble(outcome),
        harness=tools / outcome.wall_s,
        strangers=max(0.0, strangers),
        late=max(0.0, outcome.wall_s / nominal_s - 1) if nominal_s else 0,
    )


# --- the measurements


def _plain(bench: Bench) -> Measurement:
    order = bench.order(kind="plain", seconds=0.7 if bench.quick else 2.5)
    return _measured(bench, order, lambda _, cost: {"plain": cost})


def _paced(key: str, connections: int, every_ms: int) -> Measure:
    def measure(bench: Bench) -> Measurement:
        ramp = 0.5 if bench.quick else 1.0
        played = 2000 // every_ms if bench.quick else _CHUNKS
        # No second generation: all streams begin within the ramp and last equally long.
        order = bench.order(
            kind="stream", connections=connections, every_ms=every_ms, chunks=played, seconds=ramp + 0.5, ramp_s=ramp
        )
        nominal = ramp + (played + 1) * every_ms / 1000
        return _measured(bench, order, lambda _, cost: {key: cost}, nominal)

    return measure


def _burst(bench: Bench) -> Measurement:
    order = bench.order(kind="stream", seconds=0.7 if bench.quick else 2.5)
    return _measured(bench, order, lambda _, cost: {"burst": cost})


def _latency(bench: Bench) -> Measurement:
    # Short streams, so that there are enough first chunks.
    order = bench.order(
        kind="stream", sampled=True, connections=8, every_ms=10, chunks=10, seconds=1 if bench.quick else 2.5, ramp_s=0.1
    )

    def values(outcome: Outcome, _: float) -> dict[str, float]:
        return {
            "first_p50": outcome.first_p50_us,
            "first_p99": outcome.first_p99_us,
            "chunk_p50": outcome.p50_us,
            "chunk_p99": outcome.p99_us,
        }

    return _measured(bench, order, values)


def _memory(bench: Bench) -> Measurement:
    order = bench.order(kind="hold", connections=1000, every_ms=1000, ramp_s=1)
    with _load(bench, order) as process:
        _await_event(process)
        rss = bench.running.rss_mb()
        outcome = _finish(process)
    return Measurement(values={"memory": rss}, trouble=_trouble(outcome))


def _stall(bench: Bench) -> Measurement:
    before = most = bench.running.rss_mb()
    with _load(bench, bench.order(kind="stall")) as process:
        _await_event(process)
        until = time.monotonic() + (_STALL_S / 3 if bench.quick else _STALL_S)
        while time.monotonic() < until:
            time.sleep(_SAMPLE_S)
            most = max(most, bench.running.rss_mb())
        outcome = _finish(process)
    return Measurement(values={"stall": most - before, "stall_notice": outcome.p50_us / 1000}, trouble=_trouble(outcome))


def _await_event(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def _leave(key: str, moment: Moment) -> Measure:
    def measure(bench: Bench) -> Measurement:
        order = bench.order(kind="leave", moment=moment, every_ms=20, leaves=60 if bench.quick else 200)
        return _measured(bench, order, lambda out, _: {f"{key}_p50": out.p50_us / 1000, f"{key}_p99": out.p99_us / 1000})

    return measure


def _leave_scenario(name: str, moment: Moment) -> Scenario:
    title = f"client's disconnect to the upstream's notice, {moment}"
    return Scenario(
        name=name,
        metrics=(
            Metric(key=f"{name}_p50", title=f"{title}, p50", unit="ms", digits=2),
            Metric(key=f"{name}_p99", title=f"{title}, p99", unit="ms", limit=100, digits=2),
        ),
        measure=_leave(name, moment),
        once=True,
    )


START = Metric(key="start", title="start to ready", unit="s", limit=1, digits=2)

SCENARIOS = (
    Scenario(
        name="plain",
        metrics=(Metric(key="plain", title="plain request, 64 connections", unit="CPU µs per request", limit=350),),
        measure=_plain,
    ),
    Scenario(
        name="paced64",
        metrics=(
            Metric(
                key="paced64", title="chunk, 64 streams, every 20 ms", unit="CPU µs per chunk", limit=2.5, of_nginx=True
            ),
        ),
        measure=_paced("paced64", 64, 20),
        doors=True,
    ),
    Scenario(
        name="paced512",
        metrics=(
            Metric(
                key="paced512", title="chunk, 512 streams, every 50 ms", unit="CPU µs per chunk", limit=2.5, of_nginx=True
            ),
        ),
        measure=_paced("paced512", 512, 50),
    ),
    Scenario(
        name="burst",
        metrics=(
            Metric(key="burst", title="chunk, 64 streams in bursts", unit="CPU µs per chunk", limit=8, digits=2),
        ),
        measure=_burst,
        doors=True,
    ),
    Scenario(
        name="latency",
        metrics=(
            Metric(key="first_p50", title="first chunk on its way, 8 streams, p50", unit="µs", limit=1000, digits=0),
            Metric(key="first_p99", title="first chunk on its way, 8 streams, p99", unit="µs", digits=0),
            Metric(key="chunk_p50", title="any chunk on its way, 8 streams, p50", unit="µs", digits=0),
            Metric(key="chunk_p99", title="any chunk on its way, 8 streams, p99", unit="µs", digits=0),
        ),
        measure=_latency,
    ),
    Scenario(
        name="memory",
        metrics=(Metric(key="memory", title="memory with 1,000 open streams", unit="MB", limit=200, digits=0),),
        measure=_memory,
        once=True,
    ),
    _leave_scenario("leave-streaming", "streaming"),
    _leave_scenario("leave-early", "before the first token"),
    _leave_scenario("leave-plain", "not streaming"),
    Scenario(
        name="stall",
        metrics=(
            Metric(key="stall", title="growth while a client reads nothing", unit="MB", limit=16),
            Metric(key="stall_notice", title="that client's disconnect to the upstream's notice", unit="ms", limit=100, digits=2),
        ),
        measure=_stall,
        once=True,
    ),
)  # fmt: skip
