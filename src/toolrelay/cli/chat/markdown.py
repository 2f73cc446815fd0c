"""Markdown of models for the terminal: all of its text is shown, and none of it controls the terminal."""

from __future__ import annotations

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax

from toolrelay.cli._text import escape_controls

THEME = "ansi_dark"  # the terminal's own colours
# Without HTML, images and references everything that is not Markdown stays visible as text.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["image", "reference"])


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        syntax = Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")
        yield Padding(syntax, (0, 0, 0, 2))


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar = {}  # all on the left


class _AllText(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
        "heading_open": _LeftHeading,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme=THEME, hyperlinks=False)
        self.markup = text
        self.parsed = _PARSER.parse(text)
        for token in self.parsed:
            for each in (token, *(token.children or ())):
                each.content = clean(each.content)  # again: an entity may stand for a control character
                each.attrs = {name: clean(value) if isinstance(value, str) else value for name, value in each.attrs.items()}


class SafeMarkdown:
    """Rendered Markdown without control characters and without blank lines around it. `max_lines`: only the last ones."""

    def __init__(self, text: str, max_lines: int | None = None) -> None:
        self._content = _AllText(clean(text))
        self._max_lines = max_lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [_trim(line) for line in console.render_lines(self._content, options.update(height=None), pad=False)]
        while lines and not lines[0]:
            del lines[0]
        while lines and not lines[-1]:
            del lines[-1]
        for line in lines if self._max_lines is None else lines[-self._max_lines :]:
            yield from line
            yield Segment.line()


def clean(text: str) -> str:
    """Escape what a terminal could obey. Tabs become blanks."""
    return escape_controls(text.replace("\t", "    "), keep="\n")


def _trim(line: list[Segment]) -> list[Segment]:
    """Return a line without blanks at its end, which would wrap when the terminal gets narrower."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], Segment(line[-1].text.rstrip(), line[-1].style)] if line else line
