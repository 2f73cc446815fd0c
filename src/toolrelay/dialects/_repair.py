"""JSON that a model got wrong, put right where only one thing can have been meant.

A repair counts only if it changed nothing but punctuation: the words, numbers and strings, in their order, are the model's own,
and every string among the values was one, from its first quote to its last: `tru`, `undefined` or nothing at all is no string.
JSON that is valid is never touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from toolrelay.core.json import Json

LONGEST = 64 * 1024  # characters: a repair takes its time, and all wait for it
_PUNCTUATION = re.compile(r"""[\s"'`,:{}\[\]\\]+""")
_decode = msgspec.json.decode
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode


def is_object(text: str) -> bool:
    """Whether the text is a valid JSON object. Its values stay as they are: no number is too large."""
    try:
        _objects.decode(text.encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def repaired(text: str) -> str | None:
    """The object that was meant; None if that cannot be said."""
    if is_object(text):
        return text
    doubled = _unwrapped(text)
    if doubled is not None:
        return doubled
    if len(text) > LONGEST:
        return None
    from json_repair import repair_json  # noqa: PLC0415 -- needed for bad calls only

    try:
        candidate = str(repair_json(text, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None
    if not is_object(candidate) or _words(candidate) != _words(text):
        return None
    return candidate if _were_strings(_strings(_decode(candidate)), text) else None


def _strings(value: Json) -> Iterator[str]:
    """Those among the values, not the keys: a key may do without its quotes."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _were_strings(values: Iterable[str], text: str) -> bool:
    """They stand in the text in their order, each from its first quote to its last."""
    at = 0
    for value in values:
        encoded = _encode(value).decode()[1:-1]
        forms = {f"{quote}{form}{quote}" for quote in "\"'" for form in (value, encoded)}
        found = re.compile("|".join(map(re.escape, forms))).search(text, at)
        if found is None:
            return False
        at = found.end()
    return True


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
