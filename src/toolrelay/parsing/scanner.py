"""Streaming scanner that finds calls in a model's text: text in, events out. The result does not depend on chunking.

    state       ends at                                     content
    ---------   -----------------------------------------   --------------------------------------------------
    text        a start marker, a reasoning tag, a          text, emitted at once; only the possible beginning of
                Markdown fence (triggers)                   one of these is held
    fence       its end (markdown.FenceState)               text: calls in it are quoted
    HTML block  its end (markdown.HtmlBlock)                text: calls in it are quoted
    code        the end of inline code                      text: calls in it are quoted
                (markdown.LineState)
    reasoning   the end tag                                 reasoning: calls in it do not count
    call        the end of the grammar (call_parser)        a call

Until the grammar starts a call, its input is kept: if it is not a call, the start marker is text, and the rest is scanned again.
A malformed call includes all text up to the dialect's next end marker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolrelay.core.events import ReasoningDelta, TextDelta
from toolrelay.core.request import Tool
from toolrelay.core.surrogates import join_surrogates_so_far
from toolrelay.parsing.call_parser import CallParser, ParseState
from toolrelay.parsing.events import CallPrinted, EventBuffer, ReasoningClosed, ScannerEvent
from toolrelay.parsing.grammar import CallSyntax
from toolrelay.parsing.markdown import FenceState, HtmlBlock, LineState
from toolrelay.parsing.triggers import (
    INCOMPLETE,
    NONE,
    ScanOptions,
    TriggerKind,
    TriggerSet,
    split_reasoning_tag,
    triggers_for,
)

_LINE_BREAK = re.compile("\n")
_OPENING_QUOTE = re.compile(r"[ \t(\[:][\"'“„«]")
_PIECE = 64 * 1024  # of a long chunk, so that a trigger never copies more


class Scanner:
    """Turns text into events; while a call is parsed, it is the grammar's sink.

    `assumes_reasoning`: the answer was assumed to begin in reasoning, and no tag has confirmed that so far.
    `may_be_reasoning`: text without a start tag is reasoning if an end tag comes: the model's template may have opened it.
    `reports_calls`: each call is followed by its text, `CallPrinted`; a repair and an end tag without a start tag are reported.
    """

    def __init__(
        self, syntax: CallSyntax, tools: Mapping[str, Tool], options: ScanOptions | None = None, *, reports_calls: bool = False
    ) -> None:
        self.tools = dict(tools)
        self._syntax = syntax
        self._options = options or ScanOptions()
        self._reports_calls = reports_calls
        self._events = EventBuffer()
        self.arguments = self._events.arguments
        self._surrogate = ""
        self._held = ""
        self._in_reasoning = self.assumes_reasoning = self._options.begins_in_reasoning
        self._awaits_tag = self._in_reasoning and self._options.reasoning is not None
        self.may_be_reasoning = not self._in_reasoning and self._closes_only_reasoning()
        self._begun = False
        self._line = LineState()
        self._tail = ""  # the last two characters, if start markers may be quoted
        self._quotable = {marker.text for marker in syntax.start_markers if marker.quotable}
        self._is_bare = False  # only blanks follow the last call or mark
        self._shows_block = False  # a start marker is text, so its end is text, too
        self._fence: FenceState | HtmlBlock | None = None
        self._parser: CallParser | None = None
        self._triggers = self._current_triggers()
        self._significant = self._significant_characters()

    def feed(self, text: str) -> list[ScannerEvent]:
        if self._surrogate or not (text.isascii() or text.isprintable()):
            text, self._surrogate = join_surrogates_so_far(self._surrogate + text)
        if not text:
            return []
        if self._significant is not None and self._significant.search(text) is None:
            if self._quotable:
                self._tail = (self._tail + text[-2:])[-2:]
            return [self._delta(text)]
        self._accept(text)
        if self._parser is None or self._significant is not None:
            self._significant = self._significant_characters()
        return self._events.drain()

    def release(self) -> list[ScannerEvent]:
        """Return what is held of text that may begin a mark: the text ends here, and another begins."""
        if self._held and not self._awaits_tag:
            held, self._held = self._held, ""
            self._emit(held)
            self._advance(held)
            self._significant = self._significant_characters()
        return self._events.drain()

    def flush(self, *, complete: bool = False) -> list[ScannerEvent]:
        """End the text. `complete`: the model ended its answer; otherwise it may have been cut anywhere."""
        if self._surrogate:
            self._surrogate = ""
            self._accept("\ufffd")
        while self._parser is not None:
            parser = self._parser
            parser.close(complete=complete)
            state = parser.run()
            if state is not ParseState.WAITING:
                self._scan(*self._leave_parser(parser, state))
        held, self._held = self._held, ""
        if held and not self._is_stray_mark(held):
            self._emit(held)
        return self._events.drain()

    def _is_stray_mark(self, held: str) -> bool:
        kind, mark = self._triggers.match(held, 0, self._line, closed=True)
        is_mark = kind is TriggerKind.STRAY_MARK or (kind is TriggerKind.START_MARKER and mark in self._syntax.stray_marks)
        return is_mark and mark == held and self._drops(mark)

    def _significant_characters(self) -> re.Pattern[str] | None:
        """Return a pattern of the characters that may change the state; most deltas have none. None: any character may."""
        if self._parser is not None or self._held or self._awaits_tag or self._is_bare:
            return None
        if self._fence is not None:
            return _LINE_BREAK if self._fence.inside_line else None
        if self._line.is_open or not (self._begun or self._in_reasoning):
            return None
        return self._triggers.characters

    def _accept(self, text: str) -> None:
        if len(text) > _PIECE:
            for at in range(0, len(text), _PIECE):
                self._accept(text[at : at + _PIECE])
        elif self._parser is not None:
            state = self._parser.feed(text)
            if state is not ParseState.WAITING:
                self._scan(*self._leave_parser(self._parser, state))
        else:
            held, self._held = self._held, ""
            self._scan(held + text, 0)

    @property
    def in_reasoning(self) -> bool:
        return self._in_reasoning

    # grammar.CallSink

    def start(self, name: str) -> None:
        if self._parser is not None:
            self._emit_printed(self._parser)
            self._parser.commit()
        self._begin_answer()
        self.may_be_reasoning = False
        self._line.start_text()
        self._line.leave_margin()
        self._tail = ""
        self._events.start(name)

    def finish(self) -> None:
        repaired = self._parser is not None and self._parser.finish_call()
        self._events.finish(repaired=repaired and self._reports_calls)

    def text(self, text: str) -> None:
        self._restart_parser()
        self._advance(text)
        self._emit(text)

    def reasoning(self, text: str) -> None:
        self._restart_parser()
        if text:
            self._events.add(ReasoningDelta(text))

    def _restart_parser(self) -> None:
        if self._parser is not None:
            self._emit_printed(self._parser)
            self._parser.restart()

    def _emit_printed(self, parser: CallParser, *, is_last: bool = False) -> None:
        printed = parser.take_printed(is_last=is_last)
        if printed and self._reports_calls:
            self._events.add(CallPrinted(printed))

    # Text

    def _delta(self, text: str) -> TextDelta | ReasoningDelta:
        return ReasoningDelta(text) if self._in_reasoning else TextDelta(text)

    def _emit(self, text: str) -> None:
        if text:
            self._events.add(self._delta(text))

    def _advance(self, text: str) -> None:
        """Track lines, inline code and the beginning of the answer."""
        if text:
            self._line.advance(text)
            if self._quotable:
                self._tail = (self._tail + text[-2:])[-2:]
            if self._is_bare and not text.isspace():
                self._is_bare = False
            if not self._begun and not self._in_reasoning and not text.isspace():
                self._begin_answer()

    def _begin_answer(self) -> None:
        """Drop the markers that count only at the start of the answer."""
        if not self._begun:
            self._begun = True
            self._triggers = self._current_triggers()

    def _current_triggers(self) -> TriggerSet:
        return triggers_for(self._syntax, self._options, in_reasoning=self._in_reasoning, begun=self._begun)

    def _scan(self, text: str, at: int) -> None:
        """Scan the text from that place on, up to a call that needs more input."""
        if self._awaits_tag:
            text, at = self._skip_reasoning_tag(text[at:]), 0
        emitted = advanced = at
        while True:
            if self._fence is not None:
                at = advanced = self._skip_fence(self._fence, text, at)
                if self._fence is not None:
                    break
            found = self._triggers.pattern.search(text, at)
            if found is None:
                break
            at = found.start()
            self._advance(text[advanced:at])
            advanced = at
            kind, marker = self._triggers.match(text, at, self._line)
            if kind is INCOMPLETE:
                self._emit(text[emitted:at])
                self._held = text[at:]
                return
            if kind is NONE:
                at = FenceState.end_of_run(text, at)
                continue
            end = at + len(marker)
            if kind is TriggerKind.FENCE or (kind is TriggerKind.HTML_BLOCK and not self._line.quotes_marker()):
                self._begin_answer()
                is_fence = kind is TriggerKind.FENCE
                self._fence = FenceState(marker, self._line.quote_depth) if is_fence else HtmlBlock(marker)
                self._line.leave_margin()
                at = end
            elif self._shows(kind, marker):
                at = end
            else:
                self._emit(text[emitted:at])
                if kind is TriggerKind.REASONING_TAG:
                    self._switch_reasoning()
                    at = end
                elif kind is TriggerKind.STRAY_MARK:
                    self._drop_mark(marker)
                    at = end
                else:
                    self._parser = parser = CallParser(self._syntax, self, marker, text, end)
                    state = parser.run()
                    if state is ParseState.WAITING:
                        return
                    text, at = self._leave_parser(parser, state)
                emitted = advanced = at
        if self._fence is None:
            self._advance(text[advanced:])
        self._emit(text[emitted:])

    def _shows(self, kind: TriggerKind, marker: str) -> bool:
        """Return whether a mark is text: it is quoted, or there is no reason to remove it."""
        if self._triggers.fences and self._line.quotes_marker():
            return True
        if kind is TriggerKind.STRAY_MARK:
            return not self._drops(marker)
        if marker in self._quotable and _OPENING_QUOTE.fullmatch(self._tail):
            self._shows_block = True
            return True
        return False

    def _skip_fence(self, fence: FenceState | HtmlBlock, text: str, at: int) -> int:
        """Return where the fence or the text ends."""
        end = fence.advance(text, at)
        if end is None:
            return len(text)
        self._fence = None
        if fence.ended_line:
            self._line.start_line()
        else:
            self._line.leave_margin(len(fence.run))
        return end

    # Reasoning

    def _skip_reasoning_tag(self, text: str) -> str:
        """Remove the start tag of an answer that was assumed to begin in reasoning. One that begins with a call does not."""
        tag = self._options.reasoning[0] if self._options.reasoning is not None else ""
        marks = tuple(mark.text for mark in self._syntax.start_markers if mark.position == "anywhere")
        blanks, self._held, rest = split_reasoning_tag(text, tag, marks)
        self._emit(blanks)
        if rest is None:
            return ""
        self._awaits_tag = False
        self.assumes_reasoning = blanks + rest == text
        if self.assumes_reasoning and rest.startswith(marks):
            self._switch_reasoning()
        return rest

    def _closes_only_reasoning(self) -> bool:
        """Return whether the end tag ends nothing but reasoning. Inkling's ends all messages."""
        tags = self._options.reasoning
        return tags is not None and all(marker.text != tags[1] for marker in self._syntax.start_markers)

    def _drop_mark(self, mark: str) -> None:
        self._is_bare = True
        if self.may_be_reasoning and self._options.reasoning is not None and mark == self._options.reasoning[1]:
            self.may_be_reasoning = False
            if self._reports_calls:
                self._events.add(ReasoningClosed())

    def _switch_reasoning(self) -> None:
        self._in_reasoning = not self._in_reasoning
        self.assumes_reasoning = self.may_be_reasoning = False
        self._line.start_text()
        self._triggers = self._current_triggers()

    # Calls

    def _leave_parser(self, parser: CallParser, state: ParseState) -> tuple[str, int]:
        """End a possible call; return the text after it and a place in it."""
        self._parser = None
        if state is ParseState.NOT_A_CALL:
            if self._stands_alone and (parser.marker in self._syntax.stray_marks or parser.is_only_marks()):
                self._is_bare = True
            else:
                self._shows_block = True
                self._emit_marker(parser.marker)
            return parser.all_input()
        self._emit_printed(parser, is_last=state is ParseState.FINISHED)
        if state is ParseState.BROKEN:
            self._events.broken(parser.rule, parser.consumed_text())
            self._begin_answer()
        self._is_bare, self._shows_block = True, False
        self._line.end_code()
        return parser.unread_input()

    @property
    def _stands_alone(self) -> bool:
        """Whether only blanks precede this place in the line, or follow the last call or mark."""
        return self._is_bare or self._line.is_blank

    def _drops(self, mark: str) -> bool:
        """Return whether a mark without a call is removed.

        Marks after a start marker that is text are text, too, up to the next call. A tag inside a line of
        text may be meant; a special token is not.
        """
        if self._options.reasoning is not None and mark == self._options.reasoning[1]:
            return True
        if self._shows_block:
            return False
        if mark not in self._syntax.end_markers:
            return self._is_bare or mark in self._syntax.stray_marks
        return self._stands_alone or "|" in mark or "｜" in mark

    def _emit_marker(self, marker: str) -> None:
        """Emit a start marker that is text. It may open a fence."""
        fence = self._triggers.fences and self._line.is_blank and FenceState.opening_run(f"{marker} ", 0)
        self._advance(marker)
        self._emit(marker)
        if fence:
            self._fence = FenceState(fence)
