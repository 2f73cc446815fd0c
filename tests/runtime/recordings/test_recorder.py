"""Exchanges that a running gateway records, and their replay (E10, R1.10)."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.codex.app_server import binary_path
from tests.backends.codex.upstream import Call, calls
from tests.gateway import running
from tests.model_server import ModelServer, call, configuration, delta, end, error
from tests.upstream import LAST_CHUNK, Player, ReceivedRequest, Script, Upstream, chunk, stream_head
from toolrelay.cli.replay.player import play_file
from toolrelay.errors import ConfigurationError
from toolrelay.runtime.recordings.recorder import Recorder

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}
TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOLS: dict[str, list[Any]] = {
    "chat": [{"type": "function", "function": TOOL}],
    "responses": [{"type": "function", "strict": False, **TOOL}],
}
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Innsbruck"}}\n</tool_call>'
BLOCK = "<use_tool>\n<name>get_weather</name>\n<city>Innsbruck</city>\n</use_tool>"
SECRETS = re.compile("Innsbruck|Grandmother|Certainly")


def body(wire: str, *, stream: bool = True, **members: Any) -> dict[str, Any]:
    items = [{"role": "user", "content": "How is Grandmother?"}]
    asked: dict[str, Any] = {"model": "fast", "tools": TOOLS[wire], "stream": stream, **members}
    return asked | ({"messages": items} if wire == "chat" else {"input": items, "store": False})


def says(*pieces: str) -> bytes:
    return stream_head() + b"".join(chunk(delta(piece)) for piece in pieces) + chunk(end()) + LAST_CHUNK


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def record(config: str, folder: Path, *flags: str, environ: dict[str, str] | None = None) -> Any:
    return running(config, flags=("--record", str(folder), *flags), environ=environ)


def replay(path: Path, **flags: Any) -> str:
    out: list[str] = []
    play_file(path, out=out.append, log=lambda _: None, **flags)
    return "".join(out)


def normalized(text: str) -> str:
    text = re.sub(r"(call|chatcmpl|resp|msg|fc|rs)[_-][0-9A-Za-z]{16,}", r"\1_ID", text)
    return re.sub(r'"(created|created_at|completed_at)":\d+', r'"\1":0', text)


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_replay_of_a_recording_with_text_prints_what_the_client_got(
    server: ModelServer, tmp_path: Path, wire: str, *, stream: bool
) -> None:
    server.enqueue(says("Certainly.\n", HERMES[:20], HERMES[20:], "\nIt is sunny."))
    folder = tmp_path / "recordings"
    with record(configuration(server, model='tool_calling = "hermes"'), folder, "--record-text") as gateway:
        got = gateway.post(PATHS[wire], body(wire, stream=stream)).text
        assert gateway.stop() == 0
    [file] = folder.iterdir()
    assert "get_weather" in got
    assert normalized(replay(file)).strip() == normalized(got).strip()


@pytest.mark.parametrize(
    ("settings", "printed", "kind"),
    [
        ('tool_calling = "hermes"', ("Certainly. ", HERMES), "calls"),
        ('printed_calls = "catch"', ("Certainly. ", BLOCK), "calls"),
        ('client_style = "use_tool"', ("Certainly. ", BLOCK), "blocks"),
    ],
)
def test_masked_recording_has_no_content_and_can_be_replayed(
    server: ModelServer, tmp_path: Path, settings: str, printed: tuple[str, ...], kind: str
) -> None:
    server.enqueue(says(*printed))
    with record(configuration(server, model=settings), tmp_path / "recordings") as gateway:
        gateway.post(PATHS["chat"], body("chat"), authorization="Bearer client-secret-key")
        gateway.stop()
        assert "recording_started" in gateway.log()
    [file] = (tmp_path / "recordings").iterdir()
    text = file.read_text()
    assert not SECRETS.search(text)
    assert "client-secret-key" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    shown = replay(file)
    if kind == "calls":
        assert '"name":"get_weather"' in shown
        assert '"finish_reason":"tool_calls"' in shown
    else:
        assert "<use_tool>\\n<name>get_weather</name>\\n<city>Xxxxxxxxx</city>\\n</use_tool>" in shown


def test_every_answer_of_a_retried_turn_is_recorded(server: ModelServer, tmp_path: Path) -> None:
    broken = '<tool_call>\n{"name": "get_weather", "arguments": nonsense}\n</tool_call>'
    server.enqueue(says(broken), says(HERMES))
    with record(configuration(server, model='tool_calling = "hermes"'), tmp_path / "r", "--record-text") as gateway:
        got = gateway.post(PATHS["chat"], body("chat")).text
        gateway.stop()
    [file] = (tmp_path / "r").iterdir()
    assert len(json.loads(file.read_text())["answer"]) == 2
    assert normalized(replay(file)).strip() == normalized(got).strip()


def sealed_call(received: ReceivedRequest) -> Script:
    tag = re.search(rb"<tool_call:([0-9a-f]{12})>", received.body)
    assert tag is not None
    return (says(HERMES.replace("tool_call>", f"tool_call:{tag[1].decode()}>")),)


@pytest.mark.parametrize("flags", [(), ("--record-text",)])
def test_sealed_call_is_recorded_without_its_tag_and_replayed(tmp_path: Path, flags: tuple[str, ...]) -> None:
    player: Player = sealed_call
    with Upstream(player) as upstream:
        with record(configuration(upstream, model='tool_calling = "sealed"'), tmp_path / "r", *flags) as gateway:
            assert "tool_calls" in gateway.post(PATHS["chat"], body("chat")).text
            gateway.stop()
        [file] = (tmp_path / "r").iterdir()
    assert re.search(r"tool_call:[0-9a-f]{12}", file.read_text()) is None
    assert '"finish_reason":"tool_calls"' in replay(file)


def test_failed_answer_is_recorded_and_replayed_as_an_error(server: ModelServer, tmp_path: Path) -> None:
    server.enqueue(error(400, "Grandmother is not a word."))
    with record(configuration(server), tmp_path / "r") as gateway:
        assert gateway.post(PATHS["chat"], body("chat")).status_code == 400
        gateway.stop()
    [file] = (tmp_path / "r").iterdir()
    assert not SECRETS.search(file.read_text())
    assert "error" in replay(file)


def test_native_calls_of_codex_are_recorded(tmp_path: Path) -> None:
    with Upstream(calls(Call("get_weather", {"city": "Innsbruck"}), before="Certainly.")) as upstream:
        config = f'[models.fast]\nprovider = "codex"\nmodel = "scripted"\nbase_url = "{upstream.url}/v1"\napi_key = "key"\n'
        with record(config, tmp_path / "r", environ={"TOOLRELAY_CODEX": binary_path()}) as gateway:
            assert "tool_calls" in gateway.post(PATHS["chat"], body("chat")).text
            gateway.stop()
    [file] = (tmp_path / "r").iterdir()
    assert not SECRETS.search(file.read_text())
    assert '"name":"get_weather"' in replay(file)


def test_concurrent_requests_have_files_of_their_own(server: ModelServer, tmp_path: Path) -> None:
    server.enqueue(*[says("Hello")] * 3)
    with record(configuration(server), tmp_path / "r") as gateway:
        for _ in range(3):
            assert gateway.post(PATHS["chat"], body("chat")).status_code == 200
        gateway.stop()
    assert len(list((tmp_path / "r").iterdir())) == 3


def test_nothing_is_recorded_without_the_flag(server: ModelServer, tmp_path: Path) -> None:
    server.enqueue(says("Hello"))
    with running(configuration(server), folder=tmp_path) as gateway:
        assert gateway.post(PATHS["chat"], body("chat")).status_code == 200
        gateway.stop()
    assert not [path for path in tmp_path.rglob("*.json") if "Z-" in path.name]


# Limits


def write_through(recorder: Recorder, names: list[str], data: bytes = b"{}") -> None:
    for name in names:
        recorder._write(name, data)
    recorder.close()


def test_oldest_recordings_are_deleted_and_other_files_are_not(tmp_path: Path) -> None:
    names = [f"20260101T00000{number}.000Z-turn{number}.json" for number in range(5)]
    (tmp_path / "notes.json").write_text("mine")
    (tmp_path / names[0]).write_text("{}")
    write_through(Recorder(tmp_path, max_files=3), names[1:])
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names[2:], "notes.json"]


def test_folder_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="--record"):
        Recorder(tmp_path / "file" / "below")


def test_exchange_beyond_the_limit_is_skipped_with_a_warning(server: ModelServer, tmp_path: Path) -> None:
    server.enqueue(says(*["x" * 65536] * 80))
    with record(configuration(server), tmp_path / "r", "--record-text") as gateway:
        assert gateway.post(PATHS["chat"], body("chat")).status_code == 200
        gateway.stop()
        assert "recording_skipped" in gateway.log()
    assert list((tmp_path / "r").iterdir()) == []


def test_native_call_is_recorded_with_its_arguments(server: ModelServer, tmp_path: Path) -> None:
    made = call("get_weather", '{"city": "Innsbruck"}')
    server.enqueue(stream_head() + chunk(made) + chunk(end("tool_calls")) + LAST_CHUNK)
    with record(configuration(server), tmp_path / "r", "--record-text") as gateway:
        got = gateway.post(PATHS["chat"], body("chat")).text
        gateway.stop()
    [file] = (tmp_path / "r").iterdir()
    assert normalized(replay(file)).strip() == normalized(got).strip()
