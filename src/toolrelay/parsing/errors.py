"""How parsing a call can fail.

ParseError
├── NotACallError        the text is no call after all, and is emitted as text
├── MalformedCallError   a call had begun, and then broke a rule
└── TruncatedCallError   the stream ended inside a call
"""

from __future__ import annotations


class ParseError(Exception):
    pass


class NotACallError(ParseError):
    pass


class MalformedCallError(ParseError):
    """`rule` names what was wrong, for the log."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class TruncatedCallError(ParseError):
    pass
