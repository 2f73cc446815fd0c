"""Ids: made from what is handed in, so that the same input gives the same bytes.

A turn's token is random and comes from outside. Every other id is a function of it, or, for calls that a client's history does
not name, of their content and place.
"""

from __future__ import annotations

from hashlib import sha256

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
TOKEN_LENGTH = 20


def _digits(number: int, length: int) -> str:
    out = ""
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        out = _DIGITS[digit] + out
    return out


def token(entropy: bytes) -> str:
    """A turn's token from ten or more random bytes."""
    return entropy.hex()[:TOKEN_LENGTH]


def call_id(turn_token: str, number: int) -> str:
    """The id of a turn's call: `call_` and 24 characters."""
    return f"call_{turn_token}{_digits(number, 4)}"


def item_id(prefix: str, turn_token: str, number: int) -> str:
    """The id of an item at that place of a turn's output."""
    return f"{prefix}_{turn_token}{_digits(number, 4)}"


def derived_call_id(place: int, name: str, arguments: str) -> str:
    """The id of a call in a history that names none: the same history gives the same id."""
    seed = f"{place}\0{name}\0{arguments}".encode(errors="surrogatepass")
    return "call_" + _digits(int.from_bytes(sha256(seed).digest(), "big"), 24)


def nine(identifier: str) -> str:
    """An id as Mistral wants it. Ids that already fit stay."""
    if len(identifier) == 9 and identifier.isascii() and identifier.isalnum():
        return identifier
    return _digits(int.from_bytes(sha256(identifier.encode(errors="surrogatepass")).digest(), "big"), 9)
