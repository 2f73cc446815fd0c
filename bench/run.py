"""Cost of a gateway per request and per chunk, compared with nginx and others. `make bench` runs it.

  bench/run.py                                 toolrelay and nginx, three interleaved rounds, about four minutes
  bench/run.py --quick                         one short round, under a minute
  bench/run.py --only toolrelay,nginx,burst    some gateways, some scenarios, or both
  bench/run.py --litellm                       also the LiteLLM proxy, in a virtual environment of its own
  bench/run.py 'go=./relay --port {port} --upstream {upstream}'
  bench/run.py 'before=/tmp/before/.venv/bin/toolrelay serve --config {config} --port {port} --data-dir {data}'
  bench/run.py --profile burst                 profile toolrelay in one scenario

Exit code 1: an answer was wrong or missing, so that the figures mean nothing. A missed target is not an error.
"""

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import gateways, report
from bench.gateways import Gateway, Row, Running, Setup
from bench.profiling import profile
from bench.scenarios import SCENARIOS, START, Bench, Measurement, Scenario, run_load

_QUICK_START_S = 3.0


def progress(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def parse_arguments() -> argparse.Namespace:
    names = ", ".join(["start", *(scenario.name for scenario in SCENARIOS)])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("others", nargs="*", metavar="NAME=COMMAND", help="a gateway to compare with")
    parser.add_argument("--quick", action="store_true", help="one short round; kept as bench/results/partial.local.md")
    parser.add_argument("--rounds", type=int, help="default 3, with --quick 1")
    parser.add_argument("--only", default="", metavar="NAME,…", help=f"gateways by name, scenarios: {names}")
    parser.add_argument("--litellm", action="store_true", help="compare with the LiteLLM proxy; installs it when it is not there")
    parser.add_argument("--profile", metavar="SCENARIO", choices=[scenario.name for scenario in SCENARIOS])
    parser.add_argument(
        "--write-docs", action="store_true", help="put bench/results/latest.md into docs/benchmarks.md, measure nothing"
    )
    return parser.parse_args()


@contextlib.contextmanager
def upstream(setup: Setup) -> Iterator[int]:
    with gateways.on_core(setup.tool_core):
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.upstream", str(setup.upstream_port)],
            cwd=gateways.ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.communicate()


def choose_setup(directory: Path) -> Setup:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        progress("WARNING: one core only: gateway, upstream and load generator share it, latencies mean little")
    return Setup(
        directory=directory,
        port=gateways.free_port(),
        upstream_port=gateways.free_port(),
        tool_core=cores[0],
        gateway_core=cores[-1] if len(cores) < 2 else cores[1],
    )


def choose_gateways(arguments: argparse.Namespace, setup: Setup) -> list[Gateway]:
    chosen = [gateways.toolrelay(setup, "toolrelay", gateways.own_command())]
    if (nginx := gateways.nginx(setup)) is not None:
        chosen.insert(0, nginx)
    else:
        progress("nginx is not installed: no ratios, and targets that are ratios are not judged")
    if arguments.litellm:
        chosen.append(gateways.litellm(setup))
    for text in arguments.others:
        name, sign, command = text.partition("=")
        if not sign:
            sys.exit(f"{text!r} is not NAME=COMMAND")
        chosen.append(gateways.other(setup, name, command))
    return chosen


def filter_by_name(only: str, chosen: list[Gateway]) -> tuple[list[Gateway], set[str]]:
    """Return the gateways and the scenarios that `--only` names; all gateways, or all scenarios, if it names none."""
    wanted = set(filter(None, only.split(",")))
    known_gateways, known_scenarios = {gateway.name for gateway in chosen}, {"start", *(scenario.name for scenario in SCENARIOS)}
    if unknown := wanted - known_gateways - known_scenarios:
        sys.exit(f"--only: unknown {', '.join(sorted(unknown))}; known: {', '.join(sorted(known_gateways | known_scenarios))}")
    return (
        [gateway for gateway in chosen if gateway.name in wanted or not wanted & known_gateways],
        wanted & known_scenarios or known_scenarios,
    )


class Session:
    """One run over all rounds, gateways, rows and scenarios."""

    def __init__(self, setup: Setup, upstream_pid: int, *, quick: bool, scenarios: set[str], findings: report.Report) -> None:
        self._setup = setup
        self._upstream_pid = upstream_pid
        self._quick = quick
        self._scenarios = scenarios
        self._findings = findings

    def measure_gateway(self, gateway: Gateway, round_: int) -> None:
        """Start one gateway, measure all that is due in this round, and stop it."""
        self._measure_start(gateway)
        with Running(gateway, self._setup) as running:
            self._add_start(gateway, running)
            progress(f"round {round_ + 1}: {gateway.name} ready after {running.start_s:.2f} s")
            for row in gateway.rows:
                due = [scenario for scenario in SCENARIOS if self._is_due(scenario, row, round_)]
                bench = self._bench(running, row)
                if due:
                    run_load(bench, bench.options(kind="stream", connections=16, seconds=0.4))
                for scenario in due:
                    self._measure(bench, scenario)

    def _measure_start(self, gateway: Gateway) -> None:
        """Measure a second start per round for a better median, but not for gateways that start slowly."""
        known = self._findings.series.get((gateway.rows[0].label, "start"))
        slow = known is not None and max(known.values["start"]) > _QUICK_START_S
        if "start" in self._scenarios and not self._quick and not slow:
            with Running(gateway, self._setup) as running:
                self._add_start(gateway, running)

    def _add_start(self, gateway: Gateway, running: Running) -> None:
        if "start" in self._scenarios:
            self._findings.add(gateway.rows[0].label, "start", Measurement(values={START.key: running.start_s}))

    def _is_due(self, scenario: Scenario, row: Row, round_: int) -> bool:
        if scenario.name == "whole" and row.api == "websocket":
            return False  # there are only streams
        return scenario.name in self._scenarios and (row.full or scenario.all_apis) and not (scenario.once and round_)

    def _bench(self, running: Running, row: Row) -> Bench:
        return Bench(running=running, row=row, setup=self._setup, upstream_pid=self._upstream_pid, quick=self._quick)

    def _measure(self, bench: Bench, scenario: Scenario) -> None:
        began = time.monotonic()
        measurement = scenario.measure(bench)
        self._findings.add(bench.row.label, scenario.name, measurement)
        figures = ", ".join(f"{metric.key} {measurement.values[metric.key]:.{metric.digits}f}" for metric in scenario.metrics)
        errors = f"  ERRORS {measurement.errors}" if measurement.errors else ""
        progress(f"  {bench.row.label:32} {figures}  ({time.monotonic() - began:.1f} s){errors}")


def measure(arguments: argparse.Namespace, directory: Path) -> int:
    began, load = time.monotonic(), os.getloadavg()
    setup = choose_setup(directory)
    chosen, scenarios = filter_by_name(arguments.only, choose_gateways(arguments, setup))
    findings = report.Report(ours={row.label for gateway in chosen if gateway.ours for row in gateway.rows})
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    with gateways.on_core(setup.tool_core), upstream(setup) as upstream_pid:
        session = Session(setup, upstream_pid, quick=arguments.quick, scenarios=scenarios, findings=findings)
        for round_ in range(rounds):
            for gateway in chosen if round_ % 2 == 0 else reversed(chosen):
                try:
                    session.measure_gateway(gateway, round_)
                except RuntimeError as error:
                    progress(f"ERROR {error}")
                    findings.failures.append(f"{gateway.name}: {str(error).splitlines()[0]}")
    metrics = [metric for scenario in SCENARIOS for metric in scenario.metrics]
    lines = list(findings.lines([*metrics, START]))
    facts = report.machine(sys.argv[1:], time.monotonic() - began, load)
    partial = arguments.quick or arguments.only or arguments.rounds
    report.save("partial.local" if partial else "latest", findings, lines, facts)
    return show(findings, lines, facts)


def show(findings: report.Report, lines: list[report.Line], facts: dict[str, str]) -> int:
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    print(report.table(lines))
    print("", *report.pair_ratios(lines), sep="\n")
    for warning in findings.warnings():
        print(f"\nWARNING  {warning}")
    for error in findings.errors():
        print(f"\nERROR  {error}")
    if findings.errors():
        print("\nThere were ERRORS: these figures mean nothing.")
        return 1
    judged = [line for line in lines if line.verdict in {"ok", "MISSED"}]
    missed = [line for line in judged if line.verdict == "MISSED"]
    print(f"\n{len(judged) - len(missed)} of {len(judged)} targets reached")
    for line in missed:
        print(f"  MISSED  {line.label}: {line.metric.title}")
    return 0


def profile_one(arguments: argparse.Namespace, directory: Path) -> int:
    setup = choose_setup(directory)
    gateway = gateways.toolrelay(setup, "toolrelay", gateways.own_command())
    with upstream(setup) as upstream_pid:
        profile(gateway, setup, arguments.profile, upstream_pid)
    return 0


def stop(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> int:
    arguments = parse_arguments()
    if arguments.write_docs:
        report.write_docs()
        return 0
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="toolrelay-bench-") as directory:
        try:
            if arguments.profile:
                return profile_one(arguments, Path(directory))
            return measure(arguments, Path(directory))
        except KeyboardInterrupt:
            progress("interrupted; all started processes have ended")
            return 130


if __name__ == "__main__":
    sys.exit(main())
