"""A model server that a client reaches in two ways: as a model with native calls, and as one that prints them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tests.gateway import Gateway, running
from tests.model_server import ModelServer, call, delta, end, whole
from tests.upstream import stream

MODELS = {"native": "native", "text": "hermes"}
"""The models of the gateway, and how they call tools."""
THINKING = "thinking"
"""One more that prints its calls. Its family prints its thoughts, too."""


@contextmanager
def loop_gateway(server: ModelServer) -> Iterator[Gateway]:
    table = 'provider = "compatible"\nwire = "chat"\nbase_url = "{url}/v1"\ntool_calling = "{mode}"\n'
    tables = [f"[models.{name}]\n" + table.format(url=server.url, mode=mode) for name, mode in MODELS.items()]
    thinking = f'[models.{THINKING}]\nmodel = "qwen3-8b"\n' + table.format(url=server.url, mode="hermes")
    with running("".join([*tables, thinking])) as gateway:
        yield gateway


def answer_with_call(model: str, name: str, arguments: dict[str, Any], *, streamed: bool = True) -> bytes:
    """Return the server's answer that calls a tool. What prints its calls is always asked to stream."""
    text = msgspec.json.encode(arguments).decode()
    if model == "native":
        return stream(call(name, text) + end("tool_calls")) if streamed else whole("", ((name, text),))
    printed = msgspec.json.encode({"name": name, "arguments": arguments}).decode()
    return stream(delta(f"<tool_call>\n{printed}\n</tool_call>") + end())


def answer_with_text(model: str, *pieces: str, streamed: bool = True) -> bytes:
    if model == "native" and not streamed:
        return whole("".join(pieces))
    return stream(*map(delta, pieces), end())
