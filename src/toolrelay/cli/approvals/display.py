"""Questions, files and rules as a person reads them in a terminal.

All that a client, a model, a toolset or a file chose is escaped, and passed to rich as Text: it is never read as markup.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from toolrelay.cli._text import compact_json, escape_controls, pretty_json, shorten
from toolrelay.cli.approvals.client import Question, Rule

PIPE_WIDTH = 200  # of tables that are not printed on a terminal
MAX_CELL = 60  # characters of arguments in a table
MIN_ID = 13  # characters of an id in a table on a terminal: the commands take them
MAX_FIRST_LINE = 100
LABEL_WIDTH = 16  # of what `print_question` has on the left of the values
MIN_FILES_WIDTH = 60  # of a list of files with a column for each detail
MAX_LINES = 60  # of arguments that `watch` shows
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))
PATHS = "paths"  # the argument of a question about sharing


class ListedFile(NamedTuple):
    """A file of a question, and what the gateway says about it, if it does."""

    path: str
    preview: dict[str, Any]


def open_console() -> Console:
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False)


def _print(console: Console, content: RenderableType) -> None:
    """Print a table. In a pipe its lines have no blanks at the end."""
    if console.is_terminal:
        console.print(content)
        return
    with console.capture() as capture:
        console.print(content)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


# What a question is about


def files_argument(question: Question) -> str | None:
    """Return the name of the argument that lists the question's files. None: it is not about files."""
    files, arguments = question.get("files"), question["arguments"]
    if files is None or not isinstance(arguments, dict):
        return None
    if question["kind"] == "share":
        return PATHS
    properties = (question.get("schema") or {}).get("properties", {})
    names = [name for name, value in arguments.items() if isinstance(value, list) and _is_array(properties.get(name))]
    listed = {file["path"] for file in files}
    return max(names, key=lambda name: sum(_is_in(path, listed) for path in arguments[name]), default=None)


def files_of(question: Question) -> list[ListedFile]:
    """Return the files of a question in its own order, also those that the gateway did not look at."""
    argument = files_argument(question)
    if argument is None:
        return []
    previews = {file["path"]: file for file in question["files"]}
    paths = [path for path in question["arguments"][argument] if isinstance(path, str)]
    return [ListedFile(path, previews.get(path, {})) for path in dict.fromkeys(paths)]


def describe_model(question: Question) -> str:
    provider = question.get("provider")
    return escape_controls(question["model"] + (f" ({provider})" if provider else ""))


def describe_privacy(question: Question) -> str:
    """Say who will see what."""
    if question["kind"] == "share":
        what = "the entries that you share"
    elif files_of(question):
        what = "the content of the files that you allow"
    else:
        what = "the result of this call"
    where = " It stays on this machine." if question.get("local") else ""
    return f"{describe_model(question)} will see {what}.{where}"


def describe_end(question: Question) -> str:
    """Say how a question ended, and by whom."""
    status = "allowed with other arguments" if question["status"] == "edited" else str(question["status"])
    by = question.get("answered_by")
    reason = question.get("reason")
    return status + (f" by {escape_controls(by)}" if by else "") + (f": {escape_controls(reason)}" if reason else "")


# Tables


def print_questions(console: Console, questions: Sequence[Question], *, with_answers: bool) -> None:
    now = time.time()
    table = _table("ID", "AGE", *(["STATUS"] if with_answers else []), "EXPIRES IN", "TOOL", "ARGUMENTS", "MODEL", "KEY")
    length = _unique_length([question["id"] for question in questions]) if console.is_terminal else None
    for question in questions:
        is_open = question["status"] == "pending"
        status = "open" if is_open else _describe_answer(question)
        table.add_row(
            escape_controls(question["id"][:length]),
            _duration(now - question["created_at"]),
            *([Text(status)] if with_answers else []),
            _duration(question["expires_at"] - now) if is_open else "",
            Text(_tool(question)),
            Text(shorten(compact_json(question["arguments"]), MAX_CELL)),
            Text(describe_model(question)),
            Text(escape_controls(question["key"])),
        )
    _print(console, table)


def print_rules(console: Console, rules: Sequence[Rule]) -> None:
    table = _table("ID", "ANSWER", "TOOL", "ARGUMENTS", "CONVERSATION", "KEY", "MADE")
    for rule in rules:
        runs_with = "" if rule["runs_with"] is None else f" with {shorten(compact_json(rule['runs_with']), MAX_CELL)}"
        reason = f": {escape_controls(rule['reason'])}" if rule["reason"] else ""
        arguments = "any" if rule["arguments"] is None else shorten(compact_json(rule["arguments"]), MAX_CELL)
        table.add_row(
            escape_controls(rule["id"]),
            Text(rule["verdict"] + runs_with + reason),
            Text(_tool(rule)),
            Text(arguments),
            Text(escape_controls(rule["conversation"] or "all")),
            Text(escape_controls(rule["key"])),
            Text(f"{_date(rule['created_at'])} by {escape_controls(rule['created_by'])}"),
        )
    _print(console, table)


