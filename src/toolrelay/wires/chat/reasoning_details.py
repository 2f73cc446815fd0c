"""`reasoning_details`: reasoning on Chat with what its provider needs back, as OpenRouter sends it.

A detail is a text with a signature (reasoning.text), a summary (reasoning.summary), or encrypted data (reasoning.encrypted). All
details of an answer are the encrypted content of a reasoning item, sealed with this wire's name. A detail may belong to a call,
by its id: the ids of the gateway's calls are others, so it keeps the number of the call in the answer.

https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolrelay.core.indexes import IndexLimit
from toolrelay.core.json import Json, JsonObject
from toolrelay.wires.json import decode_repaired, encode_repaired
from toolrelay.wires.sealed_reasoning import seal, unseal

REASONING_DETAILS = "reasoning_details"
_WIRE = "openai_chat"
_CALL = "toolrelay_call"  # the number of the call, in a sealed detail
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}
_SIGNED = ("anthropic-claude-v1", "google-gemini-v1")  # their providers refuse text without a signature


class DetailCollector:
    """Collects the details of one choice until they are sealed. Deltas of one text are joined, once for all."""

    __slots__ = ("_details", "_limit", "_pieces")

    def __init__(self) -> None:
        self._limit = IndexLimit("reasoning details")
        self._details: list[JsonObject] = []
        self._pieces: list[list[str]] = []  # the text of each detail

    def add(self, deltas: Sequence[Any]) -> str:
        """Add the details of a chunk, and return their text."""
        texts: list[str] = []
        for delta in deltas:
            kind = delta.get("type") if isinstance(delta, dict) else None
            if not isinstance(kind, str):
                continue
            member = _TEXTS.get(kind, "")
            text = delta.get(member)
            texts.append(text if isinstance(text, str) else "")
            last = self._details[-1] if self._details else None
            if last is None or not member or not _is_same(last, delta):
                self._limit.add(None)
                self._details.append(dict(delta))
                self._pieces.append([])
            else:
                last |= {key: value for key, value in delta.items() if last.get(key) is None}
                last[member] = ""
            if member:
                self._pieces[-1].append(texts[-1])
        return "".join(texts)

    def seal(self, calls: Mapping[str, int]) -> str | None:
        """Return the details as encrypted content, or None if there are none. `calls` are the numbers of calls by their ids."""
        details = [_with_number(_with_text(*each), calls) for each in zip(self._details, self._pieces, strict=True)]
        return seal(_WIRE, encode_repaired(details).decode()) if details else None


def unseal_details(encrypted: str | None) -> list[JsonObject]:
    """Return the details of a reasoning item, or nothing if it has none."""
    wire, data = unseal(encrypted or "") or ("", "")
    if wire != _WIRE:
        return []
    try:
        found = decode_repaired(data)
    except ValueError:  # a client may change what it sends back
        return []
    return [detail for detail in found if isinstance(detail, dict)] if isinstance(found, list) else []


def name_calls(details: Sequence[JsonObject], call_ids: Mapping[int, str]) -> list[Json]:
    """Return the details with the ids of their calls. Those of calls that are not there are left out."""
    named: list[Json] = []
    for detail in details:
        if _CALL not in detail:
            named.append(detail)
            continue
        number = detail[_CALL]
        if isinstance(number, int) and number in call_ids:
            named.append({key: value for key, value in detail.items() if key != _CALL} | {"id": call_ids[number]})
    return named


def is_accepted(detail: JsonObject) -> bool:
    """Return whether the provider takes the detail back."""
    return detail.get("type") != "reasoning.text" or detail.get("format") not in _SIGNED or bool(detail.get("signature"))


def _is_same(last: JsonObject, delta: dict[str, Any]) -> bool:
    """Return whether a delta continues a detail. Not every delta has an index."""
    indexes = {each for each in (last.get("index"), delta.get("index")) if isinstance(each, int)}
    return last.get("type") == delta.get("type") and len(indexes) < 2


def _with_text(detail: JsonObject, pieces: list[str]) -> JsonObject:
    """Return the detail with the text of its deltas. One that was sent whole stays as it came."""
    return detail if len(pieces) < 2 else {**detail, _TEXTS[str(detail["type"])]: "".join(pieces)}


def _with_number(detail: JsonObject, calls: Mapping[str, int]) -> JsonObject:
    identifier = detail.get("id")
    number = calls.get(identifier) if isinstance(identifier, str) else None
    return detail if number is None else {key: value for key, value in detail.items() if key != "id"} | {_CALL: number}
