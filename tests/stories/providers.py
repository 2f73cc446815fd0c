"""The models of the stories, made from the registries of providers and wires, and the scripted server behind all of them."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tests.provider_servers import CHECKS
from tests.stories.printed import print_calls, read_printed
from tests.stories.scripts import Entry, ModelAnswer, ProviderRequest, Said, Story, Style, WireServer
from tests.upstream import LAST_CHUNK, Gate, ReceivedRequest, Script, chunk, reply, stream_head
from toolrelay.backends.base import discover as discover_backends
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.profiles import Profile
from toolrelay.wires.base import Unsupported, discover_provider_wires
from toolrelay.wires.outgoing import CUSTOM_TOOLS

KEY = "sk-of-azure"  # what tests.provider_servers expects
WIRE_SERVERS: dict[str, WireServer] = {
    path.stem: import_module(f"tests.stories.wires.{path.stem}").SERVER
    for path in sorted(Path(__file__).with_name("wires").glob("*.py"))
}
"""By the wire's name in the configuration."""

STYLES = {
    # https://docs.mistral.ai/capabilities/function_calling: a call is one chunk, its id has nine characters
    "mistral": Style(call_id="D681PevK{}", whole_calls=True),
    # https://docs.x.ai/docs/guides/function-calling: "in whole in a single chunk, instead of being streamed across chunks"
    "xai": Style(whole_calls=True),
    # https://console.groq.com/docs/tool-use
    "groq": Style(call_id="call_d5w{}", whole_calls=True),
    # https://docs.ollama.com/api/openai-compatibility
    "ollama": Style(call_id="call_8frmn6w{}", whole_calls=True),
    # https://lmstudio.ai/docs/app/api/tools: "id": "365174485"
    "lmstudio": Style(call_id="36517448{}"),
    # https://docs.vllm.ai/en/latest/features/tool_calling.html
    "vllm": Style(call_id="chatcmpl-tool-{:032x}"),
    # https://api-docs.deepseek.com/guides/thinking_mode#tool-calls
    "deepseek": Style(call_id="call_00_Ma1hLvMQzvsYDNb{}", reasons=True),
    # https://openrouter.ai/docs/api-reference/streaming: comments; Claude's calls without arguments come with none
    "openrouter": Style(call_id="toolu_vrtx_01{}", no_arguments="", comments=True),
}


class StoryModel(Struct, frozen=True, kw_only=True):
    """A model of the gateway. With `dialect`, it prints its calls."""

    name: str
    provider: str
    wire: str
    dialect: str = ""

    @property
    def _profile(self) -> Profile:
        return PROVIDERS[self.provider].profile

    @property
    def _unsupported(self) -> Unsupported:
        return next(wire.unsupported for wire in discover_provider_wires().values() if wire.config_name == self.wire)

    @property
    def enforces_tool_choice(self) -> bool:
        """Return whether its server is told that a call must happen, or none; otherwise the gateway sees to it."""
        return self._profile.enforces_tool_choice and "tool_choice" not in self._unsupported

    @property
    def takes_custom_tools(self) -> bool:
        """Return whether its server is sent custom tools as they are. Codex declares all tools as functions."""
        is_direct = PROVIDERS[self.provider].backend == "http" and not self.dialect
        return is_direct and self._profile.takes_custom_tools and CUSTOM_TOOLS not in self._unsupported

    @property
    def server(self) -> WireServer:
        return WIRE_SERVERS[self.wire]

    @property
    def style(self) -> Style:
        return STYLES.get(self.provider, Style())

    def table(self, url: str, name: str = "", more: str = "") -> str:
        """Return its table in the configuration; `name` is another name for it."""
        members: dict[str, Any] = {"provider": self.provider, "model": "m", "api_key": KEY, "base_url": f"{url}/{self.name}/v1"}
        if PROVIDERS[self.provider].wire not in ("", self.wire) or self.provider == "compatible":
            members["wire"] = self.wire
        if self.dialect:
            members["tool_calling"] = self.dialect
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in members.items())
        return f"[models.{name or self.name}]\n{lines}{more}\n"


SCRIPTED_BACKENDS = {"http": "", "codex": "responses"}
"""The backends whose models are reached over HTTP in the end, with the wire that they speak, if the preset does not say it.

A model that runs in the gateway has no server that could be scripted: tests/oracles plays the demo model.
"""


