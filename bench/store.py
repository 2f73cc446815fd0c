"""Cost of writing to the store: CPU per appended step, with its share of the commit. Part of `make bench`.

  bench/store.py                       all, about half a minute
  bench/store.py --steps 20000         more steps per figure
  bench/store.py --directory /mnt/x    on another disk; default: the system's directory for temporary files

Turns append steps of about 1 KB, each waiting until it is durable. The more turns run at once, the more steps share a commit.
CPU is that of the whole process, threads included. A figure is the median of the rounds, and depends on the disk: a commit waits
for it.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import uvloop

from toolrelay.core.messages import Message
from toolrelay.core.request import Request
from toolrelay.core.steps import ToolRunFinished, TurnAccepted, TurnFinished
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import Store, open_store
from toolrelay.stores.messages import message_rows
from toolrelay.stores.turns import StoredStep, TurnRow

_STEPS = 10_000
_ROUNDS = 5
_GROUPS = (1, 10, 100, 500)
_STEP = ToolRunFinished(call_id="call_0123456789abcdef01234567", output="x" * 900)
_REQUEST = Request(wire="openai_chat", model="fast", items=(Message(role="user", content="x" * 400),))
_ACCEPTED = TurnAccepted(request=_REQUEST)


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    turns: int
    cpu_us: float
    per_second: float


async def append_steps(store: Store, turn: str, count: int) -> None:
    row = TurnRow(id=turn, owner="local", model="fast", wire="openai_chat", created_at=0.0)
    await store.create_turn(row, [StoredStep(seq=0, at=0.0, step=_ACCEPTED)])
    for seq in range(1, count + 1):
        await store.append_steps(turn, [StoredStep(seq=seq, at=0.0, step=_STEP)])


async def run_turns(store: Store, turn: str, count: int) -> None:
    """Write turns as a stored answer does: the request, then the end, with their messages."""
    for number in range(count):
        name = f"{turn}-{number}"
        row = TurnRow(id=name, owner="local", model="fast", wire="openai_chat", created_at=0.0, stored=True)
        await store.create_turn(row, [StoredStep(seq=0, at=0.0, step=_ACCEPTED)], message_rows(_ACCEPTED))
        ends = [StoredStep(seq=1, at=1.0, step=TurnFinished(finish="stop"))]
        await store.append_steps(name, ends, status="finished", messages=message_rows(_STEP))


async def load_turns(store: Store, turn: str, count: int) -> None:
    await append_steps(store, turn, 0)
    for _ in range(count):
        await store.load_turn(turn)


SCENARIOS: dict[str, Callable[[Store, str, int], Coroutine[Any, Any, None]]] = {
    "append a step": append_steps,
    "write a stored turn": run_turns,
    "load a turn": load_turns,
}


def measure(name: str, settings: StoreSettings, turns: int, steps: int, directory: Path) -> Figure:
    """Measure one round in an empty store."""

    async def main() -> tuple[float, float]:
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            store = open_store(settings, Path(folder))
            await store.open()
            cpu, began = time.process_time(), time.perf_counter()
            await asyncio.gather(*(SCENARIOS[name](store, f"turn-{number:027}", steps // turns) for number in range(turns)))
            cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
            await store.close()
            return cpu, seconds

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        cpu, seconds = runner.run(main())
    done = steps // turns * turns
    return Figure(name, turns, cpu / done * 1e6, done / seconds)


def figures(steps: int, rounds: int, directory: Path) -> Iterator[tuple[str, Figure]]:
    for variant, settings in {"file": StoreSettings(), "memory": StoreSettings(record="none")}.items():
        for name in SCENARIOS:
            for turns in _GROUPS:
                # A commit for each step costs a disk's time: fewer are enough.
                count = max(turns, steps // 10 if turns == 1 else steps)
                found = [measure(name, settings, turns, count, directory) for _ in range(rounds)]
                cpu = statistics.median(each.cpu_us for each in found)
                yield variant, Figure(name, turns, cpu, statistics.median(each.per_second for each in found))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=_STEPS, help=f"default {_STEPS:,}")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"default {_ROUNDS}")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    print(f"{'store':<8}{'':<22}{'turns at once':>14}{'CPU µs each':>14}{'per second':>12}")
    for variant, figure in figures(arguments.steps, arguments.rounds, arguments.directory):
        print(f"{variant:<8}{figure.name:<22}{figure.turns:>14,}{figure.cpu_us:>14.1f}{figure.per_second:>12,.0f}", flush=True)


if __name__ == "__main__":
    main()
