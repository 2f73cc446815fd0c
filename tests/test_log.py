"""The log as a process writes it: a reader of standard error that stalls or leaves must not stop the gateway."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from typing import IO, Any

import pytest

from tests.gateway import Gateway, running
from tests.raw_client import RawClient

PATH = "/v1/chat/completions"
PIPE_BYTES = 4096  # one page, the smallest that Linux gives
REQUESTS = 300  # a line has some 150 bytes: many times what the pipe holds

SMALL_BUFFER = """
from toolrelay import log
from toolrelay.app import App, serve_app
log.configure(settings.log, settings.log_level, buffer_bytes=4096)
sys.exit(serve_app(App(settings), settings.server))
"""


@pytest.fixture
def pipe() -> Iterator[tuple[IO[str], int]]:
    """A small pipe: its reading end, and the descriptor of its writing end."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with os.fdopen(reading) as reader:
        yield reader, writing
        os.close(writing)


def refused(gateway: Gateway, count: int) -> None:
    """Send that many requests, each of which logs one line."""
    with RawClient(gateway.port) as client:
        for _ in range(count):
            assert client.post(PATH, {}).reply().status == 400


def parsed(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_stderr_that_nobody_reads_stops_no_request(pipe: tuple[IO[str], int]) -> None:
    with running(stderr=pipe[1]) as gateway:
        refused(gateway, REQUESTS)


def test_stderr_that_nobody_reads_does_not_keep_the_process_from_exiting(pipe: tuple[IO[str], int]) -> None:
    reader, writing = pipe
    with running(stderr=writing) as gateway:
        refused(gateway, REQUESTS)
        assert gateway.stop() == 0
        os.set_blocking(reader.fileno(), False)
        lines = parsed(reader.read())
    assert {line["event"] for line in lines} == {"refused"}, "what the pipe took are whole lines"


def test_lines_that_do_not_fit_the_buffer_are_counted(pipe: tuple[IO[str], int]) -> None:
    reader, writing = pipe
    with running(program=SMALL_BUFFER, stderr=writing) as gateway:
        refused(gateway, REQUESTS)
        written = dropped = 0
        while written + dropped < REQUESTS:
            line = json.loads(reader.readline())
            dropped += line.get("count", 0)
            written += line["event"] == "refused"
        assert (line["event"], line["level"]) == ("log_dropped", "warning")
        assert written + dropped == REQUESTS
        refused(gateway, 1)
        assert json.loads(reader.readline())["event"] == "refused", "the log goes on"


def test_all_lines_are_written_in_order_before_the_process_exits() -> None:
    with running() as gateway:
        with RawClient(gateway.port) as client:
            ids = [client.post(PATH, {}).reply().headers["x-request-id"] for _ in range(REQUESTS)]
        assert gateway.stop() == 0
        lines = parsed(gateway.log())
    assert [f"req_{line['turn']}" for line in lines] == ids


def test_a_reader_that_leaves_stops_no_request(pipe: tuple[IO[str], int]) -> None:
    reader, writing = pipe
    with running(stderr=writing) as gateway:
        refused(gateway, REQUESTS)
        reader.close()
        refused(gateway, REQUESTS)
        assert gateway.stop() == 0
