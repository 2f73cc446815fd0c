"""Obsidian Copilot up to 3.1 as far as tools go: how it finds calls in an answer, and how it sends results back.

Written anew after facts/clients.md, as the oracle for what the gateway writes and reads.
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
    """What the client would run."""
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


def results(*told: tuple[str, str]) -> str:
    """The user message with which the client goes on."""
    return "\n\n".join(f"Tool '{name}' result: {text}" for name, text in told)


def narrative(answer: str) -> str:
    """What the client shows of an answer."""
    return _BLOCK.sub("", answer)


def run(answer: str, tools: dict[str, Any]) -> str:
    told: Sequence[tuple[str, str]] = [(name, str(tools[name](**arguments))) for name, arguments in calls(answer)]
    return results(*told)
