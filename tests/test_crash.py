"""kill -9 at random moments of turns with ten tool calls: no call is lost, none runs twice, the stream has no gap."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.durable import TERMINAL, TIMEOUT_SECONDS, Workshop, read_events
from tests.gateway import Gateway
from tests.tool_rounds import Round, play, results
from tests.upstream import Upstream
from toolrelay.core.gateway_calls import OUTCOME_UNKNOWN

ONCE, AGAIN = "once", "again"
TEN_CALLS = (
    Round(calls=((ONCE, {"number": 0}),)),
    Round(text=("Let ", "me ", "see."), calls=((ONCE, {"number": 1}), (AGAIN, {"number": 2}), (ONCE, {"number": 3}))),
    Round(calls=((AGAIN, {"number": 4}), (AGAIN, {"number": 5}))),
    Round(text=("Nearly", " there."), calls=((ONCE, {"number": 6}), (ONCE, {"number": 7}), (AGAIN, {"number": 8}))),
    Round(calls=((ONCE, {"number": 9}),)),
    Round(text=("All ", "ten ", "calls ", "are ", "done.")),
)
NAMES = {call[1]["number"]: call[0] for each in TEN_CALLS for call in each.calls}
EVENTS_BETWEEN_KILLS = 60  # at most; an undisturbed turn has about 100
REQUEST = {"model": "fast", "input": "Ten calls, please.", "background": True, "stream": True}


def test_turns_with_ten_calls_survive_kill_9(tmp_path: Path, crash_seed: int, kills: int) -> None:
    chance = random.Random(crash_seed)
    with Upstream(play(*TEN_CALLS)) as upstream, ExitStack() as stack:
        workshop = Workshop(tmp_path, upstream)
        gateway = stack.enter_context(workshop.start())
        turn = TenCallTurn(workshop)
        for number in range(kills):
            turn.read(gateway, kill_at=chance.randint(1, EVENTS_BETWEEN_KILLS), delay=chance.random() * 0.01)
            gateway = stack.enter_context(workshop.start())
            if turn.has_ended or number == kills - 1:
                turn.read(gateway)
                turn.check(gateway, results(upstream.requests[-1].body))
                turn = TenCallTurn(workshop)


class TenCallTurn:
    """A background turn, and what its client has seen of it."""

    def __init__(self, workshop: Workshop) -> None:
        self.events: list[dict[str, Any]] = []
        self._workshop = workshop
        self._runs_before = len(workshop.lines())
        self._interrupted: Counter[int] = Counter()  # calls, by their numbers: how often

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] in TERMINAL

    @property
    def _id(self) -> str:
        return str(self.events[0]["response"]["id"])

    def read(self, gateway: Gateway, *, kill_at: int | None = None, delay: float = 0) -> None:
        """Read the stream from where it broke off. After `kill_at` events, or at its end, kill the gateway."""
        count = 0
        with self._open(gateway) as response:
            assert response.status_code == 200
            for event in read_events(response):
                self.events.append(event)
                count += 1
                if count == kill_at:
                    time.sleep(delay)  # a random moment, not a synchronisation
                    self._kill(gateway)
        if kill_at is not None and count < kill_at:
            self._kill(gateway)

    def _open(self, gateway: Gateway) -> AbstractContextManager[httpx.Response]:
        if not self.events:
            return httpx.stream("POST", f"{gateway.v1}/responses", json=REQUEST, timeout=TIMEOUT_SECONDS)
        url = f"{gateway.v1}/responses/{self._id}?stream=true&starting_after={self.events[-1]['sequence_number']}"
        return httpx.stream("GET", url, timeout=TIMEOUT_SECONDS)

    def _kill(self, gateway: Gateway) -> None:
        self._workshop.kill(gateway)
        self._interrupted.update(_interrupted_calls(self._workshop.steps(self._id.removeprefix("resp_"))))

    def check(self, gateway: Gateway, outputs: list[str]) -> None:
        """`outputs` are the results of the calls that the model was told last."""
        _check_stream(self.events)
        self._check_runs()
        last = self.events[-1]["response"]
        retrieved = gateway.get(f"/v1/responses/{self._id}").json()
        assert retrieved["status"] == last["status"]
        if last["status"] == "completed":
            assert retrieved == last
            assert outputs == [self._expected(number) for number in NAMES]
            assert [_shown_output(item) for item in last["output"] if item["type"] == "mcp_call"] == outputs
        else:  # it was killed in the middle of an answer
            assert self.events[-1]["type"] == "response.failed"
            assert last["output"][-1]["status"] == "incomplete"
            assert retrieved["error"] == last["error"]
            assert retrieved["output"] == last["output"][:-1]

    def _check_runs(self) -> None:
        for line, count in Counter(self._workshop.lines()[self._runs_before :]).items():
            name, number = line.split()
            assert count <= 1 + (self._interrupted[int(number)] if name == AGAIN else 0), line

    def _expected(self, number: int) -> str:
        is_unknown = NAMES[number] == ONCE and number in self._interrupted
        return OUTCOME_UNKNOWN if is_unknown else f"{NAMES[number]} {number} is done"


def _shown_output(item: dict[str, Any]) -> str:
    return str(item["output"] or item["error"]["content"][0]["text"])


def _interrupted_calls(steps: list[dict[str, Any]]) -> set[int]:
    """Return the numbers of the calls that were started and not finished."""
    started: dict[str, int] = {}
    for step in steps:
        if step["type"] == "ToolRunStarted":
            started[step["call_id"]] = json.loads(step["arguments"])["number"]
        elif step["type"] == "ToolRunFinished":
            del started[step["call_id"]]
    return set(started.values())


def _check_stream(events: list[dict[str, Any]]) -> None:
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events if event["type"] in TERMINAL] == [events[-1]["type"]]
    added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
    assert added == sorted(done) == list(range(len(added)))
    items = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    assert [items[index] for index in added] == events[-1]["response"]["output"]
    for index, item in items.items():
        deltas = [event["delta"] for event in events if event.get("output_index") == index and "delta" in event]
        shown = item["arguments"] if item["type"] == "mcp_call" else item["content"][0]["text"]
        assert "".join(deltas) == shown
