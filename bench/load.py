"""Load generator: `python -m bench.load JSON` runs one load against a gateway and prints the result as JSON.

Lines before the last one are `{"event": …}`: the load is established. Close standard input to continue.
"""

import gc
import http.client
import json
import random
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from bench.client import Api, Client, Loop, Plan, Tally, request
from bench.script import Script, now_us

_MAX_ERRORS = 200
_BATCH = 20
_NOTICE_TIMEOUT_S = 3.0
"""A disconnect that the upstream has not noticed by then is missing, and counts as this long in the percentiles."""

Kind = Literal["whole", "stream", "hold", "stall", "disconnect"]
Moment = Literal["streaming", "before the first token", "not streaming"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Options of a load. Its kinds:

    whole, stream   keep connections busy with answers of that sort
    hold            open streams and wait
    stall           open a stream and read nothing
    disconnect      open streams and close them
    """

    kind: Kind
    port: int
    upstream_port: int
    api: Api = "chat"
    model: str = "fake-model"
    connections: int = 64
    seconds: float = 3
    ramp_s: float = 0
    chunks: int = 200
    every_ms: int = 0
    sampled: bool = False
    timeout_s: float = 90
    moment: Moment = "streaming"
    disconnects: int = 200
    store: bool = False
    tools: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """`units` are requests or chunks; latencies in µs; `missing` are disconnects that the upstream did not notice."""

    units: int
    wall_s: float
    errors: int = 0
    bad: int = 0
    unfinished: int = 0
    missing: int = 0
    samples: int = 0
    p50_us: float = 0
    p99_us: float = 0
    first_p50_us: float = 0
    first_p99_us: float = 0
    cpu_s: float = 0


def percentile(ordered: list[int], share: float) -> float:
    return float(ordered[min(len(ordered) - 1, int(len(ordered) * share))]) if ordered else 0.0


def _result(tally: Tally, units: int, began: float, unfinished: int = 0, missing: int = 0) -> LoadResult:
    latencies, first = sorted(tally.latencies) + [int(_NOTICE_TIMEOUT_S * 1e6)] * missing, sorted(tally.first)
    return LoadResult(
        units=units,
        wall_s=time.monotonic() - began,
        errors=tally.errors,
        bad=tally.bad,
        unfinished=unfinished,
        missing=missing,
        samples=len(latencies),
        p50_us=percentile(latencies, 0.5),
        p99_us=percentile(latencies, 0.99),
        first_p50_us=percentile(first, 0.5),
        first_p99_us=percentile(first, 0.99),
        cpu_s=time.process_time(),
    )


def _plan(options: LoadOptions, script: Script | None, expected: int) -> Plan:
    sent = request(
        api=options.api,
        model=options.model,
        port=options.port,
        stream=options.kind != "whole",
        script=script,
        store=options.store,
        tools=options.tools,
    )
    return Plan(port=options.port, request=sent, api=options.api, expected=expected, sampled=options.sampled)


class _ClientPool:
    """Clients that start over `ramp_s` and repeat their request until the time is up."""

    def __init__(self, options: LoadOptions, plans: list[Plan], *, repeat: bool = True) -> None:
        self.loop = Loop()
        self.tally = Tally()
        self.began = time.monotonic()
        self.active = len(plans)
        self.clients = [Client(self.loop, plan, self.tally, self._finished) for plan in plans]
        self._options = options
        self._until = self.began + options.seconds if repeat else 0
        self._started = 0

    def _finished(self, client: Client) -> None:
        if time.monotonic() < self._until and self.tally.errors < _MAX_ERRORS:
            client.start()
        else:
            client.close()
            self.active -= 1

    def poll(self) -> None:
        waiting = self._started < len(self.clients)
        if waiting:
            passed = (time.monotonic() - self.began) / self._options.ramp_s if self._options.ramp_s else 1.0
            due = min(len(self.clients), int(passed * len(self.clients)) + 1)
            for client in self.clients[self._started : due]:
                client.start()
            self._started = due
        self.loop.poll(0.001 if waiting else 0.05)

    @property
    def in_time(self) -> bool:
        return time.monotonic() - self.began < self._options.timeout_s

    @property
    def all_started(self) -> bool:
        return self._started == len(self.clients) and all(client.count > 0 for client in self.clients)


def _busy(options: LoadOptions) -> LoadResult:
    if options.kind == "whole":
        pool = _ClientPool(options, [_plan(options, None, expected=0)] * options.connections)
    else:
        script = Script(chunks=options.chunks, every_ms=options.every_ms)
        pool = _ClientPool(options, [_plan(options, script, expected=options.chunks)] * options.connections)
    while pool.active and pool.in_time:
        pool.poll()
    units = pool.tally.done if options.kind == "whole" else pool.tally.chunks
    return _result(pool.tally, units, pool.began, unfinished=pool.active)


def _announce(event: str) -> None:
    print(json.dumps({"event": event}), flush=True)


def _hold(options: LoadOptions) -> LoadResult:
    script = Script(act="endless", every_ms=options.every_ms)
    pool = _ClientPool(options, [_plan(options, script, expected=-1)] * options.connections, repeat=False)
    while pool.active and pool.in_time and not pool.all_started:
        pool.poll()
    unfinished = sum(client.count == 0 for client in pool.clients)
    _announce("held")
    sys.stdin.read()
    return _result(pool.tally, len(pool.clients) - unfinished, pool.began, unfinished=unfinished)


# --- clients that do not read, and clients that disconnect


def _upstream_state(options: LoadOptions) -> tuple[set[int], dict[int, int]]:
    """Return the ids of open streams at the upstream, and when others were closed."""
    connection = http.client.HTTPConnection("127.0.0.1", options.upstream_port, timeout=5)
    connection.request("GET", "/bench/state")
    state = json.load(connection.getresponse())
    connection.close()
    return set(state["open"]), {int(ident): moment for ident, moment in state["cut"].items()}


def _wait_until_cut(options: LoadOptions, ids: set[int]) -> dict[int, int]:
    until = time.monotonic() + _NOTICE_TIMEOUT_S
    while not ids <= (cut := _upstream_state(options)[1]).keys() and time.monotonic() < until:
        time.sleep(0.02)
    return cut


def _stall(options: LoadOptions) -> LoadResult:
    began = time.monotonic()
    script = Script(act="endless", id=now_us())
    with socket.create_connection(("127.0.0.1", options.port)) as client:
        client.sendall(_plan(options, script, expected=-1).request)
        while script.id not in _upstream_state(options)[0] and time.monotonic() - began < options.timeout_s:
            time.sleep(0.02)
        _announce("stalled")
        sys.stdin.read()
    left = now_us()
    cut = _wait_until_cut(options, {script.id})
    tally = Tally()
    if script.id in cut:
        tally.latencies.append(cut[script.id] - left)
    return _result(tally, 1, began, missing=1 - len(tally.latencies))


def _disconnect(options: LoadOptions) -> LoadResult:
    """Disconnect batches of clients one by one, in random order, once the upstream works for all of them."""
    began = time.monotonic()
    whole = Tally()
    unfinished = missing = 0
    for _ in range(options.disconnects // _BATCH):
        ids = [now_us() + n for n in range(_BATCH)]
        pool = _ClientPool(options, [_disconnect_plan(options, ident) for ident in ids], repeat=False)
        unfinished += _BATCH - _wait_until_working(options, set(ids), pool)
        left = {}
        for ident, client in random.sample(list(zip(ids, pool.clients, strict=True)), _BATCH):
            left[ident] = now_us()
            client.close()
            time.sleep(0.003)
        cut = _wait_until_cut(options, set(ids))
        whole.latencies.extend(cut[ident] - left[ident] for ident in ids if ident in cut)
        whole.errors += pool.tally.errors
        missing += len(set(ids) - cut.keys())
        if pool.tally.errors or unfinished:
            break
    return _result(whole, len(whole.latencies), began, unfinished=unfinished, missing=missing)


def _wait_until_working(options: LoadOptions, ids: set[int], pool: _ClientPool) -> int:
    """Return how many of the requests the upstream works on. While streaming, each client has a chunk by then."""
    while pool.active and pool.in_time:
        pool.poll()
        if pool.all_started or (options.moment != "streaming" and ids <= _upstream_state(options)[0]):
            break
    return len(ids & _upstream_state(options)[0])


def _disconnect_plan(options: LoadOptions, ident: int) -> Plan:
    streaming = options.moment == "streaming"
    script = Script(act="endless" if streaming else "silent", id=ident, every_ms=options.every_ms if streaming else 0)
    sent = request(
        api=options.api, model=options.model, port=options.port, stream=options.moment != "not streaming", script=script
    )
    return Plan(port=options.port, request=sent, api=options.api, expected=-1)


_KINDS: dict[Kind, Callable[[LoadOptions], LoadResult]] = {
    "whole": _busy,
    "stream": _busy,
    "hold": _hold,
    "stall": _stall,
    "disconnect": _disconnect,
}


def main() -> None:
    gc.disable()
    options = LoadOptions(**json.loads(sys.argv[1]))
    print(json.dumps(asdict(_KINDS[options.kind](options))))


if __name__ == "__main__":
    main()
