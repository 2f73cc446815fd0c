"""Where toolrelay's time goes in one scenario: the gateway under cProfile, its own functions first."""

import pstats
import sys
from dataclasses import replace

from bench.gateways import ROOT, Gateway, Place, Running
from bench.report import RESULTS
from bench.scenarios import SCENARIOS, Bench

_KEPT = RESULTS / "profile.local.prof"
_SHOWN = 40


def profile(gateway: Gateway, place: Place, scenario_name: str, upstream_pid: int) -> None:
    """Prints the functions that took most time themselves; the figures are inflated by the profiler, their order is not."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == scenario_name)
    command = (sys.executable, "-m", "cProfile", "-o", str(_KEPT), *gateway.command)
    with Running(replace(gateway, command=command), place) as running:
        scenario.measure(Bench(running=running, row=gateway.rows[0], place=place, upstream_pid=upstream_pid, quick=True))
    stats = pstats.Stats(str(_KEPT))
    stats.sort_stats("tottime").print_stats(_SHOWN)
    print(f"kept: {_KEPT.relative_to(ROOT)}; `python -m pstats` opens it")
