"""The gateway's bench runs without errors. No timing is asserted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_bench_measures_requests_and_bursts_over_every_pair_of_wires() -> None:
    command = [sys.executable, "bench/run.py", "--quick", "--only", "toolrelay,whole,burst"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"an answer was wrong: {done.stdout}{done.stderr}"
    pairs = (
        "chat>responses",
        "responses>chat",
        "responses>responses",
        "websocket>chat",
        "chat>anthropic",
        "anthropic>chat",
        "anthropic>anthropic",
    )
    for row in ("toolrelay", *(f"toolrelay {pair}" for pair in pairs)):
        assert f"\n  {row} " in done.stdout
        assert row == "toolrelay" or f"\n{row} to toolrelay" in done.stdout
    assert "\ntoolrelay websocket>chat to toolrelay responses>chat, chunk, 64 streams in bursts" in done.stdout
    assert "of 15 targets reached" in done.stdout
