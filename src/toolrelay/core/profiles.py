"""What a model's server can do and insists on, and how families of models print: data, not code."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct


class Profile(Struct, frozen=True, kw_only=True):
    """The defaults describe a server that follows OpenAI's API without frills.

    developer_role     it knows the role "developer"; else such messages go as "system"
    max_tokens_field   how it spells the limit on Chat; None: as the client did
    stream_usage       it may be asked for usage at the end of a Chat stream
    call_ids           "nine": it accepts only ids of nine letters and digits (Mistral)
    constrains         it holds a model's output to a JSON schema given as response_format
    tools              it takes tools, and its models call them; else they can only print
    heeds_choice       it sees to tool_choice; else a choice that must be met is met by printing
    tool_names         "plain": it takes only names of letters, digits, _ and -, up to 64
    single_text        a model's whole input is one text
    whole_calls        its native calls arrive whole, and its models run on after them
    stop_sequences     it knows stop sequences
    """

    developer_role: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    stream_usage: bool = True
    call_ids: Literal["any", "nine"] = "any"
    constrains: bool = False
    tools: bool = True
    heeds_choice: bool = True
    tool_names: Literal["any", "plain"] = "any"
    single_text: bool = False
    whole_calls: bool = False
    stop_sequences: bool = True


class Habits(Struct, frozen=True, kw_only=True):
    """How a family of models prints: its dialect, how it marks its reasoning, and its quirks.

    `pattern` is looked for in the model's name. Calls in reasoning or in a Markdown fence count only where a quirk says so.
    """

    pattern: str
    dialect: str
    reasoning: tuple[str, str] | None = None
    begins_in_reasoning: bool = False
    calls_in_reasoning: bool = False
    calls_in_fences: bool = False


_THINK = ("<think>", "</think>")

# The first that fits counts, so the narrower stands above the wider, and what a model was made into above what it was made from.
# Names are compared in lower case. Not here: models that were trained on no form of their own, or on one that no dialect reads.
# Sources are those of the dialects; besides, vLLM's pages on tool calling and on reasoning outputs.
HABITS = (
    Habits(pattern=r"hermes|groq.*tool[-_]use", dialect="hermes", reasoning=_THINK),
    Habits(pattern=r"xlam", dialect="xlam"),
    Habits(pattern=r"toolace", dialect="pythonic"),
    Habits(pattern=r"nemotron[-_]?3", dialect="qwen3_coder", reasoning=_THINK),
    Habits(pattern=r"nemotron[-_](nano|super|ultra)", dialect="nemotron", reasoning=_THINK),
    Habits(pattern=r"deepseek.*v4", dialect="deepseek_v4", reasoning=_THINK),
    Habits(pattern=r"deepseek.*v3\.2(?!.*exp)", dialect="deepseek_v32", reasoning=_THINK),
    Habits(pattern=r"deepseek.*v3\.[12]", dialect="deepseek_v31", reasoning=_THINK),
    Habits(pattern=r"deepseek.*(v3|r1)", dialect="deepseek_v3", reasoning=_THINK),
    Habits(pattern=r"qwen3?[-_.]?coder", dialect="qwen3_coder"),
    Habits(pattern=r"qwen[-_]?3[.p][5-9]|mimo[-_]?v2|step[-_]?3[.p][5-9]", dialect="qwen3_coder", reasoning=_THINK),
    Habits(pattern=r"step[-_]?3(?![.p\d])", dialect="step3", reasoning=_THINK),
    Habits(pattern=r"qwq|qwen[-_]?3.*thinking", dialect="hermes", reasoning=_THINK, begins_in_reasoning=True),
    Habits(pattern=r"qwen|granite[-_]?4|smollm3|ernie[-_]?4\.5|exaone[-_]?4", dialect="hermes", reasoning=_THINK),
    Habits(pattern=r"seed[-_]?oss", dialect="seed_oss", reasoning=("<seed:think>", "</seed:think>")),
    Habits(pattern=r"gpt[-_]?oss", dialect="harmony"),
    Habits(pattern=r"llama[-_]?v?4", dialect="pythonic"),
    Habits(pattern=r"llama[-_]?v?3[._p][1-3]", dialect="llama3_json"),
    Habits(pattern=r"olmo[-_]?3", dialect="olmo3", reasoning=_THINK),
    Habits(pattern=r"lfm[-_]?2", dialect="lfm2", reasoning=_THINK),
    Habits(pattern=r"magistral", dialect="mistral_v13", reasoning=("[THINK]", "[/THINK]")),
    Habits(pattern=r"mistral[-_]small[-_]?3[.p]2|mistral[-_]small.*2506", dialect="mistral_v11"),
    Habits(
        pattern=r"(mini|mi|dev)stral.*251[0-2]|ministral[-_]3(?!b)|mistral[-_]large[-_]3|devstral[-_](small[-_])?2(?!\d)",
        dialect="mistral_v13",
    ),
    Habits(pattern=r"mi[sx]tral|devstral|ministral|codestral|pixtral", dialect="mistral"),
    Habits(pattern=r"glm[-_]?(4[.p]7|5)", dialect="glm47", reasoning=_THINK),
    Habits(pattern=r"glm[-_]?4[.p][56]", dialect="glm45", reasoning=_THINK),
    Habits(pattern=r"kimi[-_]?k3", dialect="kimi_k3", reasoning=("<|open|>think<|sep|>", "<|close|>think<|sep|>")),
    # It often goes on to its calls without an end to its thoughts (vLLM's pull request 32216).
    Habits(pattern=r"kimi[-_]?(k2|linear)", dialect="kimi_k2", reasoning=_THINK, calls_in_reasoning=True),
    Habits(pattern=r"minimax[-_]?m1", dialect="minimax_m1", reasoning=_THINK),
    Habits(pattern=r"minimax[-_]?m2", dialect="minimax_m2", reasoning=_THINK),
    Habits(pattern=r"granite.*function", dialect="granite_20b_fc"),
    Habits(pattern=r"granite[-_]?3", dialect="granite", reasoning=_THINK),
    Habits(pattern=r"phi[-_]?4[-_]?mini|firefunction", dialect="phi4_mini"),
    Habits(pattern=r"command[-_]?(r7b|a)(?![a-z])", dialect="cohere", reasoning=("<|START_THINKING|>", "<|END_THINKING|>")),
    Habits(pattern=r"jamba", dialect="jamba"),
    Habits(pattern=r"hunyuan[-_]?(a13b|\d)", dialect="hunyuan", reasoning=_THINK),
    Habits(pattern=r"internlm", dialect="internlm"),
    Habits(pattern=r"functiongemma", dialect="functiongemma"),
    Habits(pattern=r"gemma[-_]?4", dialect="gemma4", reasoning=("<|channel>thought", "<channel|>")),
    Habits(pattern=r"gemma[-_]?3(?!\d)", dialect="gemma3"),
    Habits(pattern=r"gigachat[-_]?3(?!\.5)", dialect="gigachat3"),
    Habits(pattern=r"apertus", dialect="apertus", reasoning=("<|inner_prefix|>", "<|inner_suffix|>")),
    Habits(pattern=r"longcat[-_]flash[-_](chat|thinking)", dialect="longcat", reasoning=("<longcat_think>", "</longcat_think>")),
)


def habits_of(model: str) -> Habits | None:
    """What is known of the family that a model's name speaks of."""
    name = model.lower()
    return next((habits for habits in HABITS if re.search(habits.pattern, name)), None)
