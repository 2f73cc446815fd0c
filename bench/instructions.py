"""Instructions of the gateway per request, counted by Valgrind: the same on a busy machine.

  bench/instructions.py                          every load
  bench/instructions.py chat chat-stream         some loads
  bench/instructions.py --command 'DIR/.venv/bin/python -m toolrelay serve --config {config} --port {port} --data-dir {data}' chat
  bench/instructions.py --functions chat         also the C functions that took most

Needs Valgrind (Debian package valgrind). One connection, requests one after the other; the difference of two loads is what the
other wire, the store or a chunk costs. Streams have 100 chunks, each read alone.
"""

import argparse
import http.client
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import client, gateways
from bench.gateways import Running, Setup
from bench.run import choose_setup, upstream
from bench.script import Script

_WARMUPS = 20
_REQUESTS = 20
_CHUNKS = 100
_PACE_MS = 25
_WARMUP_PACE_MS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionLoad:
    api: client.Api = "chat"
    model: str = "fake-model"
    stream: bool = False
    store: bool = False

    def request(self, port: int, pace_ms: int = _PACE_MS) -> bytes:
        script = Script(chunks=_CHUNKS, every_ms=pace_ms) if self.stream else None
        return client.request(api=self.api, model=self.model, port=port, stream=self.stream, script=script, store=self.store)


_PAIRS = {
    "chat": InstructionLoad(),
    "responses": InstructionLoad(api="responses"),
    "stored": InstructionLoad(api="responses", store=True),
    "anthropic": InstructionLoad(api="anthropic", model="fake-anthropic"),
    "anthropic>chat": InstructionLoad(api="anthropic"),
}
LOADS = {**_PAIRS, **{f"{name}-stream": replace(load, stream=True) for name, load in _PAIRS.items()}}


class Counter:
    """Counts instructions of a process that runs under callgrind."""

    def __init__(self, pid: int, directory: Path) -> None:
        self._pid = pid
        self._directory = directory

    def control(self, *command: str) -> None:
        subprocess.run(["vgdb", f"--pid={self._pid}", *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def dump(self) -> Path:
        """Write the counts since `zero`; return the file."""
        self.control("dump")
        return max(self._directory.glob("callgrind.*"), key=lambda path: int(path.suffix[1:]))


def send(connection: http.client.HTTPConnection, request: bytes) -> None:
    head, _, body = request.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    connection.request("POST", first.split()[1], body, dict(field.split(": ", 1) for field in fields))
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise RuntimeError(answer.decode(errors="replace"))


def measure(setup: Setup, running: Running, counter: Counter, load: InstructionLoad) -> tuple[float, Path]:
    """Return instructions per request, and the file with all counts."""
    connection = http.client.HTTPConnection("127.0.0.1", setup.port, timeout=120)
    requests = 2 if load.stream else _REQUESTS
    for _ in range(_WARMUPS):  # until the interpreter has specialized its bytecode
        send(connection, load.request(setup.port, _WARMUP_PACE_MS))
    counter.control("instrumentation", "on")
    send(connection, load.request(setup.port))
    counter.control("zero")
    for _ in range(requests):
        send(connection, load.request(setup.port))
    file = counter.dump()
    counter.control("instrumentation", "off")
    connection.close()
    found = re.search(r"^(?:totals|summary): (\d+)", file.read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{file} has no total:\n{running.log_tail()}")
    return int(found[1]) / requests, file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"default all: {', '.join(LOADS)}")
    parser.add_argument("--command", default=gateways.own_command())
    parser.add_argument("--functions", action="store_true")
    arguments = parser.parse_args()
    if unknown := set(arguments.loads) - set(LOADS):
        parser.error(f"unknown {', '.join(sorted(unknown))}; known: {', '.join(LOADS)}")
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed")
    with tempfile.TemporaryDirectory(prefix="toolrelay-bench-") as folder:
        directory = Path(folder)
        setup = choose_setup(directory)
        gateway = gateways.toolrelay(setup, "toolrelay", arguments.command)
        valgrind = ("valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/callgrind")
        # The program may be a script: Valgrind runs its interpreter.
        gateway = replace(
            gateway,
            command=(*valgrind, str(Path(gateway.command[0]).parent / "python"), *gateway.command),
            environment=(("PYTHONHASHSEED", "0"),),
        )
        with upstream(setup), Running(gateway, setup) as running:
            counter = Counter(running.pid, directory)
            for name in arguments.loads or LOADS:
                cost, file = measure(setup, running, counter, LOADS[name])
                print(f"{name:<24}{cost:>14,.0f} instructions per request", flush=True)
                if arguments.functions:
                    subprocess.run(["callgrind_annotate", "--threshold=70", str(file)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
