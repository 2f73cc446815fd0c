"""Ids, as pure functions: the same input gives the same id.

A turn's token comes from random bytes that are passed in. All other ids are derived from it or, for calls of a client's history
that have no id, from their content and position.
"""

from __future__ import annotations

import re
from hashlib import sha256

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
TOKEN_LENGTH = 20
_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_ITEM_NUMBER = len(_DIGITS) ** 4 - 1


def _encode_base62(number: int, length: int) -> str:
    out = ""
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        out = _DIGITS[digit] + out
    return out


def _hash_base62(text: str, length: int) -> str:
    return _encode_base62(int.from_bytes(sha256(text.encode(errors="surrogatepass")).digest(), "big"), length)


def make_token(entropy: bytes) -> str:
    """Return a turn's token from ten or more random bytes."""
    return entropy.hex()[:TOKEN_LENGTH]


def make_ordered_token(microseconds: int, entropy: bytes) -> str:
    """Return a turn's token that sorts by its time (Unix microseconds), from three or more random bytes.

    Rows with such ids are added at the end of an index, which costs a third less than somewhere in it.
    """
    return f"{microseconds:014x}{entropy.hex()}"[:TOKEN_LENGTH]


def make_conversation_id(turn_token: str) -> str:
    """Return the id of the conversation that a turn begins."""
    return f"conv_{turn_token}"


def make_call_id(turn_token: str, number: int) -> str:
    """Return the id of a turn's call: `call_` and 24 characters."""
    return make_item_id("call", turn_token, number)


def make_item_id(prefix: str, turn_token: str, number: int) -> str:
    """Return the id of the item at this position of a turn's output."""
    return f"{prefix}_{turn_token}{_encode_base62(number, 4)}"


def derive_call_id(position: int, name: str, arguments: str) -> str:
    """Return an id for a call of the history that has none."""
    return "call_" + _hash_base62(f"{position}\0{name}\0{arguments}", 24)


def make_plain_id(identifier: str) -> str:
    """Return an id of letters, digits, _ and -, as Anthropic requires. An id that already is one stays."""
    return identifier if _PLAIN_ID.fullmatch(identifier) else "call_" + _hash_base62(identifier, 24)


def shorten_id(identifier: str) -> str:
    """Return an id of nine letters and digits, as Mistral requires. An id that already is one stays."""
    if len(identifier) == 9 and identifier.isascii() and identifier.isalnum():
        return identifier
    return _hash_base62(identifier, 9)
