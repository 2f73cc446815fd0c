"""The bench of the dialects runs, prints and saves its results. No timing is asserted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import dialects, report
from toolrelay.dialects.base import discover

ROOT = Path(__file__).parent.parent


def test_bench_prints_a_line_for_each_scenario() -> None:
    command = [sys.executable, "bench/dialects.py", "--size", "60", "--rounds", "1"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for scenario in dialects.SCENARIOS:
        assert f"\n{scenario.name} " in printed
    assert f"of {len(dialects.SCENARIOS)} targets reached" in printed


def test_selected_dialects_get_columns() -> None:
    known = discover()
    lines = dialects.measure({"hermes": known["hermes"]}, list(dialects.SCENARIOS[:2]), size=40, rounds=1)
    head, *rows = dialects.columns(lines)
    assert "hermes" in head
    assert [row[:26].rstrip() for row in rows] == ["text without markers", "text in Markdown"]


def test_results_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    peer = dialects.Peer(of="SGLang", scenario="text without markers", dialect="hermes", size=2000, theirs=4000.0, ours=300.0)
    costs, growth = {"hermes": 300.0, "react": 1500.0}, {"hermes": 1.0, "react": 1.0}
    line = dialects.ScenarioCosts(scenario=dialects.SCENARIOS[0], costs=costs, growth=growth)
    dialects.save([line], {"hermes": 0.2}, {"date": "today"}, [peer])
    assert (
        "| text without markers | 1,000 | 300 | 900 | 1,500 | react | 1.0 | **MISSED** react |"
        in (tmp_path / "dialects.md").read_text()
    )
    assert "| text without markers | hermes | 2,000 | SGLang | 4,000 | 300 |" in (tmp_path / "dialects.md").read_text()


def test_superlinear_growth_misses_the_target() -> None:
    line = dialects.ScenarioCosts(scenario=dialects.SCENARIOS[0], costs={"hermes": 1.0}, growth={"hermes": 4.0})
    assert line.verdict == "MISSED"
