"""The examples of three pages: each program is run and prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.gateway import running
from tests.model_server import ModelServer, call, delta, end, whole
from tests.upstream import LAST_CHUNK, Script, Step, chunk, stream_head

DOCS = Path(__file__).parent.parent / "docs"
OLLAMA, GATEWAY = "http://127.0.0.1:11434", "http://127.0.0.1:8787"


class Example(NamedTuple):
    """A program of a page, what it prints, and the files that the page has."""

    program: str
    printed: str
    files: dict[str, str]


def examples(page: str) -> list[Example]:
    text = (DOCS / page).read_text("utf-8")
    files = dict(re.findall(r"```\w+ file=(\S+)\n(.+?)```", text, re.DOTALL))
    assert "toolrelay.toml" in files
    found = re.findall(r"```python\n(.+?)```\n\n```text\n(.+?)```", text, re.DOTALL)
    assert len(found) == len(re.findall(r"```python\n", text)), "an example does not say what it prints"
    return [Example(program, printed, files) for program, printed in found]


def streamed(*frames: bytes, finish: str = "stop") -> bytes:
    return stream_head() + chunk(b"".join(frames) + end(finish)) + LAST_CHUNK


def calling(city: str) -> bytes:
    return streamed(call("get_weather", f'{{"city":"{city}"}}'), finish="tool_calls")


POEM = (streamed(delta("Roses "), delta("are "), delta("red.")),)
NAMES = (whole("Hello Ada!"), whole("Your name is Ada."))
ANSWERS: dict[str, list[tuple[Script | Step, ...]]] = {
    "gateway-tools.md": [
        (calling("Rome"), streamed(delta("It is sunny in Rome, 21 °C."))),
        (calling("Rome"), streamed(delta("It is sunny in Rome, 21 °C."))),
        (whole("Weather in Rome"),),
        (calling("Oslo"), streamed(delta("It is sunny in Oslo."))),
    ],
    "websocket.md": [(streamed(delta("Hello Ada!")), streamed(delta("Your name is Ada.")))],
    "responses-state.md": [NAMES, (whole("Roses are red."),), POEM, NAMES, (whole("Hi"),)],
}
CASES = [(page, number) for page, answers in ANSWERS.items() for number in range(len(answers))]


@pytest.mark.parametrize("page", ANSWERS)
def test_every_example_has_answers(page: str) -> None:
    assert len(examples(page)) == len(ANSWERS[page])


@pytest.mark.parametrize(("page", "number"), CASES)
def test_example_prints_what_the_page_says(page: str, number: int, tmp_path: Path) -> None:
    example = examples(page)[number]
    for name, content in example.files.items():
        (tmp_path / name).write_text(content, "utf-8")
    with ModelServer(*ANSWERS[page][number]) as model:
        config = example.files["toolrelay.toml"]
        assert OLLAMA in config
        with running(config.replace(OLLAMA, model.url), environ={"PYTHONPATH": str(tmp_path)}) as gateway:
            assert GATEWAY in example.program
            program = example.program.replace(GATEWAY, gateway.url)
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (example.printed, "")
    assert len(model.requests) == len(ANSWERS[page][number])