def _provider_models() -> list[StoryModel]:
    return [
        StoryModel(name=name, provider=name, wire=SCRIPTED_BACKENDS[preset.backend] or preset.wire)
        for name, preset in PROVIDERS.items()
        if preset.backend in SCRIPTED_BACKENDS and name != "compatible"
    ]


def _wire_models() -> list[StoryModel]:
    """Return a model of no particular provider on each wire."""
    return [
        StoryModel(name=f"any_{wire.config_name}", provider="compatible", wire=wire.config_name)
        for wire in discover_provider_wires().values()
    ]


MODELS = {
    model.name: model
    for model in (
        *_provider_models(),
        *_wire_models(),
        *(StoryModel(name=dialect, provider="compatible", wire="chat", dialect=dialect) for dialect in ("hermes", "sealed")),
    )
}
MISSING_WIRES = sorted({model.wire for model in MODELS.values()} - set(WIRE_SERVERS))
UNKNOWN_BACKENDS = sorted(set(discover_backends()) - set(SCRIPTED_BACKENDS) - {"demo", "local"})


CANCEL = "cancel"  # the story whose answer never ends
_OPENING = re.compile(r"Story (\w+), run (\d+)\.")


def opening(story: str, run: int) -> str:
    """Return the user's first message, by which the server knows the story."""
    return f"Story {story}, run {run}."


class StoryServer:
    """Plays the stories for every model. The first segment of a request's path is the model's name.

    `received` are the requests of each run. `problems` are requests that the real provider would refuse.
    """

    def __init__(self, stories: dict[str, Story]) -> None:
        self._stories = stories
        self._lock = threading.Lock()
        self.received: dict[int, list[ProviderRequest]] = defaultdict(list)
        self.problems: list[str] = []
        self.requests: dict[int, ReceivedRequest] = {}
        self.arrived: dict[int, threading.Event] = defaultdict(threading.Event)

    def __call__(self, request: ReceivedRequest) -> Script:
        try:
            return self._answer(request)
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with the request, the test must hear of it
            self.problems.append(f"{request.path}: {error!r}: {request.body[:2000]!r}")
            return (reply(json.dumps({"error": {"message": str(error)}}).encode(), 400),)

    def _answer(self, request: ReceivedRequest) -> Script:
        model = MODELS[request.path.split("/")[1]]
        body = json.loads(request.body)
        check = CHECKS.get(model.provider)
        refusals = [] if check is None else list(check(body, request))
        assert not refusals, refusals
        received = model.server.read(body, request.path)
        is_printing = not received.tools and not received.custom and all(isinstance(entry, Said) for entry in received.entries)
        received = read_printed(received) if is_printing else received
        story, run, entries = _find_opening(received.entries)
        with self._lock:
            number = len(self.received[run])
            self.received[run].append(_without_context(received, entries))
            self.requests[run] = request
        held = story == CANCEL
        answer = ModelAnswer(text="One moment, please.") if held else self._stories[story].rounds[number].answer
        answer = replace(answer, calls=tuple(replace(call, is_custom=call.name in received.custom) for call in answer.calls))
        if is_printing:
            answer = print_calls(answer, received)
        script = _held(model, answer, received) if held else _played(model, answer, received)
        if held:
            self.arrived[run].set()
        return script


def _find_opening(entries: list[Entry]) -> tuple[str, int, list[Entry]]:
    """Return the story, its run, and the entries from there on: some programs put messages of their own before it."""
    for place, entry in enumerate(entries):
        if isinstance(entry, Said) and (found := _OPENING.search(entry.text)):
            return found[1], int(found[2]), entries[place:]
    raise AssertionError("no story")


def _without_context(received: ProviderRequest, entries: list[Entry]) -> ProviderRequest:
    received.entries[:] = entries
    return received


def _played(model: StoryModel, answer: ModelAnswer, received: ProviderRequest) -> Script:
    server = model.server
    if not received.stream:
        return (reply(server.whole(answer, model.style)),)
    frames = server.frames(answer, model.style)
    return (stream_head(server.content_type) + b"".join(map(chunk, frames)) + LAST_CHUNK,)


def _held(model: StoryModel, answer: ModelAnswer, received: ProviderRequest) -> Script:
    """Begin an answer that never ends."""
    if not received.stream:
        return (Gate(),)
    frames = model.server.frames(answer, model.style)
    return (stream_head(model.server.content_type) + b"".join(map(chunk, frames[: len(frames) // 2])), Gate())
