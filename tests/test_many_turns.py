"""Many turns with tools at once: all complete, and the database is never locked."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.durable import Workshop
from tests.gateway import Gateway
from tests.model_server import frames
from tests.tool_rounds import Round, play
from tests.upstream import Upstream

MODEL = play(
    Round(text=("One",), calls=(("once", {"number": 1}), ("again", {"number": 2}))),
    Round(calls=(("once", {"number": 3}),)),
    Round(text=("All ", "done.")),
)
CHAT = "/v1/chat/completions", {"model": "fast", "messages": [{"role": "user", "content": "Go"}]}
RESPONSES = "/v1/responses", {"model": "fast", "input": "Go"}
BACKGROUND = "/v1/responses", {"model": "fast", "input": "Go", "background": True}
REQUESTS: list[tuple[str, dict[str, Any]]] = [CHAT, RESPONSES, BACKGROUND]


async def run_turns(gateway: Gateway, count: int) -> list[str]:
    """Return the last event of each stream."""
    limits = httpx.Limits(max_connections=None)

    async with httpx.AsyncClient(base_url=gateway.url, limits=limits, timeout=110) as client:

        async def run_turn(number: int) -> str:
            path, body = REQUESTS[number % len(REQUESTS)]
            response = await client.post(path, json={**body, "stream": True})
            assert response.status_code == 200, response.text
            last = frames(response.content)[-1]
            return str(last["type"] if "type" in last else last["object"])

        return await asyncio.gather(*map(run_turn, range(count)))


def test_turns_with_tools_at_once_all_complete(tmp_path: Path, turn_count: int) -> None:
    with Upstream(MODEL) as upstream:
        workshop = Workshop(tmp_path, upstream)
        with workshop.start() as gateway:
            ends = asyncio.run(run_turns(gateway, turn_count))
            assert {*ends} == {"chat.completion.chunk", "response.completed"}
            assert gateway.stop() == 0
            assert "locked" not in gateway.log()
            assert '"level":"error"' not in gateway.log()
        assert Counter(workshop.statuses()) == {"finished": turn_count}
        assert Counter(workshop.lines()) == dict.fromkeys(["once 1", "again 2", "once 3"], turn_count)


@pytest.fixture
def turn_count(request: pytest.FixtureRequest) -> int:
    count: int = request.config.getoption("--turns")
    return count
