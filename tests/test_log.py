"""The log of the gateway process: a stalled or closed reader of standard error must not block it."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.gateway import Gateway, running
from tests.raw_client import RawClient

PATH = "/v1/chat/completions"
PIPE_BYTES = 4096  # one page, the minimum on Linux
REQUESTS = 300  # at 150 bytes per line, many times the size of the pipe

SMALL_BUFFER = """
from toolrelay import log
from toolrelay.app import App, serve_app
log.configure(settings.log, settings.log_level, buffer_bytes=4096)
sys.exit(serve_app(App(settings), settings.server))
"""


@pytest.fixture
def pipe() -> Iterator[tuple[IO[str], int]]:
    """A small pipe: its read end as a file, its write end as a descriptor."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with os.fdopen(reading) as reader:
        yield reader, writing
        os.close(writing)


def send_refused(gateway: Gateway, count: int) -> None:
    """Send that many requests, each of which logs one line."""
    with RawClient(gateway.port) as client:
        for _ in range(count):
            assert client.post(PATH, {}).reply().status == 400


def parsed(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_unread_stderr_does_not_block_requests(pipe: tuple[IO[str], int]) -> None:
    with running(stderr=pipe[1]) as gateway:
        send_refused(gateway, REQUESTS)


def test_unread_stderr_does_not_block_the_exit(pipe: tuple[IO[str], int]) -> None:
    reader, writing = pipe
    with running(stderr=writing) as gateway:
        send_refused(gateway, REQUESTS)
        assert gateway.stop() == 0
        os.set_blocking(reader.fileno(), False)
        lines = parsed(reader.read())
    assert {line["event"] for line in lines} == {"refused"}, "the pipe holds whole lines"


def test_lines_that_do_not_fit_the_buffer_are_counted(pipe: tuple[IO[str], int]) -> None:
    reader, writing = pipe
    with running(program=SMALL_BUFFER, stderr=writing) as gateway:
        send_refused(gateway, REQUESTS)
        written = dropped = 0
        while written + dropped < REQUESTS:
            line = json.loads(reader.readline())
            dropped += line.get("count", 0)
            written += line["event"] == "refused"
        assert (line["event"], line["level"]) == ("log_dropped", "warning")
        assert written + dropped == REQUESTS
        send_refused(gateway, 1)
        assert json.loads(reader.readline())["event"] == "refused", "logging continues"


def test_all_lines_are_written_in_order_before_the_process_exits() -> None:
    with running() as gateway:
        with RawClient(gateway.port) as client:
            ids = [client.post(PATH, {}).reply().headers["x-request-id"] for _ in range(REQUESTS)]
        assert gateway.stop() == 0
        lines = parsed(gateway.log())
    assert [f"req_{line['turn']}" for line in lines] == ids


def test_closed_stderr_does_not_block_requests(pipe: tuple[IO[str], int]) -> None:
    reader, writing = pipe
    with running(stderr=writing) as gateway:
        send_refused(gateway, REQUESTS)
        reader.close()
        send_refused(gateway, REQUESTS)
        assert gateway.stop() == 0


def test_every_event_and_metric_is_documented() -> None:
    root = Path(__file__).parent.parent
    sources = "".join(path.read_text() for path in (root / "src").rglob("*.py"))
    events = set(re.findall(r"\blog\.(?:debug|info|warning|error|exception)\(\s*\"(\w+)\"", sources))
    events.update(re.findall(r"\bNoticed?\(event=\"(\w+)\"", sources))
    metrics = re.findall(r"(Counter|Gauge|Histogram)MetricFamily\(\s*\"(\w+)\"", sources)
    names = events | {f"{name}_total" if kind == "Counter" else name for kind, name in metrics}
    assert len(events) > 20
    assert len(metrics) == 14
    page = (root / "docs" / "operation.md").read_text()
    assert [name for name in sorted(names) if f"| `{name}` " not in page] == []


RULES = (
    r"\brule=\"(\w+)\"",
    r"\brule = \"(\w+)\"",
    r"_notice\(\s*\"(\w+)\"",
    r"_cut\(\s*\"(\w+)\"",
    r"_refuse_call\([^()]*\"(\w+)\"\)",
    r"Call(?:Broken|Error)\((?:[^()]*?,\s*)?\"(\w+)\"",
)


def test_e8_every_rule_is_documented() -> None:
    root = Path(__file__).parent.parent
    sources = "".join(path.read_text() for path in (root / "src").rglob("*.py"))
    rules = {rule for pattern in RULES for rule in re.findall(pattern, sources)}
    limits = (root / "src/toolrelay/toolcalls/limits.py").read_text()
    rules.update(re.findall(r"(?:return|=|else) \"([a-z]+(?:_[a-z]+)+)\"", limits))
    assert rules >= {
        "unknown_tool",
        "end_of_calls",
        "patch_allowed",
        "constraint_refused",
        "text_after_calls",
        "tool_choice_none",
    }
    page = (root / "docs" / "operation.md").read_text()
    assert [rule for rule in sorted(rules) if f"`{rule}`" not in page] == []
