"""Overhead of the gateway over Codex: time to the first delta, memory over many turns, recovery from a kill.

  bench/codex.py                               all three, about a minute; `make bench` runs it
  bench/codex.py --only latency                a selection of latency, memory, recovery
  bench/codex.py --only memory --turns 2000    `make soak`

The real binary gets its answers from a scripted upstream on loopback. For comparison, a bare app-server with the same
configuration is used as by a plain Codex client, without a gateway. Turns of the two alternate, and the overhead is the median of
the differences within pairs, because a busy machine slows both.

Memory: turns run four at a time, and the resident MB are read between blocks of them. The gateway's slope is the median of the
slopes between any two readings after the warm-up. An app-server never frees a thread and is replaced after a number of them, so
its memory is a sawtooth. In a run in which each is replaced several times, the highest reading of the last third is compared with
the highest of the third before it.

Exit code 1: an answer was wrong or missing, so the figures are invalid. A missed target is not an error.
"""

import argparse
import contextlib
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import client, gateways, report
from bench.gateways import Gateway, Running
from bench.run import choose_setup, progress, show, upstream
from bench.scenarios import Measurement, Metric
from bench.script import MARK, Script
from toolrelay.backends.codex.backend import THREAD_PARAMS
from toolrelay.backends.codex.binary import find_binary, probe_binary
from toolrelay.backends.codex.home import CodexHome
from toolrelay.backends.codex.pool import MAX_THREADS
from toolrelay.backends.codex.process import INITIALIZE_PARAMS
from toolrelay.backends.codex.settings import CodexLocation
from toolrelay.errors import ConfigurationError

_MODEL = "scripted"
_SCRIPT = Script(chunks=3)
_PROMPT = "Tell me what you know about the quick brown fox and the lazy dog."
_SYSTEM = "You are a careful assistant. Answer briefly and correctly."
_ROUNDS, _PAIRS, _WARM = 5, 32, 10
_TURNS, _BLOCK, _CONCURRENCY = 200, 20, 4
_WARM_TURNS = 100
_KILLS = 5
_TIMEOUT_S = 30.0
_APP_SERVERS, _TOGETHER = "toolrelay's app-server", "toolrelay and its app-servers"
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "CODEX_CA_CERTIFICATE")
"""Not needed on loopback, but Codex reads them for every thread: ten milliseconds more, with and without a gateway."""

FIRST = Metric(key="first", title="Codex: first delta, p50", unit="ms", digits=2)
ADDED = Metric(key="added", title="Codex: added to the first delta, p50", unit="ms", limit=5, digits=2)
WHOLE = Metric(key="whole", title="Codex: whole answer of three deltas, p50", unit="ms", digits=2)
RESIDENT = Metric(key="resident", title="Codex: resident at the end", unit="MB", digits=0)
CPU = Metric(key="cpu", title="Codex: processor time for a turn", unit="CPU ms per turn", digits=2)
SLOPE = Metric(key="slope", title="Codex: growth of the gateway", unit="MB per 1,000 turns", limit=1, digits=2)
SAW = Metric(key="saw", title="Codex: growth of gateway and app-servers, highest by highest", unit="%", limit=10)
RECOVERY = Metric(
    key="recovery", title="Codex: kill -9 to the first delta of the next answer, slowest", unit="s", limit=1, digits=3
)
METRICS = [FIRST, ADDED, WHOLE, CPU, RESIDENT, SLOPE, SAW, RECOVERY]

Times = tuple[float, float]
"""Seconds from the request to the first delta, and to the end."""


class WrongAnswerError(Exception):
    """A wrong or missing answer."""


