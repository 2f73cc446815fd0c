"""Scenarios of the gateway's benchmark: loads, metrics and targets."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.gateways import ROOT, Row, Running, Setup, busy_s, cpu_s, on_core
from bench.load import LoadOptions, LoadResult, Moment

_CHUNKS = 200
"""Per stream: enough that the cost of the request hardly counts; with --quick it does, a little."""

_STALL_S = 3.0
_SAMPLE_S = 0.05
UNNOTICED = "never noticed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure and its target. `limit` is a maximum, with `of_nginx` a multiple of nginx in the same run."""

    key: str
    title: str
    unit: str
    limit: float | None = None
    of_nginx: bool = False
    digits: int = 1

    @property
    def has_ratio(self) -> bool:
        """Only CPU time is compared with nginx."""
        return self.unit.startswith("CPU")

    @property
    def target(self) -> str:
        if self.limit is None:
            return ""
        return f"≤ {self.limit:g} x nginx" if self.of_nginx else f"≤ {self.limit:g} {self.unit.partition(' per ')[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Values by metric, and figures that show whether they are reliable.

    errors            counts of wrong, cut or missing answers
    harness           share of a core that upstream and load generator took
    other_processes   share of the two cores that other processes took
    late              how much longer paced streams took than planned
    """

    values: dict[str, float]
    errors: dict[str, int] = field(default_factory=dict)
    harness: float = 0
    other_processes: float = 0
    late: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A running gateway and its upstream. `quick` shortens every scenario."""

    running: Running
    row: Row
    setup: Setup
    upstream_pid: int
    quick: bool

    def options(self, **details: Any) -> LoadOptions:  # noqa: ANN401 -- fields of LoadOptions, checked by its constructor
        return LoadOptions(
            port=self.setup.port, upstream_port=self.setup.upstream_port, api=self.row.api, model=self.row.model, **details
        )


