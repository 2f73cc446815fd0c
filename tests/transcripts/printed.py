"""The calls of the scenarios as each dialect prints them, stored in printed.json.

As a program it writes that file with the dialects' own renderers. Tests read only the file, so that they depend on nothing inside
the gateway. Run it when a dialect is added; existing texts stay as they are.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TypeAlias

FILE = Path(__file__).with_name("printed.json")
TAG = "000000000000"  # placeholder for the tag of sealed calls, which differs in each conversation

Call: TypeAlias = tuple[str, str]

WEATHER: Call = ("get_weather", '{"city":"Paris","days":3}')
BOOKING: Call = ("book_room", '{"city":"Rome","nights":2}')
VIOLATION: Call = ("book_room", '{"city":"Rome","nights":"two"}')
UNKNOWN: Call = ("get_whether", '{"city":"Paris","days":3}')
NOTE: Call = ("note", '{"input":"Buy milk."}')

_RENDERED = {
    "call": [WEATHER],
    "strict": [BOOKING],
    "two": [WEATHER, BOOKING],
    "violation": [VIOLATION],
    "unknown": [UNKNOWN],
    "custom": [NOTE],
}
# The first pattern that matches is replaced. A dialect without JSON and Python literals loses the tool's name instead.
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


def _break(text: str, breaks: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in breaks:
        changed = re.sub(pattern, replacement, text, count=1)
        if changed != text:
            return changed
    raise AssertionError(text)


def _render() -> dict[str, dict[str, str]]:
    from toolrelay.core.messages import Call as PastCall  # noqa: PLC0415 -- tests must not need it
    from toolrelay.dialects.base import discover  # noqa: PLC0415 -- as above

    printed: dict[str, dict[str, str]] = {}
    for name, dialect in sorted(discover().items()):
        render = (dialect if dialect.seal is None else dialect.seal(TAG)).render_calls
        texts = {
            key: render([PastCall(id="", name=name, arguments=arguments) for name, arguments in calls])
            for key, calls in _RENDERED.items()
        }
        call = texts["call"]
        texts["malformed"] = _break(call, _BREAKS)
        texts["good_then_malformed"] = _break(texts["two"], _BREAKS_SECOND)
        texts["begun"] = call[: call.index("Paris") + 3]
        if '"Paris","days":3}' in call:
            texts["repairable"] = call.replace('"Paris","days":3}', '"Paris","days":3,}')
        printed[name] = texts
    return printed


def main() -> None:
    kept = load() if FILE.exists() else {}
    FILE.write_text(json.dumps(_render() | kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
