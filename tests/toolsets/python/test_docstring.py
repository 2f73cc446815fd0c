"""Descriptions from docstrings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.toolsets.python.docstring import parse_docstring

GOOGLE = """Return the weather.

Only for today.

Args:
    city: Name of the city,
        in English.
    unit (str, optional): "c" or "f": the scale.

Returns:
    text: It is not a parameter.
"""
SPHINX = """Return the weather.

Only for today.

:param city: Name of the city,
    in English.
:param str unit: "c" or "f": the scale.
:type unit: str
:returns: text
"""


@pytest.mark.parametrize("docstring", [GOOGLE, SPHINX], ids=["Google", "Sphinx"])
def test_parameters_and_text_are_told_apart(docstring: str) -> None:
    parsed = parse_docstring(docstring)
    assert parsed.text == "Return the weather.\n\nOnly for today."
    assert parsed.parameters == {"city": "Name of the city, in English.", "unit": '"c" or "f": the scale.'}


@pytest.mark.parametrize(
    ("docstring", "text"),
    [
        ("", ""),
        ("One line.", "One line."),
        ("Returns:\n    a thing", ""),
        ("Use this: with a colon.\n\nArguments are few.", "Use this: with a colon.\n\nArguments are few."),
    ],
)
def test_docstring_without_parameters_has_only_text(docstring: str, text: str) -> None:
    parsed = parse_docstring(docstring)
    assert (parsed.text, parsed.parameters) == (text, {})


@given(
    st.lists(st.sampled_from(["Args:", "    a: b", "  :param x: y", ":param x: y", "", "text", "        more", ":", "Returns:"]))
)
def test_any_docstring_is_parsed(lines: list[str]) -> None:
    parsed = parse_docstring("\n".join(lines))
    assert all(name.isidentifier() for name in parsed.parameters)
