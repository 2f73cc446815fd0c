"""Start and shutdown of the gateway process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.gateway import Gateway, running
from tests.model_server import BEGUN, CLIENT_APIS, REST, WIRES, ClientApi, ModelServer, configuration, failure, frames, whole
from tests.raw_client import RawClient, encode_request
from tests.upstream import Gate
from toolrelay.app import _listen
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import open_store
from toolrelay.stores.turns import TurnRow

SIGNALS = [signal.SIGTERM, signal.SIGINT]
HASH = "4f8e0b7c3a1d5e2f6b9c8d7a0e1f2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c"


@pytest.fixture(params=WIRES)
def api(request: pytest.FixtureRequest) -> ClientApi:
    return CLIENT_APIS[request.param]


def wait_until_refusing(gateway: Gateway) -> None:
    """Wait until new connections are refused."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", gateway.port), timeout=30).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            continue  # it was still in the backlog


def serve(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a server that is expected to fail at the start."""
    return subprocess.run(
        [sys.executable, "-m", "toolrelay", "serve", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


# Start


@pytest.mark.parametrize("damage", ["damaged", "a directory", "from a newer version"])
def test_store_that_cannot_be_opened_is_one_line_and_exit_code_1(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "data" / "toolrelay.db"
    if damage == "a directory":
        file.parent.mkdir(mode=0o700)
        file.mkdir()
    else:
        asyncio.run(_create_store(file))
    if damage == "damaged":
        file.write_bytes(b"\0" * 4096)
    elif damage == "from a newer version":
        with contextlib.closing(sqlite3.connect(file)) as database, database:
            database.execute("INSERT INTO schema_version (version) VALUES (9999)")
    done = serve("--port", "0", "--data-dir", str(file.parent), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"toolrelay: {file} ")


async def _create_store(file: Path) -> None:
    store = open_store(StoreSettings(), file.parent)
    await store.open()
    await store.close()


def test_old_turns_are_pruned_while_the_gateway_runs(tmp_path: Path) -> None:
    async def add_old_turn() -> None:
        store = open_store(StoreSettings(), tmp_path)
        await store.open()
        await store.create_turn(TurnRow(id="old", owner="local", model="m", wire="w", created_at=1.0, status="finished"), [])
        await store.close()

    def turns() -> int:
        with contextlib.closing(sqlite3.connect(tmp_path / "toolrelay.db")) as database:
            return int(database.execute("SELECT count(*) FROM turns").fetchone()[0])

    asyncio.run(add_old_turn())
    assert turns() == 1
    with running(flags=("--data-dir", str(tmp_path))) as gateway:
        until = time.monotonic() + 30
        while turns() and time.monotonic() < until:
            pass
        assert turns() == 0
        assert gateway.stop() == 0


def test_ready_line_is_the_only_output() -> None:
    with running() as gateway:
        assert gateway.url == f"http://127.0.0.1:{gateway.port}"
        assert gateway.get("/readyz").status_code == 200
        assert gateway.stop() == 0
        assert gateway.process.stdout is not None
        assert gateway.process.stdout.read() == "", "nothing else is on standard output"
        assert gateway.log() == "", "nothing is logged"


def test_ipv6_address_is_shown_in_brackets() -> None:
    with running(flags=("--host", "::1")) as gateway:
        assert gateway.url.startswith("http://[::1]:")
        assert gateway.get("/healthz").status_code == 200


def test_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = serve("--port", str(port), cwd=tmp_path)
    assert process.returncode == 1
    assert process.stdout == ""
    assert process.stderr.startswith(f"toolrelay: cannot listen on 127.0.0.1:{port}: Address already in use.")
    assert "Traceback" not in process.stderr


def test_second_listener_on_a_port_fails() -> None:
    with _listen("127.0.0.1", 0) as first, pytest.raises(OSError, match="in use"):
        _listen("127.0.0.1", first.getsockname()[1])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_without_keys_only_loopback_can_be_bound(tmp_path: Path, host: str) -> None:
    process = serve("--host", host, "--port", "0", cwd=tmp_path)
    assert process.returncode == 2
    assert process.stdout == ""
    assert "loopback" in process.stderr
    assert "[[keys]]" in process.stderr
    assert "Traceback" not in process.stderr


def test_with_keys_any_address_can_be_bound() -> None:
    with running(f'[[keys]]\nname = "me"\nsha256 = "{HASH}"\n', flags=("--host", "0.0.0.0")) as gateway:
        with RawClient(gateway.port) as client:
            assert client.get("/v1/models").reply().status == 401
        assert gateway.stop() == 0


def test_address_of_another_machine_is_named(tmp_path: Path) -> None:
    (tmp_path / "toolrelay.toml").write_text(f'[[keys]]\nname = "me"\nsha256 = "{HASH}"\n')
    process = serve("--host", "192.0.2.1", "--port", "0", cwd=tmp_path)
    assert process.returncode == 1
    assert process.stderr.startswith("toolrelay: cannot listen on 192.0.2.1:0: ")
    assert "Traceback" not in process.stderr


def test_file_limit_is_raised() -> None:
    """A turn takes two files, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with running() as gateway:
            assert psutil.Process(gateway.process.pid).rlimit(psutil.RLIMIT_NOFILE)[0] == min(hard, 65536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Shutdown


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_stops_the_gateway_with_exit_code_0(number: signal.Signals) -> None:
    with running() as gateway, RawClient(gateway.port) as idle:
        assert idle.get("/healthz").reply().status == 200
        gateway.process.send_signal(number)
        assert gateway.process.wait(30) == 0
        assert idle.read_rest() == b""
        assert gateway.log() == ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("number", SIGNALS)
def test_running_turn_is_finished_before_the_exit(api: ClientApi, number: signal.Signals, *, stream: bool) -> None:
    gate = Gate()
    script = (BEGUN, gate, REST) if stream else (gate, whole())
    with ModelServer(script) as model_server, running(configuration(model_server)) as gateway, RawClient(gateway.port) as client:
        client.post(api.path, api.request_body(stream=stream))
        gate.reached.result(30)
        gateway.process.send_signal(number)
        wait_until_refusing(gateway)
        assert gateway.process.poll() is None
        gate.open()
        reply = client.reply()
        assert reply.status == 200
        assert frames(reply.body) if stream else api.text(reply.json()) == "Hello there"
        assert client.read_rest() == b""
        assert gateway.process.wait(30) == 0
        [line] = gateway.log().splitlines()
        assert json.loads(line)["status"] == 200


@pytest.mark.parametrize("second", SIGNALS)
def test_second_signal_cancels_turns_with_an_error(api: ClientApi, second: signal.Signals) -> None:
    gate = Gate()
    with ModelServer((BEGUN, gate), (gate,)) as model_server, running(configuration(model_server)) as gateway:
        with RawClient(gateway.port) as streaming, RawClient(gateway.port) as waiting:
            streaming.post(api.path, api.request_body(stream=True))
            model_server.request(0).result(30)
            waiting.post(api.path, api.request_body())
            model_server.request(1).result(30)
            gateway.process.send_signal(signal.SIGTERM)
            wait_until_refusing(gateway)
            gateway.process.send_signal(second)
            stream, refusal = streaming.reply(), waiting.reply()
            assert gateway.process.wait(30) == 0
        assert stream.status == 200
        assert failure(stream.body)["code"] == "shutting_down"
        assert refusal.status == 503
        assert refusal.json()["error"]["code"] == "shutting_down"
        lines = [json.loads(line) for line in gateway.log().splitlines()]
        assert [(line["event"], line["status"], line["code"]) for line in lines] == [("turn", 503, "shutting_down")] * 2


NO_DRAIN = "from toolrelay.app import App, serve_app\nsys.exit(serve_app(App(settings), settings.server, drain_seconds=0))"


def test_turn_that_outlasts_the_drain_ends_with_an_error(api: ClientApi) -> None:
    gate = Gate()
    with (
        ModelServer((BEGUN, gate), (gate,)) as model_server,
        running(configuration(model_server), program=NO_DRAIN) as gateway,
        RawClient(gateway.port) as streaming,
        RawClient(gateway.port) as waiting,
        RawClient(gateway.port) as incomplete,
    ):
        streaming.post(api.path, api.request_body(stream=True))
        model_server.request(0).result(30)
        waiting.post(api.path, api.request_body())
        model_server.request(1).result(30)
        incomplete.send(encode_request("POST", api.path, json.dumps(api.request_body()).encode())[:-1])
        gateway.process.send_signal(signal.SIGTERM)
        assert failure(streaming.reply().body)["code"] == "shutting_down"
        for client in (waiting, incomplete):
            reply = client.reply()
            assert reply.status == 503
            assert reply.json()["error"]["code"] == "shutting_down"
        assert model_server.closed(0).result(30)
        assert gateway.process.wait(30) == 0
        assert "Traceback" not in gateway.log()


def test_client_that_does_not_read_does_not_delay_the_exit(api: ClientApi) -> None:
    chunks = BEGUN[BEGUN.index(b"\r\n\r\n") + 4 :] * 1000
    with (
        ModelServer((BEGUN, *[chunks] * 1000)) as model_server,
        running(configuration(model_server), program=NO_DRAIN) as gateway,
        RawClient(gateway.port, window=4096) as client,
    ):
        client.post(api.path, api.request_body(stream=True)).frame()
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 0


def test_connections_without_a_request_do_not_delay_the_exit() -> None:
    with running() as gateway, RawClient(gateway.port), RawClient(gateway.port) as slow:
        slow.send(b"GET /v1/models HTT")
        assert gateway.get("/healthz").status_code == 200
        assert gateway.stop() == 0
