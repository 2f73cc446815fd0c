"""A program that looks like Codex and misbehaves on demand, for behaviour that the real one shows once in thousands of calls."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from toolrelay.backends.codex.settings import CodexLocation

PROGRAM = """#!{python}
import json, os, signal, sys, time

if sys.argv[1:] == ["--version"]:
    print("codex-cli {version}")
if sys.argv[1] != "app-server":
    sys.exit()

def say(value):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()

{before}
count = 0
for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params")
    if method == "initialize":
        say({{"id": id, "result": {{}}}})
    elif id is not None:
        count += 1
{behaviour}
{after}
"""


def fake_codex(folder: Path, behaviour: str = "pass", *, before: str = "", after: str = "", version: str = "0.166.0") -> str:
    """`behaviour` is the code that handles a request; it may use `say`, `id`, `method`, `params` and `count`."""
    path = folder / "codex"
    path.write_text(
        PROGRAM.format(
            python=sys.executable,
            version=version,
            before=before,
            behaviour=textwrap.indent(textwrap.dedent(behaviour), " " * 8),
            after=after,
        )
    )
    path.chmod(0o755)
    return str(path)


def fake_location(folder: Path, behaviour: str = "pass", **options: str) -> CodexLocation:
    folder.mkdir(exist_ok=True)
    binary = fake_codex(folder, behaviour, **options)
    return CodexLocation(folder=str(folder / "homes"), binary=binary, model="m", base_url="http://127.0.0.1:9/v1")
