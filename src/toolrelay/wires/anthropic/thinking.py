"""Thinking blocks as reasoning items, and what models take as settings for thinking and length.

A signature, or the data of a redacted block, is the item's encrypted content, sealed with this wire's name. Clients of this wire
get it as it came. Reasoning that another wire encrypted is the signature of the block that shows it, until it comes back.
"""

from __future__ import annotations

import re
from typing import Literal

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Reasoning
from toolrelay.wires.sealed_reasoning import seal, unseal

NAME = "anthropic_messages"
_FOREIGN = "other"
_PARAGRAPH = "\n\n"

BlockType = Literal["thinking", "redacted_thinking"]


def seal_block(kind: BlockType, data: str) -> str:
    """Return a signature, or the data of a redacted block, as a reasoning item's encrypted content."""
    return seal(NAME, f"{kind}:{data}")


def own_block(encrypted: str) -> tuple[BlockType, str] | None:
    """Return what `seal_block` was given, or None for what another wire encrypted."""
    wire, data = unseal(encrypted) or ("", "")
    kind, _, rest = data.partition(":")
    if wire != NAME:
        return None
    return ("redacted_thinking", rest) if kind == "redacted_thinking" else ("thinking", rest)


def foreign_signature(identifier: str | None, encrypted: str) -> str:
    """Return the signature of a block that shows reasoning which another wire encrypted."""
    return seal(_FOREIGN, f"{identifier or ''}:{encrypted}")


def decode_thinking(text: str, signature: str) -> Reasoning:
    """Decode a thinking block that a client sends back. What another wire had encrypted was shown as its summary."""
    shown = (text,) if text else ()
    wire, data = unseal(signature) or ("", "")
    if wire == _FOREIGN:
        identifier, _, encrypted = data.partition(":")
        return Reasoning(summary=shown, encrypted=encrypted, id=identifier or None)
    return Reasoning(text=shown, encrypted=seal_block("thinking", signature) if signature else None)


def thinking_block(reasoning: Reasoning) -> JsonObject | None:
    """Return the block that shows a client the reasoning, or None if there is nothing to show."""
    text = _PARAGRAPH.join((*reasoning.summary, *reasoning.text))
    own = None if reasoning.encrypted is None else own_block(reasoning.encrypted)
    if own is not None and own[0] == "redacted_thinking":
        return {"type": "redacted_thinking", "data": own[1]}
    if own is not None:
        return {"type": "thinking", "thinking": text, "signature": own[1]}
    if reasoning.encrypted is not None:
        return {"type": "thinking", "thinking": text, "signature": foreign_signature(reasoning.id, reasoning.encrypted)}
    return {"type": "thinking", "thinking": text, "signature": ""} if text else None


# What models take. Claude up to 4.5 has a budget of tokens, later ones decide for themselves and take an effort; servers of other
# models that speak this wire know budgets. https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking

_WITHOUT_THINKING = re.compile(r"claude-(?:3-(?:opus|sonnet|haiku)|3[-.]5|2|instant)")
_WITH_BUDGET = re.compile(r"claude-(?:3[-.]7|(?:opus|sonnet|haiku)-4(?:[-.][0-5])?(?=$|[-@:]\d{6}|[-@:]latest))")
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 24576, "max": 24576}
_MIN_BUDGET = 1024

# The API requires max_tokens. These are the most that the models take, or enough for a long answer.
_MAX_TOKENS = ((re.compile(r"claude-(?:3-(?:opus|sonnet|haiku)|2|instant)"), 4096), (re.compile(r"claude-3[-.]5"), 8192))
_DEFAULT_MAX_TOKENS = 32_000


def default_max_tokens(model: str) -> int:
    """Return the limit for a client that gave none."""
    return next((limit for pattern, limit in _MAX_TOKENS if pattern.search(model)), _DEFAULT_MAX_TOKENS)


def thinking_settings(model: str, effort: str, max_tokens: int) -> JsonObject | None:
    """Return the request members for another wire's reasoning effort, or None if the model has none for it."""
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    if _WITHOUT_THINKING.search(model):
        return None
    if "claude" in model and not _WITH_BUDGET.search(model):
        level = "low" if effort == "minimal" else effort
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}
    budget = min(_BUDGETS.get(effort, 0), max_tokens - _MIN_BUDGET)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _MIN_BUDGET else None
