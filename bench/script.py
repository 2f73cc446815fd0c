"""Instructions of the load generator for the upstream. They are part of the prompt, which every gateway passes on."""

import re
import time
from dataclasses import dataclass
from typing import Literal

MARK = b"~"
"""Precedes every stamp and occurs nowhere else. One byte: no read, write or HTTP chunk can split it."""

STAMP_DIGITS = 16

TOOL_NAME = "bench_tool"
"""The upstream calls this tool if a request offers it and has no result yet."""

Act = Literal["answer", "endless", "silent"]


def now_us() -> int:
    """Return CLOCK_MONOTONIC, which is the same for all processes."""
    return time.monotonic_ns() // 1000


def stamp(moment_us: int) -> bytes:
    return MARK + b"%016d" % moment_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """`answer` sends `chunks` chunks, `endless` never stops, `silent` never starts. `every_ms` 0: as fast as possible."""

    act: Act = "answer"
    id: int = 0
    chunks: int = 200
    every_ms: int = 0

    def encode(self) -> str:
        return f"[[{self.act} id={self.id} chunks={self.chunks} every={self.every_ms}]]"


_PATTERN = re.compile(rb"\[\[(answer|endless|silent) id=(\d+) chunks=(\d+) every=(\d+)\]\]")
_ACTS: dict[bytes, Act] = {b"answer": "answer", b"endless": "endless", b"silent": "silent"}


def decode(body: bytes | bytearray) -> Script | None:
    found = _PATTERN.search(body)
    if found is None:
        return None
    act, ident, chunks, every = found.groups()
    return Script(act=_ACTS[act], id=int(ident), chunks=int(chunks), every_ms=int(every))
