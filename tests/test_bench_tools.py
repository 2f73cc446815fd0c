"""The bench of gateway tools runs without errors. No timing is asserted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench import tools


def test_bench_prints_every_figure_and_no_turn_fails(tmp_path: Path) -> None:
    command = [sys.executable, "bench/tools.py", "--rounds", "1", "--seconds", "0.1", "--connections", "8"]
    root = Path(tools.__file__).parent.parent
    done = subprocess.run([*command, "--directory", str(tmp_path)], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"a turn failed: {done.stdout}{done.stderr}"
    assert re.findall(r"^(.+?) {2,}8 +-?[\d,]+ +[\d,]+", done.stdout, re.MULTILINE) == [figure.title for figure in tools.FIGURES]
