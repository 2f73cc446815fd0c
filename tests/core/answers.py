"""Hypothesis strategies for answers of a model, and for other ways to chunk them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    ItemReceived,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.errors import BackendError

TEXTS = st.text(max_size=6)
FINISHES: st.SearchStrategy[Finish] = st.sampled_from(["stop", "length", "calls", "content_filter"])
FAILED = AnswerFailed(BackendError("It died."))

_PARTS: st.SearchStrategy[StreamEvent] = st.one_of(
    st.builds(TextDelta, TEXTS, st.sampled_from([0, 0, 0, 1, 2])),
    st.builds(TextDelta, TEXTS, st.just(0), st.just([{"token": "x"}])),
    st.builds(RefusalDelta, TEXTS, st.sampled_from([0, 0, 1])),
    st.builds(AnnotationAdded, st.just({"type": "url_citation"}), st.sampled_from([0, 1])),
    st.builds(ReasoningStarted, id=st.sampled_from([None, "rs_1"])),
    st.builds(ReasoningDelta, TEXTS, st.sampled_from(["text", "summary"]), st.integers(0, 2), st.sampled_from([0, 0, 1])),
    st.builds(ReasoningFinished, encrypted=st.sampled_from([None, "sealed"])),
    st.builds(MessageStarted, phase=st.sampled_from([None, "final_answer"])),
    st.just(ItemReceived(wire="w", raw={"type": "web_search_call"})),
)


@st.composite
def _calls(draw: st.DrawFn, names: Sequence[str]) -> list[list[StreamEvent]]:
    """Generate calls, some of them unfinished."""
    calls: list[list[StreamEvent]] = []
    counts = {0: 0, 1: 0}
    for choice in draw(st.lists(st.sampled_from([0, 0, 1]), max_size=4)):
        index = counts[choice]
        counts[choice] += 1
        deltas = [ArgumentsDelta(index, piece, choice) for piece in draw(st.lists(TEXTS, max_size=3))]
        finished = [CallFinished(index, choice)] if draw(st.integers(0, 3)) else []
        calls.append([CallStarted(index, draw(st.sampled_from(names)), choice=choice), *deltas, *finished])
    return calls


@st.composite
def answers(draw: st.DrawFn, names: Sequence[str] = ("f", "g", "nope"), *, ends: bool = True) -> list[StreamEvent]:
    """Generate an answer with interleaved parts and calls."""
    strands = [*draw(_calls(names)), draw(st.lists(_PARTS, max_size=8))]
    order = draw(st.permutations([number for number, strand in enumerate(strands) for _ in strand]))
    rest = [iter(strand) for strand in strands]
    events: list[StreamEvent] = [AnswerStarted(model="m"), *(next(rest[number]) for number in order)]
    if not ends:
        return events
    if draw(st.integers(0, 9)) == 0:
        return [*events, FAILED]
    others = [ChoiceFinished(choice, draw(FINISHES)) for choice in draw(st.sampled_from([[], [1], [1, 2]]))]
    usage = draw(st.none() | st.builds(Usage, input=st.integers(0, 9), output=st.integers(0, 9)))
    return [*events, *others, AnswerFinished(finish=draw(FINISHES), usage=usage)]


@st.composite
def batches(draw: st.DrawFn, events: Sequence[StreamEvent]) -> list[list[StreamEvent]]:
    """Generate batches of the events, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(events)), max_size=len(events))))
    return [list(events[start:end]) for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True)]


@st.composite
def rechunk(draw: st.DrawFn, events: Sequence[StreamEvent]) -> list[StreamEvent]:
    """Generate the same answer in smaller deltas, some of them empty."""
    out: list[StreamEvent] = []
    for event in events:
        match event:
            case TextDelta(text, choice, logprobs) if logprobs is None:
                out += [TextDelta(piece, choice) for piece in draw(_pieces(text))]
            case RefusalDelta(text, choice):
                out += [RefusalDelta(piece, choice) for piece in draw(_pieces(text))]
            case ReasoningDelta(text, kind, part, choice):
                out += [ReasoningDelta(piece, kind, part, choice) for piece in draw(_pieces(text))]
            case ArgumentsDelta(index, text, choice):
                out += [ArgumentsDelta(index, piece, choice) for piece in draw(_pieces(text))]
            case _:
                out.append(event)
    return out


@st.composite
def _pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
