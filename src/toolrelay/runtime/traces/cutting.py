"""Limits on the size of what is shown of a trace. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class CutLimits(Struct, frozen=True):
    """The most characters of one text, elements of one list, and characters of all texts together."""

    text: int
    elements: int
    total: int


BRIEF = CutLimits(300, 20, 8_000)
NORMAL = CutLimits(20_000, 500, 1_000_000)
WHOLE = CutLimits(20_000_000, 1_000_000, 40_000_000)


class Cutter:
    """Cuts texts and lists of JSON values, with a mark where something is missing. `was_cut` tells whether there is one."""

    def __init__(self, limits: CutLimits) -> None:
        self._limits = limits
        self._left = limits.total
        self.was_cut = False

    def cut(self, value: Any) -> Any:  # noqa: ANN401 -- any JSON
        match value:
            case str():
                return self._cut_text(value)
            case list() | tuple():
                return self._cut_list(list(value))
            case dict():
                return self._cut_object(value)
            case _:
                return value

    def _cut_text(self, text: str) -> str:
        most = min(self._limits.text, max(0, self._left))
        self._left -= min(len(text), most)
        if len(text) <= most:
            return text
        self.was_cut = True
        return f"{text[:most]} … [{len(text) - most} more characters]"

    def _cut_list(self, values: list[Any]) -> list[Any]:
        kept = [self.cut(each) for each in values[: self._limits.elements] if self._has_room()]
        if len(kept) < len(values):
            self.was_cut = True
            kept.append(f"… [{len(values) - len(kept)} more elements]")
        return kept

    def _cut_object(self, members: dict[Any, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name, value in members.items():
            if len(kept) == self._limits.elements or not self._has_room():
                self.was_cut = True
                kept["…"] = f"[{len(members) - len(kept)} more members]"
                break
            self._left -= len(str(name))
            kept[self._cut_text(str(name))] = self.cut(value)
        return kept

    def _has_room(self) -> bool:
        """Elements cost something too, so that a long list of small ones ends."""
        self._left -= 1
        return self._left > 0
