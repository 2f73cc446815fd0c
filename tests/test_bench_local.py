"""The bench of the local model runs without errors. No timing is asserted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench import local


def test_bench_prints_both_speeds_and_their_ratio() -> None:
    root = Path(local.__file__).parent.parent
    command = [sys.executable, "bench/local.py", "--pairs", "1", "--tokens", "4"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    found = re.findall(r"^ {2}(\S.*?) {2,}[\d.]+", done.stdout, re.MULTILINE)
    assert found == ["llama.cpp's own server", "toolrelay", "ratio"]
