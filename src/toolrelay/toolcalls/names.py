"""Tool names as models take them, and back: dotted, over-long, colliding and reserved names are mapped one to one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

LONGEST = 64
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_RESERVED = frozenset({"functions", "multi_tool_use", "python", "browser", "container", "assistant", "user", "system", "tool"})


class Names:
    """For the names of one request. Names that are fit as they are stay; the same request gives the same names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._to: dict[str, str] = {}
        self._back: dict[str, str] = {}
        given = list(dict.fromkeys(names))
        for name in given:
            if _is_fit(name):
                self._bind(name, name)
        for name in given:
            if name not in self._to:
                self._bind(name, self._fitted(name))

    def _bind(self, name: str, fit: str) -> None:
        self._to[name] = fit
        self._back[fit] = name

    def _fitted(self, name: str) -> str:
        plain = _OTHER.sub("_", name).strip("_") or "tool"
        if len(plain) <= LONGEST and _is_fit(plain) and plain not in self._back:
            return plain
        seed = name.encode(errors="surrogatepass")
        while True:
            mark = sha256(seed).hexdigest()[:8]
            fit = f"{plain[: LONGEST - len(mark) - 1]}_{mark}"
            if fit not in self._back:
                return fit
            seed += b"\0"

    @property
    def are_fit(self) -> bool:
        """Every name stays as it is."""
        return all(name == fit for name, fit in self._to.items())

    def to_model(self, name: str) -> str:
        """A name that was not given, such as one in the history only, is made fit all the same."""
        return self._to.get(name) or (name if _is_fit(name) else self._fitted(name))

    def to_client(self, name: str) -> str:
        return self._back.get(name, name)


def _is_fit(name: str) -> bool:
    return 0 < len(name) <= LONGEST and _OTHER.search(name) is None and name not in _RESERVED
