"""`toolrelay replay`. tests/test_replay.py has what it prints."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import Run


def test_recorded_answer_is_printed(run: Run) -> None:
    recording = {"request": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, "answer": "Hello"}
    Path("recording.json").write_text(json.dumps(recording), encoding="utf-8")
    code, out, err = run("replay", "recording.json")
    assert (code, err) == (0, "")
    assert json.loads(out)["choices"][0]["message"]["content"] == "Hello"


def test_missing_recording_exits_with_2(run: Run) -> None:
    assert run("replay", "none.json") == (2, "", "toolrelay: none.json: no such file or directory\n")
