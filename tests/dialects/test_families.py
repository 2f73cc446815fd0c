"""Model names, and the family of each."""

from __future__ import annotations

import pytest

from toolrelay.dialects.base import discover
from toolrelay.dialects.families import FAMILIES, ModelFamily, family_of

# As Hugging Face, Ollama, LM Studio and OpenRouter spell them.
MODELS = {
    "hermes": """
        Qwen/Qwen2.5-7B-Instruct qwen2.5:7b qwen2.5-coder:7b Qwen/Qwen2.5-Coder-32B-Instruct qwen2.5-coder-14b-instruct
        qwen/qwen-2.5-72b-instruct Qwen/Qwen3-8B qwen3:30b-a3b qwen/qwen3-4b-2507 Qwen/Qwen3-235B-A22B-Instruct-2507
        Qwen/Qwen3-Next-80B-A3B-Instruct qwen3-vl:8b Qwen/Qwen3-4B-Thinking-2507 Qwen/QwQ-32B qwq:32b
        hf.co/bartowski/Qwen2.5-Coder-7B-Instruct-GGUF:Q4_K_M
        NousResearch/Hermes-2-Pro-Mistral-7B NousResearch/Hermes-3-Llama-3.1-8B hermes3:8b NousResearch/Hermes-4-14B
        Groq/Llama-3-Groq-8B-Tool-Use llama3-groq-tool-use:8b
        ibm-granite/granite-4.0-h-small granite4:tiny-h ibm/granite-4-h-tiny HuggingFaceTB/SmolLM3-3B
        baidu/ERNIE-4.5-21B-A3B-Thinking LGAI-EXAONE/EXAONE-4.0-32B RekaAI/reka-edge arcee-ai/Trinity-Mini
        arcee-ai/trinity-large-preview:free arcee-ai/Trinity-Nano-Preview""",
    "qwen3_coder": """
        Qwen/Qwen3-Coder-30B-A3B-Instruct qwen3-coder:30b qwen/qwen3-coder-480b Qwen/Qwen3-Coder-Next qwen3-coder-next
        nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 nemotron-3-nano:30b nvidia/nemotron-3-super
        LGAI-EXAONE/K-EXAONE-2.0-750B-A37B LGAI-EXAONE/K-EXAONE-2 nvidia/Nemotron-Cascade-2-30B-A3B""",
    "mimo": "XiaomiMiMo/MiMo-V2-Flash xiaomi/mimo-v2-flash:free",
    "qwen35": "Qwen/Qwen3.5-397B-A17B qwen3.5:9b qwen/qwen3.6-27b stepfun-ai/Step-3.5-Flash stepfun/step-3.7-flash",
    "step3": "stepfun-ai/step3 stepfun-ai/step3-fp8",
    "seed_oss": "ByteDance-Seed/Seed-OSS-36B-Instruct bytedance/seed-oss-36b",
    "harmony": "openai/gpt-oss-20b gpt-oss:120b gpt-oss:20b-cloud unsloth/gpt-oss-20b-GGUF",
    "llama3_json": """
        meta-llama/Llama-3.1-8B-Instruct llama3.1:8b meta-llama-3.1-8b-instruct meta-llama/Llama-3.2-3B-Instruct llama3.2:3b
        llama-3.2-1b-instruct meta-llama/Llama-3.3-70B-Instruct llama3.3 accounts/fireworks/models/llama-v3p1-405b-instruct
        nvidia/Llama-3.1-Nemotron-70B-Instruct-HF""",
    "xlam": "Salesforce/Llama-xLAM-2-8b-fc-r Salesforce/xLAM-2-32b-fc-r",
    "pythonic": """
        meta-llama/Llama-4-Scout-17B-16E-Instruct llama4:scout meta-llama/llama-4-maverick Team-ACE/ToolACE-2-Llama-3.1-8B""",
    "olmo3": "allenai/Olmo-3-7B-Instruct allenai/olmo-3-32b-think olmo-3.1:32b",
    "lfm2": "LiquidAI/LFM2-1.2B liquid/lfm2-8b-a1b",
    "lfm25": "LiquidAI/LFM2.5-8B-A1B lfm2.5:1.2b",
    "mistral": """
        mistralai/Mistral-7B-Instruct-v0.3 mistral:7b mistral-nemo mistralai/Mistral-Nemo-Instruct-2407 mixtral:8x22b
        mistralai/Mistral-Small-3.1-24B-Instruct-2503 mistral-small3.1 mistralai/Mistral-Large-Instruct-2411 mistral-large:123b
        mistralai/Ministral-8B-Instruct-2410 ministral-3b-2410 codestral:22b mistralai/Devstral-Small-2505 devstral:24b
        mistralai/Pixtral-12B-2409""",
    "mistral_v11": "mistral-small3.2 mistralai/Mistral-Small-3.2-24B-Instruct-2506 mistral-small3.2:24b",
    "mistral_v13": """
        mistralai/Mistral-Small-4-119B-2603 mistral-small4 mistralai/Mistral-Medium-3.5-128B mistral-medium-3.5
        mistralai/Magistral-Small-2509 mistralai/Ministral-3-8B-Reasoning-2512 magistral:24b
        mistralai/Ministral-3-8B-Instruct-2512 ministral-3:8b mistral-large-3
        mistralai/Mistral-Large-3-675B-Instruct-2512 mistralai/Devstral-2-123B-Instruct-2512 devstral-small-2 devstral-2:123b""",
    "deepseek_v3": """
        deepseek-ai/DeepSeek-V3 deepseek-v3:671b deepseek-ai/DeepSeek-V3-0324 deepseek/deepseek-chat-v3-0324
        deepseek-ai/DeepSeek-R1 deepseek-r1:14b deepseek-ai/DeepSeek-R1-0528 deepseek/deepseek-r1-0528-qwen3-8b
        deepseek-ai/DeepSeek-R1-Distill-Llama-8B deepseek-r1-distill-qwen-7b""",
    "deepseek_v31": """
        deepseek-ai/DeepSeek-V3.1 deepseek-v3.1:671b-cloud deepseek-ai/DeepSeek-V3.1-Terminus deepseek/deepseek-chat-v3.1
        deepseek-ai/DeepSeek-V3.2-Exp deepseek/deepseek-v3.2-exp""",
    "deepseek_v32": "DeepSeek-V3.2 deepseek-ai/DeepSeek-V3.2 deepseek/deepseek-v3.2 deepseek-v3.2:cloud",
    "deepseek_v4": "deepseek-ai/DeepSeek-V4",
    "glm45": """
        zai-org/GLM-4.5 zai-org/GLM-4.5-Air zai-org/GLM-4.6 glm-4.6:cloud z-ai/glm-4.5-air zai-org/glm-4.6v-flash
        poolside/Laguna-XS.2 inclusionAI/Ling-3.0-flash""",
    "glm47": """
        zai-org/GLM-4.7 zai-org/GLM-4.7-Flash glm-4.7-flash zai-org/GLM-5 z-ai/glm-5 poolside/Laguna-S-2.1
        poolside/Laguna-XS-2.1""",
    "kimi_k2": """
        moonshotai/Kimi-K2-Instruct moonshotai/Kimi-K2-Instruct-0905 moonshotai/Kimi-K2-Thinking kimi-k2:1t-cloud
        moonshotai/kimi-k2.5 moonshotai/Kimi-Linear-48B-A3B-Instruct""",
    "kimi_k3": "moonshotai/Kimi-K3",
    "minimax_m1": "MiniMaxAI/MiniMax-M1-80k minimax/minimax-m1",
    "minimax_m2": "MiniMaxAI/MiniMax-M2 minimax-m2:cloud MiniMaxAI/MiniMax-M2.1 minimax/minimax-m2.5",
    "minimax_m3": "MiniMaxAI/MiniMax-M3 minimax/minimax-m3 minimax-m3:cloud",
    "minicpm5": "openbmb/MiniCPM5-1B minicpm5:1b",
    "granite": "ibm-granite/granite-3.3-8b-instruct granite3.3:8b granite3.1-moe:3b ibm/granite-3.2-8b",
    "granite_20b_fc": "ibm-granite/granite-20b-functioncalling",
    "phi4_mini": "microsoft/Phi-4-mini-instruct phi4-mini:3.8b fireworks-ai/llama-3-firefunction-v2",
    "cohere": """
        CohereLabs/c4ai-command-r7b-12-2024 command-r7b:7b CohereLabs/c4ai-command-a-03-2025 command-a:111b
        CohereLabs/command-a-reasoning-08-2025 CohereLabs/command-a-plus""",
    "jamba": """
        ai21labs/AI21-Jamba-1.5-Mini ai21/jamba-large-1.7 ServiceNow-AI/Apriel-1.5-15b-Thinker
        ServiceNow-AI/Apriel-1.6-15b-Thinker""",
    "solar": "upstage/Solar-Open-100B",
    "longcat_lite": "meituan-longcat/LongCat-Flash-Lite",
    "command_r": "command-r:35b CohereLabs/c4ai-command-r-plus-08-2024 CohereLabs/c4ai-command-r-v01 cohere/command-r-08-2024",
    "functionary31": "meetkai/functionary-small-v3.1 meetkai/functionary-medium-v3.1",
    "functionary32": "meetkai/functionary-small-v3.2 meetkai/functionary-medium-v3.0",
    "hy3": "tencent/Hy3 tencent/Hy3-preview tencent/hy3-fp8 hy3:295b",
    "inkling": "thinkingmachines/Inkling-NVFP4 inkling",
    "muse_glimmer": "meta-models/Muse-Glimmer-30B",
    "dots": "dots-studio/dots3-note-prev",
    "hunyuan": "tencent/Hunyuan-A13B-Instruct tencent/Hunyuan-7B-Instruct",
    "internlm": "internlm/internlm2_5-7b-chat internlm2:7b internlm/internlm3-8b-instruct internlm/Intern-S1-mini",
    "functiongemma": "google/functiongemma-270m-it functiongemma:270m",
    "gemma3": "google/gemma-3-27b-it gemma3:12b google/gemma-3n-E4B-it gemma3n:e4b",
    "gemma4": "google/gemma-4-31B-it gemma4:26b",
    "gigachat3": "ai-sage/GigaChat3-10B-A1.8B ai-sage/GigaChat3-702B-A36B-preview",
    "gigachat35": "ai-sage/GigaChat3.5-432B-A26B-preview",
    "apertus": "swiss-ai/Apertus-8B-Instruct-2509",
    "longcat": "meituan-longcat/LongCat-Flash-Chat meituan-longcat/LongCat-Flash-Thinking",
    "nemotron": """
        nvidia/NVIDIA-Nemotron-Nano-9B-v2 nvidia/Llama-3_3-Nemotron-Super-49B-v1_5 nvidia/Llama-3.1-Nemotron-Ultra-253B-v1""",
}
NAMES = [(model, dialect) for dialect, models in MODELS.items() for model in models.split()]

