"""The bench of the store runs and prints. No timing is asserted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench import store


def test_bench_prints_a_line_for_each_figure(tmp_path: Path) -> None:
    command = [sys.executable, "bench/store.py", "--steps", "20", "--rounds", "1", "--directory", str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(store.__file__).parent.parent).stdout
    lines = re.findall(r"^(file|memory) +(.+?) {2,}([\d,]+) +[\d.]+ +[\d,]+$", printed, re.MULTILINE)
    assert [(variant, name) for variant, name, _ in lines] == [
        (variant, name) for variant in ("file", "memory") for name in store.SCENARIOS for _ in range(4)
    ]
