"""Recorded exchanges, played through the gateway's own pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.xml import copilot
from toolrelay.errors import ConfigurationError
from toolrelay.replay import run

ROOT = Path(__file__).parent.parent
REPLAYS = ROOT / "docs" / "replays"
SEVEN = REPLAYS / "seven-blocks.json"
ASK: dict[str, Any] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


def shown(path: Path, **flags: Any) -> tuple[str, list[str]]:
    """What is printed, and what is told of the log."""
    out: list[str] = []
    notes: list[str] = []
    assert run(path, out=out.append, notes=notes.append, **flags) == 0
    return "".join(out), [note.removeprefix("log: ").strip() for note in notes]


def frames(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def contents(text: str) -> list[str]:
    deltas = [choice["delta"].get("content") for frame in frames(text) for choice in frame["choices"]]
    return [content for content in deltas if content]


def recorded(tmp_path: Path, *recordings: Any) -> Path:
    path = tmp_path / "recording"
    path.write_text("\n".join(json.dumps(each) for each in recordings))
    return path


@pytest.mark.parametrize("chunk", [0, 1, 20])
def test_the_seeds_failing_message_comes_out_in_the_shape_that_its_client_runs(chunk: int) -> None:
    text, notes = shown(SEVEN, chunk=chunk)
    answer = json.loads(SEVEN.read_text())["answer"]
    said = contents(text)
    assert [len(copilot.calls(each)) for each in said[:8]] == [1] * 7 + [0]
    assert copilot.calls("".join(said)) == copilot.calls(answer)
    assert "".join(said[7:]).startswith("I'll research this")
    assert frames(text)[-1]["choices"][0]["finish_reason"] == "stop"
    assert notes == ["tool_block split_emitted webSearch"] * 7


def test_another_client_sees_it_as_the_model_said_it() -> None:
    text, notes = shown(SEVEN, client="openai")
    assert "".join(contents(text)) == json.loads(SEVEN.read_text())["answer"]
    assert notes == []


def test_models_that_print_make_calls_and_models_that_call_make_blocks() -> None:
    text, _ = shown(REPLAYS / "both-ways.jsonl")
    first, second, third = (part.partition("\n")[2] for part in text.split("=== ")[1:])
    assert frames(first)[-1]["choices"][0]["finish_reason"] == "tool_calls"
    [call] = [item for item in json.loads(second)["output"] if item["type"] == "function_call"]
    assert json.loads(call["arguments"]) == {"path": "diary & plans.md", "lines": 20}
    assert copilot.calls("".join(contents(third))) == [("readNote", {"path": "diary & plans.md", "lines": "20"})]


@pytest.mark.parametrize("folder", sorted((ROOT / "tests/golden/exchanges").iterdir()), ids=lambda folder: folder.name)
def test_golden_exchanges_can_be_played(folder: Path) -> None:
    assert shown(folder, chunk=50)[0] == shown(folder)[0] != ""


def test_a_folder_is_played_over_the_wire_that_is_asked_for() -> None:
    assert "event: response.created" in shown(ROOT / "tests/golden/exchanges/one-call", wire="responses")[0]


def test_a_request_that_the_gateway_refuses_is_shown_as_the_client_sees_it(tmp_path: Path) -> None:
    text, _ = shown(recorded(tmp_path, {"request": {"model": "m", "messages": 1}, "answer": "x"}))
    status, body = text.split("\n", 1)
    assert status == "HTTP 400"
    assert json.loads(body)["error"]["param"] == "messages"


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_fails_before_its_first_word_is_an_error(tmp_path: Path, stream: object) -> None:
    text, _ = shown(recorded(tmp_path, {"request": {**ASK, "stream": stream}, "answer": {"sse": "data: {\n\n"}}))
    assert text.startswith("HTTP 502\n")


@pytest.mark.parametrize(
    ("recordings", "complaint"),
    [
        ((), "no recording"),
        (("{",), "expected"),
        (({"request": ASK},), "answer"),
        (({"request": ASK, "answer": "x", "clint": "openai"},), "clint"),
        (({"request": ASK, "answer": "x"}, {"request": ASK}), ":2: "),
        (({"request": ASK, "answer": "x", "dialect": "klingon"},), "dialect: expected one of"),
        (({"request": ASK, "answer": "x", "wire": "gopher"},), "wire: expected one of chat"),
        (({"request": ASK, "answer": {"sse": "", "wire": "gopher"}},), "wire: expected one of chat"),
    ],
)
def test_what_is_wrong_with_a_recording_is_said(tmp_path: Path, recordings: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        shown(recorded(tmp_path, *recordings))
    assert complaint in raised.value.message.lower()


def test_it_goes_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(SEVEN) == 0
    printed = capsys.readouterr()
    assert len(copilot.calls("".join(contents(printed.out)))) == 7
    assert printed.err.startswith("log: tool_block split_emitted webSearch\n")


def test_a_client_that_is_not_known_is_told() -> None:
    with pytest.raises(ConfigurationError, match="expected one of openai, use_tool, found 'klingon'"):
        shown(SEVEN, client="klingon")


def test_a_file_that_is_not_there_and_a_folder_without_a_recording_are_told(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ConfigurationError, match=str(path)):
            shown(path)
