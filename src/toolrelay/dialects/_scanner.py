"""Finds calls in a model's text as it streams: text in, stream events out; any chunking gives the same.

    state       what is looked for                       what happens to the rest
    ---------   --------------------------------------   -----------------------------------------------
    text        the dialect's openers, the reasoning     it is text, given out at once; only what may be
                tag, a Markdown fence (see _watch)       the beginning of one of these waits
    fence       its end (see _fences)                    text: a call quoted in a fence is none
    code        the end of inline code (see _lines)      text, for the same reason
    reasoning   its end tag                              reasoning: a call pondered there is none
    call        whatever the dialect's grammar wants     see _reader

The grammar decides. Until it starts a call, all it has read is kept, and comes out as text if it turns out to be none: first the
opener, then the rest is looked at again. A call that breaks takes with it what follows, up to the dialect's next closer. Most
deltas hold none of the characters that marks begin with, and cost a look for those; most deltas of a call are handed straight
to the step that the grammar waits for.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, ReasoningDelta, StreamEvent, TextDelta
from toolrelay.core.request import Tool
from toolrelay.core.surrogates import join_surrogates_so_far
from toolrelay.dialects._attempt import Attempt
from toolrelay.dialects._faults import BrokenError, CutError, NotACallError, ReadingError
from toolrelay.dialects._fences import Fence
from toolrelay.dialects._lines import Line
from toolrelay.dialects._watch import Quoting, Watch, past_tag, watching
from toolrelay.dialects.base import Dialect


class CallBroken(Struct, frozen=True, kw_only=True):
    """A call that cannot be finished. `rule` says why; `text` is what was printed of it.

    `index` is the call's, where it had started: then its arguments so far have been given out, too.
    """

    rule: str
    text: str
    index: int | None = None


ScannerEvent = StreamEvent | CallBroken


class Scanner:
    """`presumes`: the answer is taken to begin in reasoning, and no tag, at the beginning or the end of that, has said so yet."""

    def __init__(self, dialect: Dialect, tools: Mapping[str, Tool], quoting: Quoting | None = None) -> None:
        self.tools = dict(tools)
        self._dialect = dialect
        self._quoting = quoting or Quoting()
        self._out: list[ScannerEvent] = []
        self._said: list[str] = []
        self.argue = self._said.append  # what a grammar says of arguments: one piece for each chunk is made of it
        self._held = ""
        self._half = ""
        self._thinking = self.presumes = self._quoting.begins_in_reasoning
        self._awaits_tag = self._thinking and self._quoting.reasoning is not None
        self._delta = _DELTAS[self._thinking]
        self._fence: Fence | None = None
        self._line = Line()
        self._begun = False
        self._calls = 0
        self._open_call = _NONE
        self._argued = False
        self._attempt: Attempt | None = None
        self._watch = self._watching()
        self._first = self._second = ""
        self._set_firsts()

    # From outside

    def feed(self, text: str) -> list[ScannerEvent]:
        if self._half or not (text.isascii() or text.isprintable()):
            text, self._half = join_surrogates_so_far(self._half + text)
        attempt = self._attempt
        if attempt is None:
            if self._first in text or self._second in text:
                return self._consider(text)
            if self._fence is None:
                if "\n" in text:
                    return self._end_line(text)
                if "`" in text and self._line.keep(text):
                    self._first = ""
            return [self._delta(text)] if text else []  # nearly every delta
        step = attempt.step
        room = attempt.room - len(text)
        if step is None or room <= 0:
            attempt.feed(text)
            self._settle()
            return self._given()
        attempt.room = room
        attempt.pieces.append(text)
        try:
            piece = step(text)
        except ReadingError as error:
            attempt.fail(error)
            piece = None
        if piece:
            if self._argued:  # nearly every delta of a call
                return [ArgumentsDelta(self._open_call, piece)]
            self.argue(piece)
            self._give_arguments()
        elif piece is None:
            attempt.step = None
            self._settle()
        return self._given() if self._out else []

    def _given(self) -> list[ScannerEvent]:
        out, self._out = self._out, []
        return out

    def flush(self) -> list[ScannerEvent]:
        """The model's text has ended."""
        if self._half:
            self._half = ""
            self._accept("\ufffd")
        while self._attempt is not None:
            self._attempt.reader.closed = True
            self._settle()
        held, self._held = self._held, ""
        self._emit(held)
        return self._given()

    def _end_line(self, text: str) -> list[ScannerEvent]:
        """A line ends in the text, which has nothing of a mark that may stand anywhere."""
        if "`" in text or "~" in text or self._watch.at_line:
            return self._consider(text)
        line = self._line
        line.end(text)
        if line.is_open:
            self._first = ""
        if not self._begun:
            self._look_for_beginning(text)
        return [self._delta(text)]

    def _consider(self, text: str) -> list[ScannerEvent]:
        """Text in which something may begin or end."""
        if not text:
            return []
        fence = self._fence
        if fence is not None:
            first = fence.glance(text)
            if first is not None:
                self._first = first
                return [TextDelta(text)]
        elif self._first and "\n" not in text:
            watch = self._watch
            one, other, last = watch.pairs
            found = watch.within_line.search(text) if one in text or other in text or text[-1] in last else None
            if found is None or found.lastindex is not None:
                if found is not None:  # it may be the beginning of a mark
                    text, self._held = text[: found.start()], found.group()
                    self._first = ""
                if "`" in text and self._line.keep(text):
                    self._first = ""
                return [self._delta(text)] if text else []
        else:
            if self._held:
                text, self._held = self._held + text, ""
            if self._awaits_tag:
                return self._consider_beginning(text)
            watch, line = self._watch, self._line
            if (watch.trigger if line.at_margin or "\n" in text else watch.within_line).search(text) is None:
                if line.is_open or "\n" in text or "`" in text:
                    line.pass_over(text)
                self._first = "" if line.is_open or not (self._begun or self._thinking) else watch.first
                self._second = watch.second
                if not self._begun:
                    self._look_for_beginning(text)
                return [self._delta(text)]
        self._accept(text)
        return self._given()

    def _consider_beginning(self, text: str) -> list[ScannerEvent]:
        """An answer that begins in reasoning may be printed with the tag for that all the same, which is no thought."""
        blanks, self._held, thoughts = past_tag(text, self._quoting)
        self._emit(blanks)
        if thoughts is not None:
            self._awaits_tag = False
            self.presumes = blanks + thoughts == text
            self._accept(thoughts)
            self._set_firsts()
        return self._given()

    def _accept(self, text: str) -> None:
        """More text, while no grammar is reading, or none is any more."""
        for at in range(0, len(text), _PIECE):
            piece = text[at : at + _PIECE]
            if self._attempt is not None:
                self._attempt.feed(piece)
            else:
                held, self._held = self._held, ""
                self._scan(held + piece, 0)
            self._settle()

    def _settle(self) -> None:
        """Reads and scans on, until everything waits for more text."""
        while (attempt := self._attempt) is not None:
            rest = self._run(attempt)
            if rest is None:
                break
            self._scan(*rest)
        if self._said:
            self._give_arguments()
        self._set_firsts()

    def _set_firsts(self) -> None:
        """What decides whether a delta may be more than text: a line break, or one of two characters. "" is in every text.

        A backtick is kept in mind, but is text.
        """
        fence = self._fence
        if fence is not None:
            self._first, self._second = "", fence.run[0]
        else:
            is_open = self._held or self._awaits_tag or self._line.is_open or not (self._begun or self._thinking)
            self._first = "" if is_open else self._watch.first
            self._second = self._watch.second

    # What a grammar says (dialects.base.Speaker)

    def start(self, name: str) -> None:
        self._commit()
        self._begin()
        self._line.go_on()
        self._argued = False
        self._open_call = self._calls
        self._calls += 1
        self._out.append(CallStarted(self._open_call, name))

    def finish(self) -> None:
        self._give_arguments()
        if not self._argued:
            self._said.append("{}")
            self._give_arguments()
        if self._open_call != _NONE:
            self._out.append(CallFinished(self._open_call))
            self._open_call = _NONE
        if self._attempt is not None:
            self._attempt.begin_anew()

    def say(self, text: str) -> None:
        self._pass_over()
        self._look(text)
        self._emit(text)

    def think(self, text: str) -> None:
        self._pass_over()
        if text:
            self._out.append(ReasoningDelta(text))

    def _pass_over(self) -> None:
        """What was read has been said: it is no part of a call."""
        if self._said:
            self._give_arguments()
        if self._attempt is not None:
            self._attempt.begin_anew()

    def _commit(self) -> None:
        """Something is given out: what was read cannot come out as text any more."""
        self._give_arguments()
        if self._attempt is not None:
            self._attempt.commit()

    def _give_arguments(self) -> None:
        """What was said of the arguments goes out in one piece for each chunk."""
        said = self._said
        text = said[0] if len(said) == 1 else "".join(said)
        said.clear()
        if text and self._open_call != _NONE:
            self._argued = self._argued or not text.isspace()
            self._out.append(ArgumentsDelta(self._open_call, text))

    # Text

    def _emit(self, text: str) -> None:
        if text:
            self._out.append(self._delta(text))

    def _look(self, text: str) -> None:
        """Keeps in mind where lines, inline code and the answer begin."""
        if text:
            line = self._line
            if line.is_open or "\n" in text or "`" in text:
                line.pass_over(text)
            if not self._begun:
                self._look_for_beginning(text)

    def _look_for_beginning(self, text: str) -> None:
        if not self._thinking and not text.isspace():
            self._begin()

    def _begin(self) -> None:
        """The answer has begun: what counts only at its start is no longer looked for."""
        if not self._begun:
            self._begun = True
            self._watch = self._watching()
            self._set_firsts()

    def _watching(self) -> Watch:
        return watching(self._dialect.openers, self._quoting, thinking=self._thinking, begun=self._begun)

    def _scan(self, text: str, at: int) -> None:
        """Gives out the text from that place on, up to a call that waits for more."""
        done = looked = at
        while True:
            if self._fence is not None:
                at = looked = self._quote(self._fence, text, at)
                if self._fence is not None:
                    break
            found = self._watch.trigger.search(text, at)
            if found is None:
                break
            at = found.start()
            self._look(text[looked:at])
            looked = at
            mark = self._watch.mark_at(text, at, self._line)
            if mark is None:
                self._emit(text[done:at])
                self._held = text[at:]
                return
            if not mark:
                at = Fence.end_of_run(text, at)
            elif not self._watch.knows(mark):
                self._begin()
                self._fence = Fence(mark, self._line.depth)
                self._line.go_on()
                at += len(mark)
            elif self._watch.fences and self._line.quotes_mark():
                at += len(mark)
            elif mark == self._watch.tag:
                self._emit(text[done:at])
                self._thinking = not self._thinking
                self.presumes = False
                self._delta = _DELTAS[self._thinking]
                self._line.begin()
                self._watch = self._watching()
                done = looked = at = at + len(mark)
            else:
                self._emit(text[done:at])
                self._attempt = Attempt(self._dialect.grammar, self, mark, text, at + len(mark))
                rest = self._run(self._attempt)
                if rest is None:
                    return
                text, at = rest
                done = looked = at
        if self._fence is None:
            self._look(text[looked:])
        self._emit(text[done:])

    def _quote(self, fence: Fence, text: str, at: int) -> int:
        """Passes over what the fence quotes; where it ends, or the text does."""
        end = fence.pass_over(text, at)
        if end is None:
            return len(text)
        self._fence = None
        if fence.ended_line:
            self._line.begin()
        else:
            self._line.go_on(len(fence.run))
        return end

    # Calls

    def _run(self, attempt: Attempt) -> tuple[str, int] | None:
        """Lets the grammar read. None: it waits for more. Else it is through, and the text goes on at that place."""
        while True:
            try:
                attempt.go_on()
            except StopIteration:
                return self._give_up(attempt, attempt.rule) if attempt.rule else self._leave(attempt)
            except ReadingError as error:
                if attempt.rule:
                    return self._give_up(attempt, attempt.rule)
                if isinstance(error, CutError):
                    if attempt.is_bare():
                        return self._give_back(attempt)
                    attempt.read_all()
                    return self._give_up(attempt, "cut")
                if isinstance(error, NotACallError) and not attempt.committed:
                    return self._give_back(attempt)
                rule = error.rule if isinstance(error, BrokenError) else "malformed"
                if not self._dialect.closers:
                    return self._give_up(attempt, rule)
                attempt.skip(rule, self._dialect.closers)
                continue
            if attempt.room <= 0:
                return self._give_up(attempt, attempt.rule or ("too_long" if attempt.committed else "held_too_long"))
            if not attempt.beyond:
                return None
            attempt.feed("")

    def _leave(self, attempt: Attempt) -> tuple[str, int]:
        self._attempt = None
        self._line.end_code()
        return attempt.rest()

    def _give_back(self, attempt: Attempt) -> tuple[str, int]:
        """It was no call: the opener is text, and what follows it is looked at again."""
        self._attempt = None
        opens_fence = self._watch.fences and self._line.is_blank and Fence.opening(attempt.opener + " ", 0)
        self._look(attempt.opener)
        self._emit(attempt.opener)
        if opens_fence:
            self._fence = Fence(opens_fence)
        return attempt.given()

    def _give_up(self, attempt: Attempt, rule: str) -> tuple[str, int]:
        self._give_arguments()
        index = None if self._open_call == _NONE else self._open_call
        self._out.append(CallBroken(rule=rule, text=attempt.printed(), index=index))
        self._open_call = _NONE
        self._begin()
        return self._leave(attempt)


_NONE = -1
_DELTAS: tuple[type[TextDelta], type[ReasoningDelta]] = (TextDelta, ReasoningDelta)
_PIECE = 64 * 1024  # a whole answer in one chunk is read in pieces, so that a place in it is never far from its piece's end
