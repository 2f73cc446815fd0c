"""Result of a run of `toolrelay`, and its configuration file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HASH = "4f8e0b7c3a1d5e2f6b9c8d7a0e1f2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c"
PROGRAM = [sys.executable, "-m", "toolrelay"]


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


def configure(text: str) -> None:
    Path("toolrelay.toml").write_text(text, encoding="utf-8")
