"""Provider presets. To add a provider, add one entry to PROVIDERS; `make docs` adds it to docs/configuration.md."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.core.profiles import Profile


class Preset(Struct, frozen=True, kw_only=True):
    """Defaults of a provider's models.

    backend     the backend kind: the name of a package in toolrelay.backends
    base_url    the default of a model's `base_url`; the wire's path is appended to it
    wire        the default of a model's `wire`
    profile     the capabilities of its models
    available   False: reserved for a later version; configuring it is an error
    """

    backend: str
    base_url: str = ""
    wire: str = ""
    profile: Profile = Profile()
    available: bool = True


_LOCAL_SERVER = Profile(max_tokens_field="max_tokens", constrains_output=True)
# llama.cpp may answer `tool_choice: required` with text; Ollama ignores tool_choice.
_IGNORES_TOOL_CHOICE = replace(_LOCAL_SERVER, enforces_tool_choice=False)

PROVIDERS = {
    "openai": Preset(
        backend="http",
        base_url="https://api.openai.com/v1",
        wire="chat",
        profile=Profile(
            developer_role=True,
            max_tokens_field="max_completion_tokens",
            constrains_output=True,
            tool_names="plain",
            encrypts_reasoning=True,
        ),
    ),
    "anthropic": Preset(backend="http", base_url="https://api.anthropic.com/v1", wire="anthropic", available=False),
    "gemini": Preset(backend="http", base_url="https://generativelanguage.googleapis.com/v1beta", wire="gemini", available=False),
    "openrouter": Preset(
        backend="http",
        base_url="https://openrouter.ai/api/v1",
        wire="chat",
        profile=Profile(developer_role=True, tool_names="plain"),
    ),
    "ollama": Preset(backend="http", base_url="http://127.0.0.1:11434/v1", wire="chat", profile=_IGNORES_TOOL_CHOICE),
    "lmstudio": Preset(backend="http", base_url="http://127.0.0.1:1234/v1", wire="chat", profile=_LOCAL_SERVER),
    "vllm": Preset(backend="http", base_url="http://127.0.0.1:8000/v1", wire="chat", profile=_LOCAL_SERVER),
    "llamacpp": Preset(backend="http", base_url="http://127.0.0.1:8080/v1", wire="chat", profile=_IGNORES_TOOL_CHOICE),
    "codex": Preset(
        backend="codex",
        profile=Profile(
            developer_role=True,
            constrains_output=True,
            enforces_tool_choice=False,
            tool_names="plain",
            whole_calls=True,
            takes_stop_sequences=False,
        ),
    ),
    "local": Preset(backend="local", available=False),
    "demo": Preset(backend="demo"),
    "compatible": Preset(backend="http", wire="chat"),
}
