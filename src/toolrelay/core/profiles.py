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


class Habits(Struct, frozen=True, kw_only=True):
    """How a family of models prints: its dialect, and how it marks its reasoning. `pattern` is looked for in the model's name."""

    pattern: str
    dialect: str
    reasoning: tuple[str, str] | None = None
    begins_in_reasoning: bool = False


_THINK = ("<think>", "</think>")

# The first that fits counts, so the narrower stands above the wider. Names are compared in lower case.
HABITS = (
    Habits(pattern=r"qwen3?[-_.]?coder|step[-_]?3\.5|nemotron[-_]?3", dialect="qwen3_coder"),
    Habits(pattern=r"qwq|qwen[-_]?3.*thinking", dialect="hermes", reasoning=_THINK, begins_in_reasoning=True),
    Habits(pattern=r"qwen|hermes|granite[-_]?4|smollm3", dialect="hermes", reasoning=_THINK),
    Habits(pattern=r"seed[-_]?oss", dialect="seed_oss", reasoning=("<seed:think>", "</seed:think>")),
    Habits(pattern=r"gpt[-_]?oss", dialect="harmony"),
    Habits(pattern=r"llama[-_]?4|llama-3\.2-(1|3)b", dialect="pythonic"),
    Habits(pattern=r"llama[-_]?3", dialect="llama3_json"),
    Habits(pattern=r"olmo[-_]?3", dialect="olmo3"),
    Habits(pattern=r"lfm[-_]?2", dialect="lfm2"),
    Habits(pattern=r"magistral", dialect="mistral", reasoning=("[THINK]", "[/THINK]")),
    Habits(pattern=r"mi[sx]tral|devstral|ministral|codestral", dialect="mistral"),
    Habits(pattern=r"deepseek.*v3\.2", dialect="deepseek_v32", reasoning=_THINK),
    Habits(pattern=r"deepseek.*v3\.1", dialect="deepseek_v31", reasoning=_THINK),
    Habits(pattern=r"deepseek", dialect="deepseek_v3", reasoning=_THINK),
    Habits(pattern=r"glm[-_]?4", dialect="glm45", reasoning=_THINK),
    Habits(pattern=r"kimi", dialect="kimi_k2", reasoning=("◁think▷", "◁/think▷")),
    Habits(pattern=r"minimax", dialect="minimax_m2", reasoning=_THINK),
    Habits(pattern=r"granite", dialect="granite"),
    Habits(pattern=r"phi[-_]?4[-_]?mini", dialect="phi4_mini"),
    Habits(pattern=r"command[-_]?(r|a)|c4ai|cohere", dialect="cohere"),
    Habits(pattern=r"jamba", dialect="jamba"),
    Habits(pattern=r"hunyuan", dialect="hunyuan", reasoning=_THINK),
    Habits(pattern=r"internlm", dialect="internlm"),
    Habits(pattern=r"functiongemma", dialect="functiongemma"),
    Habits(pattern=r"gemma", dialect="gemma3"),
)


def habits_of(model: str) -> Habits | None:
    """What is known of the family that a model's name speaks of."""
    name = model.lower()
    return next((habits for habits in HABITS if re.search(habits.pattern, name)), None)
