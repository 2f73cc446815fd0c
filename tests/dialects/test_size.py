"""Size of the dialect modules."""

from __future__ import annotations

import inspect
import sys
from statistics import median

from toolrelay.dialects.base import discover


def test_most_dialects_have_fewer_than_sixty_lines() -> None:
    modules = [dialect.grammar.__module__ for dialect in discover().values()]
    lines = {name: len(inspect.getsource(sys.modules[name]).splitlines()) for name in modules}
    each = [lines[name] / modules.count(name) for name in modules]
    assert median(each) < 50
    assert sum(size > 60 for size in each) < len(each) / 3
