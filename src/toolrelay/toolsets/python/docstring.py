"""Descriptions from docstrings: the text, and the parameters in Google or Sphinx style."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|See Also|References|Todo|Attributes):\s*"
)
_GOOGLE_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_SPHINX_PARAMETER = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")
_SPHINX_FIELD = re.compile(r":\w+[^:]*:")


class Docstring(Struct, frozen=True):
    """`text` is all before the first section."""

    text: str
    parameters: dict[str, str]


def parse_docstring(docstring: str) -> Docstring:
    """Parse a docstring without its indentation."""
    lines = docstring.splitlines()
    first = next(
        (number for number, line in enumerate(lines) if _SECTION.fullmatch(line) or _SPHINX_FIELD.match(line)), len(lines)
    )
    parameters = dict(_google_parameters(lines[first:])) | dict(_sphinx_parameters(lines[first:]))
    return Docstring("\n".join(lines[:first]).strip(), parameters)


def _google_parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the entries of the section `Args:`. Deeper indented lines go on with the entry above."""
    indent: int | None = None
    inside = False
    name, text = "", ""
    for line in lines:
        if line and not line[0].isspace():
            inside = line.startswith(("Args:", "Arguments:", "Parameters:"))
            indent = None
            continue
        if not inside or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        indent = depth if indent is None else indent
        if depth <= indent and (entry := _GOOGLE_PARAMETER.fullmatch(line.strip())):
            if name:
                yield name, text
            name, text = entry[1], entry[2]
        else:
            text = f"{text} {line.strip()}".strip()
    if name:
        yield name, text


def _sphinx_parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the fields `:param name: text`. Lines up to the next field go on with the text."""
    name, text = "", ""
    for line in [*lines, ":end:"]:
        if _SPHINX_FIELD.match(line) or not line.strip():
            if name:
                yield name, text
            found = _SPHINX_PARAMETER.fullmatch(line.strip())
            name, text = (found[1], found[2]) if found else ("", "")
        elif name:
            text = f"{text} {line.strip()}".strip()
