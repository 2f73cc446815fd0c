"""The tool handling of Obsidian Copilot up to 3.1: how it parses calls from an answer, and how it sends results back.

Reimplemented from facts/clients.md, as the oracle for the XML encoder and decoder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_BLOCK = re.compile(r"<use_tool>([\s\S]*?)(</use_tool>|\Z)")
_NAME = re.compile(r"<name>([\s\S]*?)</name>")
_PARAMETER = re.compile(r"<([A-Za-z_][\w.-]*)>([\s\S]*?)</\1>")


def calls(answer: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that the client would run."""
    found = []
    for block in _BLOCK.finditer(answer):
        inner = block.group(1)
        name = _NAME.search(inner)
        if name is not None and name.group(1).strip():
            rest = inner[: name.start()] + inner[name.end() :]
            found.append((name.group(1).strip(), {key: _value(text) for key, text in _PARAMETER.findall(rest)}))
    return found


def _value(text: str) -> Any:
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("[]", "{}"):
        try:
            return json.loads(inner)
        except ValueError:
            return text
    tags = _PARAMETER.findall(inner)
    if tags and not _PARAMETER.sub("", inner).strip():
        if all(tag == "item" for tag, _ in tags):
            return [value for _, value in tags]
        return dict(tags)
    return text


def results(*outputs: tuple[str, str]) -> str:
    """Return the user message with results."""
    return "\n\n".join(f"Tool '{name}' result: {text}" for name, text in outputs)


def narrative(answer: str) -> str:
    """Return the text that the client shows of an answer."""
    return _BLOCK.sub("", answer)


def run(answer: str, tools: dict[str, Any]) -> str:
    outputs: Sequence[tuple[str, str]] = [(name, str(tools[name](**arguments))) for name, arguments in calls(answer)]
    return results(*outputs)