Measure = Callable[[Bench], Measurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`once`: only in the first round. `all_apis`: for every pair of wires, not only the first row of a gateway."""

    name: str
    metrics: tuple[Metric, ...]
    measure: Measure
    once: bool = False
    all_apis: bool = False


# --- running the load generator


@contextlib.contextmanager
def _load(bench: Bench, options: LoadOptions) -> Iterator[subprocess.Popen[str]]:
    with on_core(bench.setup.tool_core):
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.load", options.encode()],
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


def _finish(process: subprocess.Popen[str]) -> LoadResult:
    printed, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the load generator ended with {process.returncode}")
    return LoadResult(**json.loads(printed.splitlines()[-1]))


def run_load(bench: Bench, options: LoadOptions) -> LoadResult:
    with _load(bench, options) as process:
        return _finish(process)


def _errors(result: LoadResult) -> dict[str, int]:
    counts = {
        "errors": result.errors,
        "bad": result.bad,
        "unfinished": result.unfinished,
        UNNOTICED: result.missing,
    }
    return {what: count for what, count in counts.items() if count}


def _measured(
    bench: Bench, options: LoadOptions, values: Callable[[LoadResult, float], dict[str, float]], nominal_s: float = 0
) -> Measurement:
    pids, cores = bench.running.pids(), {bench.setup.tool_core, bench.setup.gateway_core}
    began, all_before = time.monotonic(), busy_s(cores)
    gateway, upstream = cpu_s(pids), cpu_s({bench.upstream_pid})
    result = run_load(bench, options)
    spent = cpu_s(pids | bench.running.pids()) - gateway
    tools = cpu_s({bench.upstream_pid}) - upstream + result.cpu_s
    other_processes = (busy_s(cores) - all_before - spent - tools) / (time.monotonic() - began) / len(cores)
    return Measurement(
        values=values(result, spent * 1e6 / max(1, result.units)),
        errors=_errors(result),
        harness=tools / result.wall_s,
        other_processes=max(0.0, other_processes),
        late=max(0.0, result.wall_s / nominal_s - 1) if nominal_s else 0,
    )


# --- the measurements


def _whole(bench: Bench) -> Measurement:
    options = bench.options(kind="whole", seconds=0.3 if bench.quick else 2.5)
    return _measured(bench, options, lambda _, cost: {"whole": cost})


def _paced(key: str, connections: int, every_ms: int) -> Measure:
    def measure(bench: Bench) -> Measurement:
        ramp = 0.5 if bench.quick else 1.0
        played = 2000 // every_ms if bench.quick else _CHUNKS
        # Each client streams once: all start within the ramp and last equally long.
        options = bench.options(
            kind="stream", connections=connections, every_ms=every_ms, chunks=played, seconds=ramp + 0.5, ramp_s=ramp
        )
        nominal = ramp + (played + 1) * every_ms / 1000
        return _measured(bench, options, lambda _, cost: {key: cost}, nominal)

    return measure


def _burst(bench: Bench) -> Measurement:
    options = bench.options(kind="stream", seconds=0.7 if bench.quick else 2.5)
    return _measured(bench, options, lambda _, cost: {"burst": cost})


def _latency(bench: Bench) -> Measurement:
    # Short streams give more first chunks.
    options = bench.options(
        kind="stream", sampled=True, connections=8, every_ms=10, chunks=10, seconds=1 if bench.quick else 2.5, ramp_s=0.1
    )

    def values(result: LoadResult, _: float) -> dict[str, float]:
        return {
            "first_p50": result.first_p50_us,
            "first_p99": result.first_p99_us,
            "chunk_p50": result.p50_us,
            "chunk_p99": result.p99_us,
        }

    return _measured(bench, options, values)


def _memory(bench: Bench) -> Measurement:
    options = bench.options(kind="hold", connections=1000, every_ms=1000, ramp_s=1)
    with _load(bench, options) as process:
        _await_event(process)
        rss = bench.running.rss_mb()
        result = _finish(process)
    return Measurement(values={"memory": rss}, errors=_errors(result))


def _stall(bench: Bench) -> Measurement:
    before = most = bench.running.rss_mb()
    with _load(bench, bench.options(kind="stall")) as process:
        _await_event(process)
        until = time.monotonic() + (_STALL_S / 3 if bench.quick else _STALL_S)
        while time.monotonic() < until:
            time.sleep(_SAMPLE_S)
            most = max(most, bench.running.rss_mb())
        result = _finish(process)
    return Measurement(values={"stall": most - before, "stall_notice": result.p50_us / 1000}, errors=_errors(result))


def _await_event(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def _disconnect(key: str, moment: Moment) -> Measure:
    def measure(bench: Bench) -> Measurement:
        options = bench.options(kind="disconnect", moment=moment, every_ms=20, disconnects=60 if bench.quick else 200)
        return _measured(bench, options, lambda out, _: {f"{key}_p50": out.p50_us / 1000, f"{key}_p99": out.p99_us / 1000})

    return measure


def _disconnect_scenario(name: str, moment: Moment) -> Scenario:
    title = f"client disconnect to upstream disconnect, {moment}"
    return Scenario(
        name=name,
        metrics=(
            Metric(key=f"{name}_p50", title=f"{title}, p50", unit="ms", digits=2),
            Metric(key=f"{name}_p99", title=f"{title}, p99", unit="ms", limit=100, digits=2),
        ),
        measure=_disconnect(name, moment),
        once=True,
    )


START = Metric(key="start", title="start to ready", unit="s", limit=1, digits=2)

SCENARIOS = (
    Scenario(
        name="whole",
        metrics=(Metric(key="whole", title="request without streaming, 64 connections", unit="CPU µs per request", limit=350),),
        measure=_whole,
        all_apis=True,
    ),
    Scenario(
        name="paced64",
        metrics=(
            Metric(
                key="paced64", title="chunk, 64 streams, one every 20 ms", unit="CPU µs per chunk", limit=2.5, of_nginx=True
            ),
        ),
        measure=_paced("paced64", 64, 20),
        all_apis=True,
    ),
    Scenario(
        name="paced512",
        metrics=(
            Metric(
                key="paced512", title="chunk, 512 streams, one every 50 ms", unit="CPU µs per chunk", limit=2.5, of_nginx=True
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
        all_apis=True,
    ),
    Scenario(
        name="latency",
        metrics=(
            Metric(key="first_p50", title="latency of the first chunk, 8 streams, p50", unit="µs", limit=1000, digits=0),
            Metric(key="first_p99", title="latency of the first chunk, 8 streams, p99", unit="µs", digits=0),
            Metric(key="chunk_p50", title="latency of any chunk, 8 streams, p50", unit="µs", digits=0),
            Metric(key="chunk_p99", title="latency of any chunk, 8 streams, p99", unit="µs", digits=0),
        ),
        measure=_latency,
    ),
    Scenario(
        name="memory",
        metrics=(Metric(key="memory", title="memory with 1,000 open streams", unit="MB", limit=200, digits=0),),
        measure=_memory,
        once=True,
    ),
    _disconnect_scenario("disconnect-streaming", "streaming"),
    _disconnect_scenario("disconnect-early", "before the first token"),
    _disconnect_scenario("disconnect-whole", "not streaming"),
    Scenario(
        name="stall",
        metrics=(
            Metric(key="stall", title="memory growth while a client reads nothing", unit="MB", limit=16),
            Metric(key="stall_notice", title="disconnect of that client to upstream disconnect", unit="ms", limit=100, digits=2),
        ),
        measure=_stall,
        once=True,
    ),
)  # fmt: skip
