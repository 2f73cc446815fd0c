"""Surrogate pairs that were split by JSON escapes or chunk boundaries."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def join_surrogates(text: str) -> str:
    """Join surrogate pairs. A lone surrogate becomes U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def join_surrogates_so_far(text: str) -> tuple[str, str]:
    """Join surrogate pairs in a chunk. A high surrogate at its end is returned separately, to precede the next chunk."""
    if text.isascii():
        return text, ""
    if "\ud800" <= text[-1] <= "\udbff":
        return join_surrogates(text[:-1]), text[-1]
    return join_surrogates(text), ""
