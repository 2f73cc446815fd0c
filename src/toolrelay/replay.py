"""`toolrelay replay FILE`: a recorded exchange through the gateway's own pieces, and what a client would see of it.

A recording is a JSON object, or one a line:

    request   the body of the client's request
    answer    the model's text; or {"sse": "…", "wire": "chat"}: what its server sent
    wire      chat | responses: what the client speaks. Left out: responses if the request has an `input`, else chat
    client    openai | use_tool: what the client understands
    order     tools_first | as_is, for use_tool
    dialect   how the model prints calls. Left out: it prints none, its text is text
    note      for people

A folder with request.WIRE.json and upstream.WIRE.sse in it, as tests/golden/exchanges has them, is a recording as well. No model
is asked anything; the same recording always gives the same bytes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolrelay.backends.base import Backend
from toolrelay.backends.demo import DemoBackend
from toolrelay.clients.xml.answer import Order
from toolrelay.clients.xml.exchange import XmlClientOptions, XmlExchange
from toolrelay.core.assembly import Assembly
from toolrelay.core.commands import Notice, Record
from toolrelay.core.events import AnswerFailed, AnswerFinished, AnswerStarted, StreamEvent, TextDelta
from toolrelay.core.policy import Policy
from toolrelay.core.turn import Turn
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.errors import ConfigurationError, ToolrelayError
from toolrelay.runtime.driver import Sink, drive
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.toolcalls.options import ModelMode, ToolCallOptions
from toolrelay.wires.base import Envelope, Wire
from toolrelay.wires.base import discover as discover_wires

_TOKEN = "Replay00000000000000"  # noqa: S105 -- a turn's, where others have random digits
_ENCODED = "utf-8"


class Stream(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model's server sent."""

    sse: str
    wire: str = "chat"


