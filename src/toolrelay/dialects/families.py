"""Model families: the dialect that each prints, its reasoning tags, and its quirks."""

from __future__ import annotations

import re

from msgspec import Struct


class ModelFamily(Struct, frozen=True, kw_only=True):
    """Models that print alike.

    pattern              is searched in the model's name in lower case
    reasoning            the tags around reasoning
    begins_in_reasoning  the chat template opens the reasoning, so that answers have no start tag
    calls_in_reasoning   calls inside reasoning count
    calls_in_fences      calls inside Markdown fences count
    """

    pattern: str
    dialect: str
    reasoning: tuple[str, str] | None = None
    begins_in_reasoning: bool = False
    calls_in_reasoning: bool = False
    calls_in_fences: bool = False


THINK_TAGS = ("<think>", "</think>")

# The first match counts: narrow patterns precede wide ones, and derived models precede the models they are derived from.
# Models without a form of their own, or with one that no dialect parses, are not listed.
# Sources: those of the dialects, vLLM's pages on tool calling and on reasoning outputs, and for `begins_in_reasoning` the models'
# chat templates (llama.cpp, models/templates).
FAMILIES = (
    ModelFamily(pattern=r"hermes|groq.*tool[-_]use", dialect="hermes", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"functionary.*3[.p]1", dialect="functionary31"),
    ModelFamily(pattern=r"functionary.*3[.p][02]", dialect="functionary32"),
    ModelFamily(pattern=r"xlam", dialect="xlam", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"toolace", dialect="pythonic"),
    ModelFamily(
        pattern=r"nemotron[-_]?3|nemotron[-_]cascade[-_]2", dialect="qwen3_coder", reasoning=THINK_TAGS, begins_in_reasoning=True
    ),
    ModelFamily(pattern=r"nemotron[-_]nano.*v2", dialect="nemotron", reasoning=THINK_TAGS, begins_in_reasoning=True),
    ModelFamily(pattern=r"nemotron[-_](nano|super|ultra)", dialect="nemotron", reasoning=THINK_TAGS),
    # vLLM opens its reasoning by default (tokenizers/deepseek_v4.py), but not that of V3.2 (tokenizers/deepseek_v32.py).
    ModelFamily(pattern=r"deepseek.*v4", dialect="deepseek_v4", reasoning=THINK_TAGS, begins_in_reasoning=True),
    ModelFamily(pattern=r"deepseek.*v3\.2(?!.*exp)", dialect="deepseek_v32", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"deepseek.*v3\.[12]", dialect="deepseek_v31", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"deepseek.*r1", dialect="deepseek_v3", reasoning=THINK_TAGS, begins_in_reasoning=True),
    ModelFamily(pattern=r"deepseek.*v3", dialect="deepseek_v3", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"qwen3?[-_.]?coder", dialect="qwen3_coder"),
    # The template closes the reasoning of these, unless it is asked for.
    ModelFamily(pattern=r"qwen[-_]?3[.p]5.*(?<!\d)(0\.8|2|4|9)b", dialect="qwen35", reasoning=THINK_TAGS),
    ModelFamily(
        pattern=r"qwen[-_]?3[.p][5-9]|step(fun)?[-_]?3[.p][5-9]",
        dialect="qwen35",
        reasoning=THINK_TAGS,
        begins_in_reasoning=True,
    ),
    ModelFamily(pattern=r"mimo[-_]?v2", dialect="mimo", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"k[-_]exaone[-_]?2(?!\d)", dialect="qwen3_coder", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"step[-_]?3(?![.p\d])", dialect="step3", reasoning=THINK_TAGS),
    ModelFamily(
        pattern=r"qwq|qwen[-_]?3.*thinking|ernie[-_]?4\.5.*thinking",
        dialect="hermes",
        reasoning=THINK_TAGS,
        begins_in_reasoning=True,
    ),
    ModelFamily(
        pattern=r"qwen|granite[-_]?4|smollm3|ernie[-_]?4\.5|exaone[-_]?4|reka[-_]edge", dialect="hermes", reasoning=THINK_TAGS
    ),
    # Calls may stand inside its reasoning (SGLang's trinity_detector).
    ModelFamily(pattern=r"trinity[-_](nano|mini|large)", dialect="hermes", reasoning=THINK_TAGS, calls_in_reasoning=True),
    ModelFamily(pattern=r"seed[-_]?oss", dialect="seed_oss", reasoning=("<seed:think>", "</seed:think>")),
    ModelFamily(pattern=r"gpt[-_]?oss", dialect="harmony"),
    ModelFamily(pattern=r"llama[-_]?v?4", dialect="pythonic"),
    ModelFamily(pattern=r"llama[-_]?v?3[._p][1-3]", dialect="llama3_json"),
    ModelFamily(pattern=r"olmo[-_]?3.*think", dialect="olmo3", reasoning=THINK_TAGS, begins_in_reasoning=True),
    ModelFamily(pattern=r"olmo[-_]?3", dialect="olmo3", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"lfm[-_]?2[.p]5", dialect="lfm25", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"lfm[-_]?2", dialect="lfm2", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"magistral|ministral[-_]3.*reasoning", dialect="mistral_v13", reasoning=("[THINK]", "[/THINK]")),
    ModelFamily(
        pattern=r"mistral[-_]small[-_]?4|mistral[-_]small.*2603|mistral[-_]medium[-_]?3[.p]5",
        dialect="mistral_v13",
        reasoning=("[THINK]", "[/THINK]"),
    ),
    ModelFamily(pattern=r"mistral[-_]small[-_]?3[.p]2|mistral[-_]small.*2506", dialect="mistral_v11"),
    ModelFamily(
        pattern=r"(mini|mi|dev)stral.*251[0-2]|ministral[-_]3(?!b)|mistral[-_]large[-_]3|devstral[-_](small[-_])?2(?!\d)",
        dialect="mistral_v13",
    ),
    ModelFamily(pattern=r"mi[sx]tral|devstral|ministral|codestral|pixtral", dialect="mistral"),
    ModelFamily(pattern=r"glm[-_]?4[.p]7|glm[-_]?5", dialect="glm47", reasoning=THINK_TAGS, begins_in_reasoning=True),
    ModelFamily(pattern=r"laguna(?![-_]xs[.p]2)", dialect="glm47", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"glm[-_]?4[.p][56]|laguna|(?<![a-z])ling[-_]?3", dialect="glm45", reasoning=THINK_TAGS),
    ModelFamily(
        pattern=r"kimi[-_]?k3",
        dialect="kimi_k3",
        reasoning=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        begins_in_reasoning=True,
    ),
    # Often prints calls without closing its reasoning (vLLM's pull request 32216).
    ModelFamily(pattern=r"kimi[-_]?(k2|linear)", dialect="kimi_k2", reasoning=THINK_TAGS, calls_in_reasoning=True),
    ModelFamily(pattern=r"minimax[-_]?m1", dialect="minimax_m1", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"minimax[-_]?m2", dialect="minimax_m2", reasoning=THINK_TAGS, begins_in_reasoning=True),
    ModelFamily(pattern=r"minimax[-_]?m3", dialect="minimax_m3", reasoning=("<mm:think>", "</mm:think>")),
    ModelFamily(pattern=r"minicpm[-_]?5", dialect="minicpm5", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"granite.*function", dialect="granite_20b_fc"),
    ModelFamily(
        pattern=r"granite[-_]?3[.p]2", dialect="granite", reasoning=("Here is my thought process:", "Here is my response:")
    ),
    ModelFamily(pattern=r"granite[-_]?3", dialect="granite", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"phi[-_]?4[-_]?mini|firefunction", dialect="phi4_mini"),
    ModelFamily(pattern=r"command[-_]?r(?![a-z0-9])", dialect="command_r"),
    ModelFamily(
        pattern=r"command[-_]?a[-_]?(plus|\+)",
        dialect="cohere",
        reasoning=("<|START_THINKING|>", "<|END_THINKING|>"),
        begins_in_reasoning=True,
    ),
    ModelFamily(pattern=r"command[-_]?(r7b|a)(?![a-z])", dialect="cohere", reasoning=("<|START_THINKING|>", "<|END_THINKING|>")),
    ModelFamily(pattern=r"jamba|apriel[-_]?1[.p]5", dialect="jamba"),
    ModelFamily(
        pattern=r"apriel[-_]?1[.p]6",
        dialect="jamba",
        reasoning=("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
        begins_in_reasoning=True,
    ),
    ModelFamily(pattern=r"solar[-_]open", dialect="solar", reasoning=("<|think|>", "<|end|>")),
    ModelFamily(pattern=r"hunyuan[-_]?(a13b|\d)", dialect="hunyuan", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"(?<![a-z])hy[-_]?3", dialect="hy3", reasoning=("<think:opensource>", "</think:opensource>")),
    ModelFamily(pattern=r"inkling", dialect="inkling", reasoning=("<|content_thinking|>", "<|end_message|>")),
    ModelFamily(pattern=r"muse[-_]?glimmer", dialect="muse_glimmer"),
    ModelFamily(pattern=r"dots[-_.]?3", dialect="dots", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"intern[-_]?s1", dialect="internlm", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"internlm", dialect="internlm"),
    ModelFamily(pattern=r"functiongemma", dialect="functiongemma"),
    ModelFamily(pattern=r"gemma[-_]?4", dialect="gemma4", reasoning=("<|channel>thought", "<channel|>")),
    ModelFamily(pattern=r"gemma[-_]?3(?!\d)", dialect="gemma3"),
    ModelFamily(pattern=r"gigachat[-_]?3(?![.p]5)", dialect="gigachat3"),
    ModelFamily(pattern=r"gigachat[-_]?3[.p]5", dialect="gigachat35", reasoning=THINK_TAGS),
    ModelFamily(pattern=r"apertus", dialect="apertus", reasoning=("<|inner_prefix|>", "<|inner_suffix|>")),
    ModelFamily(pattern=r"longcat[-_]flash[-_]lite", dialect="longcat_lite"),
    ModelFamily(
        pattern=r"longcat[-_]flash[-_](chat|thinking)", dialect="longcat", reasoning=("<longcat_think>", "</longcat_think>")
    ),
)


def family_of(model: str) -> ModelFamily | None:
    name = model.lower()
    return next((family for family in FAMILIES if re.search(family.pattern, name)), None)
