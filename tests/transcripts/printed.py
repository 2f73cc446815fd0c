"""How each dialect prints the calls of the scenarios, as stored in printed.json.

Run as a program it writes that file, with the dialects' own renderers. Replaying reads only the file, so that it depends on
nothing inside the gateway. Run it when a dialect is added; texts that are there already stay as they are.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TypeAlias

FILE = Path(__file__).with_name("printed.json")
TAG = "000000000000"  # stands for the tag of sealed calls, which differs from conversation to conversation

Call: TypeAlias = tuple[str, str]

WEATHER: Call = ("get_weather", '{"city":"Paris","days":3}')
BOOKING: Call = ("book_room", '{"city":"Rome","nights":2}')
BREACH: Call = ("book_room", '{"city":"Rome","nights":"two"}')
UNKNOWN: Call = ("get_whether", '{"city":"Paris","days":3}')
NOTE: Call = ("note", '{"input":"Buy milk."}')

_RENDERED = {
    "call": [WEATHER],
    "strict": [BOOKING],
    "two": [WEATHER, BOOKING],
    "breach": [BREACH],
    "unknown": [UNKNOWN],
    "custom": [NOTE],
}
# The first pattern that is found is replaced. What prints arguments in tags has no JSON to break, and loses its tool's name.
_BREAKS = (
    (re.escape('"city":"Paris","days":3}'), '"city":"Paris" "days" no]}'),
    (r"city=.Paris., days=3", "city=Paris+, days=)"),
    (r"(city:)(<\S+?>)Paris\2,days:3", r"\1,days::3"),
    ("get_weather", ""),
)
_BREAKS_SECOND = (
    (re.escape('"city":"Rome","nights":2}'), '"city":"Rome" "nights" no]}'),
    (r"city=.Rome., nights=2", "city=Rome+, nights=)"),
    (r"(city:)(<\S+?>)Rome\2,nights:2", r"\1,nights::2"),
    ("book_room", ""),
)


def load() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(FILE.read_text())
    return found


def _replaced(text: str, breaks: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in breaks:
        changed = re.sub(pattern, replacement, text, count=1)
        if changed != text:
            return changed
    raise AssertionError(text)


def _rendered() -> dict[str, dict[str, str]]:
    from toolrelay.core.messages import Call as PastCall  # noqa: PLC0415 -- replaying must not need it
    from toolrelay.dialects.base import discover  # noqa: PLC0415 -- as above

    printed: dict[str, dict[str, str]] = {}
    for name, dialect in sorted(discover().items()):
        render = (dialect if dialect.seal is None else dialect.seal(TAG)).render_calls
        texts = {
            key: render([PastCall(id="", name=name, arguments=arguments) for name, arguments in calls])
            for key, calls in _RENDERED.items()
        }
        call = texts["call"]
        texts["malformed"] = _replaced(call, _BREAKS)
        texts["good_then_malformed"] = _replaced(texts["two"], _BREAKS_SECOND)
        texts["begun"] = call[: call.index("Paris") + 3]
        if '"Paris","days":3}' in call:
            texts["repairable"] = call.replace('"Paris","days":3}', '"Paris","days":3,}')
        printed[name] = texts
    return printed


def main() -> None:
    kept = load() if FILE.exists() else {}
    FILE.write_text(json.dumps(_rendered() | kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
