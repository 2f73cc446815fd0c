"""JSON that a model got wrong, put right where only one thing can have been meant.

A repair counts only if it changed nothing but punctuation: the words, numbers and strings, in their order, are the model's own,
and every string among the values was one, from its first quote to its last: `tru`, `undefined` or nothing at all is no string.
JSON that is valid is never touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from toolrelay.core.json import Json

_PUNCTUATION = re.compile(r"""[\s"'`,:{}\[\]\\]+""")
_decode = msgspec.json.decode
_encode = msgspec.json.encode


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
    if not is_object(candidate) or _words(candidate) != _words(text):
        return None
    return candidate if all(_was_string(value, text) for value in _strings(_decode(candidate))) else None


def _strings(value: Json) -> Iterator[str]:
    """Those among the values, not the keys: a key may do without its quotes."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _was_string(value: str, text: str) -> bool:
    encoded = _encode(value).decode()[1:-1]
    return any(f"{quote}{form}{quote}" in text for quote in "\"'" for form in (value, encoded))


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
