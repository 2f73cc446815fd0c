"""Errors of grammars.

ParseError
├── NotACallError        the input is text; after a call has started: malformed
├── MalformedCallError   the input is a call that breaks a rule
└── TruncatedCallError   the stream ended inside a call
"""

from __future__ import annotations


class ParseError(Exception):
    pass


class NotACallError(ParseError):
    pass


class MalformedCallError(ParseError):
    """`rule`: the reason, for the log."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class TruncatedCallError(ParseError):
    pass
