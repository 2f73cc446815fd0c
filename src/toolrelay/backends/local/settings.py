"""The keys of a local model's table, and the number of threads for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from toolrelay.setting_types import Count
from toolrelay.settings import ModelSettings

DEFAULT_CONTEXT = 8192
MAX_THREADS = 8  # by default: generation is bound by memory bandwidth, more threads rarely help
# The limits of llama.cpp, which aborts the process beyond that of threads.
_Threads = Annotated[int, Meta(ge=0, le=512, description="a whole number from 0 to 512")]
_Parallel = Annotated[int, Meta(gt=0, le=256, description="a whole number from 1 to 256")]
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class LocalSettings(ModelSettings, frozen=True, kw_only=True):
    """`model` names a file: see model_files. `parallel`: answers at the same time.

    0: DEFAULT_CONTEXT tokens of context, and as many threads as default_threads says.
    """

    context_length: Count = 0
    threads: _Threads = 0
    parallel: _Parallel = 1


def default_threads() -> int:
    """Leave a core to the gateway and everything else: llama.cpp on two busy cores is ten times slower with two threads."""
    return min(MAX_THREADS, max(1, _available_cores() - 1))


def _available_cores() -> int:
    """Count the cores that this process may use: fewer than the machine has, in a container with a limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):  # no limit, or another system
        return cores