class BareAppServer:
    """An app-server with a minimal client."""

    def __init__(self, location: CodexLocation, home: CodexHome) -> None:
        self._home = home
        self._ids = itertools.count(1)
        self._process = subprocess.Popen(
            [location.binary, "app-server", "--strict-config"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=home.environ(location),
            cwd=home.work_dir,
            start_new_session=True,
        )
        self._call("initialize", INITIALIZE_PARAMS)
        self._send({"method": "initialized"})

    @property
    def pid(self) -> int:
        return self._process.pid

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WrongAnswerError("the bare app-server ended")
        return line

    def _call(self, method: str, params: Any) -> Any:  # noqa: ANN401 -- the protocol's own
        request_id = next(self._ids)
        self._send({"id": request_id, "method": method, "params": params})
        while True:
            found = json.loads(self._line())
            if found.get("id") == request_id and "method" not in found:
                if "result" not in found:
                    raise WrongAnswerError(f"{method}: {found}")
                return found["result"]

    def turn(self) -> Times:
        thread = {**THREAD_PARAMS, "experimentalRawEvents": False, "model": _MODEL, "cwd": str(self._home.work_dir)}
        began = time.perf_counter()
        thread_id = self._call("thread/start", thread | {"developerInstructions": _SYSTEM})["thread"]["id"]
        text = {"type": "text", "text": f"{_PROMPT} {_SCRIPT.encode()}", "text_elements": []}
        self._call("turn/start", {"threadId": thread_id, "input": [text]})
        first, deltas = 0.0, 0
        while b'"turn/completed"' not in (line := self._line()):
            if b'"item/agentMessage/delta"' in line:
                first, deltas = first or time.perf_counter() - began, deltas + 1
        if deltas != _SCRIPT.chunks:
            raise WrongAnswerError(f"the bare app-server gave {deltas} deltas instead of {_SCRIPT.chunks}")
        return first, time.perf_counter() - began

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._home.remove()


class GatewayConnection:
    """A keep-alive connection to the gateway."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        messages = [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": f"{_PROMPT} {_SCRIPT.encode()}"},
        ]
        body = json.dumps({"model": _MODEL, "messages": messages, "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {client.KEY}\r\n"
        self._request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def turn(self) -> Times:
        began, first = time.perf_counter(), 0.0
        self._sock.sendall(self._request)
        read = b""
        while not read.endswith(b"\r\n0\r\n\r\n"):
            piece = self._sock.recv(1 << 16)
            if not piece:
                raise WrongAnswerError(f"the gateway closed the connection after {read[-300:]!r}")
            read += piece
            if not first and MARK in piece:
                first = time.perf_counter() - began
            if not read.startswith(b"HTTP/1.1 200"):
                raise WrongAnswerError(f"the gateway answered {read[:300]!r}")
        if read.count(MARK) != _SCRIPT.chunks or b"[DONE]" not in read:
            raise WrongAnswerError(f"the gateway answered {read[-300:]!r}")
        return first, time.perf_counter() - began

    def close(self) -> None:
        self._sock.close()


class CodexBench:
    """Starts gateways and bare app-servers of the same configuration, and measures them."""

    def __init__(self, place: gateways.Setup, binary: str) -> None:
        self._place = place
        self._location = CodexLocation(
            folder=str(place.directory / "bare"),
            binary=binary,
            model=_MODEL,
            base_url=place.upstream,
            environ=gateways.environment(),
        )

    @contextlib.contextmanager
    def gateway(self) -> Iterator[Running]:
        config = self._place.directory / "codex.toml"
        config.write_text(f'[models.{_MODEL}]\nprovider = "codex"\nbase_url = "{self._place.upstream}"\n')
        words = gateways.own_command().format(config=config, port=self._place.port, data=self._place.directory / "data").split()
        with Running(Gateway(name="toolrelay", command=tuple(words), rows=()), self._place) as running:
            for pid in running.pids():  # started on one core for other benchmarks; here app-servers share it
                os.sched_setaffinity(pid, range(os.cpu_count() or 1))
            yield running

    @contextlib.contextmanager
    def connection(self) -> Iterator[GatewayConnection]:
        connection = GatewayConnection(self._place.port)
        try:
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def bare(self) -> Iterator[BareAppServer]:
        home = CodexHome(self._location.folder)
        home.write_config(self._location, probe_binary(self._location.binary, home.environ(self._location)))
        bare = BareAppServer(self._location, home)
        try:
            yield bare
        finally:
            bare.close()

    # Measurements

    def latency(self, findings: report.Report, _turns: int) -> None:
        with self.gateway() as running, self.connection() as connection, self.bare() as bare:
            for _ in range(_WARM):
                bare.turn()
                connection.turn()
            clocks = {"bare app-server": {bare.pid}, "toolrelay": {running.pid}, _APP_SERVERS: running.pids() - {running.pid}}
            for number in range(_ROUNDS):
                before = {label: gateways.cpu_s(pids) for label, pids in clocks.items()}
                alone, through = zip(*(_pair(bare, connection, swapped=bool(n % 2)) for n in range(_PAIRS)), strict=True)
                values = {
                    label: {"cpu": (gateways.cpu_s(pids) - before[label]) * 1000 / _PAIRS} for label, pids in clocks.items()
                }
                values["bare app-server"] |= {"first": _p50_ms(alone, 0), "whole": _p50_ms(alone, 1)}
                values["toolrelay"] |= {"first": _p50_ms(through, 0), "whole": _p50_ms(through, 1)}
                added = statistics.median(b[0] - a[0] for a, b in zip(alone, through, strict=True)) * 1000
                values["toolrelay"]["added"] = added
                for label, measured in values.items():
                    findings.add(label, "latency", Measurement(values=measured))
                progress(f"round {number + 1}: first delta {_p50_ms(alone, 0):.2f} ms bare, {added:.2f} ms added")

    def memory(self, findings: report.Report, turns: int) -> None:
        readings: list[tuple[int, float, float]] = []
        with self.gateway() as running, ThreadPoolExecutor(_CONCURRENCY) as threads:
            connections = [GatewayConnection(self._place.port) for _ in range(_CONCURRENCY)]

            def block(count: int) -> None:
                for each in [
                    threads.submit(lambda connection: [connection.turn() for _ in range(count // _CONCURRENCY)], connection)
                    for connection in connections
                ]:
                    each.result()

            block(_WARM_TURNS)
            for done in range(0, turns + 1, _BLOCK):
                if done:
                    block(_BLOCK)
                own, whole = _resident_mb({running.pid}), running.rss_mb()
                readings.append((done, own, whole))
                if done * 10 % turns == 0:
                    progress(f"{done} turns: gateway {own:.1f} MB, with {len(running.pids()) - 1} app-servers {whole:.0f} MB")
            for connection in connections:
                connection.close()
        slope = _slope([(done, own) for done, own, _ in readings]) * 1000
        values = {"resident": readings[-1][1], "slope": slope}
        findings.add("toolrelay", "memory", Measurement(values=values))
        values = {"resident": readings[-1][2]}
        if turns >= 3 * 2 * MAX_THREADS:
            third = len(readings) // 3
            highest = [max(whole for _, _, whole in part) for part in (readings[-2 * third : -third], readings[-third:])]
            values["saw"] = (highest[1] / highest[0] - 1) * 100
        findings.add(_TOGETHER, "memory", Measurement(values=values))

    def recovery(self, findings: report.Report, _turns: int) -> None:
        took = []
        with self.gateway() as running, self.connection() as connection:
            for _ in range(_KILLS):
                connection.turn()
                killed = time.perf_counter()
                for pid in running.pids() - {running.pid}:
                    with contextlib.suppress(ProcessLookupError):  # a short-lived child of Codex
                        os.kill(pid, signal.SIGKILL)
                began = time.perf_counter()
                took.append(began - killed + connection.turn()[0])
        progress(f"recovered in {', '.join(f'{seconds:.2f}' for seconds in took)} s")
        findings.add("toolrelay", "recovery", Measurement(values={"recovery": max(took)}))


def _pair(bare: BareAppServer, connection: GatewayConnection, *, swapped: bool) -> tuple[Times, Times]:
    """Run one turn of each, in alternating order."""
    if swapped:
        through = connection.turn()
        return bare.turn(), through
    return bare.turn(), connection.turn()


def _p50_ms(times: Sequence[Times], which: int) -> float:
    return statistics.median(each[which] for each in times) * 1000


def _resident_mb(pids: set[int]) -> float:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _slope(points: list[tuple[int, float]]) -> float:
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="latency,memory,recovery", metavar="NAME,…", help="latency, memory, recovery")
    parser.add_argument("--turns", type=int, default=_TURNS, help=f"for memory; default {_TURNS}")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    began, load = time.monotonic(), os.getloadavg()
    try:
        binary = find_binary(os.environ.get("TOOLRELAY_CODEX", ""), os.environ.get("PATH"))
    except ConfigurationError as error:
        sys.exit(error.message)
    for name in _CERTIFICATES:
        os.environ.pop(name, None)
    findings = report.Report(ours={"toolrelay", _TOGETHER})
    with tempfile.TemporaryDirectory(prefix="toolrelay-bench-") as directory:
        place = choose_setup(Path(directory))
        bench = CodexBench(place, binary)
        measures: dict[str, Callable[[report.Report, int], None]] = {
            "latency": bench.latency,
            "memory": bench.memory,
            "recovery": bench.recovery,
        }
        with upstream(place):
            for name in arguments.only.split(","):
                try:
                    measures[name](findings, arguments.turns)
                except (WrongAnswerError, OSError) as error:
                    findings.failures.append(f"{name}: {error}")
    lines = list(findings.lines(METRICS))
    facts = report.machine([], time.monotonic() - began, load)
    facts |= {"command": " ".join(["bench/codex.py", *sys.argv[1:]]), "Codex": binary}
    report.save(_stem(arguments), findings, lines, facts)
    return show(findings, lines, facts)


def _stem(arguments: argparse.Namespace) -> str:
    """Return the name of the result files. Full and soak runs are kept in git, others are not."""
    if len(sys.argv) == 1:
        return "codex"
    return "codex-soak" if arguments.only == "memory" and arguments.turns >= 2000 else "codex.local"


if __name__ == "__main__":
    sys.exit(main())
