"""An answer on its way: as Markdown on a terminal, as plain text elsewhere, or only collected."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol, TextIO, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from toolrelay.cli._text import escape_controls, shorten
from toolrelay.cli.chat.blocks import Block, MarkdownSplitter
from toolrelay.cli.chat.export import error_of
from toolrelay.cli.chat.markdown import SafeMarkdown, clean

JsonObject: TypeAlias = dict[str, Any]

REFRESH_SECONDS = 0.1
MAX_REASONING = 200_000  # characters that are kept of an answer's reasoning
MAX_RESULT = 200  # characters of a tool's error
MAX_ARGUMENTS = 120
REASONING_LINES = 3
_TEXT_DELTAS = ("response.output_text.delta", "response.refusal.delta")
_REASONING_DELTAS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


def open_chat_console(file: TextIO | None = None) -> Console:
    return Console(file=file, markup=False, emoji=False, highlight=False)


class AnswerSummary:
    """What an answer consisted of, for those who want it at the end."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasoning = ""
        self.tools: list[JsonObject] = []
        self._is_open = False

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add_text(self, text: str) -> None:
        if not self._is_open and self.texts:
            self.texts.append("\n\n")
        self._is_open = True
        self.texts.append(text)

    def add_reasoning(self, text: str) -> None:
        self.reasoning = (self.reasoning + text)[-MAX_REASONING:]

    def end_item(self, item: JsonObject) -> None:
        self._is_open = False
        if is_call(item):
            self.tools.append({name: item.get(name) for name in ("name", "arguments", "output", "error")})


class AnswerView(Protocol):
    """Shows the events of a response."""

    summary: AnswerSummary

    def handle(self, event: JsonObject) -> None: ...

    def refresh(self) -> None:
        """Show what changes with time."""
        ...

    def pause(self) -> None:
        """Leave the terminal to something else, until the next event."""
        ...

    def note(self, text: str) -> None:
        """Print a line about the answer."""
        ...

    def finish(self) -> None:
        """Print what is still open."""
        ...


