"""Finds calls in a model's text as it streams: text in, stream events out; any chunking gives the same.

    state       what is looked for                       what happens to the rest
    ---------   --------------------------------------   -----------------------------------------------
    text        the dialect's openers, the reasoning     it is text, given out at once; only what may be
                tag, a Markdown fence at a line's start   the beginning of one of these waits
    fence       its end                                  text: a call quoted in a fence is none
    reasoning   its end tag                              reasoning: a call pondered there is none
    call        whatever the dialect's grammar wants     see _reader

The grammar decides. Until it starts a call, all it has read is kept, and comes out as text if it turns out to be none: first the
opener, then the rest is looked at again. Most deltas hold none of the characters that anything begins with, and cost one search.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, ReasoningDelta, StreamEvent, TextDelta
from toolrelay.core.request import Tool
from toolrelay.dialects._reader import BrokenError, CutError, NotACallError, Reader
from toolrelay.dialects.base import Dialect, Grammar, Opener, Speaker

HELD_LIMIT = 1024 * 1024


class CallBroken(Struct, frozen=True, kw_only=True):
    """A call that cannot be finished. `rule` says why; `text` is what was printed, where nothing of it was given out.

    `index` is the call's, where it had started.
    """

    rule: str
    text: str
    index: int | None = None


ScannerEvent = StreamEvent | CallBroken


class Quoting(Struct, frozen=True, kw_only=True):
    """Where a model's calls do not count, and how it marks its reasoning. A profile's data."""

    reasoning: tuple[str, str] | None = None
    begins_in_reasoning: bool = False
    calls_in_fences: bool = False
    calls_in_reasoning: bool = False


class Scanner:
    def __init__(self, dialect: Dialect, tools: Mapping[str, Tool], quoting: Quoting | None = None) -> None:
        self.tools = dict(tools)
        self._dialect = dialect
        self._quoting = quoting or Quoting()
        self._out: list[ScannerEvent] = []
        self._held = ""
        self._thinking = self._quoting.begins_in_reasoning
        self._fence = ""
        self._line_is_blank = True
        self._begun = False
        self._calls = 0
        self._open_call: int | None = None
        self._reading: _Attempt | None = None
        self._watch()

    # From outside

    def feed(self, text: str) -> list[ScannerEvent]:
        out: list[ScannerEvent] = []
        self._out = out
        if self._reading is not None:
            self._reading.feed(text)
            self._go_on(self._reading)
        elif self._held or self._trigger.search(text) is not None:
            text, self._held = self._held + text, ""
            self._scan(text, 0)
        else:  # nearly every delta
            self._emit(text)
        return out

    def flush(self) -> list[ScannerEvent]:
        """The model's text has ended."""
        out: list[ScannerEvent] = []
        self._out = out
        while self._reading is not None:
            self._reading.reader.closed = True
            self._go_on(self._reading)
        held, self._held = self._held, ""
        self._emit(held)
        return out

    # What a grammar says (dialects.base.Speaker)

    def start(self, name: str) -> None:
        self._open_call = self._calls
        self._calls += 1
        self._begun = True
        self._commit()
        self._out.append(CallStarted(self._open_call, name))

    def argue(self, text: str) -> None:
        if text and self._open_call is not None:
            self._out.append(ArgumentsDelta(self._open_call, text))

    def finish(self) -> None:
        if self._open_call is not None:
            self._out.append(CallFinished(self._open_call))
            self._open_call = None

    def say(self, text: str) -> None:
        self._commit()
        self._emit(text)

    def think(self, text: str) -> None:
        self._commit()
        if text:
            self._out.append(ReasoningDelta(text))

    def _commit(self) -> None:
        """Something was given out: what was read cannot come out as text any more."""
        if self._reading is not None:
            self._reading.raw = None

    # Text

    def _emit(self, text: str) -> None:
        if not text:
            return
        if self._thinking:
            self._out.append(ReasoningDelta(text))
            return
        self._out.append(TextDelta(text))
        self._line_is_blank = _line_is_blank(text, blank_before=self._line_is_blank)
        if not self._begun:
            self._begun = not text.isspace()

    def _watch(self) -> None:
        """What may begin here. Made anew when the state changes, so that a delta costs one search."""
        quoting = self._quoting
        quoted = (self._thinking and not quoting.calls_in_reasoning) or (self._fence and not quoting.calls_in_fences)
        self._openers: tuple[Opener, ...] = () if quoted else self._dialect.openers
        self._tag = ""
        if quoting.reasoning is not None and not self._fence:
            self._tag = quoting.reasoning[1 if self._thinking else 0]
        self._watches_fences = not self._thinking and not quoting.calls_in_fences
        first = {opener.text[0] for opener in self._openers} | set(self._tag[:1])
        if self._watches_fences:
            first |= {"`", "~"}
        self._trigger = re.compile("[" + re.escape("".join(sorted(first))) + "]") if first else _NEVER

    def _scan(self, text: str, at: int) -> None:
        """Gives out the text from that place on, up to a call that waits for more."""
        done = looked = at
        blank, begun = self._line_is_blank, self._begun
        while (found := self._trigger.search(text, at)) is not None:
            at = found.start()
            between, looked = text[looked:at], at
            blank = _line_is_blank(between, blank_before=blank)
            begun = begun or bool(between.strip())
            mark = self._mark_at(text, at, at_line=blank, at_start=not begun)
            if mark is None:
                self._emit(text[done:at])
                self._held = text[at:]
                return
            if not mark:
                at += 1
                continue
            self._emit(text[done:at])
            at += len(mark)
            if not self._turn(mark):
                attempt = _Attempt(self._dialect.grammar, self, mark, text, at)
                self._reading = attempt
                text, at = self._attempt(attempt)
                if self._reading is not None:
                    return
            done = looked = at
            blank, begun = self._line_is_blank, self._begun
        self._emit(text[done:])

    def _mark_at(self, text: str, at: int, *, at_line: bool, at_start: bool) -> str | None:
        """The mark that stands there; "" if none does; None if that cannot be told yet."""
        undecided = False
        for opener in self._openers:
            if (opener.place == "line" and not at_line) or (opener.place == "start" and not at_start):
                continue
            if text.startswith(opener.text, at):
                return opener.text
            undecided = undecided or opener.text.startswith(text[at : at + len(opener.text)])
        if self._tag:
            if text.startswith(self._tag, at):
                return self._tag
            undecided = undecided or self._tag.startswith(text[at : at + len(self._tag)])
        if undecided:
            return None
        if self._watches_fences and at_line and text[at] in "`~":
            return self._fence_at(text, at)
        return ""

    def _fence_at(self, text: str, at: int) -> str | None:
        run = _RUN.match(text, at)
        mark = run.group() if run else ""
        if at + len(mark) == len(text) and len(mark) < _LONGEST_FENCE:
            return None  # it may grow
        if len(mark) < max(3, len(self._fence)) or (self._fence and mark[0] != self._fence[0]):
            return ""
        return mark

    def _turn(self, mark: str) -> bool:
        """Into and out of reasoning and fences. False: the mark begins a call."""
        if mark == self._tag:
            self._thinking = not self._thinking
        elif self._watches_fences and mark[0] in "`~" and not any(mark == opener.text for opener in self._openers):
            self._emit(mark)
            self._fence = "" if self._fence else mark
        else:
            return False
        self._watch()
        return True

    # Calls

    def _go_on(self, attempt: _Attempt) -> None:
        text, at = self._attempt(attempt)
        if self._reading is None:
            self._scan(text, at)

    def _attempt(self, attempt: _Attempt) -> tuple[str, int]:
        """Lets the grammar read. When it is through, `_reading` is None, and the text goes on at the place that is returned."""
        try:
            next(attempt.reading)
        except StopIteration:
            self._reading = None
            return attempt.reader.place
        except NotACallError:
            return self._give_back(attempt)
        except BrokenError as error:
            return self._break(attempt, error.rule)
        except CutError:
            return self._give_back(attempt) if attempt.raw is not None else self._break(attempt, "cut")
        if attempt.raw is not None and attempt.size > HELD_LIMIT:
            return self._break(attempt, "held_too_long")
        return "", 0

    def _give_back(self, attempt: _Attempt) -> tuple[str, int]:
        """It was no call: the opener is text, and what follows it is looked at again."""
        if attempt.raw is None:
            return self._break(attempt, "malformed")
        self._reading = None
        self._emit(attempt.opener)
        return attempt.raw_text()

    def _break(self, attempt: _Attempt, rule: str) -> tuple[str, int]:
        self._reading = None
        text = ""
        if attempt.raw is not None:
            raw, at = attempt.raw_text()
            text = attempt.opener + raw[at:]
        self._out.append(CallBroken(rule=rule, text=text, index=self._open_call))
        self._open_call = None
        return attempt.reader.place


class _Attempt:
    """A grammar at work. `raw` is the text that it was given after the opener, until it has given something out."""

    __slots__ = ("_start", "opener", "raw", "reader", "reading", "size")

    def __init__(self, grammar: Grammar, speaker: Speaker, opener: str, text: str, at: int) -> None:
        self.opener = opener
        self.raw: list[str] | None = [text]
        self.size = 0
        self._start = at
        self.reader = Reader(text, at)
        self.reading = grammar(self.reader, speaker, opener)

    def feed(self, text: str) -> None:
        self.reader.feed(text)
        if self.raw is not None:
            self.raw.append(text)
            self.size += len(text)

    def raw_text(self) -> tuple[str, int]:
        """All of it, and the place after the opener."""
        raw = self.raw or [""]
        return (raw[0] if len(raw) == 1 else "".join(raw)), self._start


def _line_is_blank(text: str, *, blank_before: bool) -> bool:
    """Whether the line that the text ends in has nothing but blanks so far."""
    if "\n" in text:
        return not text[text.rfind("\n") + 1 :].strip()
    return blank_before and not text.strip()


_NEVER = re.compile(r"(?!)")
_LONGEST_FENCE = 64
_RUN = re.compile(r"`{1,64}|~{1,64}")
