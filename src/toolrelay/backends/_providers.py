"""What is known of each provider that is reached over HTTP: data, not code."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.core.profiles import Profile


class Provider(Struct, frozen=True, kw_only=True):
    """`base_url` and `wire`, a wire's word, are what a model's table may leave out.

    A base URL is used as it is: the wire's path follows it.
    """

    base_url: str = ""
    wire: str = "chat"
    profile: Profile = Profile()


_LOCAL = Profile(max_tokens_field="max_tokens", constrains=True)
_HEEDLESS = replace(_LOCAL, heeds_choice=False)  # llama.cpp may answer in prose to `required`, Ollama does not know tool_choice

PROVIDERS = {
    "openai": Provider(
        base_url="https://api.openai.com/v1",
        profile=Profile(developer_role=True, max_tokens_field="max_completion_tokens", constrains=True, tool_names="plain"),
    ),
    "openrouter": Provider(base_url="https://openrouter.ai/api/v1", profile=Profile(developer_role=True, tool_names="plain")),
    "ollama": Provider(
        base_url="http://127.0.0.1:11434/v1",
        profile=_HEEDLESS,
    ),
    "lmstudio": Provider(base_url="http://127.0.0.1:1234/v1", profile=_LOCAL),
    "vllm": Provider(base_url="http://127.0.0.1:8000/v1", profile=_LOCAL),
    "llamacpp": Provider(base_url="http://127.0.0.1:8080/v1", profile=_HEEDLESS),
    "compatible": Provider(),
}
