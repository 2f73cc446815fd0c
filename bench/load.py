"""The load generator: `python -m bench.load JSON` runs one order against a gateway and prints what it saw as JSON.

Lines before the last one are `{"event": …}`: the load stands, look at the gateway, then close standard input to go on.
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

from bench.client import Client, Door, Loop, Plan, Tally, request
from bench.script import Script, now_us

_GIVE_UP_AFTER_ERRORS = 200
_BATCH = 20
_NOTICE_S = 3.0
"""A disconnect that the upstream has not heard of by then is missing, and counts as this long in the percentiles."""

Kind = Literal["plain", "stream", "hold", "stall", "leave"]
Moment = Literal["streaming", "before the first token", "not streaming"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`plain` and `stream` keep connections busy, `hold` opens them and waits, `stall` reads nothing, `leave` hangs up."""

    kind: Kind
    port: int
    upstream_port: int
    door: Door = "chat"
    model: str = "fake-model"
    connections: int = 64
    seconds: float = 3
    ramp_s: float = 0
    chunks: int = 200
    every_ms: int = 0
    sampled: bool = False
    patience_s: float = 90
    moment: Moment = "streaming"
    leaves: int = 200

    def encode(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`units` are requests or chunks; latencies in µs; `missing` are disconnects that the upstream never heard of."""

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


def _outcome(tally: Tally, units: int, began: float, unfinished: int = 0, missing: int = 0) -> Outcome:
    latencies, first = sorted(tally.latencies) + [int(_NOTICE_S * 1e6)] * missing, sorted(tally.first)
    return Outcome(
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


def _plan(order: Order, script: Script | None, expected: int) -> Plan:
    sent = request(door=order.door, model=order.model, port=order.port, stream=order.kind != "plain", script=script)
    return Plan(port=order.port, request=sent, door=order.door, expected=expected, sampled=order.sampled)


class _Crowd:
    """Clients, started over `ramp_s`, each of which begins again until the time is up."""

    def __init__(self, order: Order, plans: list[Plan], *, again: bool = True) -> None:
        self.loop = Loop()
        self.tally = Tally()
        self.began = time.monotonic()
        self.active = len(plans)
        self.clients = [Client(self.loop, plan, self.tally, self._finished) for plan in plans]
        self._order = order
        self._until = self.began + order.seconds if again else 0
        self._started = 0

    def _finished(self, client: Client) -> None:
        if time.monotonic() < self._until and self.tally.errors < _GIVE_UP_AFTER_ERRORS:
            client.start()
        else:
            client.close()
            self.active -= 1

    def turn(self) -> None:
        waiting = self._started < len(self.clients)
        if waiting:
            passed = (time.monotonic() - self.began) / self._order.ramp_s if self._order.ramp_s else 1.0
            due = min(len(self.clients), int(passed * len(self.clients)) + 1)
            for client in self.clients[self._started : due]:
                client.start()
            self._started = due
        self.loop.poll(0.001 if waiting else 0.05)

    @property
    def patient(self) -> bool:
        return time.monotonic() - self.began < self._order.patience_s

    @property
    def all_begun(self) -> bool:
        return self._started == len(self.clients) and all(client.count > 0 for client in self.clients)


def _busy(order: Order) -> Outcome:
    if order.kind == "plain":
        crowd = _Crowd(order, [_plan(order, None, expected=0)] * order.connections)
    else:
        script = Script(chunks=order.chunks, every_ms=order.every_ms)
        crowd = _Crowd(order, [_plan(order, script, expected=order.chunks)] * order.connections)
    while crowd.active and crowd.patient:
        crowd.turn()
    units = crowd.tally.done if order.kind == "plain" else crowd.tally.chunks
    return _outcome(crowd.tally, units, crowd.began, unfinished=crowd.active)


def _announce(event: str) -> None:
    print(json.dumps({"event": event}), flush=True)


def _hold(order: Order) -> Outcome:
    script = Script(act="endless", every_ms=order.every_ms)
    crowd = _Crowd(order, [_plan(order, script, expected=-1)] * order.connections, again=False)
    while crowd.active and crowd.patient and not crowd.all_begun:
        crowd.turn()
    unfinished = sum(client.count == 0 for client in crowd.clients)
    _announce("held")
    sys.stdin.read()
    return _outcome(crowd.tally, len(crowd.clients) - unfinished, crowd.began, unfinished=unfinished)


# --- clients that do not read, and clients that leave


def _upstream_state(order: Order) -> tuple[set[int], dict[int, int]]:
    """The ids of the streams that are open there, and the moments at which others were cut."""
    connection = http.client.HTTPConnection("127.0.0.1", order.upstream_port, timeout=5)
    connection.request("GET", "/bench/state")
    state = json.load(connection.getresponse())
    connection.close()
    return set(state["open"]), {int(ident): moment for ident, moment in state["cut"].items()}


def _wait_until_cut(order: Order, ids: set[int]) -> dict[int, int]:
    until = time.monotonic() + _NOTICE_S
    while not ids <= (cut := _upstream_state(order)[1]).keys() and time.monotonic() < until:
        time.sleep(0.02)
    return cut


def _stall(order: Order) -> Outcome:
    began = time.monotonic()
    script = Script(act="endless", id=now_us())
    with socket.create_connection(("127.0.0.1", order.port)) as client:
        client.sendall(_plan(order, script, expected=-1).request)
        while script.id not in _upstream_state(order)[0] and time.monotonic() - began < order.patience_s:
            time.sleep(0.02)
        _announce("stalled")
        sys.stdin.read()
    left = now_us()
    cut = _wait_until_cut(order, {script.id})
    tally = Tally()
    if script.id in cut:
        tally.latencies.append(cut[script.id] - left)
    return _outcome(tally, 1, began, missing=1 - len(tally.latencies))


def _leave(order: Order) -> Outcome:
    """Batches of clients hang up one by one, in no order, once the upstream is at work for all of them."""
    began = time.monotonic()
    whole = Tally()
    unfinished = missing = 0
    for _ in range(order.leaves // _BATCH):
        ids = [now_us() + n for n in range(_BATCH)]
        crowd = _Crowd(order, [_leaver(order, ident) for ident in ids], again=False)
        unfinished += _BATCH - _wait_until_at_work(order, set(ids), crowd)
        left = {}
        for ident, client in random.sample(list(zip(ids, crowd.clients, strict=True)), _BATCH):
            left[ident] = now_us()
            client.close()
            time.sleep(0.003)
        cut = _wait_until_cut(order, set(ids))
        whole.latencies.extend(cut[ident] - left[ident] for ident in ids if ident in cut)
        whole.errors += crowd.tally.errors
        missing += len(set(ids) - cut.keys())
        if crowd.tally.errors or unfinished:
            break
    return _outcome(whole, len(whole.latencies), began, unfinished=unfinished, missing=missing)


def _wait_until_at_work(order: Order, ids: set[int], crowd: _Crowd) -> int:
    """How many of them the upstream holds; where chunks come, each client has one by then."""
    while crowd.active and crowd.patient:
        crowd.turn()
        if crowd.all_begun or (order.moment != "streaming" and ids <= _upstream_state(order)[0]):
            break
    return len(ids & _upstream_state(order)[0])


def _leaver(order: Order, ident: int) -> Plan:
    streaming = order.moment == "streaming"
    script = Script(act="endless" if streaming else "silent", id=ident, every_ms=order.every_ms if streaming else 0)
    sent = request(door=order.door, model=order.model, port=order.port, stream=order.moment != "not streaming", script=script)
    return Plan(port=order.port, request=sent, door=order.door, expected=-1)


_KINDS: dict[Kind, Callable[[Order], Outcome]] = {
    "plain": _busy,
    "stream": _busy,
    "hold": _hold,
    "stall": _stall,
    "leave": _leave,
}


def main() -> None:
    gc.disable()
    order = Order(**json.loads(sys.argv[1]))
    print(json.dumps(asdict(_KINDS[order.kind](order))))


if __name__ == "__main__":
    main()
