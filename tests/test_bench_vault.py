"""The bench of the vault runs and prints. No timing is asserted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench import vault

NAMES = [
    "vault",
    "first index, s",
    "index, MB",
    "start with an index and a search, s",
    "and a search without results, s",
    *(f"{kind}, ms" for kind in vault.TARGETS),
    "changed note is found, ms",
    "memory of the process at its peak, MB",
]


def test_bench_prints_a_line_for_each_figure(tmp_path: Path) -> None:
    command = [sys.executable, "bench/vault.py", "--notes", "30", "--directory", str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(vault.__file__).parent.parent).stdout
    lines = printed.splitlines()[1:]
    assert [re.split(" {2,}", line)[0] for line in lines] == NAMES
    assert all(re.search(r"\d", line.removeprefix(name)) for line, name in zip(lines, NAMES, strict=True))


def test_generated_vault_is_always_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        vault.write_vault(tmp_path / name, 3)
    one, two = (
        {str(file.relative_to(tmp_path / name)): file.read_bytes() for file in (tmp_path / name).rglob("*.md")}
        for name in ("one", "two")
    )
    assert one == two
    assert len(one) == 3
