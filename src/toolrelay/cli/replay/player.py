"""Player of recorded exchanges: decodes the request, parses the recorded answer and prints what a client would receive.

runtime.recordings.format has the format of a recording; a file may also have one per line. A folder with request.WIRE.json and
upstream.WIRE.sse, as in tests/golden/exchanges, is a recording, too. No model is called; the same recording always gives the same
bytes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from toolrelay.backends.base import Deliver, Wanted, deliver_batch
from toolrelay.backends.providers import PROVIDERS
from toolrelay.clients.xml.exchange import XmlClientOptions, XmlExchange
from toolrelay.core.assembly import Assembly
from toolrelay.core.commands import Notice, RecordStep
from toolrelay.core.events import AnswerFailed, AnswerFinished, AnswerStarted, StreamEvent, TextDelta
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request
from toolrelay.core.turn import Turn
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.errors import ConfigurationError, ToolrelayError
from toolrelay.runtime.driver import Sink, drive
from toolrelay.runtime.models import tool_calling_mode
from toolrelay.runtime.recordings.format import RecordedAnswer, RecordedModel, Recording, UpstreamStream
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.toolcalls.options import ActiveOptions, ToolCallOptions
from toolrelay.wires.base import Envelope, ProviderWire, Wire, discover_provider_wires
from toolrelay.wires.base import discover as discover_wires

_TOKEN = "Replay00000000000000"  # noqa: S105 -- a turn's token, which is random elsewhere

Write = Callable[[str], object]
W = TypeVar("W", bound=ProviderWire)


def play_file(
    path: Path,
    *,
    client: str = "",
    wire: str = "",
    dialect: str = "",
    chunk: int = 0,
    out: Write | None = None,
    log: Write | None = None,
) -> None:
    """Play every recording of the file. Arguments that are not empty override what the recordings say."""
    if client not in ("", "openai", "use_tool"):
        raise ConfigurationError(f"client: expected one of openai, use_tool, found {client!r}")
    out, log = out or sys.stdout.write, log or sys.stderr.write
    overrides = {name: value for name, value in (("client", client), ("wire", wire), ("dialect", dialect)) if value}
    recordings = [replace(recording, **overrides) for recording in _read(path, wire)]
    for number, recording in enumerate(recordings, 1):
        if len(recordings) > 1:
            out(f"=== {number} of {len(recordings)}{f': {recording.note}' if recording.note else ''}\n")
        asyncio.run(_play(recording, chunk, out, log))


# Reading recordings


def _read(path: Path, wire: str) -> list[Recording]:
    try:
        if path.is_dir():
            return [_read_folder(path, wire)]
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if not data.strip():
        raise ConfigurationError(f"{path}: there is no recording in it")
    try:
        return [msgspec.json.decode(data, type=Recording)]
    except msgspec.DecodeError as error:
        lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
        if isinstance(error, msgspec.ValidationError) or len(lines) < 2:
            raise ConfigurationError(f"{path}: {error}") from None
    return [_read_line(f"{path}:{number}", line) for number, line in lines]


def _read_line(place: str, line: bytes) -> Recording:
    try:
        return msgspec.json.decode(line, type=Recording)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{place}: {error}") from None


def _read_folder(folder: Path, wire: str) -> Recording:
    requests = {path.name.split(".")[1]: path for path in sorted(folder.glob("request.*.json"))}
    answers = {path.name.split(".")[1]: path for path in sorted(folder.glob("upstream.*.sse"))}
    front = wire or ("chat" if "chat" in requests else next(iter(requests), ""))
    if front not in requests or not answers:
        recorded = max(folder.glob("*T*Z-*.json"), default=None)
        hint = f"; to replay one of its recordings, name it: toolrelay replay {recorded}" if recorded else ""
        raise ConfigurationError(f"{folder}: expected request.{front or 'WIRE'}.json and upstream.WIRE.sse in it{hint}")
    back = front if front in answers else next(iter(answers))
    known = {each.config_name for each in discover_provider_wires().values()}  # other names are of servers with Chat Completions
    return Recording(
        request=msgspec.Raw(requests[front].read_bytes()),
        answer=UpstreamStream(answers[back].read_text(encoding="utf-8"), back if back in known else "chat"),
        wire=front,
    )


# Playing recordings


async def _play(recording: Recording, chunk: int, out: Write, log: Write) -> None:
    wire = _find_wire(recording.wire or _guess_wire(recording.request), discover_wires())
    backend = _RecordedBackend([_make_batches(answer, chunk) for answer in recording.answers])
    try:
        request = wire.decode_request(bytes(recording.request))
    except ToolrelayError as error:
        out(_format_error(wire, error))
        return
    exchange = None
    if recording.client == "use_tool":
        exchange = XmlExchange(request, XmlClientOptions(order=recording.order))
        request = exchange.request
    printer = _Printer(wire, Envelope(token=_TOKEN, created=0, model=request.model, request=request), out, log)
    sink: Sink = printer if exchange is None else exchange.sink(printer, printer, turn=_TOKEN)
    turn = Turn(token=_TOKEN, request=request, policy=Policy(records_answers=False))
    await drive(ToolCallLayer(turn, _mode(recording)), backend, sink, printer)
    printer.finish()


def _find_wire(word: str, wires: Mapping[str, W]) -> W:
    found = {wire.config_name: wire for wire in wires.values()}
    if word not in found:
        raise ConfigurationError(f"wire: expected one of {', '.join(sorted(found))}, found {word!r}")
    return found[word]


def _guess_wire(request: msgspec.Raw) -> str:
    try:
        members = msgspec.json.decode(request, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return "chat"
    return "responses" if "input" in members else "chat"


class _RecordedBackend:
    """A backend that gives each recorded answer once, and the last one to all further requests."""

    def __init__(self, answers: list[list[list[StreamEvent]]]) -> None:
        self._answers = answers

    async def stream_into(self, _request: Request, deliver: Deliver) -> None:
        batches = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        for batch in batches:
            if await deliver_batch(deliver, batch) is Wanted.NOTHING:
                return

    async def close(self) -> None:
        pass


def _make_batches(answer: RecordedAnswer, chunk: int) -> list[list[StreamEvent]]:
    """Return the events of a recorded answer: text in chunks of so many characters, SSE in chunks of so many bytes."""
    if isinstance(answer, str):
        size = chunk or len(answer) or 1
        deltas = [TextDelta(answer[start : start + size]) for start in range(0, len(answer) or 1, size)]
        events: list[StreamEvent] = [AnswerStarted(), *deltas, AnswerFinished(finish="stop")]
        return [[event] for event in events]
    decoder = _find_wire(answer.wire, discover_provider_wires()).decoder()
    data = answer.sse.encode()
    size = chunk or len(data) or 1
    batches = [decoder.feed(data[start : start + size]) for start in range(0, len(data), size)]
    return [batch for batch in (*batches, decoder.flush()) if batch]


def _mode(recording: Recording) -> ActiveOptions:
    dialects = discover_dialects()
    if recording.dialect and recording.dialect not in dialects:
        raise ConfigurationError(f"dialect: expected one of {', '.join(sorted(dialects))}, found {recording.dialect!r}")
    if recording.dialect:
        return ActiveOptions(ToolCallOptions(dialect=dialects[recording.dialect]))
    if recording.model is None:
        return ActiveOptions(ToolCallOptions(dialect=dialects["sealed"], native=True, on_bad_call="pass"))
    return _mode_of_model(recording.model)


def _mode_of_model(model: RecordedModel) -> ActiveOptions:
    """Return the options of a recorded model. A sealed one has the tag that stands in recordings."""
    if model.provider not in PROVIDERS:
        raise ConfigurationError(f"model.provider: expected one of {', '.join(sorted(PROVIDERS))}, found {model.provider!r}")
    allowed = ("auto", "native", "off", *sorted(discover_dialects()))
    if model.tool_calling not in allowed:
        raise ConfigurationError(f"model.tool_calling: expected one of {', '.join(allowed)}, found {model.tool_calling!r}")
    mode = tool_calling_mode(model.settings(), PROVIDERS[model.provider].profile, bytes)
    for_replay = [
        None if options is None else replace(options, dialect=replace(options.dialect, seal=None))
        for options in (mode.options, mode.fallback)
    ]
    return ActiveOptions(for_replay[0] or mode.options, for_replay[1])


def _format_error(wire: Wire, error: ToolrelayError) -> str:
    return f"HTTP {error.status}\n{wire.encode_error(error).decode()}\n"


class _Printer:
    """A sink that prints frames as they come, or the body at the end, and an observer that prints notices."""

    def __init__(self, wire: Wire, envelope: Envelope, out: Write, log: Write) -> None:
        self._wire = wire
        self._envelope = envelope
        self._out = out
        self._log = log
        self._encoder = wire.encoder(envelope)
        self._assembly = Assembly()
        self._has_frames = False

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        streams = self._envelope.request.stream
        for event in events:
            self._assembly.add(event)
            if isinstance(event, AnswerFailed) and not (streams and self._has_frames):
                return None
            if streams:
                frames = self._encoder.encode([event])
                self._has_frames = self._has_frames or bool(frames)
                self._out(frames.decode())
        return None

    def finish(self) -> None:
        if self._assembly.error is not None and not self._has_frames:
            self._out(_format_error(self._wire, self._assembly.error))
        elif not self._envelope.request.stream:
            self._out(f"{self._wire.encode_answer(self._assembly.answer(), self._envelope).decode()}\n")

    def record(self, command: RecordStep) -> None:
        pass

    def notice(self, command: Notice) -> None:
        self._log(f"log: {command.event} {command.rule}{f' {command.tool}' if command.tool else ''}\n")
