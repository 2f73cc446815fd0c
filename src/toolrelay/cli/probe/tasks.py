"""The standard tasks of `toolrelay probe`: what the model is asked, and what a good answer is."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from toolrelay.cli._text import shorten
from toolrelay.cli.trials import PlayedTurn
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, Message, Result
from toolrelay.core.request import Tool
from toolrelay.core.validation import validate

MAX_SHOWN = 80  # characters of what the model said or called


def _tool(name: str, description: str, **properties: JsonObject) -> Tool:
    schema: JsonObject = {"type": "object", "properties": {**properties}, "required": [*properties]}
    return Tool(name=name, description=description, parameters={**schema, "additionalProperties": False})


_CITY: JsonObject = {"type": "string", "description": "The city's name"}
WEATHER = _tool("get_weather", "Returns the current weather of a city.", city=_CITY)
TIME = _tool("get_time", "Returns the current local time of a city.", city=_CITY)
_PERSON: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "vip": {"type": "boolean"}},
    "required": ["name", "vip"],
}
EVENT = _tool(
    "create_event",
    "Creates an event in the calendar.",
    title={"type": "string"},
    minutes={"type": "integer"},
    guests={"type": "array", "items": _PERSON},
)


class ProbeTask(Struct, frozen=True, kw_only=True):
    """`judge` returns what is wrong with an answer, or nothing."""

    name: str
    items: tuple[Item, ...]
    tools: tuple[Tool, ...]
    judge: Callable[[PlayedTurn], str]


def _ask(text: str) -> tuple[Item, ...]:
    return (Message(role="user", content=text),)


def _find_call_problem(turn: PlayedTurn, tool: Tool) -> str:
    """Return what is wrong with the calls, which must all be of the tool."""
    if not turn.calls:
        return f"no call, but {_quote(turn.text)}"
    for call in turn.calls:
        if call.name != tool.name:
            return f"called {shorten(call.name, MAX_SHOWN)}, not {tool.name}"
        problem = validate(tool, call.arguments)
        if problem is not None:
            return shorten(problem, MAX_SHOWN)
    return ""


def _city_is(tool: Tool, city: str) -> Callable[[PlayedTurn], str]:
    def judge(turn: PlayedTurn) -> str:
        problem = _find_call_problem(turn, tool)
        if problem:
            return problem
        said = _arguments(turn.calls[0])["city"]
        return "" if city in said.casefold() else f"city is {_quote(said)}"

    return judge


def _judge_no_call(turn: PlayedTurn) -> str:
    if turn.calls:
        return f"called {shorten(turn.calls[0].name, MAX_SHOWN)} without need"
    return "" if turn.text.strip() else "said nothing"


def _judge_event(turn: PlayedTurn) -> str:
    problem = _find_call_problem(turn, EVENT)
    if problem:
        return problem
    made = _arguments(turn.calls[0])
    title = unicodedata.normalize("NFC", made["title"])
    if "Smørrebrød" not in title or '"' not in title:
        return f"title is {_quote(title)}"
    guests = [(unicodedata.normalize("NFC", guest["name"]), guest["vip"]) for guest in made["guests"]]
    if [name.split()[0] for name, _ in guests if name] != ["Zoë", "José"] or [vip for _, vip in guests] != [True, False]:
        return f"guests are {_quote(str(guests))}"
    return "" if made["minutes"] == 45 else f"minutes is {made['minutes']}"


def _judge_result(turn: PlayedTurn) -> str:
    if turn.calls:
        return f"called {shorten(turn.calls[0].name, MAX_SHOWN)} again"
    return "" if "17" in turn.text else f"did not use the result: {_quote(turn.text)}"


def _arguments(call: Call) -> Any:  # noqa: ANN401 -- an object that fits the tool's schema
    return msgspec.json.decode(call.arguments)


def _quote(text: str) -> str:
    return f'"{shorten(" ".join(text.split()), MAX_SHOWN)}"' if text.strip() else "nothing"


_RAN = Call(id="call_probe00000000000000000", name=WEATHER.name, arguments='{"city": "Paris"}')
TASKS = (
    ProbeTask(
        name="call",
        items=_ask("What is the weather in Paris? Use the tool get_weather."),
        tools=(WEATHER,),
        judge=_city_is(WEATHER, "paris"),
    ),
    ProbeTask(
        name="choice",
        items=_ask("What time is it in Tokyo right now?"),
        tools=(WEATHER, TIME),
        judge=_city_is(TIME, "tokyo"),
    ),
    ProbeTask(
        name="no call",
        items=_ask("Reply with the single word hello. Do not use any tool."),
        tools=(WEATHER, TIME),
        judge=_judge_no_call,
    ),
    ProbeTask(
        name="arguments",
        items=_ask(
            'Create an event with the title Smørrebrød "deluxe" (keep the quotation marks), 45 minutes long, with two guests: '
            "Zoë, who is a VIP, and José, who is not. Use the tool create_event once."
        ),
        tools=(EVENT,),
        judge=_judge_event,
    ),
    ProbeTask(
        name="result",
        items=(*_ask("How warm is it in Paris?"), _RAN, Result(call_id=_RAN.id, output="17 degrees Celsius, light rain")),
        tools=(WEATHER,),
        judge=_judge_result,
    ),
)
