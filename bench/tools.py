"""Cost of recorded turns: gateway tools and stored responses on SQLite. Part of `make bench`.

  bench/tools.py                       three rounds, about two minutes
  bench/tools.py --rounds 1 --seconds 0.3 --connections 64
  bench/tools.py --directory /mnt/x    with the database on another disk; default: the system's directory for temporary files
  bench/tools.py --profile tool        profile the gateway in one scenario: relay, call, tool, unstored, stored …

CPU is that of the whole process, threads included. "gateway tool" is what a turn with one run of a Python function costs more
than its two model calls, measured as two plain relays. "stored response" is what a response costs more than with `store: false`.
A figure is the median of the rounds.

Exit code 1: an answer was wrong or missing, so that the figures mean nothing. A missed target is not an error.
"""

import argparse
import pstats
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import gateways
from bench.gateways import Gateway, Row, Running, Setup, cpu_s
from bench.load import LoadOptions, LoadResult
from bench.run import choose_setup, progress, upstream
from bench.scenarios import Bench, run_load
from bench.script import TOOL_NAME

_CHUNKS = 20
_CONNECTIONS = (1, 64, 500)
_JUDGED = 64
_MODULE = f'''from toolrelay import tool


@tool
def {TOOL_NAME}(day: str) -> str:
    """Return the weather of a day."""
    return "sunny"
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load, and how many units its result has for each turn."""

    options: dict[str, object]
    units: int = 1


LOADS = {
    "relay": Load(options={"kind": "stream", "chunks": _CHUNKS}, units=_CHUNKS),
    "call": Load(options={"kind": "stream", "chunks": 1, "tools": True}),
    "tool": Load(options={"kind": "stream", "chunks": _CHUNKS, "model": "with-tools"}, units=_CHUNKS),
    "unstored": Load(options={"kind": "whole", "api": "responses"}),
    "stored": Load(options={"kind": "whole", "api": "responses", "store": True}),
    "unstored stream": Load(options={"kind": "stream", "api": "responses", "chunks": _CHUNKS}, units=_CHUNKS),
    "stored stream": Load(options={"kind": "stream", "api": "responses", "chunks": _CHUNKS, "store": True}, units=_CHUNKS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A difference of costs, with a maximum in µs of CPU."""

    title: str
    load: str
    without: tuple[str, ...]
    limit: float

    def cost(self, costs: dict[str, float]) -> float:
        return costs[self.load] - sum(costs[name] for name in self.without)


FIGURES = (
    Figure(title="gateway tool", load="tool", without=("relay", "call"), limit=1500),
    Figure(title="stored response", load="stored", without=("unstored",), limit=150),
    Figure(title="stored response, streamed", load="stored stream", without=("unstored stream",), limit=150),
)


def configure(setup: Setup) -> Gateway:
    gateway = gateways.toolrelay(setup, "toolrelay", gateways.own_command())
    (setup.directory / "bench_tools.py").write_text(_MODULE)
    with (setup.directory / "toolrelay.toml").open("a") as config:
        config.write(
            'toolsets = ["bench"]\n\n[models.with-tools]\nprovider = "compatible"\nwire = "chat"\nmodel = "fake-model"\n'
            f'base_url = "{setup.upstream}"\napi_key = "sk-up"\ntoolsets = ["bench"]\n\n'
            '[toolsets.bench]\nkind = "python"\nmodule = "bench_tools"\napproval = "never"\n'
        )
    return gateway


@dataclass(frozen=True, slots=True)
class Session:
    setup: Setup
    upstream_pid: int
    seconds: float

    def measure(self, running: Running, load: Load, connections: int) -> tuple[float, LoadResult]:
        """Return CPU µs per turn."""
        bench = Bench(running=running, row=Row(label="toolrelay"), setup=self.setup, upstream_pid=self.upstream_pid, quick=False)
        options = LoadOptions(
            port=self.setup.port,
            upstream_port=self.setup.upstream_port,
            connections=connections,
            seconds=self.seconds,
            **load.options,  # type: ignore[arg-type]  # fields of LoadOptions, checked by its constructor
        )
        before = cpu_s(running.pids())
        result = run_load(bench, options)
        return (cpu_s(running.pids()) - before) * 1e6 / max(1, result.units / load.units), result


def failures(result: LoadResult) -> int:
    return result.errors + result.bad + result.unfinished


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each load; default 1.5")
    parser.add_argument("--connections", type=int, nargs="*", default=_CONNECTIONS, help="default 1 64 500")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--profile", choices=LOADS)
    return parser.parse_args()


def profile(session: Session, gateway: Gateway, name: str) -> None:
    file = session.setup.directory / "profile"
    command = (sys.executable, "-m", "cProfile", "-o", str(file), *gateway.command)
    with Running(replace(gateway, command=command), session.setup) as running:
        session.measure(running, LOADS[name], _JUDGED)
    pstats.Stats(str(file)).sort_stats("tottime").print_stats(45)


def main() -> int:
    arguments = parse_arguments()
    costs: dict[tuple[int, str], list[float]] = defaultdict(list)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="toolrelay-bench-", dir=arguments.directory) as folder:
        setup = choose_setup(Path(folder))
        gateway = configure(setup)
        with gateways.on_core(setup.tool_core), upstream(setup) as upstream_pid:
            session = Session(setup, upstream_pid, arguments.seconds)
            if arguments.profile:
                profile(session, gateway, arguments.profile)
                return 0
            for round_ in range(arguments.rounds):
                with Running(gateway, setup) as running:
                    session.measure(running, LOADS["relay"], 16)
                    for connections in arguments.connections:
                        for name, load in LOADS.items():
                            cost, result = session.measure(running, load, connections)
                            costs[connections, name].append(cost)
                            lost = failures(result)
                            failed += lost
                            count = result.units // load.units
                            progress(f"round {round_ + 1}: {name}, {connections}: {cost:.0f} µs, {count} turns, {lost} failed")
    show(costs)
    if failed:
        print(f"\n{failed} turns failed: these figures mean nothing.")
    return 1 if failed else 0


def show(costs: dict[tuple[int, str], list[float]]) -> None:
    print(f"{'':<28}{'connections':>12}{'CPU µs more':>14}{'of':>10}  target")
    for figure in FIGURES:
        for connections in sorted({connections for connections, _ in costs}):
            middle = {name: statistics.median(costs[connections, name]) for name in LOADS}
            cost = figure.cost(middle)
            target = f"≤ {figure.limit:,.0f} {'ok' if cost <= figure.limit else 'MISSED'}" if connections == _JUDGED else ""
            print(f"{figure.title:<28}{connections:>12,}{cost:>14,.0f}{middle[figure.load]:>10,.0f}  {target}")


if __name__ == "__main__":
    sys.exit(main())