class CollectedAnswer:
    """Prints nothing but notes, to standard error."""

    def __init__(self) -> None:
        self.summary = AnswerSummary()

    def handle(self, event: JsonObject) -> None:
        kind = event.get("type")
        if kind in _TEXT_DELTAS:
            self.add_text(str(event.get("delta", "")))
        elif kind in _REASONING_DELTAS:
            self.summary.add_reasoning(str(event.get("delta", "")))
        elif kind == "response.output_item.done":
            self.summary.end_item(event["item"])

    def add_text(self, text: str) -> None:
        self.summary.add_text(text)

    def refresh(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def note(self, text: str) -> None:
        if not text:
            return
        print(f"toolrelay: {text}", file=sys.stderr, flush=True)  # noqa: T201 -- a message of the command

    def finish(self) -> None:
        pass


class PlainAnswer(CollectedAnswer):
    """Writes text as it comes. Control characters are escaped: the output may end in a terminal after all."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out
        self._last = "\n"

    def add_text(self, text: str) -> None:
        before = len(self.summary.texts)
        super().add_text(text)
        added = escape_controls("".join(self.summary.texts[before:]), keep="\n\t")
        self._out.write(added)
        self._out.flush()
        self._last = added[-1:] or self._last

    def finish(self) -> None:
        if self._last != "\n":
            self._out.write("\n")
            self._out.flush()
            self._last = "\n"


class TerminalAnswer:
    """Prints finished blocks for good. Below them a live region shows the open block and what the tools are doing."""

    def __init__(self, console: Console) -> None:
        self.summary = AnswerSummary()
        self._console = console
        self._blocks = MarkdownSplitter()
        self._calls: dict[str, JsonObject] = {}
        self._live: Live | None = None
        self._started = time.monotonic()
        self._reasoning_since: float | None = None
        self._refreshed = 0.0
        self._is_dirty = True
        self._shown_seconds = -1
        self._message = ""  # the item whose text is open

    def handle(self, event: JsonObject) -> None:
        match event.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                self._add_text(str(event.get("item_id")), str(event.get("delta", "")))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                if self._reasoning_since is None:
                    self._reasoning_since = time.monotonic()
                self.summary.add_reasoning(str(event.get("delta", "")))
            case "response.output_item.added" if is_call(event["item"]):
                self._calls[str(event["item"].get("id"))] = event["item"]
            case "response.output_item.done":
                self._end_item(event["item"])
            case _:
                return
        self._is_dirty = True
        self.refresh()

    def refresh(self) -> None:
        now = time.monotonic()
        seconds = int(now - self._started)
        if now - self._refreshed < REFRESH_SECONDS or not (self._is_dirty or seconds != self._shown_seconds):
            return
        self._is_dirty, self._shown_seconds = False, seconds
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
        self._live.update(self._region(), refresh=True)
        self._refreshed = time.monotonic()  # after the work: a slow terminal is not kept busy with refreshing

    def pause(self) -> None:
        if self._live is not None:
            self._live.update(Text(""))
            self._live.stop()
            self._live = None
            self._is_dirty = True

    def note(self, text: str) -> None:
        self._print(Text(escape_controls(text, keep="\n"), style="dim"))

    def finish(self) -> None:
        self._end_reasoning()
        self._print_blocks(self._blocks.finish())
        for call in self._calls.values():
            self._print(_describe_call(call, "not finished", "yellow"))
        self._calls.clear()
        self.pause()

    def _add_text(self, item: str, text: str) -> None:
        self._end_reasoning()
        if item != self._message:
            self._print_blocks(self._blocks.finish())
            self._message = item
        self.summary.add_text(text)
        self._print_blocks(self._blocks.feed(text))

    def _end_item(self, item: JsonObject) -> None:
        self._end_reasoning()
        self.summary.end_item(item)
        self._print_blocks(self._blocks.finish())
        if not is_call(item):
            return
        self._calls.pop(str(item.get("id")), None)
        error = error_of(item)
        outcome = f"failed: {shorten(escape_controls(error), MAX_RESULT)}" if error else "done"
        self._print(_describe_call(item, outcome, "red" if error else "green"))

    def _end_reasoning(self) -> None:
        if self._reasoning_since is not None:
            seconds = time.monotonic() - self._reasoning_since
            self._reasoning_since = None
            self._print(Text(f"Reasoned for {seconds:.1f} s. /reasoning shows it.", style="dim"))

    def _print_blocks(self, blocks: list[Block]) -> None:
        if not blocks:
            return
        printed: list[RenderableType] = []
        for block in blocks:
            if not block.is_continued:
                printed.append(Text(""))
            printed.append(SafeMarkdown(block.text))
        self._print_all(printed)

    def _print(self, line: RenderableType) -> None:
        self._print_all([line])

    def _print_all(self, lines: list[RenderableType]) -> None:
        """Print above the live region, which does not show the same text once more. All of it is written at once."""
        with self._console:
            if self._live is not None:
                self._live.update(self._region(), refresh=True)
            self._console.print(Group(*lines))

    def _region(self) -> RenderableType:
        height = max(3, self._console.height - 4 - len(self._calls))
        parts: list[RenderableType] = []
        if self._reasoning_since is not None:
            parts.append(Text(_last_lines(clean(self.summary.reasoning), self._console.width), style="dim italic"))
        block = self._blocks.open_block
        if block.text.strip():
            parts += [*([] if block.is_continued else [Text("")]), SafeMarkdown(block.text, height)]
        parts += [_describe_call(call, "running …", "cyan") for call in self._calls.values()]
        seconds = int(time.monotonic() - self._started)
        parts.append(Text(f"{seconds} s, Ctrl-C stops", style="dim", no_wrap=True, overflow="crop"))
        return Group(*parts)


def is_call(item: JsonObject) -> bool:
    return item.get("type") not in ("message", "reasoning")


def describe_usage(response: JsonObject, seconds: float) -> str:
    usage = response.get("usage") or {}
    tokens = [f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out"] if "output_tokens" in usage else []
    return ", ".join([*tokens, f"{seconds:.1f} s"])


def _describe_call(call: JsonObject, outcome: str, style: str) -> Text:
    name = escape_controls(str(call.get("name") or call.get("type")))
    arguments = shorten(escape_controls(str(call.get("arguments") or "")), MAX_ARGUMENTS)
    return Text.assemble((f"Tool {name} ", "bold"), (f"{arguments} ", "dim"), (outcome, style), overflow="fold")


def _last_lines(text: str, width: int) -> str:
    """Return the end of a text, about as much as fits in a few lines."""
    lines = text.rstrip().splitlines()[-REASONING_LINES:]
    return "\n".join(line[-max(20, width - 1) :] for line in lines)
