"""All models whose exchanges are recorded: those of `scenarios`, and those of blocks and of the cut-off on Codex."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tests.transcripts.answers import Answer
from tests.transcripts.printed import BOOKING, WEATHER, load
from tests.transcripts.scenarios import (
    DEFAULT,
    MORE,
    PROSE,
    Scenario,
    Subject,
    native_scenarios,
)
from tests.transcripts.scenarios import subjects as plain_subjects


def _scenario(name: str, *script: Answer) -> Scenario:
    return Scenario(name=name, script=script, choices=("auto",), parallel=(True,))


def _table(provider: str, model: str, *lines: str) -> str:
    return "\n".join([f'provider = "{provider}"', f'model = "{model}"', *lines])


def block_scenarios() -> tuple[Scenario, ...]:
    """Return scenarios of a model that prints `<use_tool>` blocks although its calls are native (E1, E10)."""
    block = load()["use_tool"]["call"]
    return (
        _scenario("narrative_block", Answer(text=f"Let me see.\n{block}")),
        _scenario("seven_blocks", Answer(text="First, I search.\n" + "\n".join([block] * 7) + MORE)),
        _scenario("quoted_block", Answer(text=f"Write this:\n```\n{block}\n```\n")),
        _scenario("block_of_another_tool", Answer(text=block.replace("get_weather", "webSearch"))),
        _scenario("half_a_block", Answer(text=f"Well. {block[: len(block) // 2]}")),
        _scenario("block_cut_by_the_limit", Answer(text=f"Well. {block[: len(block) // 2]}", finish="length")),
        _scenario("block_and_call", Answer(text=block, calls=(BOOKING,))),
    )


def _blocks() -> Iterator[Subject]:
    """Play blocks to clients that read calls, and calls to clients that read blocks (R3)."""
    blocks = block_scenarios()
    policies = (DEFAULT, "text", "retry")
    names = ("prose", "text_call", "two_calls", "length", "no_usage")
    native = tuple(replace(one, choices=("auto",), parallel=(True,)) for one in native_scenarios() if one.name in names)
    undeclared = replace(blocks[1], name="blocks_of_undeclared_tools", declared=False)
    wires = ("chat", "responses")
    yield Subject(
        name="native.catch",
        settings=_table("compatible", "up", 'printed_calls = "catch"'),
        scenarios=blocks,
        policies=policies,
        wires=wires,
    )
    for order in ("tools_first", "as_is"):
        settings = _table("compatible", "up", 'client_style = "use_tool"', f'use_tool_order = "{order}"')
        scenarios = (*native, *blocks, undeclared)
        yield Subject(name=f"blocks.{order}", settings=settings, scenarios=scenarios, policies=(DEFAULT,), wires=wires)


def _codex_blocks() -> Iterator[Subject]:
    """Play printed blocks, the cut-off and clients that read blocks on Codex (E1, E10)."""
    blocks, key = {one.name: one for one in block_scenarios()}, 'api_key = "key"'
    shown = tuple(blocks[name] for name in ("narrative_block", "seven_blocks", "quoted_block", "half_a_block"))
    call_and_more = _scenario("text_call", Answer(text="Let me see.", calls=(WEATHER,)), Answer(text=PROSE))
    undeclared = replace(blocks["seven_blocks"], name="blocks_of_undeclared_tools", declared=False)
    xml = 'client_style = "use_tool"'
    for name, scenarios, lines in (
        ("codex.printed", shown, ()),
        ("codex.blocks", (call_and_more, blocks["narrative_block"], undeclared), (xml,)),
        ("codex.cutoff_first", (call_and_more, blocks["seven_blocks"]), ('cutoff = "first"',)),
        ("codex.cutoff_off", (call_and_more, blocks["seven_blocks"]), ('cutoff = "off"',)),
    ):
        settings = _table("codex", "scripted", key, *lines)
        yield Subject(name=name, settings=settings, scenarios=scenarios, policies=(DEFAULT,), is_codex=True)


def all_subjects() -> dict[str, Subject]:
    return plain_subjects() | {subject.name: subject for subject in (*_codex_blocks(), *_blocks())}