def print_question(console: Console, question: Question, *, max_lines: int | None = None) -> None:
    """Print everything about a question; of its arguments at most `max_lines` lines."""
    now = time.time()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")

    def add(label: str, value: str | RenderableType) -> None:
        grid.add_row(Text(label, style="dim"), Text(value) if isinstance(value, str) else value)

    verb = "Share the result of" if question["kind"] == "share" else "Run"
    console.print(Text(f"{verb} {escape_controls(question['title'])}?", style="bold"))
    add("id", escape_controls(question["id"]))
    add("tool", f"{_tool(question)} of the toolset {escape_controls(question['toolset'])}")
    if question["purpose"]:
        add("purpose", escape_controls(question["purpose"], keep="\n"))
    add("arguments", _arguments(question["arguments"], max_lines))
    if files := files_of(question):
        add("files", _files_grid([(None, file) for file in files[:max_lines]], console.width - LABEL_WIDTH))
        if max_lines is not None and len(files) > max_lines:
            add("", f"… {len(files) - max_lines} more files: toolrelay approvals show {escape_controls(question['id'])}")
    add("privacy", Text(describe_privacy(question), style="green" if question.get("local") else "yellow"))
    if question.get("hints"):
        hints = ", ".join(f"{escape_controls(name)}: {compact_json(value)}" for name, value in question["hints"].items())
        add("hints", f"{hints} (the toolset says so; it is not checked)")
    add("asked", f"{_duration(now - question['created_at'])} ago for the key {escape_controls(question['key'])}")
    if question["conversation"]:
        add("conversation", escape_controls(question["conversation"]))
    if question["status"] == "pending":
        add("expires", f"in {_duration(question['expires_at'] - now)}")
    else:
        add("status", _describe_answer(question))
    if question.get("ran_with") is not None:
        add("ran with", pretty_json(question["ran_with"]))
    _print(console, Padding(grid, (0, 0, 0, 2)))


def print_choices(console: Console, files: Sequence[ListedFile], chosen: Iterable[str]) -> None:
    """Print files as a numbered list with check boxes."""
    ticked = frozenset(chosen)
    marks = [(f"{number} [{'x' if file.path in ticked else ' '}]", file) for number, file in enumerate(files, 1)]
    _print(console, Padding(_files_grid(marks, console.width), (0, 0, 0, 2)))


def _files_grid(files: Iterable[tuple[str | None, ListedFile]], width: int) -> Table:
    """Return a table of files. If it would be too narrow for their names, all else is below them."""
    is_narrow = width < MIN_FILES_WIDTH
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    if not is_narrow:
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
    for mark, (path, preview) in files:
        note = escape_controls(preview["error"]) if preview.get("error") else ""
        if preview.get("private"):
            note = f"PRIVATE {note}".strip()
        first = shorten(escape_controls(preview.get("first_line", "")), MAX_FIRST_LINE)
        has_size = "size" in preview and not preview.get("error")
        details = (
            Text(_size(preview["size"]) if has_size else ""),
            Text(_date(preview["modified_at"]) if preview.get("modified_at") is not None else ""),
            Text.assemble((note, "bold red"), " " if note and first else "", (first, "dim")),
        )
        cells = [Text(escape_controls(path)), *details]
        if is_narrow:
            lines = (cells[0], Text("  ").join(filter(None, details[:2])), details[2])
            cells = [Text("\n").join(filter(None, lines))]
        grid.add_row(Text(mark or "-"), *cells)
    return grid


# Cells


def _table(*headers: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        table.add_column(header, no_wrap=header in ("ID", "AGE", "EXPIRES IN"), overflow="fold")
    return table


def _unique_length(ids: Sequence[str]) -> int:
    """Return how many characters are enough to tell the ids apart."""
    longest = max(map(len, ids))
    return next((size for size in range(MIN_ID, longest) if len({id_[:size] for id_ in ids}) == len(ids)), longest)


def _tool(question: Question | Rule) -> str:
    name = escape_controls(question["tool"])
    return f"{name} (share)" if question["kind"] == "share" else name


def _describe_answer(question: Question) -> str:
    at = question.get("answered_at")
    return describe_end(question) + (f", {_date(at)}" if at is not None else "")


def _arguments(value: Any, max_lines: int | None) -> str:  # noqa: ANN401 -- JSON
    lines = pretty_json(value).splitlines()
    if max_lines is None or len(lines) <= max_lines:
        return "\n".join(lines)
    return "\n".join([*lines[:max_lines], f"… {len(lines) - max_lines} more lines"])


def _duration(seconds: float) -> str:
    """Return a duration with one unit below an hour, else with two: 45s, 12m, 2h 5m."""
    left = max(0, int(seconds))
    parts = []
    for size, unit in _UNITS:
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return " ".join(parts[:2]) or f"{left}s"


def _date(at: float) -> str:
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OSError, OverflowError):
        return "?"


def _size(size: int) -> str:
    value = float(size)
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def _is_array(schema: Any) -> bool:  # noqa: ANN401 -- JSON
    """Return whether a schema is that of a list, or may be one."""
    if not isinstance(schema, dict):
        return False
    kinds = schema.get("type")
    return kinds == "array" or (isinstance(kinds, list) and "array" in kinds) or any(map(_is_array, schema.get("anyOf", ())))


def _is_in(path: Any, listed: set[str]) -> bool:  # noqa: ANN401 -- JSON
    return isinstance(path, str) and path in listed
