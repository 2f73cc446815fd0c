"""The twelve stories of tool calling: every door of the gateway in front of every provider, streamed and whole.

Models, wires and providers come from the registries. A wire of a new provider needs one module in tests/stories/wires.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from pydantic import TypeAdapter

from tests.approving import Approver
from tests.backends.codex.app_server import binary_path
from tests.stories.doors import DOORS, ClientReply, Door, ReceivedCall, Tools
from tests.stories.providers import (
    CANCEL,
    MISSING_WIRES,
    MODELS,
    UNKNOWN_BACKENDS,
    WIRE_SERVERS,
    StoryModel,
    StoryServer,
    opening,
)
from tests.stories.scripts import Called, Entry, Json, ModelAnswer, ProviderRequest, Returned, Said, StoryRound, Style
from tests.stories.stories import CUSTOM_STORY, FREE_TEXT, GATEWAY_STORIES, GRAMMAR, STORIES, TOOLS, declared_tools
from tests.tool_gateway import ToolGateway, running_tools
from tests.upstream import Upstream

PLAYED = [model for model in MODELS.values() if model.wire not in MISSING_WIRES]
FAILURE_WIRES = ("anthropic", "gemini")  # they can say that a result is an error
TOOLED = "_tools"  # after the name of a model: the same with gateway tools
ASKED = """
[toolsets.asked]
kind = "python"
module = "loop_tools"
allow = ["big"]
prefix = "ask_"
"""
_runs = itertools.count(1)


class StoryStage(Struct, frozen=True):
    """One gateway with all models, the server behind them, and a client of each door."""

    tooled: ToolGateway
    server: StoryServer
    upstream: Upstream
    doors: dict[str, Door]


@pytest.fixture(scope="module")
def stage() -> Iterator[StoryStage]:
    server = StoryServer({**STORIES, **GATEWAY_STORIES, CUSTOM_STORY.name: CUSTOM_STORY})
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream(server))
        plain = [model.table(upstream.url) for model in PLAYED]
        with_tools = [model.table(upstream.url, model.name + TOOLED, 'toolsets = ["mine", "asked"]') for model in PLAYED]
        config = "".join([*plain, *with_tools, ASKED])
        tooled = stack.enter_context(running_tools(config, environ={"TOOLRELAY_CODEX": binary_path()}))
        doors = {name: opened(tooled.gateway.url) for name, opened in DOORS.items()}
        for door in doors.values():
            stack.callback(door.close)
        yield StoryStage(tooled, server, upstream, doors)
        tooled.gateway.await_no_turns()


def _cases(*names: str, doors: Collection[str] = DOORS) -> list[Any]:
    """Return every story at every door with every model.

    A model of each wire, and those that print their calls, play all of them streamed and whole; the providers on these wires
    alternate, so that each plays every story at every door, and streamed as often as whole.
    """
    return [
        pytest.param(name, model, door, stream, id=f"{name}-{door}-{model.name}-{'streamed' if stream else 'whole'}")
        for row, name in enumerate(names)
        for place, model in enumerate(PLAYED)
        for column, door in enumerate(doors)
        for stream in (True, False)
        if model.provider == "compatible" or stream is ((row + place + column) % 2 == 0)
    ]


def test_every_wire_has_a_scripted_server() -> None:
    assert not MISSING_WIRES, f"write tests/stories/wires/{MISSING_WIRES[0]}.py: how a server of this wire prints an answer"
    assert not UNKNOWN_BACKENDS, "say in tests/stories/providers.py how the models of this backend can be scripted"


@pytest.mark.parametrize("wire", [name for name, server in WIRE_SERVERS.items() if server.frame_type is not None])
def test_scripted_frames_are_those_of_the_sdk(wire: str) -> None:
    server = WIRE_SERVERS[wire]
    frame, whole = TypeAdapter(server.frame_type), TypeAdapter(server.answer_type)
    for round_ in (round_ for story in STORIES.values() for round_ in story.rounds):
        whole.validate_json(server.whole(round_.answer, Style()))
        for piece in server.frames(round_.answer, Style()):
            data = piece.partition(b"data: ")[2].strip()
            if data not in (b"[DONE]", b'{"type": "ping"}'):  # of which the SDK has no types
                frame.validate_json(data)


@pytest.mark.parametrize(("name", "model", "door", "stream"), _cases(*STORIES))
def test_story(stage: StoryStage, name: str, model: StoryModel, door: str, *, stream: bool) -> None:
    client, run = stage.doors[door], next(_runs)
    history: list[Any] = [client.user(opening(name, run))]
    told: list[Entry] = [Said("user", opening(name, run))]
    tools = declared_tools(STORIES[name])
    for number, round_ in enumerate(STORIES[name].rounds):
        reply = client.ask(model.name, history, tools, round_.choice, stream=stream)
        assert not stage.server.problems, stage.server.problems.pop()
        check_reply(reply, round_.answer)
        received = stage.server.received[run]
        assert len(received) == number + 1
        check_conversation(received[number], told)
        check_tools(received[number], tools, round_.choice, model)
        results = list(zip(reply.calls, round_.results, strict=True))
        history += reply.history
        if results:
            history += client.results(results, failed=round_.failed)
        told += _told(round_, knows_failure=door == "messages" and model.wire in FAILURE_WIRES)


def check_reply(reply: ClientReply, answer: ModelAnswer) -> None:
    """Check that the client received the answer: its text, then its calls, each with an id of its own."""
    shown = [(part.name, part.arguments) if isinstance(part, ReceivedCall) else part.strip() for part in reply.parts]
    expected = [answer.text.strip()] if answer.text else []
    assert shown == [*expected, *((call.name, call.arguments) for call in answer.calls)]
    assert reply.finish == ("calls" if answer.calls else "stop")
    assert all(call.id for call in reply.calls)
    assert len({call.id for call in reply.calls}) == len(reply.calls)


def _told(round_: StoryRound, *, knows_failure: bool) -> list[Entry]:
    """Return what the provider is told of a round in the next request."""
    text = round_.answer.text.strip()
    said: list[Entry] = [Said("assistant", text)] if text else []
    calls = [Called("", call.name, call.arguments) for call in round_.answer.calls]
    return [*said, *calls, *(Returned("", result, round_.failed and knows_failure) for result in round_.results)]


def check_conversation(received: ProviderRequest, told: list[Entry]) -> None:
    assert [_plain(entry) for entry in received.entries] == [_plain(entry) for entry in told]
    check_ids(received)


def check_tools(received: ProviderRequest, tools: Tools, choice: str, model: StoryModel) -> None:
    """Check that the provider was sent the tools and the choice in the way that it understands: declared, or as text."""
    if not model.dialect and (model.enforces_tool_choice or choice == "auto"):
        assert received.choice == choice
        assert {name: received.tools.get(name) for name in tools} == {name: schema for name, (_, schema) in tools.items()}
        return
    assert not received.tools
    assert ("you must call" in received.system) is (choice not in ("auto", "none"))
    assert (f'you must call the tool "{choice}"' in received.system) is (choice in tools)
    described = [name for name in tools if f'"{name}"' in received.system]
    assert described == ([] if choice == "none" else [choice] if choice in tools else list(tools))


def check_ids(received: ProviderRequest) -> None:
    """Check that each result is that of one call, in the order of the calls."""
    calls = [entry.id for entry in received.entries if isinstance(entry, Called)]
    assert len(set(calls)) == len(calls)
    assert [entry.id for entry in received.entries if isinstance(entry, Returned)] == calls


def _plain(entry: Entry) -> tuple[Any, ...]:
    """Return an entry without ids, and without the blanks around text, of which a wire may have more."""
    match entry:
        case Said():
            return "said", entry.role, entry.text.strip()
        case Called():
            return "called", entry.name, entry.arguments
        case Returned():
            return "returned", entry.text, bool(entry.failed)


@pytest.mark.parametrize(("name", "model", "door", "stream"), _cases(CANCEL))
def test_client_that_leaves_ends_the_answer(stage: StoryStage, name: str, model: StoryModel, door: str, *, stream: bool) -> None:
    client, run = stage.doors[door], next(_runs)
    history = [client.user(opening(name, run))]

    async def leave() -> None:
        asking = asyncio.create_task(client.abandon(model.name, history, {"list_notes": TOOLS["list_notes"]}, stream=stream))
        if not stream:
            assert await asyncio.to_thread(stage.server.arrived[run].wait, 60)
            asking.cancel()
        await asyncio.wait([asking], timeout=60)
        assert asking.cancelled() or (asking.done() and asking.exception() is None)

    asyncio.run(leave())
    assert not stage.server.problems, stage.server.problems.pop()
    request = stage.server.requests[run]
    stage.upstream.connections.future(request.connection).result(60).closed.result(60)


@pytest.mark.parametrize(("name", "model", "door", "stream"), _cases("both_owners"))
def test_tools_of_both_owners_run(stage: StoryStage, name: str, model: StoryModel, door: str, *, stream: bool) -> None:
    client, run = stage.doors[door], next(_runs)
    tools = {"list_notes": TOOLS["list_notes"]}
    history: list[Any] = [client.user(opening(name, run))]
    reply = client.ask(model.name + TOOLED, history, tools, "auto", stream=stream)
    assert not stage.server.problems, stage.server.problems.pop()
    assert ([call.name for call in reply.calls], reply.finish) == (["list_notes"], "calls")
    history += [*reply.history, *client.results([(reply.calls[0], "[]")], failed=False)]
    last = client.ask(model.name + TOOLED, history, tools, "auto", stream=stream)
    assert not stage.server.problems, stage.server.problems.pop()
    assert (last.parts, last.finish) == (["All of it is done."], "stop")
    if door == "responses":
        assert (reply.ran, last.ran) == (["get_weather"], ["get_time"])
    assert stage.tooled.runs() == ["get_weather Paris", "get_time Rome"]
    *_, received = stage.server.received[run]
    check_ids(received)
    assert [_plain(entry) for entry in received.entries] == [
        ("said", "user", opening(name, run)),
        ("called", "get_weather", {"city": "Paris"}),
        ("called", "list_notes", {}),
        ("returned", "18 degrees in Paris", False),
        ("returned", "[]", False),
        ("called", "get_time", {"city": "Rome"}),
        ("returned", "noon in Rome", False),
    ]


@pytest.mark.parametrize("model", PLAYED, ids=lambda model: model.name)
def test_call_runs_after_a_person_allowed_it(stage: StoryStage, model: StoryModel) -> None:
    client, run = stage.doors["chat"], next(_runs)
    history = [client.user(opening("approval", run))]
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(client.ask, model.name + TOOLED, history, {}, "auto", stream=True)
        question = Approver(stage.tooled.gateway).allow("ask_big", arguments={"size": 2})
        assert asking.result(60).parts == ["All of it is done."]
    assert question["arguments"] == {"size": 3}
    assert stage.tooled.runs() == ["big 2"]
    returned = stage.server.received[run][1].entries[-1]
    assert isinstance(returned, Returned)
    assert json.loads(returned.text) == {"ran_with": {"size": 2}, "result": "xx"}


@pytest.mark.parametrize(("name", "model", "door", "stream"), _cases("custom", doors=("chat", "responses")))
def test_custom_tool_is_called_with_free_text(
    stage: StoryStage, name: str, model: StoryModel, door: str, *, stream: bool
) -> None:
    """A server that has only functions is sent one with the text as its argument."""
    client, run = stage.doors[door], next(_runs)
    tools = declared_tools(CUSTOM_STORY)
    history: list[Any] = [client.user(opening(name, run))]
    told: list[Entry] = [Said("user", opening(name, run))]
    for number, round_ in enumerate(CUSTOM_STORY.rounds):
        reply = client.ask(model.name, history, tools, round_.choice, stream=stream)
        assert not stage.server.problems, stage.server.problems.pop()
        check_reply(reply, round_.answer)
        assert [call.is_custom for call in reply.calls] == [tools[call.name][1] is FREE_TEXT for call in reply.calls]
        received = stage.server.received[run][number]
        check_conversation(received, told)
        is_asked_as_text = bool(model.dialect) or (round_.choice != "auto" and not model.enforces_tool_choice)
        if is_asked_as_text:
            assert "*** Begin" in received.system
        elif model.takes_custom_tools:
            assert (received.custom, received.choice) == (["apply_patch"], round_.choice)
        else:
            assert (received.custom, received.choice) == ([], round_.choice)
            assert received.tools["apply_patch"]["required"] == ["input"]
            assert GRAMMAR in received.descriptions["apply_patch"]
        history += [*reply.history, *client.results(list(zip(reply.calls, round_.results, strict=True)), failed=False)]
        told += _told(round_, knows_failure=False)


# The SDKs in Node

NODE = Path(sys.executable).parent / "node"
SCRIPT = Path(__file__).parent.parent / "node" / "stories.mjs"
NODE_CLIENTS = ("chat", "responses", "messages", "aiChat", "aiResponses")
"""Clients of tests/node/stories.mjs: openai on two APIs, @anthropic-ai/sdk, and the AI SDK on two APIs."""


class NodePlay(Struct, frozen=True, kw_only=True):
    """A story of one client with one model. `run` is its number."""

    client: str
    name: str
    model: StoryModel
    streamed: bool
    run: int

    def encode(self) -> Json:
        story = STORIES[self.name]
        tools = [
            {"name": name, "description": description, "schema": schema}
            for name, (description, schema) in declared_tools(story).items()
        ]
        rounds = [{"choice": each.choice, "results": each.results, "failed": each.failed} for each in story.rounds]
        members = {"client": self.client, "model": self.model.name, "streamed": self.streamed}
        return {**members, "text": opening(self.name, self.run), "tools": tools, "rounds": rounds}


@pytest.fixture(scope="module")
def node_plays(stage: StoryStage) -> list[tuple[NodePlay, Any]]:
    """Every story of every client with a model of each wire and with one that prints its calls, in one process."""
    models = [model for model in PLAYED if model.provider == "compatible"]
    plays = [
        NodePlay(client=client, name=name, model=model, streamed=(row + column + place) % 2 == 0, run=next(_runs))
        for row, client in enumerate(NODE_CLIENTS)
        for column, name in enumerate(STORIES)
        for place, model in enumerate(models)
    ]
    given = json.dumps([play.encode() for play in plays])
    command: list[str | Path] = [NODE, SCRIPT, stage.tooled.gateway.url]
    run = subprocess.run(command, input=given, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    return list(zip(plays, json.loads(run.stdout), strict=True))


@pytest.mark.parametrize("client", NODE_CLIENTS)
@pytest.mark.parametrize("name", STORIES)
def test_story_is_the_same_for_the_sdks_in_node(
    stage: StoryStage, node_plays: list[tuple[NodePlay, Any]], name: str, client: str
) -> None:
    for play, replies in node_plays:
        if (play.name, play.client) != (name, client):
            continue
        assert isinstance(replies, list), replies["error"]
        told: list[Entry] = [Said("user", opening(name, play.run))]
        knows_failure = client == "messages" and play.model.wire in FAILURE_WIRES
        received = stage.server.received[play.run]
        for round_, reply, request in zip(STORIES[name].rounds, replies, received, strict=True):
            parts = [part if isinstance(part, str) else ReceivedCall(*part) for part in reply["parts"]]
            check_reply(ClientReply(parts=parts, finish=reply["finish"], history=[]), round_.answer)
            check_conversation(request, told)
            check_tools(request, declared_tools(STORIES[name]), round_.choice, play.model)
            told += _told(round_, knows_failure=knows_failure)
