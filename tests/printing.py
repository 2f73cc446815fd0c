"""A text-only model server: it accepts no tools, and prints calls as text in one dialect.

Each of its models is named after its dialect, and answers as the demo model does. A request that declares tools is an error, as
on such servers, so every call and result of a client goes through text in both directions.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator

from msgspec.structs import replace

from tests.gateway import Gateway
from tests.oracles.tools import TIME, WEATHER
from toolrelay.app import App, serve_app
from toolrelay.backends.base import Deliver, deliver_all
from toolrelay.backends.demo import respond
from toolrelay.core.assembly import Assembly
from toolrelay.core.events import AnswerFailed, AnswerFinished, AnswerStarted, Noticed, StreamEvent, TextDelta
from toolrelay.core.messages import Call, Item, Message, OutputItem, Result, plain_text
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.dialects.base import Dialect, discover
from toolrelay.errors import BackendError
from toolrelay.parsing.events import CallBroken, CallPrinted, CallRepaired, ReasoningClosed
from toolrelay.parsing.scanner import Scanner
from toolrelay.runtime.models import Model, tool_calling_mode
from toolrelay.settings import ModelSettings, Settings

DIALECTS = (
    "hermes", "sealed", "qwen3_coder", "pythonic", "mistral", "deepseek_v31", "glm45", "kimi_k2", "invoke_xml", "llama3_json",
)  # fmt: skip
PROGRAM = "from tests.printing import serve\nsys.exit(serve(settings))"
TOOLS = {tool.name: tool for tool in (Tool(**WEATHER), Tool(**TIME))}
_TAG = re.compile(r"<tool_call:([0-9a-f]{12})>")
_NAMED = re.compile(r'must call the tool "(\w+)"')
_PIECE = 3


class PrintingModel:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    async def stream(self, request: Request) -> AsyncGenerator[list[StreamEvent], None]:
        if request.tools or not all(isinstance(item, Message) for item in request.items):
            yield [AnswerFailed(BackendError("This model does not support tools.", status=400))]
            return
        dialect = self._sealed_dialect(_system(request))
        assembly = Assembly()
        for event in respond(_parse_request(request, dialect)):
            assembly.add(event)
        answer = assembly.answer()
        text = "".join(_text(answer.items))
        if answer.calls:
            text += dialect.render_calls(answer.calls)
            if all(marker.position == "anywhere" for marker in dialect.start_markers):  # elsewhere a call is the whole answer
                text += "\nAnd I would go on to say"
        yield [AnswerStarted(model="printing")]
        for place in range(0, len(text), _PIECE):
            yield [TextDelta(text[place : place + _PIECE])]
        finish = answer.finish if answer.finish != "calls" else "stop"
        yield [AnswerFinished(finish=finish, usage=answer.usage)]

    def _sealed_dialect(self, system: str) -> Dialect:
        tag = _TAG.search(system)
        return self._dialect if self._dialect.seal is None or tag is None else self._dialect.seal(tag[1])

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        await deliver_all(self.stream(request), deliver)

    async def close(self) -> None:
        pass


def _system(request: Request) -> str:
    messages = [item for item in request.items if isinstance(item, Message) and item.role in ("system", "developer")]
    return "\n".join([request.instructions or "", *(plain_text(message.content) for message in messages)])


def _text(items: tuple[OutputItem, ...]) -> Iterator[str]:
    return (plain_text(item.content) for item in items if isinstance(item, Message))


def _parse_request(request: Request, dialect: Dialect) -> Request:
    """Parse tools, tool_choice, calls and results from the text of a request."""
    system = _system(request)
    tools = tuple(tool for name, tool in TOOLS.items() if name in system)
    named = _NAMED.search(system)
    choice = ToolChoice(mode="required") if "must call at least one tool" in system else None
    if named is not None:
        choice = ToolChoice(mode="named", names=(("function", named[1]),))
    items: list[Item] = []
    waiting: list[str] = []
    for item in request.items:
        if not isinstance(item, Message) or item.role in ("system", "developer"):
            continue
        text = plain_text(item.content)
        if item.role == "assistant":
            calls = _calls(text, dialect, place=len(items))
            waiting = [call.id for call in calls]
            items += calls or [item]
        elif waiting:
            items += [Result(call_id=waiting[0], output=text), *(Result(call_id=other, output="-") for other in waiting[1:])]
            waiting = []
        else:
            items.append(item)
    return replace(request, items=tuple(items), tools=tools, tool_choice=choice)


def _calls(text: str, dialect: Dialect, *, place: int) -> list[Call]:
    scanner, assembly = Scanner(dialect, TOOLS), Assembly()
    for event in (*scanner.feed(text), *scanner.flush(), AnswerFinished(finish="calls")):
        assert not isinstance(event, CallBroken | CallPrinted | CallRepaired | Noticed | ReasoningClosed), f"invalid: {event}"
        assembly.add(event)
    return [replace(call, id=f"{place}.{number}") for number, call in enumerate(assembly.answer().calls)]


def serve(settings: Settings) -> int:
    app = App(settings)
    for name in DIALECTS:
        backend = PrintingModel(discover()[name])
        model = ModelSettings(name=name, provider="demo", tool_calling="native")
        app.models[name] = Model(settings=model, backend=backend, mode=tool_calling_mode(model, Profile(), bytes))
    return serve_app(app, settings.server)


def before(server: Gateway) -> str:
    """Return a configuration with each of the server's models and its dialect; their wires alternate."""
    return "".join(
        f'[models.{name}]\nprovider = "compatible"\nbase_url = "{server.v1}"\nwire = "{wire}"\ntool_calling = "{name}"\n'
        for name, wire in zip(DIALECTS, ("chat", "responses") * len(DIALECTS), strict=False)
    )
