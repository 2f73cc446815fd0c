"""Provider presets. To add a provider, add one entry to PROVIDERS; `make docs` adds it to the tables in docs/.

A quirk is one line: what differs from OpenAI's API, as a field of the profile, and where that is documented or was reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from toolrelay.core.profiles import Profile


class Quirk(Struct, frozen=True):
    """A field of Profile with its value, what that means in a sentence, and the page that says so."""

    field: str
    value: Any
    meaning: str
    source: str


class Preset(Struct, frozen=True, kw_only=True):
    """Defaults of a provider's models.

    backend     the backend kind: the name of a package in toolrelay.backends
    base_url    the default of a model's `base_url`; the wire's path is appended to it
    wire        the default of a model's `wire`
    key_wires   keys of a model's table that only another wire can say: with one of them, that wire is the default
    profile     the capabilities of its models
    quirks      the lines from which the profile was made, if it was
    is_local    the default of a model's `local`: what it sees stays on this machine
    """

    backend: str
    base_url: str = ""
    wire: str = ""
    key_wires: tuple[tuple[str, str], ...] = ()
    profile: Profile = Profile()
    quirks: tuple[Quirk, ...] = ()
    is_local: bool = False


def default_wire(preset: Preset, table: Mapping[str, Any]) -> str:
    """Return the wire of a model whose table does not name one."""
    return next((wire for key, wire in preset.key_wires if table.get(key)), preset.wire)


def _server(base_url: str, *quirks: Quirk, wire: str = "chat", key_wires: tuple[tuple[str, str], ...] = ()) -> Preset:
    """Return the preset of a server with these quirks, and OpenAI's API if no other wire is given."""
    profile = Profile(**{quirk.field: quirk.value for quirk in quirks})
    return Preset(backend="http", base_url=base_url, wire=wire, key_wires=key_wires, profile=profile, quirks=quirks)


_OPENAI = "https://platform.openai.com/docs/api-reference/chat/create"
_DEVELOPER = Quirk("developer_role", True, "It accepts the role `developer`.", _OPENAI)
_NAMES = Quirk("tool_names", "plain", "It refuses tool names with other characters than letters, digits, `_` and `-`.", _OPENAI)
_COMPLETION_TOKENS = Quirk("max_tokens_field", "max_completion_tokens", "Its models that reason refuse `max_tokens`.", _OPENAI)
_STRUCTURED = Quirk(
    "constrains_output",
    True,
    "It constrains output to a schema: calls that must happen are valid.",
    "https://platform.openai.com/docs/guides/structured-outputs",
)
_ENCRYPTED = Quirk(
    "encrypts_reasoning",
    True,
    "It returns reasoning encrypted, and needs it back.",
    "https://platform.openai.com/docs/guides/reasoning",
)
_SEPARATES = Quirk(
    "separates_reasoning",
    True,
    "It never has reasoning in the text.",
    "https://platform.openai.com/docs/guides/reasoning",
)


def _max_tokens(source: str) -> Quirk:
    return Quirk("max_tokens_field", "max_tokens", "Its name for the limit of tokens is `max_tokens`.", source)


def _constrains(source: str) -> Quirk:
    return Quirk("constrains_output", True, _STRUCTURED.meaning, source)


def _functions_only(source: str) -> Quirk:
    return Quirk("takes_custom_tools", False, "It has no custom tools: they are declared as functions with one text.", source)


def _asks_for_required_calls(meaning: str, source: str) -> Quirk:
    return Quirk("enforces_tool_choice", False, f"{meaning} A call that must happen is asked for as text.", source)


_GEMINI = "https://ai.google.dev/gemini-api/docs"
_OLLAMA = "https://docs.ollama.com/api/openai-compatibility"
_LM_STUDIO = "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues"
_LLAMA = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"
_OPENROUTER = "https://openrouter.ai/docs/use-cases/reasoning-tokens"
_GROQ = "https://console.groq.com/docs/openai"
_MISTRAL = "https://docs.mistral.ai/api"
_NINE = "https://github.com/langchain-ai/langchain/pull/24668"
_XAI = "https://docs.x.ai/docs/guides/reasoning"
_AZURE = "https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle"

