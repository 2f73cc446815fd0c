"""Scripted answers of models of every kind, in the gateway's own vocabulary, and the requests that they were sent.

The answers are encoded, and the requests decoded, by the server half of the wires.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tests.model_server import ModelServer
from tests.served_wires import SERVED_WIRES
from tests.upstream import stream
from toolrelay.core.events import (
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.messages import Call, Message
from toolrelay.core.request import Request
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.wires.base import Envelope, Wire

WIRES = {wire.config_name: wire for wire in SERVED_WIRES.values()}
USAGE = Usage(input=7, output=3, total=10)


class ScriptedModel(Struct, frozen=True, kw_only=True):
    """A model on a wire. With a dialect it prints its calls."""

    name: str
    wire: Wire
    dialect: str = ""

    def table(self, url: str, more: str = "") -> str:
        """Return its table in the configuration."""
        tool_calling = self.dialect or "native"
        return (
            f'[models.{self.name}]\nprovider = "compatible"\nbase_url = "{url}/v1"\nwire = "{self.wire.config_name}"\n'
            f'tool_calling = "{tool_calling}"\ntoolsets = ["mine", "odd"]\n{more}\n'
        )

    def answer(self, text: str = "", calls: Sequence[tuple[str, str]] = ()) -> bytes:
        """Return a streamed answer: text, then calls as (name, arguments)."""
        if self.dialect and calls:
            made = [Call(id="", name=name, arguments=arguments) for name, arguments in calls]
            text, calls = text + discover_dialects()[self.dialect].render_calls(made), ()
        events: list[StreamEvent] = [AnswerStarted(model="m")]
        events += [TextDelta(text[start : start + 5]) for start in range(0, len(text), 5)]
        for index, (name, arguments) in enumerate(calls):
            events += [CallStarted(index, name, f"call_{index}"), ArgumentsDelta(index, arguments), CallFinished(index)]
        events.append(AnswerFinished(finish="calls" if calls else "stop", usage=USAGE))
        asked = Request(wire=self.wire.name, model="m", items=(), stream=True, include_usage=True)
        return stream(self.wire.encoder(Envelope(token="t" * 20, created=1, model="m", request=asked)).encode(events))

    def request(self, server: ModelServer, number: int) -> Request:
        """Return a request that the model was sent."""
        received = server.request(number).result(30)
        request = self.wire.decode_request(received.body)
        return replace(request, stream=request.stream or ":streamGenerateContent" in received.path)

    def texts(self, server: ModelServer, number: int) -> list[str]:
        """Return the messages that the model was sent, as text."""
        request = self.request(server, number)
        return [str(item.content) for item in request.items if isinstance(item, Message)]


MODELS = {
    model.name: model
    for model in (
        *(ScriptedModel(name=name, wire=wire) for name, wire in WIRES.items()),
        *(ScriptedModel(name=f"hermes_{name}", wire=wire, dialect="hermes") for name, wire in WIRES.items()),
    )
}
NATIVE = [name for name, model in MODELS.items() if not model.dialect]