# Used by clients' prompts and by Toolrelay itself.
WITHOUT_FAMILY = {"sealed", "use_tool", "react", "invoke_xml", "tool_tags"}


@pytest.mark.parametrize(("model", "dialect"), NAMES)
def test_known_model_has_its_dialect(model: str, dialect: str) -> None:
    family = family_of(model)
    assert family is not None
    assert family.dialect == dialect
    assert family_of(model.upper()) == family


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o",
        "gpt-4o-mini",
        "gpt-5.1-codex",
        "openai/gpt-4.1",
        "o3-mini",
        "claude-sonnet-4-5",
        "anthropic/claude-3.5-haiku",
        "gemini-2.5-pro",
        "grok-4",
        "deepseek-chat",
        "deepseek-coder:6.7b",
        "demo",
        "fast",
        "",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "smollm2:135m",
        "llama2:7b",
        "llama3:8b",
        "meta-llama/Meta-Llama-3-8B-Instruct",
        "codellama:7b",
        "tinyllama",
        "gemma:7b",
        "gemma2:9b",
        "google/embeddinggemma-300m",
        "phi3:mini",
        "phi4:14b",
        "THUDM/glm-4-9b-chat",
        "granite-code:8b",
        "moonshotai/Kimi-VL-A3B-Thinking",
        "MiniMaxAI/MiniMax-Text-01",
        "nvidia/Nemotron-Mini-4B-Instruct",
        "upstage/solar-pro-preview-instruct",
        "inclusionAI/Ling-2.5-1T",
        "trinity",
    ],
)
def test_other_model_has_no_family(model: str) -> None:
    assert family_of(model) is None


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.pattern)
def test_every_family_matches_a_model(family: ModelFamily) -> None:
    assert [model for model, _ in NAMES if family_of(model) is family]


