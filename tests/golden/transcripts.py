"""Readable transcripts of the golden exchanges.

A folder of exchanges/ has a client's request for each wire (request.chat.json) and providers' answers: OpenAI's
(upstream.chat.sse) or another server's (upstream.ollama.sse). expect/ has a transcript for every route: expect/FRONT-BACK.txt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tests.exchange import decode_all, envelope, fold, run_turn
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.errors import ToolrelayError
from toolrelay.wires.base import ProviderWire, Wire, discover, discover_provider_wires

EXCHANGES = Path(__file__).parent / "exchanges"
_WIRE_TESTS = Path(__file__).parent.parent / "wires"  # with streams of wires that only providers speak
ALL = discover_provider_wires()
FRONTS = {wire.config_name: wire for wire in discover().values()}


class Back(Struct, frozen=True, kw_only=True):
    wire: ProviderWire
    profile: Profile


BACKS = {
    **{
        name: Back(wire=wire, profile=preset.profile)
        for name, preset in PROVIDERS.items()
        for wire in ALL.values()
        if preset.wire == wire.config_name
    },
    "mistral": Back(wire=ALL["openai_chat"], profile=Profile(call_ids="nine")),
    "chat": Back(wire=ALL["openai_chat"], profile=PROVIDERS["openai"].profile),
    "responses": Back(wire=ALL["openai_responses"], profile=PROVIDERS["openai"].profile),
}


class Way(Struct, frozen=True, kw_only=True):
    """One route through an exchange."""

    folder: Path
    front: str
    back: str

    @property
    def expected(self) -> Path:
        return self.folder / "expect" / f"{self.front}-{self.back}.txt"

    def __str__(self) -> str:
        return f"{self.folder.name}-{self.front}-{self.back}"

    def request(self) -> Request:
        return FRONTS[self.front].decode_request((self.folder / f"request.{self.front}.json").read_bytes())

    def answer(self) -> bytes:
        return (self.folder / f"upstream.{self.back}.sse").read_bytes()

    def transcript(self) -> str:
        request, front, back = self.request(), FRONTS[self.front], BACKS[self.back]
        events, notices = run_turn(request, decode_all(back.wire, self.answer()))
        frames = front.encoder(envelope(request)).encode(events).decode().removesuffix("\n\n").split("\n\n")
        sections = {
            **_asked(request, front, back),
            "to the client, as a stream": "\n\n".join(_shortened(frames)),
            "to the client, whole": _whole(front, request, events, frames),
        }
        if notices:
            sections["in the log"] = "\n".join(f"{notice.event} {notice.rule} {notice.tool}" for notice in notices)
        return "\n\n".join(f"=== {title}\n{text}" for title, text in sections.items()) + "\n"


def ways() -> Iterator[Way]:
    for folder in sorted(EXCHANGES.iterdir()):
        for request in sorted(folder.glob("request.*.json")):
            for answer in sorted(folder.glob("upstream.*.sse")):
                yield Way(folder=folder, front=request.name.split(".")[1], back=answer.name.split(".")[1])


def recorded(wire: ProviderWire) -> list[bytes]:
    """Every recorded answer over that wire."""
    paths = sorted(EXCHANGES.glob("*/upstream.*.sse"))
    of_servers = sorted((_WIRE_TESTS / wire.config_name / "streams").glob("*"))
    return [path.read_bytes() for path in paths if BACKS[path.name.split(".")[1]].wire.name == wire.name] + [
        path.read_bytes() for path in of_servers
    ]


def _asked(request: Request, front: Wire, back: Back) -> dict[str, str]:
    try:
        outgoing = back.wire.encode_request(replace(request, model="provider-model"), back.profile)
    except ToolrelayError as error:
        return {"refused": _error(front, error)}
    asked = {f"to the provider: POST {outgoing.path}": _pretty(json.loads(outgoing.body))}
    return asked | ({"dropped on the way": "\n".join(outgoing.dropped)} if outgoing.dropped else {})


def _whole(front: Wire, request: Request, events: list[StreamEvent], frames: list[str]) -> str:
    last = events[-1]
    if isinstance(last, AnswerFailed):
        return _error(front, last.error)
    body = json.loads(front.encode_answer(fold(events), envelope(replace(request, stream=False))))
    *_, final, _done = frames
    streamed = json.loads(final.partition("data: ")[2]).get("response")
    return "the response of the last frame" if streamed == body else _pretty(body)


def _error(wire: Wire, error: ToolrelayError) -> str:
    return f"HTTP {error.status}\n{_pretty(json.loads(wire.encode_error(error)))}"


def _pretty(value: Any, indent: str = "") -> str:
    """Format JSON. What fits into a line is written in one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= 120 or not isinstance(value, dict | list):
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        inner = [deeper + _pretty(element, deeper) for element in value]
    else:
        inner = [f"{deeper}{json.dumps(key)}: {_pretty(member, deeper)}" for key, member in value.items()]
    first, last = "[]" if isinstance(value, list) else "{}"
    return f"{first}\n" + ",\n".join(inner) + f"\n{indent}{last}"


def _shortened(frames: list[str]) -> Iterator[str]:
    """Shorten resources that were shown before to what has changed."""
    shown: dict[str, Any] = {}
    for frame in frames:
        before, mark, rest = frame.partition('"response":')
        if not mark:
            yield frame
            continue
        resource, end = json.JSONDecoder().raw_decode(rest)
        if list(resource) == list(shown):
            changed = {key: value for key, value in resource.items() if value != shown[key]}
            but = f", but with {_pretty(changed)}" if changed else ""
            yield f"{before}{mark}(as above{but}){rest[end:]}"
        else:
            yield frame
        shown = resource
