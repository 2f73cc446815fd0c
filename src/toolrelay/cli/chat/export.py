"""A conversation as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from toolrelay.cli.chat.client import Item


def text_of(item: Item) -> str:
    """Return the text of a message or of reasoning."""
    is_reasoning = item.get("type") == "reasoning"
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())] if is_reasoning else item.get("content")
    if isinstance(parts, str):
        return parts
    texts = [part.get("text") or part.get("refusal") or "" for part in parts or () if isinstance(part, dict)]
    return "\n\n".join(str(text) for text in texts if text)


def error_of(item: Item) -> str:
    """Return why a call failed, or nothing."""
    error = item.get("error")
    if not error:
        return ""
    if not isinstance(error, dict):
        return str(error)
    return str(error.get("message") or text_of(error) or json.dumps(error, ensure_ascii=False))


def to_markdown(title: str, items: Sequence[Item]) -> str:
    sections = [_section(item) for item in items]
    return "\n\n".join([f"# {title}", *filter(None, sections)]) + "\n"


def _section(item: Item) -> str:
    match item.get("type"):
        case "message":
            return f"## {'You' if item.get('role') == 'user' else 'Model'}\n\n{text_of(item)}"
        case "reasoning":
            text = text_of(item)
            return "> " + text.replace("\n", "\n> ") if text else ""
        case kind:
            error = error_of(item)
            outcome = f"failed: {error}" if error else str(item.get("output") or "")
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", outcome))])
            arguments = str(item.get("arguments") or "").replace("`", "'")
            return f"**Tool {item.get('name') or kind}** `{arguments}`\n\n{fence}\n{outcome}\n{fence}"
