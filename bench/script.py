"""What the load generator asks of the upstream, written into the prompt so that it survives any gateway between the two."""

import re
import time
from dataclasses import dataclass
from typing import Literal

MARK = b"~"
"""Stands before every stamp and nowhere else: one byte, so that no read, write or HTTP chunk can cut it in two."""

STAMP_DIGITS = 16

Act = Literal["answer", "endless", "silent"]


def now_us() -> int:
    """CLOCK_MONOTONIC, which all processes of one machine share."""
    return time.monotonic_ns() // 1000


def stamp(moment_us: int) -> bytes:
    return MARK + b"%016d" % moment_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """`answer` plays `chunks` chunks, `endless` never stops, `silent` never begins; `every_ms` 0 is as fast as it goes."""

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
