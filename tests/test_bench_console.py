"""The bench of the console's pages runs. No timing is asserted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench import console
from toolrelay.web.console.pages import PAGES


def test_bench_prints_first_paint_and_size_of_every_page() -> None:
    root = Path(console.__file__).parent.parent
    command = [sys.executable, "bench/console.py", "--loads", "1"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(/\S*) +(\d+) +\d+ +([\d.]+) ", done.stdout, re.MULTILINE)
    assert [path for path, _, _ in found] == list(PAGES)
    assert all(int(paint) > 0 and float(size) > 1 for _, paint, size in found)
