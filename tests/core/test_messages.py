"""What a conversation is made of."""

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
def test_the_text_of_content_leaves_other_parts_out(content: Content, text: str) -> None:
    assert plain_text(content) == text
