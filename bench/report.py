"""Results as a table for the terminal, a file in bench/results, and a section of docs/benchmarks.md."""

import datetime as dt
import importlib.metadata
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.gateways import ROOT, nginx_program
from bench.scenarios import UNNOTICED, Measurement, Metric

DOCS = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
_MAX_OTHER_PROCESSES, _MAX_HARNESS, _MAX_LATE = 0.1, 0.85, 0.1
_BEGIN, _END = "<!-- results begin -->", "<!-- results end -->"
_PAIR_LIMITS = {"anthropic>chat": 1.15, "anthropic>anthropic": 1.15, "websocket>chat": 1.0}
_PAIR_BASES = {"websocket>chat": "responses>chat"}  # others are compared with Chat on both sides


@dataclass(slots=True)
class Series:
    """All rounds of one scenario on one row."""

    values: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    harness: list[float] = field(default_factory=list)
    other_processes: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)

    def add(self, measurement: Measurement) -> None:
        for key, value in measurement.values.items():
            self.values.setdefault(key, []).append(value)
        for kind, count in measurement.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count
        self.harness.append(measurement.harness)
        self.other_processes.append(measurement.other_processes)
        self.late.append(measurement.late)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One metric of one row."""

    metric: Metric
    label: str
    median: float
    least: float
    most: float
    ratio: float | None
    verdict: str

    @property
    def figure(self) -> str:
        return f"{self.median:,.{self.metric.digits}f}"

    @property
    def spread(self) -> str:
        return f"{self.least:,.{self.metric.digits}f} to {self.most:,.{self.metric.digits}f}" if self.least != self.most else ""

    @property
    def times(self) -> str:
        return f"{self.ratio:.2f} x" if self.ratio is not None else ""


@dataclass(slots=True)
class Report:
    ours: set[str]
    series: dict[tuple[str, str], Series] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, label: str, scenario: str, measurement: Measurement) -> None:
        self.series.setdefault((label, scenario), Series()).add(measurement)

    def lines(self, metrics: list[Metric]) -> Iterator[Line]:
        labels = list(dict.fromkeys(label for label, _ in self.series))
        for metric in metrics:
            base = self._rounds("nginx", metric.key)
            for label in labels:
                if rounds := self._rounds(label, metric.key):
                    yield self._line(metric, label, rounds, statistics.median(base) if base else None)

    def _rounds(self, label: str, key: str) -> list[float]:
        return [value for (owner, _), series in self.series.items() if owner == label for value in series.values.get(key, [])]

    def _line(self, metric: Metric, label: str, rounds: list[float], base: float | None) -> Line:
        median = statistics.median(rounds)
        ratio = median / base if base and metric.has_ratio else None
        return Line(
            metric=metric,
            label=label,
            median=median,
            least=min(rounds),
            most=max(rounds),
            ratio=ratio,
            verdict=self._verdict(metric, median, ratio) if label in self.ours else "",
        )

    @staticmethod
    def _verdict(metric: Metric, median: float, ratio: float | None) -> str:
        if metric.limit is None:
            return ""
        value = ratio if metric.of_nginx else median
        if value is None:
            return "no nginx"
        return "ok" if value <= metric.limit else "MISSED"

    def errors(self) -> list[str]:
        """Return what makes figures worthless. A disconnect that another gateway never notices is only a warning."""
        return self.failures + [
            f"{label}, {scenario}: {', '.join(f'{count} {what}' for what, count in counts.items())}"
            for (label, scenario), series in self.series.items()
            if (counts := {what: count for what, count in series.errors.items() if what != UNNOTICED or label in self.ours})
        ]

    def warnings(self) -> list[str]:
        """Return reasons why figures may be wrong although every answer was right."""
        taken = [share for series in self.series.values() for share in series.other_processes if share]
        found = []
        if taken and statistics.median(taken) > _MAX_OTHER_PROCESSES:
            found.append(f"the machine was not quiet: other processes took {min(taken):.0%} to {max(taken):.0%} of the two cores")
        for (label, scenario), series in self.series.items():
            if (count := series.errors.get(UNNOTICED, 0)) and label not in self.ours:
                found.append(f"{label}, {scenario}: {count} disconnects never reached the upstream")
            if not scenario.startswith("paced"):
                continue
            if (share := statistics.median(series.harness)) > _MAX_HARNESS:
                found.append(f"{label}, {scenario}: upstream and load generator took {share:.0%} of their core")
            if (share := statistics.median(series.late)) > _MAX_LATE:
                found.append(
                    f"{label}, {scenario}: the gateway fell behind by {share:.0%}; its chunks went in batches, which look cheap"
                )
        return found


# --- machine and versions


def machine(arguments: list[str], seconds: float, load: tuple[float, float, float]) -> dict[str, str]:
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {_memory_gb():.0f} GB, {platform.system()} {platform.release()}",
        "load before": " ".join(f"{value:.2f}" for value in load),
        "versions": ", ".join(_versions()),
        "command": " ".join(["bench/run.py", *arguments]),
        "took": f"{seconds:.0f} s",
    }


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--", "src") else ""
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + changed


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    for package in ("toolrelay", "uvloop", "httptools", "msgspec"):
        try:
            yield f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    if program := nginx_program():
        yield subprocess.run([program, "-v"], capture_output=True, text=True, check=False).stderr.strip().rpartition(": ")[2]


# --- writing


def pair_ratios(lines: list[Line]) -> Iterator[str]:
    """Yield what each other pair of wires costs of Chat on both sides, and WebSockets of server-sent events."""
    medians = {(line.label, line.metric.key): line.median for line in lines}
    for line in lines:
        name, _, pair = line.label.partition(" ")
        against = f"{name} {_PAIR_BASES.get(pair, '')}".strip()
        base = medians.get((against, line.metric.key)) if pair else None
        if base:
            ratio, limit = line.median / base, _PAIR_LIMITS.get(pair)
            verdict = "" if limit is None else f"  [≤ {limit}] {'ok' if ratio <= limit else 'MISSED'}"
            yield f"{line.label} to {against}, {line.metric.title}: {ratio:.2f} x{verdict}"


def table(lines: list[Line]) -> str:
    out: list[str] = []
    metric = None
    for line in lines:
        if line.metric is not metric:
            metric = line.metric
            out.append(f"\n{metric.title}, {metric.unit}{f'  [{metric.target}]' if metric.target else ''}")
        out.append(f"  {line.label:32}{line.figure:>12}{line.times:>11}  {line.verdict:9}{line.spread:>20}".rstrip())
    return "\n".join(out)


def markdown(lines: list[Line], facts: dict[str, str], errors: list[str], warnings: list[str]) -> str:
    out = [f"- {name}: {value}" for name, value in facts.items()]
    out += [f"- **error: {line}**" for line in errors] + [f"- warning: {line}" for line in warnings]
    out += ["", "| what | gateway | median | range | to nginx | target | |", "|---|---|--:|--:|--:|---|---|"]
    metric = None
    for line in lines:
        title = f"{line.metric.title}, {line.metric.unit}" if line.metric is not metric else ""
        metric = line.metric
        target = metric.target if line.verdict else ""
        verdict = f"**{line.verdict}**" if line.verdict == "MISSED" else line.verdict
        out.append(f"| {title} | {line.label} | {line.figure} | {line.spread} | {line.times} | {target} | {verdict} |")
    if ratios := [f"- {ratio}" for ratio in pair_ratios(lines)]:
        out += ["", *ratios]
    return "\n".join(out) + "\n"


def save(stem: str, report: Report, lines: list[Line], facts: dict[str, str]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = markdown(lines, facts, report.errors(), report.warnings())
    (RESULTS / f"{stem}.md").write_text(
        f"# Benchmark results\n\nWritten by `make bench`; docs/benchmarks.md says how to read them.\n\n{text}"
    )


def write_docs() -> None:
    """Copy the kept results into the marked section of docs/benchmarks.md, without a new run."""
    results = (RESULTS / "latest.md").read_text().partition("\n\n")[2].partition("\n\n")[2]
    before, _, rest = DOCS.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    DOCS.write_text(f"{before}{_BEGIN}\n\n{results}\n{_END}{after}")
