"""Writes the tables of docs/wires.md from the wires' own: `make docs`."""

from __future__ import annotations

from pathlib import Path

from toolrelay.wires.base import discover

PAGE = Path(__file__).parent / "wires.md"
BEGIN, END = "<!-- tables -->\n", "<!-- /tables -->"


def tables() -> str:
    out = ""
    for name, wire in sorted(discover().items()):
        rows = "".join(f"| {what} | {fate} |\n" for what, fate in wire.cannot_say.items())
        out += f"\n## A model reached over `{name}` cannot be told\n\n| what | what happens |\n|---|---|\n{rows}"
    return f"{out}\n"


def page(text: str) -> str:
    """The page with its tables made anew."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{tables()}{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