PROVIDERS = {
    "openai": _server("https://api.openai.com/v1", _DEVELOPER, _COMPLETION_TOKENS, _STRUCTURED, _NAMES, _SEPARATES, _ENCRYPTED),
    "anthropic": _server(
        "https://api.anthropic.com/v1",
        Quirk(
            "tool_names",
            "plain",
            _NAMES.meaning,
            "https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use",
        ),
        wire="anthropic",
    ),
    "gemini": _server(
        "https://generativelanguage.googleapis.com/v1beta",
        Quirk("tool_names", "plain", _NAMES.meaning, f"{_GEMINI}/function-calling"),
        _constrains(f"{_GEMINI}/structured-output"),
        Quirk("separates_reasoning", True, _SEPARATES.meaning, f"{_GEMINI}/thinking"),
        wire="gemini",
    ),
    "openrouter": _server(
        "https://openrouter.ai/api/v1",
        _DEVELOPER,
        _NAMES,
        _functions_only("https://openrouter.ai/docs/api-reference/overview"),
        Quirk("separates_reasoning", True, _SEPARATES.meaning, _OPENROUTER),
        Quirk(
            "reasoning_details",
            True,
            "It signs or encrypts reasoning in `reasoning_details`, and needs it back.",
            f"{_OPENROUTER}#preserving-reasoning-blocks",
        ),
    ),
    "ollama": _server(
        "http://127.0.0.1:11434/v1",
        _max_tokens(_OLLAMA),
        _constrains("https://docs.ollama.com/capabilities/structured-outputs"),
        _asks_for_required_calls("It ignores `tool_choice`.", _OLLAMA),
        _functions_only(_OLLAMA),
        key_wires=(("context_length", "ollama"), ("keep_alive", "ollama")),
    ),
    "lmstudio": _server(
        "http://127.0.0.1:1234/v1",
        _max_tokens("https://lmstudio.ai/docs/api/openai-api"),
        _constrains("https://lmstudio.ai/docs/api/structured-output"),
        _asks_for_required_calls("It may answer `tool_choice: required` with text.", f"{_LM_STUDIO}/2115"),
        Quirk("takes_allowed_tools", False, "It refuses a `tool_choice` that is an object.", f"{_LM_STUDIO}/670"),
        _functions_only("https://lmstudio.ai/docs/developer/openai-compat/tools"),
        Quirk(
            "output_formats", ("json_schema",), "It refuses `json_object`: a schema for any object is sent.", f"{_LM_STUDIO}/189"
        ),
        Quirk("needs_text_format", True, "It refuses `text` without `format`.", f"{_LM_STUDIO}/1576"),
        Quirk("takes_null_content", False, "It refuses calls without content: empty text is sent.", f"{_LM_STUDIO}/261"),
    ),
    "vllm": _server(
        "http://127.0.0.1:8000/v1",
        _max_tokens("https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html"),
        _constrains("https://docs.vllm.ai/en/latest/features/structured_outputs/"),
        _functions_only("https://docs.vllm.ai/en/latest/features/tool_calling.html"),
        Quirk(
            "reasoning_fields",
            ("reasoning_content", "reasoning"),
            "Newer versions read earlier reasoning from `reasoning` only: both are sent.",
            "https://github.com/QwenLM/qwen-code/issues/4285",
        ),
    ),
    "llamacpp": _server(
        "http://127.0.0.1:8080/v1",
        _max_tokens(_LLAMA),
        _constrains(_LLAMA),
        _asks_for_required_calls(
            "It takes a named `tool_choice` for `auto`.", "https://github.com/ggml-org/llama.cpp/issues/26535"
        ),
        _functions_only("https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md"),
    ),
    "groq": _server(
        "https://api.groq.com/openai/v1",
        _functions_only("https://console.groq.com/docs/api-reference"),
        Quirk("refused_fields", ("logprobs", "top_logprobs", "logit_bias", "store"), "It refuses these fields.", _GROQ),
        Quirk(
            "refused_message_fields",
            ("name", "reasoning_content", "reasoning_details"),
            "It refuses these fields of messages.",
            "https://github.com/janhq/jan/issues/8136",
        ),
    ),
    "mistral": _server(
        "https://api.mistral.ai/v1",
        _functions_only(_MISTRAL),
        Quirk(
            "max_tokens_field",
            "max_tokens",
            "It refuses `max_completion_tokens`.",
            "https://github.com/editor-code-assistant/eca/issues/231",
        ),
        Quirk("call_ids", "nine", "Ids of calls must have nine letters and digits.", _NINE),
        Quirk("renamed_fields", (("seed", "random_seed"),), "It calls `seed` `random_seed`.", _MISTRAL),
        Quirk(
            "stream_usage",
            False,
            "It refuses `stream_options`, and reports usage without it.",
            "https://github.com/avante-corp/avante.nvim/issues/2347",
        ),
        Quirk(
            "refused_fields",
            (
                "stream_options",
                "logprobs",
                "top_logprobs",
                "logit_bias",
                "store",
                "user",
                "service_tier",
                "prompt_cache_key",
                "safety_identifier",
                "verbosity",
            ),
            "It refuses fields that it does not know.",
            "https://github.com/mistralai/platform-docs-public/issues/7",
        ),
        Quirk(
            "refused_message_fields",
            ("reasoning_content", "reasoning_details", "refusal"),
            "It refuses fields of messages that it does not know.",
            "https://github.com/charmbracelet/crush/issues/1590",
        ),
    ),
    "deepseek": _server(
        "https://api.deepseek.com/v1",
        _max_tokens("https://api-docs.deepseek.com/api/create-chat-completion"),
        _functions_only("https://api-docs.deepseek.com/api/create-chat-completion"),
        Quirk(
            "output_formats",
            ("json_object",),
            "It refuses `json_schema`: the schema is put into a system message.",
            "https://github.com/llm-exe/llm-exe/issues/662",
        ),
    ),
    "together": _server(
        "https://api.together.ai/v1",
        _max_tokens("https://docs.together.ai/docs/inference/openai-compatibility"),
        _functions_only("https://docs.together.ai/reference/chat-completions-1"),
    ),
    "xai": _server(
        "https://api.x.ai/v1",
        _functions_only("https://docs.x.ai/docs/api-reference"),
        Quirk("refused_fields", ("presence_penalty", "frequency_penalty"), "Its models that reason refuse these fields.", _XAI),
        Quirk("takes_stop_sequences", False, "Its models that reason refuse `stop`: the gateway ends the text there.", _XAI),
    ),
    "azure": _server(
        "",
        _DEVELOPER,
        _COMPLETION_TOKENS,
        _STRUCTURED,
        _NAMES,
        _SEPARATES,
        _ENCRYPTED,
        Quirk("key_header", "api-key", "The key is sent as `api-key`. `model` is the name of the deployment.", _AZURE),
    ),
    "codex": Preset(
        backend="codex",
        profile=Profile(
            developer_role=True,
            constrains_output=True,
            enforces_tool_choice=False,
            tool_names="plain",
            whole_calls=True,
            takes_stop_sequences=False,
            prints_calls=True,
        ),
    ),
    "local": Preset(
        backend="local",
        is_local=True,
        profile=Profile(
            max_tokens_field="max_tokens",
            constrains_output=True,
            offers_choice=True,
            takes_tools=False,
            enforces_tool_choice=False,
        ),
    ),
    "demo": Preset(backend="demo"),
    "compatible": Preset(backend="http", wire="chat"),
}
