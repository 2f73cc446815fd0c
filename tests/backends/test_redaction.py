from __future__ import annotations

import pytest

from toolrelay.backends.redaction import REDACTED, redact, redact_failure
from toolrelay.core.events import AnswerFailed, TextDelta
from toolrelay.errors import BackendError

KEY = "sk-proj-a/b+c=0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("nothing of it", "nothing of it"),
        (KEY, REDACTED),
        (f"Bearer {KEY}, {KEY}.", f"Bearer {REDACTED}, {REDACTED}."),
        (f"bad key {KEY[:-1]}", f"bad key {REDACTED}"),
        (f"bad key {KEY[:12]}…", f"bad key {REDACTED}…"),
        (f"bad key {KEY[:7]}", f"bad key {KEY[:7]}"),
        ("https://host/?key=sk-proj-a%2Fb%2Bc%3D0123456789abcdef&x=1", f"https://host/?key={REDACTED}&x=1"),
        ("", ""),
    ],
    ids=["absent", "alone", "twice", "cut by one", "cut early", "cut to less than a prefix", "percent-encoded", "empty"],
)
def test_key_is_redacted_whole_and_truncated(text: str, redacted: str) -> None:
    assert redact(text, KEY) == redacted


def test_without_a_key_nothing_is_redacted() -> None:
    assert redact("Bearer ", "") == "Bearer "


def test_short_key_is_redacted_only_whole() -> None:
    assert redact("none, no", "none") == f"{REDACTED}, no"


def test_all_texts_of_the_last_error_are_redacted() -> None:
    error = BackendError(f"of {KEY}", type=KEY, code=KEY, param=KEY)
    text = TextDelta("hi")
    assert redact_failure([text, AnswerFailed(error)], KEY)[0] is text
    assert (error.message, str(error)) == (f"of {REDACTED}",) * 2
    assert (error.type, error.code, error.param) == (REDACTED,) * 3
    assert redact_failure([], KEY) == []
