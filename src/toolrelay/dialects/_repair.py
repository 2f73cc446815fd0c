"""JSON that a model got wrong, put right where only one thing can have been meant.

A repair counts only if it changed nothing but punctuation: the words, numbers and strings, in their order, are the model's own.
JSON that is valid is never touched.
"""

from __future__ import annotations

import re

import msgspec

_PUNCTUATION = re.compile(r"""[\s"'`,:{}\[\]\\]+""")
_decode = msgspec.json.decode


def is_object(text: str) -> bool:
    """Whether the text is a valid JSON object."""
    try:
        return isinstance(_decode(text.encode(errors="replace")), dict)
    except (msgspec.MsgspecError, RecursionError):
        return False


def repaired(text: str) -> str | None:
    """The object that was meant; None if that cannot be said."""
    if is_object(text):
        return text
    doubled = _unwrapped(text)
    if doubled is not None:
        return doubled
    from json_repair import repair_json  # noqa: PLC0415 -- needed for bad calls only

    try:
        candidate = str(repair_json(text, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None
    return candidate if is_object(candidate) and _words(candidate) == _words(text) else None


def _unwrapped(text: str) -> str | None:
    """Arguments that were encoded twice: a JSON string that holds the object."""
    try:
        inner = _decode(text.encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return None
    return inner if isinstance(inner, str) and is_object(inner) else None


def _words(text: str) -> str:
    """All but the punctuation, with Python's spellings of constants as JSON's."""
    for python, json in (("True", "true"), ("False", "false"), ("None", "null"), ("\\n", ""), ("\\t", "")):
        text = text.replace(python, json)
    return _PUNCTUATION.sub("", text)