def test_every_dialect_has_a_family_or_is_known_to_have_none() -> None:
    in_families = {family.dialect for family in FAMILIES}
    assert in_families | WITHOUT_FAMILY == set(discover())
    assert not in_families & WITHOUT_FAMILY
    assert in_families == set(MODELS), "each with its models in this file"


@pytest.mark.parametrize(
    ("model", "reasoning"),
    [
        ("Qwen/Qwen3-8B", ("<think>", "</think>")),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", ("<seed:think>", "</seed:think>")),
        ("mistralai/Magistral-Small-2509", ("[THINK]", "[/THINK]")),
        ("mistralai/Ministral-3-8B-Reasoning-2512", ("[THINK]", "[/THINK]")),
        ("moonshotai/Kimi-K2-Thinking", ("<think>", "</think>")),
        ("openai/gpt-oss-20b", None),
        ("llama3.1:8b", None),
        ("mistralai/Mistral-Nemo-Instruct-2407", None),
    ],
)
def test_family_has_its_reasoning_tags(model: str, reasoning: tuple[str, str] | None) -> None:
    family = family_of(model)
    assert family is not None
    assert family.reasoning == reasoning


@pytest.mark.parametrize(
    ("model", "begins"),
    [
        ("Qwen/QwQ-32B", True),
        ("Qwen/Qwen3-4B-Thinking-2507", True),
        ("Qwen/Qwen3-8B", False),
        ("deepseek-ai/DeepSeek-V3", False),
        ("qwen2.5:7b", False),
    ],
)
def test_only_models_whose_template_opens_reasoning_begin_in_it(model: str, *, begins: bool) -> None:
    family = family_of(model)
    assert family is not None
    assert family.begins_in_reasoning is begins


def test_family_that_begins_in_reasoning_has_reasoning_tags() -> None:
    assert all(family.reasoning is not None for family in FAMILIES if family.begins_in_reasoning)
    assert all(opens and closes and opens != closes for opens, closes in (one.reasoning for one in FAMILIES if one.reasoning))
