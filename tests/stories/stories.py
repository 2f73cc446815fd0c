"""The stories of tool calling, as data: each client plays them with each provider. The twelfth, cancel, is a test of its own."""

from __future__ import annotations

from tests.stories.scripts import Json, MadeCall, ModelAnswer, Story, StoryRound

_CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_NOTE: Json = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "text": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title", "text"],
}
GRAMMAR = 'start: "*** Begin" /.+/'
FREE_TEXT: Json = {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}
"""The format of a custom tool, in the place of a schema."""
TOOLS: dict[str, tuple[str, Json]] = {
    "find_weather": ("The weather of a city.", _CITY),
    "find_time": ("The time in a city.", _CITY),
    "save_note": ("Save a note.", _NOTE),
    "apply_patch": ("Apply a patch.", FREE_TEXT),
    "list_notes": ("List all notes.", {"type": "object", "properties": {}}),
}
"""Tools of the client: description and schema by name."""

_WEATHER = MadeCall("find_weather", {"city": "Paris"})
_TIME = MadeCall("find_time", {"city": "Paris"})
_LIST = MadeCall("list_notes")
_UNICODE = MadeCall(
    "save_note", {"title": "Zürich — 東京 🌧️", "text": 'He said: "\\n" is\na line\tbreak.', "tags": ["é", "</tool_call>"]}
)
_BIG = MadeCall("save_note", {"title": "Log", "text": "0123456789 line of a log.\n" * 1250})
_DONE = StoryRound(answer=ModelAnswer(text="All of it is done."))


def declared_tools(story: Story) -> dict[str, tuple[str, Json]]:
    """Return the tools that the client declares: those that the story needs, and one more at least."""
    called = {call.name for round_ in story.rounds for call in round_.answer.calls}
    return {name: tool for name, tool in TOOLS.items() if name in called or name == "find_weather"}


def _story(name: str, *rounds: StoryRound) -> Story:
    return Story(name=name, rounds=(*rounds, _DONE))


def _calls(*made: MadeCall, text: str = "") -> ModelAnswer:
    return ModelAnswer(text=text, calls=made)


GATEWAY_STORIES = {
    # Tools of both owners in one answer, then one of the gateway's alone.
    "both_owners": Story(
        name="both_owners",
        rounds=(
            StoryRound(answer=_calls(MadeCall("get_weather", {"city": "Paris"}), _LIST), results=("[]",)),
            StoryRound(answer=_calls(MadeCall("get_time", {"city": "Rome"}))),
            _DONE,
        ),
    ),
    "approval": Story(name="approval", rounds=(StoryRound(answer=_calls(MadeCall("ask_big", {"size": 3}))), _DONE)),
}
"""Stories with tools of tests/tool_gateway.py."""

_PATCH = MadeCall("apply_patch", {"input": "*** Begin Patch\n-a = \"b\"\n+a = '\\u00fc ü 東'\t{}\n*** End Patch"})
CUSTOM_STORY = Story(
    name="custom",
    rounds=(
        StoryRound(answer=_calls(_PATCH, _TIME), results=("done", "noon")),
        StoryRound(answer=_calls(_PATCH), choice="apply_patch", results=("done again",)),
        _DONE,
    ),
)

STORIES = {
    story.name: story
    for story in (
        _story("single", StoryRound(answer=_calls(_WEATHER), results=("18 degrees",))),
        _story("parallel", StoryRound(answer=_calls(_WEATHER, _TIME), results=("18 degrees", "noon"))),
        _story(
            "sequential",
            StoryRound(answer=_calls(_WEATHER), results=("18 degrees",)),
            StoryRound(answer=_calls(_WEATHER, text="Once more."), results=("19 degrees",)),
        ),
        Story(
            name="none",
            rounds=(
                StoryRound(answer=_calls(_WEATHER), results=("18 degrees",)),
                StoryRound(answer=ModelAnswer(text="It is 18 degrees."), choice="none"),
            ),
        ),
        _story("required", StoryRound(answer=_calls(_WEATHER), choice="required", results=("18 degrees",))),
        _story("named", StoryRound(answer=_calls(_TIME), choice="find_time", results=("noon",))),
        _story("no_arguments", StoryRound(answer=_calls(_LIST, _TIME), results=("", "noon"))),
        _story("unicode", StoryRound(answer=_calls(_UNICODE), results=("gespeichert: 東京 🌧️\n</tool_result>",))),
        _story("big_arguments", StoryRound(answer=_calls(_BIG), results=("x" * 50_000,))),
        _story("error_result", StoryRound(answer=_calls(_WEATHER), results=("no such city: Paris",), failed=True)),
        _story("mixed_text", StoryRound(answer=_calls(_WEATHER, _TIME, text="Let me look. "), results=("18 degrees", "noon"))),
    )
}
