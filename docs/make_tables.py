"""Writes the tables of docs/wires.md and docs/dialects.md from the wires' and dialects' own: `make docs`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from toolrelay.core.messages import Call
from toolrelay.core.profiles import HABITS
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.wires.base import discover as discover_wires

BEGIN, END = "<!-- tables -->\n", "<!-- /tables -->"
EXAMPLE = Call(id="call_1", name="get_weather", arguments='{"city": "Paris"}')


def wires() -> str:
    out = ""
    for name, wire in sorted(discover_wires().items()):
        rows = "".join(f"| {what} | {fate} |\n" for what, fate in wire.cannot_say.items())
        out += f"\n## A model reached over `{name}` cannot be told\n\n| what | what happens |\n|---|---|\n{rows}"
    return f"{out}\n"


def dialects() -> str:
    """`auto` picks by the model's name; the patterns are those of core/profiles."""
    patterns: dict[str, list[str]] = {}
    for habits in HABITS:
        patterns.setdefault(habits.dialect, []).append(_code(habits.pattern))
    rows = "".join(
        f"| `{name}` | {_code(dialect.render_calls([EXAMPLE]))} | {', '.join(patterns.get(name, [])) or '–'} |\n"
        for name, dialect in sorted(discover_dialects().items())
    )
    return f"\n| dialect | a call of get_weather | `auto` picks it for names like |\n|---|---|---|\n{rows}\n"


def _code(text: str) -> str:
    """Inline code for a table's cell; ⏎ is a line's end."""
    shown = text.strip().replace("\n", "⏎").replace("|", "&#124;").replace("<", "&lt;").replace("`", "&#96;").replace("]", "&#93;")
    return f"<code>{shown}</code>"


PAGES: dict[Path, Callable[[], str]] = {
    Path(__file__).parent / "wires.md": wires,
    Path(__file__).parent / "dialects.md": dialects,
}


def page(text: str, tables: str) -> str:
    """The page with its tables made anew."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{tables}{END}{tail}"


if __name__ == "__main__":
    for path, tables in PAGES.items():
        path.write_text(page(path.read_text(), tables()))
