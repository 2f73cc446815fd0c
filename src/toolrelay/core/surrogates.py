"""Surrogate pairs that JSON escapes or chunks have taken apart."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def join_surrogates(text: str) -> str:
    """Join pairs into their character. A surrogate without its other half becomes U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def join_surrogates_so_far(text: str) -> tuple[str, str]:
    """Join pairs in text that will go on. A high surrogate at its end is returned apart, to go before the next piece."""
    if text.isascii():
        return text, ""
    if "\ud800" <= text[-1] <= "\udbff":
        return join_surrogates(text[:-1]), text[-1]
    return join_surrogates(text), ""
