"""A model that makes calls in rounds: its answer depends on how many of them the conversation has already."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tests.model_server import delta, end, frame
from tests.upstream import LAST_CHUNK, Gate, Player, ReceivedRequest, Script, chunk, stream_head


class Round(Struct, frozen=True):
    """One answer: pieces of text, then calls (name and arguments). `gate` is waited for before the end."""

    text: tuple[str, ...] = ()
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    gate: Gate | None = None


def play(*rounds: Round) -> Player:
    """Return a script for tests.upstream. The last round is the answer to all further requests."""

    def respond(received: ReceivedRequest) -> Script:
        messages = json.loads(received.body)["messages"]
        past = sum(bool(message.get("tool_calls")) for message in messages)
        answer = rounds[min(past, len(rounds) - 1)]
        head = [stream_head(), *[chunk(delta(piece)) for piece in answer.text]]
        last = _calls(answer) + end("tool_calls" if answer.calls else "stop")
        return [*head, *([answer.gate] if answer.gate else []), chunk(last) + LAST_CHUNK]

    return respond


def _calls(answer: Round) -> bytes:
    calls = [
        {"index": index, "id": f"up_{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for index, (name, arguments) in enumerate(answer.calls)
    ]
    return frame({"tool_calls": calls}) if calls else b""


def results(body: bytes) -> list[str]:
    """Return the results of calls in a request to the model."""
    return [str(message["content"]) for message in json.loads(body)["messages"] if message["role"] == "tool"]


def play_by_text(plays: Mapping[str, Player]) -> Player:
    """Return a script that depends on the first message of the user."""

    def respond(received: ReceivedRequest) -> Script:
        messages = json.loads(received.body)["messages"]
        return plays[next(message["content"] for message in messages if message["role"] == "user")](received)

    return respond
