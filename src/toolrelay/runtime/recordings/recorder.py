"""The recorder of a running gateway: writes each exchange to a file of its own, in the format of `toolrelay replay`.

It sits between a turn and the model's backend, so the answer is recorded as the backend gave it, whatever the backend. A file is
written each time that the model has answered, by a thread. Limits: MAX_BYTES a file, MAX_FILES files; the oldest are deleted.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolrelay import log
from toolrelay.backends.base import Backend, Deliver, Wanted
from toolrelay.core.events import StreamEvent
from toolrelay.core.messages import Message, plain_text
from toolrelay.core.request import Request
from toolrelay.dialects.use_tool import DIALECTS as USE_TOOL
from toolrelay.errors import ConfigurationError
from toolrelay.runtime.models import Model
from toolrelay.runtime.recordings.answers import AnswerCollector, encode_answer
from toolrelay.runtime.recordings.format import RecordedModel, Recording, UpstreamStream
from toolrelay.runtime.recordings.masking import Masker
from toolrelay.wires.base import Wire

MAX_FILES = 1000
MAX_BYTES = 4 * 1024 * 1024
_NAME = re.compile(r"\d{8}T\d{6}\.\d{3}Z-[0-9A-Za-z]{1,64}\.json")
_TAG = re.compile(r"<tool_call:([0-9a-f]{12})>")


class RecordedRequest(Struct, frozen=True, kw_only=True):
    """A client's request: its body, and what the gateway made of it. `blocks`: their order, if the client reads blocks."""

    body: bytes
    request: Request
    wire: Wire
    turn: str
    blocks: Literal["", "tools_first", "as_is"] = ""


class Recorder:
    """`with_text`: content is recorded as it is; otherwise it is masked."""

    def __init__(self, folder: Path, *, with_text: bool = False, max_files: int = MAX_FILES) -> None:
        self._with_text = with_text
        self._folder = folder
        self._max_files = max_files
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._files = deque(sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name)))
        except OSError as error:
            raise ConfigurationError(f"--record: {folder}: {(error.strerror or str(error)).lower()}") from None
        self._thread = ThreadPoolExecutor(1, "recorder")
        log.info("recording_started", path=str(folder), with_text=with_text)

    def tap(self, model: Model, received: RecordedRequest) -> Model:
        """Return the model, whose answers to this request are recorded."""
        return replace(model, backend=_TappedBackend(model.backend, _Exchange(self, model, received)))

    def close(self) -> None:
        """Return when everything is written."""
        self._thread.shutdown()

    def save(self, exchange: _Exchange) -> None:
        """Write an exchange as it is now. A fault here must not become one of the turn."""
        with contextlib.suppress(RuntimeError):  # the gateway has stopped
            self._thread.submit(self._save, exchange, tuple(exchange.answers))

    def _save(self, exchange: _Exchange, answers: Sequence[_RecordedAnswer]) -> None:
        try:
            recording = exchange.make_recording(answers, with_text=self._with_text)
            data = msgspec.json.format(msgspec.json.encode(recording), indent=1) + b"\n"
            if len(data) > MAX_BYTES:
                log.warning("recording_skipped", file=exchange.name, limit=MAX_BYTES)
            else:
                self._write(exchange.name, data)
        except OSError as error:
            log.warning("recording_not_written", file=exchange.name, reason=error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 -- see `save`; the message may have content in it
            log.warning("recording_not_written", file=exchange.name, reason=type(error).__name__)

    def _write(self, name: str, data: bytes) -> None:
        draft = self._folder / f".{name}.new"
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.replace(self._folder / name)
        if name not in self._files:
            self._files.append(name)
        while len(self._files) > self._max_files:
            (self._folder / self._files.popleft()).unlink(missing_ok=True)


class _RecordedAnswer(NamedTuple):
    """The request that the model got, and its answer."""

    request: Request
    events: Sequence[StreamEvent]


class _Exchange:
    """One client's request and the answers to it so far."""

    def __init__(self, recorder: Recorder, model: Model, received: RecordedRequest) -> None:
        now = time.time()
        self.name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}.{int(now * 1000) % 1000:03}Z-{received.turn}.json"
        self.answers: list[_RecordedAnswer] = []
        self._recorder = recorder
        self._model = model
        self._received = received

    def finish_answer(self, request: Request, collector: AnswerCollector) -> None:
        if collector.is_full:
            log.warning("recording_skipped", file=self.name, limit=MAX_BYTES)
            return
        self.answers.append(_RecordedAnswer(request, collector.events()))
        self._recorder.save(self)

    def make_recording(self, answers: Sequence[_RecordedAnswer], *, with_text: bool) -> Recording:
        received = self._received
        body = msgspec.json.decode(received.body)
        masker = None if with_text else self._make_masker()
        streams = tuple(
            UpstreamStream(encode_answer(answer.events, answer.request, masker, _find_tag(answer.request))) for answer in answers
        )
        return Recording(
            request=msgspec.Raw(msgspec.json.encode(body if masker is None else masker.mask_request(body))),
            answer=streams[0] if len(streams) == 1 else streams,
            wire=received.wire.config_name,
            client="use_tool" if received.blocks else "openai",
            order=received.blocks or "tools_first",
            model=RecordedModel.of(self._model.settings),
            note="recorded with text" if with_text else "recorded; content is masked",
        )

    def _make_masker(self) -> Masker:
        options = self._model.mode.options
        return Masker(self._received.request, (options.dialect, *USE_TOOL), options.scan.reasoning or ())


class _TappedBackend:
    """The backend of one exchange."""

    def __init__(self, backend: Backend, exchange: _Exchange) -> None:
        self._backend = backend
        self._exchange = exchange

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        collector = AnswerCollector(MAX_BYTES)

        def tapped(batch: list[StreamEvent]) -> Awaitable[Wanted | None] | Wanted | None:
            collector.add(batch)
            return deliver(batch)

        try:
            await self._backend.stream_into(request, tapped)
        finally:
            self._exchange.finish_answer(request, collector)

    async def close(self) -> None:
        await self._backend.close()


def _find_tag(request: Request) -> str:
    """Return the tag of a sealed conversation, which is in its system text; empty if there is none."""
    texts = [
        plain_text(item.content) for item in request.items if isinstance(item, Message) and item.role in ("system", "developer")
    ]
    found = _TAG.search("\n".join([request.instructions or "", *texts]))
    return "" if found is None else found.group(1)
