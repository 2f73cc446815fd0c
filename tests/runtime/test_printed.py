"""What tools print goes to the log, not to standard output."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from tests.gateway import running
from toolrelay import log
from toolrelay.runtime.printed import MAX_LINE, PrintedLines


def test_each_line_is_logged_with_its_text_only_if_allowed() -> None:
    with log.captured() as lines:
        out = PrintedLines(log_content=True)
        print("one\ntwo", file=out, end="")
        print(" and", "three", file=out)
        print("grün", file=PrintedLines())
    assert [(line["event"], line["bytes"], line.get("text")) for line in lines] == [
        ("printed", 3, "one"),
        ("printed", 13, "two and three"),
        ("printed", 5, None),
    ]


def test_lines_of_threads_are_not_mixed() -> None:
    out = PrintedLines(log_content=True)
    with log.captured() as lines:
        out.write("here ")
        thread = threading.Thread(target=lambda: out.write("there\n"))
        thread.start()
        thread.join()
        out.write("again\n")
    assert [line["text"] for line in lines] == ["there", "here again"]


def test_line_without_end_is_not_kept_for_ever() -> None:
    out = PrintedLines(log_content=True)
    with log.captured() as lines:
        out.write("x" * (MAX_LINE + 1))
        out.write("y\n")
    assert [line["text"] for line in lines] == ["x" * MAX_LINE, "y"]


CONFIGURATION = """
[server]
log_content = true
[toolsets.mine]
kind = "python"
module = "noisy_tools"
approval = "never"
[models.demo]
provider = "demo"
toolsets = ["mine"]
"""
NOISY = "print('importing')\nfrom toolrelay import tool\n@tool\ndef f() -> str: ...\n"


def test_ready_line_is_the_first_line_although_a_module_prints(tmp_path: Path) -> None:
    (tmp_path / "noisy_tools.py").write_text(NOISY)
    program = "from toolrelay.app import serve\nsys.exit(serve(settings))"
    with running(CONFIGURATION, environ={"PYTHONPATH": str(tmp_path)}, program=program) as gateway:
        assert gateway.stop() == 0
        assert gateway.process.stdout is not None
        assert gateway.process.stdout.read() == ""
        logged = [json.loads(line) for line in gateway.log().splitlines()]
    assert [line["text"] for line in logged if line["event"] == "printed"] == ["importing"]
