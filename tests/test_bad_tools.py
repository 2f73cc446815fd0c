"""Tools that misbehave: the model is told, the turn goes on, the process lives and what it prints is clean."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway import Gateway, running
from tests.model_server import configuration
from tests.tool_rounds import Round, play, play_by_text, results
from tests.upstream import Upstream

TOOLS = """
import os
import sys
import threading

from toolrelay import tool


@tool(timeout_seconds=0.2)
def hangs() -> str:
    threading.Event().wait()


@tool
def throws() -> str:
    raise ValueError("no such city")


@tool
def exits() -> str:
    sys.exit(3)


@tool
def huge() -> str:
    return "x" * 50_000_000


@tool
def opaque() -> object:
    return object()


@tool
def prints() -> str:
    print("hello from a tool")
    return "printed"


@tool
def forks() -> str:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return "parent" if child else "child"


@tool
def endless() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value
"""
RESULTS = {
    "hangs": "Error: the tool did not finish within 0.2 s. Its outcome is unknown.",
    "throws": "Error: ValueError: no such city",
    "exits": "Error: SystemExit: 3",
    "opaque": "Error: the tool returned a value of type object that is not JSON:",
    "prints": "printed",
    "forks": "parent",
    "endless": "Error: the tool returned a value of type list that is not JSON:",
    "huge": "xxxxx",
}
DONE = Round(text=("All ", "done."))


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(play_by_text({name: play(Round(calls=((name, {}),)), DONE) for name in RESULTS})) as started:
        yield started


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("bad_tools")
    (folder / "bad_tools.py").write_text(TOOLS)
    toolset = '[toolsets.bad]\nkind = "python"\nmodule = "bad_tools"\napproval = "never"\n'
    with running(configuration(upstream, before=toolset, model='toolsets = ["bad"]\n'), folder=folder) as started:
        yield started
        assert started.stop() == 0
        assert started.process.stdout is not None
        assert started.process.stdout.read() == ""


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_model_is_told_and_the_turn_goes_on(gateway: Gateway, upstream: Upstream, name: str, path: str) -> None:
    body = {"messages": [{"role": "user", "content": name}]} if "chat" in path else {"input": name}
    response = gateway.post(path, {"model": "fast", **body})
    assert response.status_code == 200, response.text
    assert "All done." in response.text
    (result,) = results(upstream.requests[-1].body)
    assert result.startswith(RESULTS[name])
    assert len(result) < 300_000
    assert gateway.get("/healthz").status_code == 200


def test_what_a_tool_prints_is_in_the_log(gateway: Gateway) -> None:
    gateway.post("/v1/chat/completions", {"model": "fast", "messages": [{"role": "user", "content": "prints"}]})
    assert '"event":"printed"' in gateway.log()
