"""`toolrelay replay`: recorded exchanges, played through the gateway's own parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Run
from tests.clients.xml import copilot
from toolrelay.cli.replay.player import play_file
from toolrelay.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
REPLAYS = ROOT / "docs" / "replays"
SEVEN = REPLAYS / "seven-blocks.json"
ASK: dict[str, Any] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


def play(path: Path, **flags: Any) -> tuple[str, list[str]]:
    """Return the printed frames and log lines."""
    out: list[str] = []
    log: list[str] = []
    play_file(path, out=out.append, log=log.append, **flags)
    return "".join(out), [line.removeprefix("log: ").strip() for line in log]


def frames(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def contents(text: str) -> list[str]:
    deltas = [choice["delta"].get("content") for frame in frames(text) for choice in frame["choices"]]
    return [content for content in deltas if content]


def write(tmp_path: Path, *recordings: Any) -> Path:
    path = tmp_path / "recording"
    path.write_text("\n".join(json.dumps(each) for each in recordings))
    return path


@pytest.mark.parametrize("chunk", [0, 1, 20])
def test_use_tool_client_gets_each_of_seven_blocks_in_its_own_chunk(chunk: int) -> None:
    text, log = play(SEVEN, chunk=chunk)
    answer = json.loads(SEVEN.read_text())["answer"]
    deltas = contents(text)
    assert [len(copilot.calls(each)) for each in deltas[:8]] == [1] * 7 + [0]
    assert copilot.calls("".join(deltas)) == copilot.calls(answer)
    assert "".join(deltas[7:]).startswith("I'll research this")
    assert frames(text)[-1]["choices"][0]["finish_reason"] == "stop"
    assert log == ["tool_block split_emitted webSearch"] * 7


def test_openai_client_gets_the_text_unchanged() -> None:
    text, log = play(SEVEN, client="openai")
    assert "".join(contents(text)) == json.loads(SEVEN.read_text())["answer"]
    assert log == []


def test_printed_calls_become_calls_and_native_calls_become_blocks() -> None:
    text, _ = play(REPLAYS / "both-ways.jsonl")
    first, second, third = (part.partition("\n")[2] for part in text.split("=== ")[1:])
    assert frames(first)[-1]["choices"][0]["finish_reason"] == "tool_calls"
    [call] = [item for item in json.loads(second)["output"] if item["type"] == "function_call"]
    assert json.loads(call["arguments"]) == {"path": "diary & plans.md", "lines": 20}
    assert copilot.calls("".join(contents(third))) == [("readNote", {"path": "diary & plans.md", "lines": "20"})]


@pytest.mark.parametrize("folder", sorted((ROOT / "tests/golden/exchanges").iterdir()), ids=lambda folder: folder.name)
def test_golden_exchange_prints_the_same_in_any_chunk_size(folder: Path) -> None:
    assert play(folder, chunk=50)[0] == play(folder)[0] != ""


def test_wire_option_chooses_the_request_of_a_folder() -> None:
    assert "event: response.created" in play(ROOT / "tests/golden/exchanges/one-call", wire="responses")[0]


def test_invalid_request_prints_the_error_response(tmp_path: Path) -> None:
    text, _ = play(write(tmp_path, {"request": {"model": "m", "messages": 1}, "answer": "x"}))
    status, body = text.split("\n", 1)
    assert status == "HTTP 400"
    assert json.loads(body)["error"]["param"] == "messages"


@pytest.mark.parametrize("stream", [True, False])
def test_answer_that_fails_before_its_first_frame_prints_an_error_response(tmp_path: Path, stream: object) -> None:
    text, _ = play(write(tmp_path, {"request": {**ASK, "stream": stream}, "answer": {"sse": "data: {\n\n"}}))
    assert text.startswith("HTTP 502\n")


@pytest.mark.parametrize(
    ("recordings", "problem"),
    [
        ((), "no recording"),
        (("{",), "expected"),
        (({"request": ASK},), "answer"),
        (({"request": ASK, "answer": "x", "clint": "openai"},), "clint"),
        (({"request": ASK, "answer": "x"}, {"request": ASK}), ":2: "),
        (({"request": ASK, "answer": "x", "dialect": "klingon"},), "dialect: expected one of"),
        (({"request": ASK, "answer": "x", "wire": "gopher"},), "wire: expected one of anthropic, chat"),
        (({"request": ASK, "answer": {"sse": "", "wire": "gopher"}},), "wire: expected one of anthropic, chat"),
    ],
)
def test_invalid_recording_is_refused(tmp_path: Path, recordings: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        play(write(tmp_path, *recordings))
    assert problem in raised.value.message.lower()


def test_command_prints_frames_to_stdout_and_log_lines_to_stderr(run: Run) -> None:
    code, out, err = run("replay", str(SEVEN))
    assert code == 0
    assert len(copilot.calls("".join(contents(out)))) == 7
    assert err.startswith("log: tool_block split_emitted webSearch\n")


def test_command_prints_the_body_of_an_answer_that_is_not_streamed(run: Run, tmp_path: Path) -> None:
    code, out, err = run("replay", str(write(tmp_path, {"request": {**ASK, "stream": False}, "answer": "Hello"})))
    assert (code, err) == (0, "")
    assert json.loads(out)["choices"][0]["message"]["content"] == "Hello"


def test_missing_file_exits_with_2(run: Run) -> None:
    assert run("replay", "none.json") == (2, "", "toolrelay: none.json: no such file or directory\n")


def test_unknown_client_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected one of openai, use_tool, found 'klingon'"):
        play(SEVEN, client="klingon")


def test_folder_of_recordings_is_refused_with_the_newest_to_name(tmp_path: Path) -> None:
    for name in ("20261117T093012.123Z-a.json", "20261117T093013.456Z-b.json"):
        (tmp_path / name).write_bytes(SEVEN.read_bytes())
    with pytest.raises(ConfigurationError, match=f"name it: toolrelay replay {tmp_path}/20261117T093013.456Z-b.json"):
        play(tmp_path)


def test_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"{tmp_path}: expected request.WIRE.json and upstream.WIRE.sse in it"):
        play(tmp_path)
