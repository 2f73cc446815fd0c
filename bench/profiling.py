"""Profile of toolrelay in one scenario, with cProfile."""

import pstats
import sys
from dataclasses import replace

from bench.gateways import ROOT, Gateway, Running, Setup
from bench.report import RESULTS
from bench.scenarios import SCENARIOS, Bench

_PROFILE_FILE = RESULTS / "profile.local.prof"
_MAX_FUNCTIONS = 40


def profile(gateway: Gateway, setup: Setup, scenario_name: str, upstream_pid: int) -> None:
    """Print the functions with the most own time. The profiler inflates the figures, not their order."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == scenario_name)
    command = (sys.executable, "-m", "cProfile", "-o", str(_PROFILE_FILE), *gateway.command)
    with Running(replace(gateway, command=command), setup) as running:
        scenario.measure(Bench(running=running, row=gateway.rows[0], setup=setup, upstream_pid=upstream_pid, quick=True))
    stats = pstats.Stats(str(_PROFILE_FILE))
    stats.sort_stats("tottime").print_stats(_MAX_FUNCTIONS)
    print(f"kept: {_PROFILE_FILE.relative_to(ROOT)}; `python -m pstats` opens it")