class Recording(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    request: msgspec.Raw
    answer: str | Stream
    wire: str = ""
    client: Literal["openai", "use_tool"] = "openai"
    order: Order = "tools_first"
    dialect: str = ""
    note: str = ""


Write = Callable[[str], object]


def run(
    path: Path,
    *,
    client: str = "",
    wire: str = "",
    dialect: str = "",
    chunk: int = 0,
    out: Write | None = None,
    notes: Write | None = None,
) -> int:
    """Plays every recording of the file; what is given here stands above what the recordings say. Gives the exit code."""
    if client not in ("", "openai", "use_tool"):
        raise ConfigurationError(f"client: expected one of openai, use_tool, found {client!r}")
    out, notes = out or sys.stdout.write, notes or sys.stderr.write
    given = {name: value for name, value in (("client", client), ("wire", wire), ("dialect", dialect)) if value}
    recordings = [replace(recording, **given) for recording in read(path, wire)]
    for number, recording in enumerate(recordings, 1):
        if len(recordings) > 1:
            out(f"=== {number} of {len(recordings)}{f': {recording.note}' if recording.note else ''}\n")
        asyncio.run(_play(recording, chunk, _Screen(out, notes)))
    return 0


# Parse


def read(path: Path, wire: str = "") -> list[Recording]:
    try:
        if path.is_dir():
            return [_read_folder(path, wire)]
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if not data.strip():
        raise ConfigurationError(f"{path}: there is no recording in it")
    return list(_read_all(path, data))


def _read_all(path: Path, data: bytes) -> Iterator[Recording]:
    try:
        yield msgspec.json.decode(data, type=Recording)
    except msgspec.DecodeError as whole:
        lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
        if isinstance(whole, msgspec.ValidationError) or len(lines) < 2:
            raise ConfigurationError(f"{path}: {whole}") from None
    else:
        return
    for number, line in lines:
        try:
            yield msgspec.json.decode(line, type=Recording)
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{path}:{number}: {error}") from None


def _read_folder(folder: Path, wire: str) -> Recording:
    requests = {path.name.split(".")[1]: path for path in sorted(folder.glob("request.*.json"))}
    answers = {path.name.split(".")[1]: path for path in sorted(folder.glob("upstream.*.sse"))}
    front = wire or next(iter(requests), "")
    if front not in requests or not answers:
        raise ConfigurationError(f"{folder}: expected request.{front or 'WIRE'}.json and upstream.WIRE.sse in it")
    back = front if front in answers else next(iter(answers))
    return Recording(
        request=msgspec.Raw(requests[front].read_bytes()),
        answer=Stream(answers[back].read_text(encoding=_ENCODED), "responses" if back == "responses" else "chat"),
        wire=front,
    )


# Playing


async def _play(recording: Recording, chunk: int, screen: _Screen) -> None:
    front = _wire(recording.wire or _wire_of(recording.request))
    backend = _backend(recording, chunk)
    try:
        request = front.decode_request(bytes(recording.request))
    except ToolrelayError as error:
        screen.refuse(front, error)
        return
    exchange = None
    if recording.client == "use_tool":
        exchange = XmlExchange(request, XmlClientOptions(order=recording.order))
        request = exchange.request
    envelope = Envelope(token=_TOKEN, created=0, model=request.model, request=request)
    screen.begin(front, envelope)
    sink: Sink = screen if exchange is None else exchange.sink(screen, screen, turn=_TOKEN)
    turn = Turn(token=_TOKEN, request=request, policy=Policy(keeps=False))
    await drive(ToolCallLayer(turn, ModelMode(_options(recording.dialect))), backend, sink, screen)
    screen.end()


def _wire(word: str) -> Wire:
    words = {wire.word: wire for wire in discover_wires().values()}
    if word not in words:
        raise ConfigurationError(f"wire: expected one of {', '.join(sorted(words))}, found {word!r}")
    return words[word]


def _wire_of(request: msgspec.Raw) -> str:
    try:
        members = msgspec.json.decode(request, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return "chat"
    return "responses" if "input" in members else "chat"


def _backend(recording: Recording, chunk: int) -> Backend:
    """The model, as recorded: its text in chunks of so many characters, its server's bytes in chunks of so many bytes."""
    if isinstance(recording.answer, str):
        pieces: list[StreamEvent] = [TextDelta(piece) for piece in _cut(recording.answer, chunk)]
        model = DemoBackend(script=[[AnswerStarted(), *pieces, AnswerFinished(finish="stop")]])
    else:
        decoder = _wire(recording.answer.wire).decoder()
        data = recording.answer.sse.encode()
        batches = [decoder.feed(data[at : at + (chunk or len(data))]) for at in range(0, len(data), chunk or len(data) or 1)]
        model = DemoBackend(script=[[batch for batch in (*batches, decoder.flush()) if batch]])
    return model


def _options(dialect: str) -> ToolCallOptions:
    dialects = discover_dialects()
    if not dialect:
        return ToolCallOptions(dialect=dialects["sealed"], native=True, on_bad_call="pass")
    if dialect not in dialects:
        raise ConfigurationError(f"dialect: expected one of {', '.join(sorted(dialects))}, found {dialect!r}")
    return ToolCallOptions(dialect=dialects[dialect])


def _cut(text: str, size: int) -> Sequence[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] if size > 0 else [text]


class _Screen:
    """A sink that shows frames as they come, or the body at the end; and an observer that shows what goes to the log."""

    def __init__(self, out: Write, notes: Write) -> None:
        self._out = out
        self._notes = notes

    def begin(self, wire: Wire, envelope: Envelope) -> None:
        self._wire = wire
        self._envelope = envelope
        self._encoder = wire.encoder(envelope)
        self._assembly = Assembly()
        self._began = False

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        streams = self._envelope.request.stream
        for event in events:
            self._assembly.add(event)
            if isinstance(event, AnswerFailed) and not (streams and self._began):
                return None
            if streams:
                frames = self._encoder.encode([event])
                self._began = self._began or bool(frames)
                self._out(frames.decode())
        return None

    def end(self) -> None:
        if self._assembly.error is not None and not self._began:
            self.refuse(self._wire, self._assembly.error)
        elif not self._envelope.request.stream:
            self._out(f"{self._wire.encode_answer(self._assembly.answer(), self._envelope).decode()}\n")

    def refuse(self, wire: Wire, error: ToolrelayError) -> None:
        self._out(f"HTTP {error.status}\n{wire.encode_error(error).decode()}\n")

    def record(self, command: Record) -> None:
        pass

    def notice(self, command: Notice) -> None:
        self._notes(f"log: {command.event} {command.rule}{f' {command.tool}' if command.tool else ''}\n")
