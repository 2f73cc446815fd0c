"""A model's answer as it is recorded: its events, joined, masked if wanted, and encoded as a Chat stream. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallStarted,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.request import Request, Sampling
from toolrelay.errors import BackendError
from toolrelay.runtime.recordings.format import SEALED_TAG
from toolrelay.runtime.recordings.masking import Masker
from toolrelay.wires.base import Envelope
from toolrelay.wires.chat.encoder import ChatEncoder

_TOKEN = "recorded"  # noqa: S105 -- a turn's token, which is random elsewhere
_ENDS = (AnswerFinished, AnswerFailed)
_DELTAS = (TextDelta, RefusalDelta, ReasoningDelta, ArgumentsDelta)


class AnswerCollector:
    """Collects the events of one answer, up to `limit` characters."""

    def __init__(self, limit: int) -> None:
        self._events: list[StreamEvent] = []
        self._room = limit

    @property
    def is_full(self) -> bool:
        return self._room < 0

    def add(self, batch: Sequence[StreamEvent]) -> None:
        if self._room < 0:
            return
        self._room -= sum(len(event.text) if isinstance(event, _DELTAS) else 1 for event in batch)
        self._events += batch

    def events(self) -> list[StreamEvent]:
        """Return the events, deltas joined, so that what was split can be masked. An answer that was cut ends here."""
        joined: list[StreamEvent] = []
        texts: list[str] = []
        for event in (*self._events, None):
            if texts and (event is None or not _continues(joined[-1], event)):
                joined[-1] = _with_text(joined[-1], "".join(texts))
                texts = []
            if event is None:
                break
            if not texts:
                joined.append(event)
            if isinstance(event, _DELTAS):
                texts.append(event.text)
        return joined if joined and isinstance(joined[-1], _ENDS) else [*joined, AnswerFinished(finish="stop")]


def _continues(last: StreamEvent, event: StreamEvent) -> bool:
    return type(last) is type(event) and isinstance(event, _DELTAS) and _with_text(last, "") == _with_text(event, "")


def _with_text(event: StreamEvent, text: str) -> StreamEvent:
    """Return a delta with another text. Log probabilities, which belong to the old one, are left out."""
    if isinstance(event, TextDelta):
        return TextDelta(text, event.choice)
    return replace(event, text=text) if isinstance(event, _DELTAS) else event


def encode_answer(events: Sequence[StreamEvent], request: Request, masker: Masker | None, tag: str) -> str:
    """Return the answer as a stream of Chat Completions. `tag` is that of a sealed conversation."""
    shown = Request(
        wire=request.wire, model="recorded", items=(), include_usage=True, stream=True, sampling=Sampling(n=request.sampling.n)
    )
    encoder = ChatEncoder(Envelope(token=_TOKEN, created=0, model=shown.model, request=shown))
    prepared = [kept for event in events if (kept := _prepare(event, masker, tag)) is not None]
    return encoder.encode(prepared).decode()


def _prepare(event: StreamEvent, masker: Masker | None, tag: str) -> StreamEvent | None:
    match event:
        case TextDelta() | RefusalDelta() | ReasoningDelta() | ArgumentsDelta():
            text = event.text.replace(f":{tag}>", f":{SEALED_TAG}>") if tag else event.text
            return replace(event, text=text if masker is None else masker.mask(text))
        case CallStarted():
            name = event.name if masker is None else masker.mask(event.name)
            return replace(event, id=f"call_{event.index}", name=name, extra=None)
        case AnswerStarted():
            return AnswerStarted()
        case AnnotationAdded() if masker is not None:
            return None
        case AnswerFailed(error=error) if masker is not None:
            return AnswerFailed(BackendError(masker.mask(error.message), status=error.status, code=error.code))
        case _:
            return event
