"""Toolsets that are changed while calls of them run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.runtime.toolsets import ENVIRONMENT, context, run
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError, ToolError
from toolrelay.runtime import gateway_tools
from toolrelay.runtime.executor import CHANGED, Executor
from toolrelay.runtime.gateway_tools import GatewayTools
from toolrelay.settings import ModelSettings, Settings, ToolsetSettings
from toolrelay.toolsets.base import Preview, ToolContext, ToolDefinition, ToolOutput, ToolsetKind

TOOL = ToolDefinition(name="look", parameters={"type": "object", "properties": {}, "additionalProperties": False})


class PlaceSettings(ToolsetSettings, frozen=True, kw_only=True):
    place: str


class Place:
    """A toolset whose tool says where it is, once it may."""

    def __init__(self, place: str, events: list[str]) -> None:
        self.place = place
        self.events = events
        self.may_end = asyncio.Event()

    @property
    def tools(self) -> Sequence[ToolDefinition]:
        return [TOOL]

    async def open(self) -> None:
        if self.place == "nowhere":
            raise ConfigurationError("there is no such place")
        self.events.append(f"open {self.place}")

    async def preview(self, name: str, arguments: JsonObject, context: ToolContext) -> Preview:
        return Preview()

    async def run(self, name: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        self.events.append(f"run {self.place}")
        await self.may_end.wait()
        self.events.append(f"end {self.place}")
        return self.place

    async def close(self) -> None:
        self.events.append(f"close {self.place}")


def settings(place: str, **values: Any) -> Settings:
    toolset = PlaceSettings(name="mine", kind="place", place=place, **{"approval": "never", **values})
    return Settings(
        toolsets={"mine": toolset},
        models={"fast": ModelSettings(name="fast", provider="demo", toolsets=("mine",))},
        environment=ENVIRONMENT,
    )


class Scene:
    """Gateway tools in one place, and what happened to their toolsets."""

    def __init__(self, tools: GatewayTools, events: list[str], places: dict[str, Place]) -> None:
        self.tools = tools
        self.events = events
        self.places = places
        self.executor = Executor(tools)

    async def change(self, changed: Settings) -> None:
        async with self.tools.prepare(changed) as change:
            self.tools.commit(change)

    async def until(self, event: str) -> None:
        async with asyncio.timeout(30):
            while event not in self.events:  # noqa: ASYNC110 -- several kinds of them, in a list
                await asyncio.sleep(0)


Play = Callable[[Callable[[Scene], Awaitable[None]]], None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def play(story: Callable[[Scene], Awaitable[None]]) -> None:
        events: list[str] = []
        places: dict[str, Place] = {}

        def make(settings: PlaceSettings, _: object) -> Place:
            made = places[settings.place] = Place(settings.place, events)
            return made

        def forget(gone: PlaceSettings, kept: Sequence[PlaceSettings], _: object) -> None:
            events.append(f"forget {gone.place} keep {','.join(each.place for each in kept)}")

        kind = ToolsetKind(name="place", settings=PlaceSettings, open=make, forget=forget)
        monkeypatch.setattr(gateway_tools, "discover", lambda: {"place": kind})

        async def main() -> None:
            tools = GatewayTools(settings("here"))
            await tools.open()
            try:
                await story(Scene(tools, events, places))
            finally:
                await tools.close()

        asyncio.run(main())

    return play


def test_toolset_that_is_gone_is_closed_after_its_calls(play: Play) -> None:
    async def story(scene: Scene) -> None:
        running = asyncio.create_task(run(scene.executor, "look"))
        await scene.until("run here")
        await scene.change(settings("there"))
        later = asyncio.create_task(run(scene.executor, "look"))
        await scene.until("run there")
        assert scene.events == ["open here", "run here", "open there", "run there"]
        scene.places["here"].may_end.set()
        assert (await running).output == "here"
        await scene.until("forget here keep there")
        assert scene.events[4:] == ["end here", "close here", "forget here keep there"]
        scene.places["there"].may_end.set()
        assert (await later).output == "there"

    play(story)


def test_toolset_that_cannot_be_opened_changes_nothing(play: Play) -> None:
    async def story(scene: Scene) -> None:
        both = settings("there")
        broken = replace(both.toolsets["mine"], name="other", place="nowhere", prefix="my_")
        with pytest.raises(ConfigurationError, match=r"toolsets\.other: there is no such place"):
            await scene.change(replace(both, toolsets={**both.toolsets, "other": broken}))
        assert scene.events[:3] == ["open here", "open there", "close there"]
        scene.places["here"].may_end.set()
        assert (await run(scene.executor, "look")).output == "here"

    play(story)


def test_nothing_is_forgotten_while_it_is_opened_again(play: Play) -> None:
    async def story(scene: Scene) -> None:
        await scene.change(settings("there"))
        async with scene.tools.prepare(settings("here")) as back:
            await scene.until("close here")
            assert "forget here keep there" not in scene.events
            scene.tools.commit(back)
        await scene.until("forget here keep here")

    play(story)


def test_change_that_is_discarded_leaves_what_was(play: Play) -> None:
    async def story(scene: Scene) -> None:
        async with scene.tools.prepare(settings("there")):
            pass
        assert scene.events == ["open here", "open there", "close there"]
        scene.places["here"].may_end.set()
        assert (await run(scene.executor, "look")).output == "here"

    play(story)


def test_approval_is_changed_without_opening_the_toolset_again(play: Play) -> None:
    async def story(scene: Scene) -> None:
        await scene.change(settings("here", approval="always"))
        assert scene.tools.tools["look"].gateway_tool.needs_approval
        assert scene.events == ["open here"]

    play(story)


def test_tool_that_is_taken_from_a_model_is_not_run(play: Play) -> None:
    async def story(scene: Scene) -> None:
        now = settings("here")
        await scene.change(replace(now, models={"fast": replace(now.models["fast"], toolsets=())}))
        assert (await run(scene.executor, "look")).output == "Unknown tool: look"
        assert scene.events == ["open here"]

    play(story)


def test_tool_that_is_another_one_now_is_not_run(play: Play) -> None:
    async def story(scene: Scene) -> None:
        before = scene.tools.tools["look"].gateway_tool.definition
        await scene.change(settings("there"))
        assert (await run(scene.executor, "look", definition=before)).output == CHANGED
        scene.places["there"].may_end.set()
        now = scene.tools.tools["look"].gateway_tool.definition
        assert (await run(scene.executor, "look", definition=now)).output == "there"

    play(story)


def test_call_that_comes_too_late_for_its_toolset_is_an_error(play: Play) -> None:
    async def story(scene: Scene) -> None:
        old = scene.tools.tools["look"]
        await scene.change(settings("there"))
        await scene.until("close here")
        with pytest.raises(ToolError, match="the toolset was changed or removed"):
            await old.toolset.run("look", {}, context())

    play(story)


def test_shutdown_does_not_wait_for_calls_of_a_toolset_that_is_gone(play: Play) -> None:
    async def story(scene: Scene) -> None:
        running = asyncio.create_task(run(scene.executor, "look"))
        await scene.until("run here")
        await scene.change(settings("there"))
        await scene.tools.close()
        assert {"close here", "close there"} <= set(scene.events)
        running.cancel()
        await asyncio.wait([running])

    play(story)
