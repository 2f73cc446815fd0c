"""Thought signatures as reasoning items, and what models take as settings for thinking.

A signature belongs to a part of the answer: a call, a text, or a thought. It is the encrypted content of a reasoning item, sealed
with this wire's name and the kind of its part: before a call, after a text. A call carries it, too, because
that is all that a Chat client can send back.
https://ai.google.dev/gemini-api/docs/thought-signatures
"""

from __future__ import annotations

import re
from typing import Literal

from toolrelay.core.json import JsonObject
from toolrelay.wires.sealed_reasoning import EXTRA_CONTENT, carried_text, seal, sealed_extra, unseal

NAME = "gemini"

SignedPart = Literal["call", "text", "thought"]

# In the place of a signature that is not known: the call was another model's, or the client lost it. Gemini 3 refuses a call
# without any.
NO_SIGNATURE = "skip_thought_signature_validator"


def seal_signature(kind: SignedPart, signature: str) -> str:
    """Return a signature as a reasoning item's encrypted content."""
    return seal(NAME, f"{kind}:{signature}")


def own_signature(encrypted: str) -> tuple[SignedPart, str] | None:
    """Return what `seal_signature` was given, or None for what another wire encrypted."""
    wire, data = unseal(encrypted) or ("", "")
    kind, _, signature = data.partition(":")
    if wire != NAME or not signature:
        return None
    return ("call" if kind == "call" else "thought" if kind == "thought" else "text"), signature


def signed_extra(signature: str) -> JsonObject:
    """Return the member of a call that carries its signature."""
    return sealed_extra(seal_signature("call", signature))


def split_extra(extra: JsonObject | None) -> tuple[str, JsonObject | None]:
    """Return the signature that a client sent back with its call, empty if there is none, and the other members.

    A signature that is not sealed came from Google's Chat Completions.
    """
    text = carried_text(extra)
    if text is None:
        return "", extra
    own = own_signature(text)
    signature = own[1] if own is not None else "" if unseal(text) is not None else text
    return signature, {key: value for key, value in (extra or {}).items() if key != EXTRA_CONTENT}


# What models take. Gemini up to 2.5 has a budget of tokens, later ones have levels; before 2.5 none thinks.
# https://ai.google.dev/gemini-api/docs/thinking

_BEFORE_3 = re.compile(r"gemini-[12]\b|gemini-(?:pro|ultra)(?:-vision)?$|gemma|learnlm")
_WITHOUT_THINKING = re.compile(r"gemini-(?:1|2\.0)\b|gemini-(?:pro|ultra)(?:-vision)?$|gemma|learnlm")
_SIGNS_CALLS = re.compile(r"gemini-(?:[3-9]|\d\d)|gemini-(?:pro|flash|flash-lite)-latest")
_PRO = re.compile(r"-pro\b")
_LEVELS = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
_MIN_PRO_BUDGET = 128  # 2.5 Pro cannot stop thinking
_MAX_BUDGET = 24576


def is_before_3(model: str) -> bool:
    """Return whether a model is older than Gemini 3: it knows neither levels of thinking nor media in results."""
    return _BEFORE_3.search(model) is not None


def thinks(model: str) -> bool:
    return _WITHOUT_THINKING.search(model) is None


def signs_calls(model: str) -> bool:
    """Return whether a model signs its calls, and refuses calls without a signature."""
    return _SIGNS_CALLS.search(model) is not None


def effort_settings(model: str, effort: str) -> JsonObject | None:
    """Return the thinkingConfig for a reasoning effort, or None if the model has none for it."""
    if not thinks(model) or effort not in _LEVELS:
        return None
    shown: JsonObject = {} if effort == "none" else {"includeThoughts": True}
    if is_before_3(model):
        return {"thinkingBudget": _fit_budget(model, _BUDGETS[effort]), **shown}
    level = _LEVELS[effort]
    return {"thinkingLevel": "LOW" if level == "MINIMAL" and _PRO.search(model) else level, **shown}


def budget_settings(model: str, budget: int) -> JsonObject | None:
    """Return the thinkingConfig for a budget of tokens, which Anthropic's clients give, or None if the model has none for it."""
    if not thinks(model):
        return None
    if is_before_3(model):
        return {"thinkingBudget": _fit_budget(model, budget), "includeThoughts": True}
    return effort_settings(model, "low" if budget < 4096 else "medium" if budget < 16384 else "high")


def _fit_budget(model: str, budget: int) -> int:
    least = _MIN_PRO_BUDGET if _PRO.search(model) else 0
    return min(max(budget, least), _MAX_BUDGET)
