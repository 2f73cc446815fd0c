"""Content of messages."""

from __future__ import annotations

import pytest

from toolrelay.core.messages import Content, Image, OpaquePart, Refusal, Text, plain_text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ((), ""),
        (
            (Text(text="a"), Image(url="data:,"), Refusal(text="b"), OpaquePart(wire="w", raw={"text": "c"}), Text(text="d")),
            "abd",
        ),
    ],
)
def test_plain_text_omits_other_parts(content: Content, text: str) -> None:
    assert plain_text(content) == text
