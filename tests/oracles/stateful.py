"""A gateway with two keys and a toolset in front of a scripted model server, for tests of stored state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from openai import OpenAI

from tests.gateway import Gateway, running
from tests.model_server import ModelServer, call, delta, end
from tests.upstream import Gate, Step, chunk, stream, stream_head
from toolrelay import tool

ALICE, BOB = "sk-alice", "sk-bob"
PLAIN, WITH_TOOLS = "plain", "with_tools"


@tool
def look_up(word: str) -> str:
    """Look up a word."""
    return f"{word} is a word"


def _key(name: str, key: str) -> str:
    return f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(key.encode()).hexdigest()}"\ntoolsets = ["*"]\n'


def configuration(upstream: ModelServer) -> str:
    """Return a configuration: model `plain` without gateway tools, `with_tools` with one."""
    model = f'provider = "compatible"\nbase_url = "{upstream.url}/v1"\nwire = "chat"\n'
    return f"""{_key("alice", ALICE)}{_key("bob", BOB)}
[toolsets.words]
kind = "python"
module = "{__name__}"
approval = "never"
[models.{PLAIN}]
{model}
[models.{WITH_TOOLS}]
{model}toolsets = ["words"]
"""


@contextmanager
def stateful(upstream: ModelServer) -> Iterator[Gateway]:
    with running(configuration(upstream)) as gateway:
        yield gateway


def client_of(gateway: Gateway, key: str = ALICE) -> OpenAI:
    return OpenAI(base_url=gateway.v1, api_key=key, max_retries=0, timeout=60)


# Answers of the model


def streamed(text: str) -> bytes:
    return stream(delta(text), end())


def streamed_call(name: str, **arguments: Any) -> bytes:
    return stream(call(name, json.dumps(arguments)), end("tool_calls"))


def slowly(*pieces: str | Gate) -> list[Step]:
    """Return a script that streams texts and waits at gates."""
    steps: list[Step] = [stream_head()]
    steps += [piece if isinstance(piece, Gate) else chunk(delta(piece)) for piece in pieces]
    return [*steps, chunk(end()) + b"0\r\n\r\n"]


def seen_by_model(upstream: ModelServer, request: int) -> list[tuple[str, str | list[str]]]:
    """Return the messages of a request to the model: role, and text or the names of calls."""
    return [(str(each["role"]), _content(each)) for each in upstream.request_body(request)["messages"]]


def _content(message: dict[str, Any]) -> str | list[str]:
    if message.get("tool_calls"):
        return [str(made["function"]["name"]) for made in message["tool_calls"]]
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
